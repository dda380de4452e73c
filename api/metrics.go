package api

import (
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmroute/warmroute/scheduler"
)

// metrics have bounded labels: configured endpoints and instances, route
// templates, statuses and rules.
type metrics struct {
	requests   *prometheus.CounterVec   // endpoint, route, code
	duration   *prometheus.HistogramVec // endpoint, route
	firstToken *prometheus.HistogramVec // endpoint
	stages     *prometheus.HistogramVec // stage
	retries    *prometheus.CounterVec   // endpoint
	uncertain  *prometheus.CounterVec   // endpoint, reason

	prompt, matched, cached *prometheus.CounterVec // tokens, by endpoint and instance
	errorTokens             *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	seconds := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}
	stages := []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .05, .25, 1, 5}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		r.MustRegister(h)
		return h
	}
	return &metrics{
		requests:   counter("warmroute_requests_total", "Requests ended, by endpoint, route and status; 499 is a client that left.", "endpoint", "route", "code"),
		duration:   histogram("warmroute_request_duration_seconds", "From a request's arrival to the end of its answer.", seconds, "endpoint", "route"),
		firstToken: histogram("warmroute_time_to_first_token_seconds", "From a request's arrival to the first generated token.", seconds, "endpoint"),
		stages:     histogram("warmroute_stage_seconds", "From a request's arrival to the end of a stage: prompt (tokens known), pick (instance chosen), first_byte.", stages, "stage"),
		retries:    counter("warmroute_retries_total", "Attempts that another instance had to repeat, by endpoint.", "endpoint"),
		uncertain:  counter("warmroute_uncertain_prompts_total", "Requests routed without token affinity, by endpoint and reason.", "endpoint", "reason"),
		prompt:     counter("warmroute_prompt_tokens_total", "Prompt tokens read, by endpoint and instance.", "endpoint", "instance"),
		matched:    counter("warmroute_matched_tokens_total", "Prompt tokens that the tree believed cached where the request was sent.", "endpoint", "instance"),
		cached:     counter("warmroute_cached_tokens_total", "Prompt tokens that the workers reported as cached.", "endpoint", "instance"),
		errorTokens: histogram("warmroute_match_error_tokens", "How far the tree's belief was from the worker's own count, in tokens.",
			[]float64{0, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384}, "endpoint", "instance"),
	}
}

func (m *metrics) stage(name string, d time.Duration) {
	m.stages.WithLabelValues(name).Observe(d.Seconds())
}

// observe counts what was believed and what the worker said.
func (s *Server) observe(r *request, l *scheduler.Lease, o *observer) {
	o.end()
	endpoint, instance := r.endpoint.Name(), l.Instance.Name()
	s.metrics.prompt.WithLabelValues(endpoint, instance).Add(float64(r.prompt.tokens))
	s.metrics.matched.WithLabelValues(endpoint, instance).Add(float64(l.MatchedTokens))
	if o.counted && o.cached >= 0 {
		s.metrics.cached.WithLabelValues(endpoint, instance).Add(float64(o.cached))
		if r.prompt.exact {
			s.metrics.errorTokens.WithLabelValues(endpoint, instance).Observe(float64(max(l.MatchedTokens-o.cached, o.cached-l.MatchedTokens)))
		}
	}
}

// finish counts a request that ended, and logs it. fault is nil for an answer
// of the worker's.
func (s *Server) finish(c echo.Context, r *request, l *scheduler.Lease, fault *apiError) {
	status := c.Response().Status
	switch {
	case fault != nil && r.route.native && fault.status != statusClientGone:
		_, status = nativeShape(fault)
	case fault != nil:
		status = fault.status
	}
	endpoint := "other"
	if r.endpoint != nil {
		endpoint = r.endpoint.Name()
	}
	d := s.o.Now().Sub(r.arrived)
	s.metrics.requests.WithLabelValues(endpoint, r.route.path, strconv.Itoa(status)).Inc()
	s.metrics.duration.WithLabelValues(endpoint, r.route.path).Observe(d.Seconds())
	attrs := []any{
		"request_id", r.id, "endpoint", endpoint, "route", r.route.path, "status", status, "stream", r.stream,
		"body_bytes", len(r.sent), "prompt_tokens", r.prompt.tokens, "duration", d,
	}
	if l != nil {
		attrs = append(attrs, "instance", l.Instance.Name(), "rule", string(l.Rule), "matched_tokens", l.MatchedTokens)
	}
	if fault != nil {
		attrs = append(attrs, "code", string(fault.code))
	}
	s.o.Logger.Info("request", attrs...)
}
