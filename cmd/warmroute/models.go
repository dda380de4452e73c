package main

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmroute/warmroute/tokenize"
)

// models are the tokenizers of the endpoints. Endpoints that name the same
// files share one. Safe for concurrent use; load is called by one goroutine at
// a time.
type models struct {
	byEndpoint atomic.Pointer[map[string]*openModel]
}

// openModel is a loaded tokenizer, what it was loaded from, and whether the
// workers have contradicted it.
type openModel struct {
	options   tokenize.ModelOptions
	model     *tokenize.Model
	distrusts atomic.Bool
}

func newModels() *models {
	m := &models{}
	m.byEndpoint.Store(&map[string]*openModel{})
	return m
}

// get is the tokenizer to route an endpoint's requests by, nil where it has
// none or its tokens are not the workers'.
func (m *models) get(endpoint string) *tokenize.Model {
	if open := m.open(endpoint); open != nil && !open.distrusts.Load() {
		return open.model
	}
	return nil
}

// open is the endpoint's tokenizer whatever its trust, nil where it has none.
func (m *models) open(endpoint string) *openModel {
	return (*m.byEndpoint.Load())[endpoint]
}

// Describe is [prometheus.Collector]'s. It names nothing: which models there are
// changes with the configuration.
func (m *models) Describe(chan<- *prometheus.Desc) {}

// Collect is [prometheus.Collector]'s: the caches of every model in use.
func (m *models) Collect(ch chan<- prometheus.Metric) {
	seen := map[*openModel]bool{}
	for _, o := range *m.byEndpoint.Load() {
		if !seen[o] {
			seen[o] = true
			o.model.Collector().Collect(ch)
		}
	}
}

// prepare opens what the endpoints need and is not open yet, and returns the
// function that makes it current. Nothing changes when it fails.
func (m *models) prepare(endpoints []EndpointConfig, logger *slog.Logger) (commit func(), err error) {
	old := *m.byEndpoint.Load()
	opened := map[tokenize.ModelOptions]*openModel{}
	for _, o := range old {
		opened[o.options] = o
	}
	next := map[string]*openModel{}
	for i, e := range endpoints {
		t := e.Tokenizer
		if t.Path == "" {
			logger.Warn("endpoint has no tokenizer: prompts are matched by their raw bytes", "endpoint", e.EndpointName)
			continue
		}
		o := tokenize.ModelOptions{
			Name: e.Model, TokenizerPath: t.Path, Template: t.Template, Encoder: t.Encoder, CacheBytes: t.CacheBytes,
		}
		if opened[o] == nil {
			model, err := tokenize.OpenModel(o)
			if errors.Is(err, tokenize.ErrFamily) && t.Encoder == "" {
				logger.Warn("no encoder of this build knows the endpoint's tokenizer: prompts are matched by their raw bytes", "endpoint", e.EndpointName, "error", err)
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("endpoints[%d].Tokenizer (%s): %w", i, e.EndpointName, err)
			}
			opened[o] = &openModel{options: o, model: model}
		}
		next[e.EndpointName] = opened[o]
	}
	return func() { m.byEndpoint.Store(&next) }, nil
}
