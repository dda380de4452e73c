package api

import (
	"bytes"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmroute/warmroute/radix"
	"github.com/warmroute/warmroute/scheduler"
	"github.com/warmroute/warmroute/tokenize"
	"github.com/warmroute/warmroute/tokenize/tokenizetest"
)

const testModel = "meta-llama/Llama-3.1-8B-Instruct"

// limit bounds every wait; nothing depends on how long something takes below
// it.
const limit = 30 * time.Second

// worker is a scriptable instance: it serves what its handler does, and
// remembers what came.
type worker struct {
	*httptest.Server
	mu      sync.Mutex
	handler http.HandlerFunc
	bodies  [][]byte
	headers []http.Header
	paths   []string
}

func newWorker(t *testing.T) *worker {
	w := &worker{}
	w.handler = func(rw http.ResponseWriter, _ *http.Request) { answerOK(rw) }
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.mu.Lock()
		w.bodies, w.headers, w.paths = append(w.bodies, body), append(w.headers, r.Header.Clone()), append(w.paths, r.URL.Path)
		h := w.handler
		w.mu.Unlock()
		h(rw, r)
	}))
	t.Cleanup(func() { w.CloseClientConnections(); w.Close() })
	return w
}

// does sets what it does from now on.
func (w *worker) does(h http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handler = h
}

func (w *worker) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.bodies)
}

func (w *worker) last() (body []byte, h http.Header, path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.bodies) - 1
	return w.bodies[n], w.headers[n], w.paths[n]
}

func answerOK(rw http.ResponseWriter) {
	rw.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(rw, `{"choices":[{"message":{"role":"assistant","content":"Yes."}}],"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":0}}}`)
}

// stream writes events, each flushed by itself.
func stream(rw http.ResponseWriter, events ...string) {
	rw.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for _, e := range events {
		_, _ = io.WriteString(rw, e)
		rw.(http.Flusher).Flush()
	}
}

// front is a server before workers w0, w1, …
type front struct {
	t        *testing.T
	server   *Server
	public   *httptest.Server
	admin    *httptest.Server
	workers  []*worker
	logs     *lockedBuffer
	registry *prometheus.Registry
	fleet    *scheduler.Scheduler
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// shared is the tokenizer, opened once for the package.
var shared struct {
	once  sync.Once
	model *tokenize.Model
	err   error
}

func sharedModel(t *testing.T) *tokenize.Model {
	t.Helper()
	path := tokenizetest.Path(t)
	shared.once.Do(func() {
		shared.model, shared.err = tokenize.OpenModel(tokenize.ModelOptions{Name: testModel, TokenizerPath: path, Template: "llama3.1"})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.model
}

func newFront(t *testing.T, workers int, change ...func(*Options)) *front {
	t.Helper()
	model := sharedModel(t)
	f := &front{t: t, logs: &lockedBuffer{}, registry: prometheus.NewRegistry()}
	f.fleet = scheduler.New(scheduler.Options{
		Held: radix.New(radix.Options{PredictionTTL: time.Hour}), Placed: radix.New(radix.Options{}),
		Rand: rand.New(rand.NewPCG(1, 1)), Registerer: f.registry,
	})
	variant := scheduler.VariantConfig{Name: "AllTraffic", Weight: 1, Routing: scheduler.Routing{
		Strategy: scheduler.PrefixAware, PrefixLength: 65536, ConcurrencyThreshold: 64, MinMatchTokens: 16,
	}}
	for i := range workers {
		w := newWorker(t)
		f.workers = append(f.workers, w)
		variant.Instances = append(variant.Instances, scheduler.InstanceConfig{Name: "w" + string(rune('0'+i)), URL: w.URL, BlockSize: 16, Adapters: []string{"sql-lora"}})
	}
	if err := f.fleet.Apply([]scheduler.EndpointConfig{{Name: "llama", Model: testModel, Variants: []scheduler.VariantConfig{variant}}}); err != nil {
		t.Fatal(err)
	}
	o := Options{
		Scheduler: f.fleet, Models: func(string) *tokenize.Model { return model }, Registry: f.registry, Retries: 2,
		Logger: slog.New(slog.NewJSONHandler(f.logs, &slog.HandlerOptions{Level: slog.LevelDebug})), MaxBodyBytes: 8 << 20,
	}
	for _, c := range change {
		c(&o)
	}
	var err error
	if f.server, err = New(o); err != nil {
		t.Fatal(err)
	}
	f.public, f.admin = httptest.NewServer(f.server.Public()), httptest.NewServer(f.server.Admin())
	t.Cleanup(func() {
		f.public.CloseClientConnections()
		f.public.Close()
		f.admin.Close()
		f.server.Close()
		eventually(t, "nothing is in flight", func() bool { return f.inFlight() == 0 })
	})
	return f
}

// eventually waits until ok says that the thing is so.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	timeout := time.After(limit)
	for !ok() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("not so: %s", what)
		}
	}
}

func (f *front) inFlight() int {
	n := 0
	for _, i := range f.fleet.Endpoints()[0].Variants()[0].Instances() {
		n += i.InFlight()
	}
	return n
}

// got is a response read to its end, or to where it broke.
type got struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

func (f *front) post(path, body string, header ...string) got {
	f.t.Helper()
	req, err := http.NewRequest(http.MethodPost, f.public.URL+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return f.do(req)
}

func (f *front) do(req *http.Request) got {
	f.t.Helper()
	resp, err := (&http.Transport{DisableCompression: true, DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return got{resp.StatusCode, resp.Header, string(data), err}
}

func (f *front) get(url string) got {
	f.t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.do(req)
}

// chat is a chat's body with one user message and further fields.
func chat(content, fields string) string {
	return `{"model":"` + testModel + `","messages":[{"role":"user","content":"` + content + `"}]` + fields + `}`
}

const chatPath = "/v1/chat/completions"
