package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/warmroute/warmroute/tokenize/tokenizetest"
)

const model = "meta-llama/Llama-3.1-8B-Instruct"

// fleetOptions say what differs from an ordinary fleet.
type fleetOptions struct {
	workers   int
	blocks    int // KV blocks of each worker
	blockSize int
	strategy  string
	threshold int
	minMatch  int // 0: the built-in default
	dev       bool
	scale     string // --time-scale of the workers, "0" = no waiting
}

// fleet is a router, its workers and a NATS server.
type fleet struct {
	t          *testing.T
	o          fleetOptions
	api, admin string // base URLs
	router     *process
	workers    map[string]string   // name → base URL
	processes  map[string]*process // of the workers
	config     string
	nats       *server.Server
	listener   *listener
	client     *http.Client
}

// startFleet starts it and waits until it is ready. It ends with the test.
func startFleet(t *testing.T, o fleetOptions) *fleet {
	t.Helper()
	if o.workers == 0 {
		o.workers = 3
	}
	if o.blocks == 0 {
		o.blocks = 8192
	}
	if o.blockSize == 0 {
		o.blockSize = 16
	}
	if o.strategy == "" {
		o.strategy = "PREFIX_AWARE"
	}
	if o.threshold == 0 {
		o.threshold = 16
	}
	if o.scale == "" {
		o.scale = "0"
	}
	f := &fleet{t: t, o: o, workers: map[string]string{}, processes: map[string]*process{}, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	t.Cleanup(f.client.CloseIdleConnections)
	f.startNATS()
	f.listen()
	for i := range o.workers {
		f.startWorkerAt(fmt.Sprintf("w%d", i), "127.0.0.1:0")
	}
	f.config = filepath.Join(t.TempDir(), "warmroute.yaml")
	f.writeConfig(o.strategy)
	f.router = start(t, "warmroute", "serve", "--config", f.config)
	var up struct{ API, Admin string }
	if err := json.Unmarshal([]byte(f.router.line("warmroute serves")), &up); err != nil {
		t.Fatal(err)
	}
	f.api, f.admin = "http://"+up.API, "http://"+up.Admin
	eventually(t, "the router is ready", func() bool { return f.get(f.admin+"/readyz").StatusCode == http.StatusOK })
	return f
}

func (f *fleet) startNATS() {
	f.t.Helper()
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true})
	if err != nil {
		f.t.Fatal(err)
	}
	ns.Start()
	f.t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(limit) {
		f.t.Fatal("the NATS server is not ready")
	}
	f.nats = ns
}

// startWorkerAt starts a worker of that name on an address.
func (f *fleet) startWorkerAt(name, addr string) {
	f.t.Helper()
	args := []string{
		"--name", name, "--endpoint", "llama", "--model", model, "--listen", addr,
		"--nats", f.nats.ClientURL(), "--tokenizer", tokenizetest.Path(f.t),
		"--block-size", strconv.Itoa(f.o.blockSize), "--cache-blocks", strconv.Itoa(f.o.blocks), "--time-scale", f.o.scale,
	}
	if f.o.dev {
		args = append(args, "--dev")
	}
	p := start(f.t, "simworker", args...)
	_, url, _ := strings.Cut(p.line("listening on "), "listening on ")
	f.workers[name] = strings.TrimSpace(url)
	f.processes[name] = p
}

// writeConfig writes the router's configuration with a strategy.
func (f *fleet) writeConfig(strategy string) {
	f.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, `
listen: 127.0.0.1:0
admin_listen: 127.0.0.1:0
nats: {url: %q}
timeouts: {drain_delay: 0s, drain: 30s}
health: {interval: 100ms}
endpoints:
  - EndpointName: llama
    Model: %s
    Tokenizer: {Path: %q, Template: llama3.1}
    ProductionVariants:
      - RoutingConfig:
          RoutingStrategy: %s
          PrefixAwareRoutingConfig: {PrefixLength: 65536, ConcurrencyThreshold: %d, MinMatchTokens: %d}
        Instances:
`, f.nats.ClientURL(), model, tokenizetest.Path(f.t), strategy, f.o.threshold, f.o.minMatch)
	for i := range f.o.workers {
		name := fmt.Sprintf("w%d", i)
		fmt.Fprintf(&b, "          - {Name: %s, URL: %q, BlockSize: %d, CacheBlocks: %d}\n", name, f.workers[name], f.o.blockSize, f.o.blocks)
	}
	// In one step, as a configuration manager does it.
	tmp := f.config + ".new"
	if err := os.WriteFile(tmp, []byte(b.String()), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(tmp, f.config); err != nil {
		f.t.Fatal(err)
	}
}

