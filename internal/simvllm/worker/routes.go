package worker

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/tidwall/gjson"

	"github.com/warmroute/warmroute/tokenize"
)

// version is what /version says, so that nobody takes this for vLLM.
const version = "simworker"

func (w *Worker) routes() http.Handler {
	mux := http.NewServeMux()
	route := func(path string, h http.HandlerFunc, methods ...string) {
		for _, m := range methods {
			mux.HandleFunc(m+" "+path, h)
		}
		mux.HandleFunc(path, func(rw http.ResponseWriter, _ *http.Request) { detail(rw, http.StatusMethodNotAllowed) })
	}
	const get, post = http.MethodGet, http.MethodPost
	empty := func(http.ResponseWriter, *http.Request) {}
	route("/v1/chat/completions", w.generate(tokenize.Chat), post)
	route("/v1/completions", w.generate(tokenize.Completion), post)
	route("/invocations", w.invocations, post)
	route("/v1/models", w.models, get)
	route("/v1/load_lora_adapter", w.loadAdapter, post)
	route("/v1/unload_lora_adapter", w.unloadAdapter, post)
	route("/tokenize", w.tokenize, post)
	route("/detokenize", w.detokenize, post)
	route("/reset_prefix_cache", w.resetPrefixCache, post)
	route("/health", empty, get)
	route("/ping", empty, get, post)
	route("/version", func(rw http.ResponseWriter, _ *http.Request) {
		writeJSON(rw, http.StatusOK, map[string]string{"version": version})
	}, get)
	route("/metrics", promhttp.HandlerFor(w.o.Registry, promhttp.HandlerOpts{}).ServeHTTP, get)
	if w.o.Dev {
		route("/dev/hold", w.hold, post)
		route("/dev/release", w.release, post)
	}
	mux.HandleFunc("/", func(rw http.ResponseWriter, _ *http.Request) { detail(rw, http.StatusNotFound) })
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("X-Simworker", "made-up answer")
		mux.ServeHTTP(rw, r)
	})
}

func readBody(rw http.ResponseWriter, r *http.Request) ([]byte, *apiError) {
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, newError(http.StatusRequestEntityTooLarge, "BadRequestError", "", "The body is too large.")
	case err != nil:
		return nil, badRequest("", "The body can't be read: %v", err)
	}
	return body, nil
}

// invocations dispatches as vLLM does: to the first kind of request that the
// body is.
func (w *Worker) invocations(rw http.ResponseWriter, r *http.Request) {
	body, fail := readBody(rw, r)
	if fail != nil {
		writeError(rw, fail)
		return
	}
	kind := tokenize.Completion
	if messages := gjson.GetBytes(body, "messages"); messages.Exists() && messages.Type != gjson.Null {
		kind = tokenize.Chat
	}
	w.serve(rw, r, kind, body)
}

type modelCard struct {
	ID          string  `json:"id"`
	Object      string  `json:"object"`
	Created     int64   `json:"created"`
	OwnedBy     string  `json:"owned_by"`
	Root        string  `json:"root"`
	Parent      *string `json:"parent"`
	MaxModelLen *int    `json:"max_model_len"`
}

func (w *Worker) models(rw http.ResponseWriter, _ *http.Request) {
	cards := []modelCard{{ID: w.o.ModelName, Object: "model", Created: w.created, OwnedBy: "vllm", Root: w.o.ModelName, MaxModelLen: &w.maxLen}}
	for _, name := range w.adapters.list() {
		cards = append(cards, modelCard{ID: name, Object: "model", Created: w.created, OwnedBy: "vllm", Root: name, Parent: &w.o.ModelName})
	}
	writeJSON(rw, http.StatusOK, map[string]any{"object": "list", "data": cards})
}

func (w *Worker) tokenize(rw http.ResponseWriter, r *http.Request) {
	body, fail := readBody(rw, r)
	if fail != nil {
		writeError(rw, fail)
		return
	}
	asked, fail := parse(body)
	if fail != nil {
		writeError(rw, fail)
		return
	}
	if _, fail = w.scope(asked); fail != nil {
		writeError(rw, fail)
		return
	}
	kind := tokenize.Completion
	if present(asked.Messages) {
		kind = tokenize.Chat
	}
	ids, fail := w.tokens(kind, body)
	if fail != nil {
		writeError(rw, fail)
		return
	}
	if ids == nil {
		ids = []tokenize.Token{}
	}
	writeJSON(rw, http.StatusOK, map[string]any{"count": len(ids), "max_model_len": w.maxLen, "tokens": ids, "token_strs": nil})
}

func (w *Worker) detokenize(rw http.ResponseWriter, r *http.Request) {
	body, fail := readBody(rw, r)
	if fail != nil {
		writeError(rw, fail)
		return
	}
	var asked struct {
		Tokens []tokenize.Token `json:"tokens"`
	}
	if err := json.Unmarshal(body, &asked); err != nil || asked.Tokens == nil {
		writeError(rw, badRequest("tokens", "tokens must be a list of token ids."))
		return
	}
	writeJSON(rw, http.StatusOK, map[string]string{"prompt": w.o.Tokenizer.Decode(asked.Tokens)})
}

func (w *Worker) resetPrefixCache(rw http.ResponseWriter, _ *http.Request) {
	writeJSON(rw, http.StatusOK, map[string]bool{"success": w.runner.clearCache()})
}

// hold stops the engine between two steps, at once or after ?steps=N more, so
// that a test can look at requests in flight. Requests are still taken, and
// wait.
func (w *Worker) hold(rw http.ResponseWriter, r *http.Request) {
	steps := 0
	if s := r.URL.Query().Get("steps"); s != "" {
		var err error
		if steps, err = strconv.Atoi(s); err != nil || steps < 0 {
			writeError(rw, badRequest("steps", "steps must be a number, 0 or more."))
			return
		}
	}
	w.runner.hold(steps)
	plain(rw, "held")
}

func (w *Worker) release(rw http.ResponseWriter, _ *http.Request) {
	w.runner.releaseHold()
	plain(rw, "released")
}

func plain(rw http.ResponseWriter, text string) {
	rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(rw, text) // the client is gone, then
}
