package main

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmroute/warmroute/tokenize"
)

const (
	parityRetry  = 5 * time.Second // until the workers have answered once
	parityRepeat = time.Minute     // after that: a worker may be replaced by another build
)

// parityMetrics say whether the router's tokens are the workers'.
type parityMetrics struct {
	equal *prometheus.GaugeVec
}

func newParityMetrics(r prometheus.Registerer) parityMetrics {
	m := parityMetrics{equal: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "warmroute_token_parity",
		Help: "1 while the router's tokens equal the workers' own, 0 while they differ and are not trusted, by endpoint.",
	}, []string{"endpoint"})}
	r.MustRegister(m.equal)
	return m
}

// checkParity compares the router's tokens with the workers' own, at start and
// then now and again, off the request path, until ctx ends. Where they differ
// the endpoint's tokens are not trusted until they are equal again: its
// requests are matched by raw bytes.
func (r *router) checkParity(ctx context.Context) error {
	metrics := newParityMetrics(r.registry)
	client := newWorkerClient(r.workerKey, 10*time.Second)
	defer client.CloseIdleConnections()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-r.samples.queue:
			r.checkSample(ctx, client, s, metrics)
			continue
		case <-timer.C:
		}
		if r.checkParityOnce(ctx, client, metrics) {
			timer.Reset(parityRepeat)
		} else {
			timer.Reset(parityRetry)
		}
	}
}

// sampleEvery is how often a user's request is compared: often enough to notice
// a shape of request that the probes do not have, and a worker hardly notices.
const sampleEvery = 10 * time.Second

// samples are requests to compare, one at a time. Safe for concurrent use.
type samples struct {
	queue chan sample  // of one
	next  atomic.Int64 // unix nanoseconds before which no more are taken
}

// sample is one request that a worker has served.
type sample struct {
	endpoint, url string
	kind          tokenize.Kind
	body          []byte
}

// offer takes the sample if it is time for one and none waits. It never waits
// itself.
func (s *samples) offer(v sample, now time.Time) {
	next := s.next.Load()
	if now.UnixNano() < next || !s.next.CompareAndSwap(next, now.Add(sampleEvery).UnixNano()) {
		return
	}
	select {
	case s.queue <- v:
	default:
	}
}

// checkSample compares a user's request. Of it only the position of a
// difference is ever said.
func (r *router) checkSample(ctx context.Context, client *http.Client, s sample, metrics parityMetrics) {
	open := r.models.open(s.endpoint)
	e := r.live.Load().endpoint(s.endpoint)
	if open == nil || e == nil {
		return // removed meanwhile
	}
	p, err := compareTokens(ctx, client, strings.TrimSuffix(s.url, "/"), open.model, e.Model, s.kind, s.body)
	if err != nil || p.Equal {
		return // no verdict, or a good one
	}
	open.distrusts.Store(true)
	metrics.equal.WithLabelValues(s.endpoint).Set(0)
	r.logger.Error("tokens of a request differ from the worker's and are not trusted: check the tokenizer and the chat template",
		"endpoint", s.endpoint, "model", e.Model, "template", templateName(e.Tokenizer), "position", p.At, "ours", p.Ours, "theirs", p.Theirs)
}

// checkParityOnce reports whether every endpoint with a tokenizer got a
// verdict.
func (r *router) checkParityOnce(ctx context.Context, client *http.Client, metrics parityMetrics) bool {
	metrics.equal.Reset()
	complete := true
	for _, e := range r.live.Load().Endpoints {
		open := r.models.open(e.EndpointName)
		if open == nil {
			continue
		}
		verdict, differs := r.endpointParity(ctx, client, e, open)
		if !verdict {
			complete = false
			continue
		}
		was := open.distrusts.Swap(differs)
		if was && !differs {
			r.logger.Info("tokens equal the workers' again and are trusted", "endpoint", e.EndpointName, "model", e.Model)
		}
		value := 1.0
		if differs {
			value = 0
		}
		metrics.equal.WithLabelValues(e.EndpointName).Set(value)
	}
	r.learnDeveloperRole(ctx, client, r.live.Load().Endpoints)
	return complete
}

// endpointParity compares with each instance: one that differs is enough.
func (r *router) endpointParity(ctx context.Context, client *http.Client, e EndpointConfig, open *openModel) (verdict, differs bool) {
	for _, v := range e.ProductionVariants {
		for _, inst := range v.Instances {
			for i, body := range probes() {
				p, err := compareTokens(ctx, client, strings.TrimSuffix(inst.URL, "/"), open.model, e.Model, tokenize.Chat, []byte(body))
				if err != nil {
					r.logger.Debug("no verdict on tokens", "endpoint", e.EndpointName, "instance", inst.Name, "error", err)
					break
				}
				verdict = true
				if !p.Equal {
					differs = true
					if !open.distrusts.Load() {
						r.logger.Error("tokens differ from the worker's and are not trusted: check the tokenizer and the chat template",
							"endpoint", e.EndpointName, "model", e.Model, "instance", inst.Name, "template", templateName(e.Tokenizer),
							"probe", i, "position", p.At, "ours", p.Ours, "theirs", p.Theirs)
					}
					break
				}
			}
		}
	}
	return verdict, differs
}