// reply is a response read to its end.
type reply struct {
	StatusCode int
	Header     http.Header
	Body       []byte
	Err        error
}

func (f *fleet) get(url string) reply { return f.do(http.MethodGet, url, "", nil) }

func (f *fleet) post(url, body string, header ...string) reply {
	return f.do(http.MethodPost, url, body, header)
}

// do sends one request. header is name, value, name, value…
func (f *fleet) do(method, url, body string, header []string) reply {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return reply{Err: err}
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return reply{Err: err}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return reply{StatusCode: resp.StatusCode, Header: resp.Header, Body: data, Err: err}
}

// receipt is what the router says of where a request went.
type receipt struct {
	instance, rule  string
	matched, prompt int
}

func (r reply) receipt(t *testing.T) receipt {
	t.Helper()
	number := func(name string) int {
		n, err := strconv.Atoi(r.Header.Get(name))
		if err != nil {
			t.Fatalf("%s is %q in a reply with status %d: %s", name, r.Header.Get(name), r.StatusCode, r.Body)
		}
		return n
	}
	return receipt{
		r.Header.Get("X-Warmroute-Instance"), r.Header.Get("X-Warmroute-Rule"),
		number("X-Warmroute-Matched-Tokens"), number("X-Warmroute-Prompt-Tokens"),
	}
}

// usage is the token count of a worker's answer.
type usage struct {
	PromptTokens        int `json:"prompt_tokens"`
	CompletionTokens    int `json:"completion_tokens"`
	PromptTokensDetails struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func (r reply) usage(t *testing.T) usage {
	t.Helper()
	var answer struct {
		Usage *usage `json:"usage"`
	}
	body := r.Body
	if strings.HasPrefix(r.Header.Get("Content-Type"), "text/event-stream") {
		body = lastUsage(r.Body)
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Usage == nil {
		t.Fatalf("no usage in the reply (status %d, %v): %s", r.StatusCode, err, tail(string(r.Body), 400))
	}
	return *answer.Usage
}

// lastUsage is the data of the last event of a stream that has a usage.
func lastUsage(stream []byte) []byte {
	var last string
	for event := range strings.SplitSeq(string(stream), "\n\n") {
		if data, ok := strings.CutPrefix(event, "data: "); ok && strings.Contains(data, `"usage":{`) {
			last = data
		}
	}
	return []byte(last)
}

// message is one turn of a conversation.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// chat is the body of a chat request. extra are further fields.
func chat(messages []message, maxTokens int, extra map[string]any) string {
	body := map[string]any{"model": model, "max_tokens": maxTokens, "messages": messages}
	for k, v := range extra {
		body[k] = v
	}
	data, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// answer is the assistant's text in a reply that does not stream.
func (r reply) answer(t *testing.T) string {
	t.Helper()
	var a struct {
		Choices []struct {
			Message message `json:"message"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(r.Body, &a); err != nil || len(a.Choices) == 0 {
		t.Fatalf("no answer in the reply (status %d, %v): %s", r.StatusCode, err, tail(string(r.Body), 400))
	}
	return a.Choices[0].Message.Content
}

// ok fails the test unless the reply is a 200.
func (r reply) ok(t *testing.T) reply {
	t.Helper()
	if r.Err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("got status %d, %v: %s", r.StatusCode, r.Err, tail(string(r.Body), 400))
	}
	return r
}
