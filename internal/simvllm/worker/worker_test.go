package worker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmroute/warmroute/internal/simvllm"
	"github.com/warmroute/warmroute/tokenize"
	"github.com/warmroute/warmroute/tokenize/tokenizetest"
)

const modelName = "llama"

var (
	openOnce  sync.Once
	openModel *tokenize.Model
	errOpen   error
)

// realModel is the Llama 3.1 tokenizer, opened once for all tests.
func realModel(t testing.TB) *tokenize.Model {
	t.Helper()
	path := tokenizetest.Path(t)
	openOnce.Do(func() {
		openModel, errOpen = tokenize.OpenModel(tokenize.ModelOptions{Name: modelName, TokenizerPath: path, Template: "llama3.1"})
	})
	if errOpen != nil {
		t.Fatal(errOpen)
	}
	return openModel
}

// bench is a worker behind a real listener.
type bench struct {
	*Worker
	t      testing.TB
	url    string
	client *http.Client
	stop   context.CancelFunc
	ended  chan struct{} // closed when Run has returned
}

func defaults(t testing.TB) Options {
	return Options{
		ModelName: modelName,
		Tokenizer: realModel(t),
		Engine:    simvllm.Config{BlockSize: 16, Blocks: 1024, MaxBatchedTokens: 8192, MaxSeqs: 256, Timing: simvllm.H100Timing()},
		Dev:       true,
		Registry:  prometheus.NewRegistry(),
		Logger:    slog.New(slog.DiscardHandler),
	}
}

func start(t testing.TB, change ...func(*Options)) *bench {
	t.Helper()
	o := defaults(t)
	for _, f := range change {
		f(&o)
	}
	w, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(w.Handler())
	ctx, stop := context.WithCancel(context.Background())
	b := &bench{Worker: w, t: t, url: server.URL, client: server.Client(), stop: stop, ended: make(chan struct{})}
	go func() { // ends at stop
		defer close(b.ended)
		w.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-b.ended
		server.Close()
	})
	return b
}

// do sends a body and returns the response, whose body the caller closes.
func (b *bench) do(ctx context.Context, method, path, body string) *http.Response {
	b.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("X-Request-Id", "req-1")
	resp, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp
}

// answer is what the tests read of a response or of an event.
type answer struct {
	ID, Object, Model string
	SystemFingerprint string `json:"system_fingerprint"`
	Choices           []struct {
		Index          int
		Message, Delta struct{ Role, Content string }
		Text           string
		FinishReason   *string  `json:"finish_reason"`
		TokenIDs       []uint32 `json:"token_ids"`
		PromptTokenIDs []uint32 `json:"prompt_token_ids"`
	}
	Usage *struct {
		PromptTokens     int `json:"prompt_tokens"`
		TotalTokens      int `json:"total_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		Details          struct {
			CachedTokens int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	PromptTokenIDs []uint32 `json:"prompt_token_ids"`
	Error          *struct {
		Message, Type string
		Param         *string
		Code          int
	}
	Count   int
	Tokens  []uint32
	Success *bool
	Detail  string
}

func (b *bench) call(method, path, body string) (int, answer) {
	b.t.Helper()
	resp := b.do(b.t.Context(), method, path, body)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if got := resp.Header.Get("X-Simworker"); got != "made-up answer" {
		b.t.Errorf("%s: header X-Simworker is %q", path, got)
	}
	var a answer
	if len(data) > 0 && data[0] == '{' {
		if err := json.Unmarshal(data, &a); err != nil {
			b.t.Fatalf("%s answers %q: %v", path, data, err)
		}
	}
	return resp.StatusCode, a
}

// post is call for requests that must succeed.
func (b *bench) post(path, body string) answer {
	b.t.Helper()
	code, a := b.call(http.MethodPost, path, body)
	if code != http.StatusOK {
		b.t.Fatalf("%s answers %d: %+v", path, code, a.Error)
	}
	return a
}

// events reads a stream to its end, checking the format on the way.
func (b *bench) events(body io.Reader) (events []answer) {
	b.t.Helper()
	data, err := io.ReadAll(body)
	if err != nil {
		b.t.Fatal(err)
	}
	text, ok := strings.CutSuffix(string(data), "data: [DONE]\n\n")
	if !ok {
		b.t.Fatalf("the stream does not end with [DONE]: %q", data)
	}
	for event := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		payload, ok := strings.CutPrefix(event, "data: ")
		if !ok || strings.Contains(payload, "\n") {
			b.t.Fatalf("an event is %q", event)
		}
		var a answer
		if err := json.Unmarshal([]byte(payload), &a); err != nil {
			b.t.Fatalf("an event is %q: %v", event, err)
		}
		events = append(events, a)
	}
	return events
}

// rest waits until no request is in flight.
func (b *bench) rest() {
	b.runner.mu.Lock()
	defer b.runner.mu.Unlock()
	for len(b.runner.targets) > 0 {
		b.runner.ended.Wait()
	}
}

// inFlight waits until so many requests are.
func (b *bench) inFlight(n int) {
	b.t.Helper()
	eventually(b.t, func() bool { s := b.runner.stats(); return s.Running+s.Waiting == n })
}

// eventually asks until it is so. Nothing hangs on how long that takes.
func eventually(t testing.TB, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-ctx.Done():
			t.Fatal("it never came true")
		case <-tick.C:
		}
	}
}

func (b *bench) metric(name string) string {
	b.t.Helper()
	resp := b.do(b.t.Context(), http.MethodGet, "/metrics", "")
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	for sc.Scan() {
		if labels, value, ok := strings.Cut(sc.Text(), "} "); ok && strings.HasPrefix(labels, name+"{") {
			return value
		}
	}
	return ""
}

// prompt is a text of some length, different for each topic.
func prompt(topic string, sentences int) string {
	return strings.Repeat("Please tell me more about "+topic+" and its friends. ", sentences)
}

func chat(text, more string) string {
	var buf bytes.Buffer
	_ = json.NewEncoder(&buf).Encode(text)
	return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%s}]%s}`, modelName, strings.TrimSpace(buf.String()), more)
}

func completion(prompt, more string) string {
	return fmt.Sprintf(`{"model":%q,"prompt":%s%s}`, modelName, prompt, more)
}
