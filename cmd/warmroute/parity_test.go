package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/warmroute/tokenize"
	"github.com/warmroute/warmroute/tokenize/tokenizetest"
)

// limit bounds a wait for something that is about to happen.
const limit = 30 * time.Second

// withoutNATS is a configuration that lives on predictions.
func withoutNATS(cfg *Config) *Config {
	cfg.NATS.URL = ""
	return cfg
}

func TestTokensThatDifferAreNotTrustedUntilMended(t *testing.T) {
	model, err := tokenize.OpenModel(tokenize.ModelOptions{Name: "m", TokenizerPath: tokenizetest.Path(t), Template: "llama3.1"})
	if err != nil {
		t.Fatal(err)
	}
	var wrong atomic.Bool
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/tokenize" {
			http.NotFound(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		ids, _, err := model.Tokens(tokenize.Chat, body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if wrong.Load() {
			ids[3]++
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"tokens": ids})
	}))
	defer worker.Close()
	var logs strings.Builder
	cfg := defaultConfig()
	cfg.Endpoints = []EndpointConfig{{
		EndpointName: "e", Model: "m", Tokenizer: TokenizerConfig{Path: tokenizetest.Path(t), Template: "llama3.1"},
		ProductionVariants: []VariantConfig{{Instances: []InstanceConfig{{Name: "a", URL: worker.URL}}}},
	}}
	cfg.Endpoints[0].fill()
	r, err := newRouter(source{}, withoutNATS(&cfg), &logs)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	metrics := newParityMetrics(r.registry)
	client := newWorkerClient("", limit)
	defer client.CloseIdleConnections()

	for _, step := range []struct{ wrong, trusted bool }{{false, true}, {true, false}, {true, false}, {false, true}} {
		wrong.Store(step.wrong)
		if !r.checkParityOnce(t.Context(), client, metrics) {
			t.Fatal("no verdict")
		}
		if trusted := r.models.get("e") != nil; trusted != step.trusted {
			t.Fatalf("with wrong tokens %v trusted is %v: %s", step.wrong, trusted, logs.String())
		}
	}
	if text := logs.String(); strings.Count(text, "tokens differ") != 1 || !strings.Contains(text, `"position":3`) || !strings.Contains(text, "trusted") {
		t.Errorf("logged %s", text)
	}
	// A user's request can show it too.
	served := sample{"e", worker.URL, tokenize.Chat, []byte(`{"messages":[{"role":"user","content":"canary"}],"max_tokens":3}`)}
	r.checkSample(t.Context(), client, served, metrics)
	if r.models.get("e") == nil {
		t.Fatal("equal tokens of a request cost the trust")
	}
	wrong.Store(true)
	r.checkSample(t.Context(), client, served, metrics)
	if r.models.get("e") != nil || strings.Contains(logs.String(), "canary") {
		t.Fatalf("a request's tokens differ: trusted %v, logged %s", r.models.get("e") != nil, logs.String())
	}
	wrong.Store(false)
	r.checkParityOnce(t.Context(), client, metrics)

	worker.Close()
	if r.checkParityOnce(t.Context(), client, metrics) {
		t.Error("a verdict without a worker")
	}
	if r.models.get("e") == nil {
		t.Error("a worker that can't be reached cost the trust")
	}
}

func TestATokenizerOfAnotherFamilyMeansRawBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := os.WriteFile(path, []byte(`{"version":"1.0","added_tokens":[],"normalizer":{"type":"NFC"},"pre_tokenizer":null,"decoder":null,"model":{"type":"WordPiece","vocab":{}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var logs strings.Builder
	m := newModels()
	endpoint := EndpointConfig{EndpointName: "e", Model: "m", Tokenizer: TokenizerConfig{Path: path}}
	commit, err := m.prepare([]EndpointConfig{endpoint}, newLogger(&logs, "json", slog.LevelInfo))
	if err != nil {
		t.Fatal(err)
	}
	commit()
	if m.get("e") != nil || !strings.Contains(logs.String(), "raw bytes") {
		t.Errorf("got %v, logged %s", m.get("e"), logs.String())
	}
	endpoint.Tokenizer.Encoder = "native"
	if _, err := m.prepare([]EndpointConfig{endpoint}, quietLogger()); err == nil {
		t.Error("an encoder that was asked for and can't be had is no error")
	}
}

func TestSamplesAreFewAndNeverWait(t *testing.T) {
	s := samples{queue: make(chan sample, 1)}
	now := time.Unix(1000, 0)
	for range 5 {
		s.offer(sample{endpoint: "a"}, now)
	}
	if len(s.queue) != 1 {
		t.Fatalf("%d samples of five at once, want 1", len(s.queue))
	}
	<-s.queue
	s.offer(sample{endpoint: "b"}, now.Add(sampleEvery-1))
	if len(s.queue) != 0 {
		t.Error("a sample before its time")
	}
	s.offer(sample{endpoint: "c"}, now.Add(sampleEvery))
	s.offer(sample{endpoint: "d"}, now.Add(3*sampleEvery)) // nobody reads: it is dropped
	if got := <-s.queue; got.endpoint != "c" {
		t.Errorf("got %q, want c", got.endpoint)
	}
}

func TestCompareIDsFindsTheFirstDifference(t *testing.T) {
	for _, c := range []struct {
		ours, theirs []tokenize.Token
		want         parity
	}{
		{nil, nil, parity{Equal: true}},
		{[]tokenize.Token{1, 2}, []tokenize.Token{1, 2}, parity{Equal: true, At: 2, Ours: 2, Theirs: 2}},
		{[]tokenize.Token{1, 2}, []tokenize.Token{1, 3}, parity{At: 1, Ours: 2, Theirs: 2}},
		{[]tokenize.Token{1}, []tokenize.Token{1, 3}, parity{At: 1, Ours: 1, Theirs: 2}},
	} {
		if got := compareIDs(c.ours, c.theirs); got != c.want {
			t.Errorf("%v and %v: got %+v, want %+v", c.ours, c.theirs, got, c.want)
		}
	}
}
