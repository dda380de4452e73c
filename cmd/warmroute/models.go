package main

import (
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

// openModel is a loaded tokenizer and what it was loaded from.
type openModel struct {
	options tokenize.ModelOptions
	model   *tokenize.Model
}

func newModels() *models {
	m := &models{}
	m.byEndpoint.Store(&map[string]*openModel{})
	return m
}

// get is the tokenizer of an endpoint, nil where it has none.
func (m *models) get(endpoint string) *tokenize.Model {
	if open := (*m.byEndpoint.Load())[endpoint]; open != nil {
		return open.model
	}
	return nil
}

// prepare opens what the endpoints need and is not open yet, and returns the
// function that makes it current. Nothing changes when it fails.
func (m *models) prepare(endpoints []EndpointConfig, logger *slog.Logger) (commit func(), err error) {
	old := *m.byEndpoint.Load()
	open := map[tokenize.ModelOptions]*openModel{}
	for _, o := range old {
		open[o.options] = o
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
		if open[o] == nil {
			model, err := tokenize.OpenModel(o)
			if err != nil {
				return nil, fmt.Errorf("endpoints[%d].Tokenizer (%s): %w", i, e.EndpointName, err)
			}
			open[o] = &openModel{options: o, model: model}
		}
		next[e.EndpointName] = open[o]
	}
	return func() { m.byEndpoint.Store(&next) }, nil
}

var _ prometheus.Registerer = nil
