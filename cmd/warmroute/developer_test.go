package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/warmroute/warmroute/tokenize"
	"github.com/warmroute/warmroute/tokenize/tokenizetest"
)

// developerWorker answers /tokenize as a worker that does what *d says.
func developerWorker(t *testing.T, model *tokenize.Model, d *tokenize.DeveloperRole) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		ids, err := model.DeveloperTokens(*d, body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"tokens": ids})
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestTheDeveloperRoleIsLearntFromAllWorkers(t *testing.T) {
	model, err := tokenize.OpenModel(tokenize.ModelOptions{Name: "m", TokenizerPath: tokenizetest.Path(t), Template: "llama3.1"})
	if err != nil {
		t.Fatal(err)
	}
	a, b := tokenize.DeveloperAsIs, tokenize.DeveloperAsIs
	cfg := defaultConfig()
	cfg.Endpoints = []EndpointConfig{{
		EndpointName: "e", Model: "m", Tokenizer: TokenizerConfig{Path: tokenizetest.Path(t), Template: "llama3.1"},
		ProductionVariants: []VariantConfig{{Instances: []InstanceConfig{
			{Name: "a", URL: developerWorker(t, model, &a)}, {Name: "b", URL: developerWorker(t, model, &b)},
		}}},
	}}
	cfg.Endpoints[0].fill()
	r, err := newRouter(source{}, withoutNATS(&cfg), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	client := newWorkerClient("", limit)
	defer client.CloseIdleConnections()
	const unknown = tokenize.DeveloperUnknown
	for _, step := range []struct{ a, b, want tokenize.DeveloperRole }{
		{tokenize.DeveloperAsIs, tokenize.DeveloperAsIs, tokenize.DeveloperAsIs},
		{tokenize.DeveloperAsSystem, tokenize.DeveloperAsIs, unknown}, // versions are mixed
		{tokenize.DeveloperAsSystem, tokenize.DeveloperAsSystem, tokenize.DeveloperAsSystem},
		{unknown, tokenize.DeveloperAsSystem, tokenize.DeveloperAsSystem}, // one refuses to answer, the other agrees with what was known
		{unknown, tokenize.DeveloperAsIs, unknown},                        // and here it contradicts it
		{unknown, tokenize.DeveloperAsIs, unknown},
	} {
		a, b = step.a, step.b
		r.learnDeveloperRole(t.Context(), client, cfg.Endpoints)
		if got := r.models.open("e").model.DeveloperRole(); got != step.want {
			t.Errorf("workers do %v and %v: learnt %v, want %v", step.a, step.b, got, step.want)
		}
	}
}
