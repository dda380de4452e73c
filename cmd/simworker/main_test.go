package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/warmroute/warmroute/feedback"
	"github.com/warmroute/warmroute/tokenize/tokenizetest"
)

// limit is how long a test waits for what must come.
const limit = 20 * time.Second

// program is the whole command in this process.
type program struct {
	t    testing.TB
	url  string
	stop context.CancelFunc
	code chan int
}

func start(t testing.TB, args ...string) *program {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p := &program{t: t, stop: stop, code: make(chan int, 1)}
	args = append([]string{"--name", "w.1", "--endpoint", "chat", "--model", "llama", "--tokenizer", tokenizetest.Path(t), "--time-scale", "0"}, args...)
	r, w := io.Pipe()
	stderr := &bytes.Buffer{}
	go func() { // ends at stop
		p.code <- exitCode(ctx, args, w, stderr)
		_ = w.Close()
	}()
	first, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("it ended with %d: %s", <-p.code, stderr)
	}
	url, ok := strings.CutPrefix(first, "simworker w.1 listening on ")
	if !ok {
		t.Fatalf("the first line is %q", first)
	}
	p.url = strings.TrimSuffix(url, "\n")
	t.Cleanup(func() { stop(); <-p.code; close(p.code) })
	return p
}

// end stops the program and returns its exit code.
func (p *program) end() int {
	p.t.Helper()
	p.stop()
	select {
	case code := <-p.code:
		p.code <- code // for the cleanup
		return code
	case <-time.After(limit):
		p.t.Fatal("it does not end")
		return 0
	}
}

func (p *program) post(path, body string) (cached int) {
	p.t.Helper()
	resp, err := http.Post(p.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	var a struct {
		Usage struct {
			Details struct {
				CachedTokens int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil || resp.StatusCode != http.StatusOK {
		p.t.Fatalf("%s answers %d: %v", path, resp.StatusCode, err)
	}
	return a.Usage.Details.CachedTokens
}

// ids is a completion of n token ids from a number on.
func ids(from, n, maxTokens int, more string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(from + i)
	}
	return fmt.Sprintf(`{"prompt":[%s],"max_tokens":%d%s}`, strings.Join(list, ","), maxTokens, more)
}

func runNATS(t testing.TB, port int) *server.Server {
	t.Helper()
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	if !ns.ReadyForConnections(limit) {
		t.Fatal("the NATS server is not ready")
	}
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	return ns
}

// reader reads the events as a router would.
type reader struct {
	t   testing.TB
	sub *nats.Subscription
	seq int
}

func subscribe(t testing.TB, ns *server.Server) *reader {
	t.Helper()
	nc, err := nats.Connect(ns.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	sub, err := nc.SubscribeSync(feedback.EventSubject("chat", "w.1", 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return &reader{t: t, sub: sub}
}

func (r *reader) next() (feedback.Batch, nats.Header) {
	r.t.Helper()
	msg, err := r.sub.NextMsg(limit)
	if err != nil {
		r.t.Fatal(err)
	}
	batch, err := feedback.Decode(msg.Data)
	if err != nil {
		r.t.Fatal(err)
	}
	if got := msg.Header.Get("Warmroute-Seq"); got != fmt.Sprint(r.seq) {
		r.t.Errorf("seq %s, want %d", got, r.seq)
	}
	r.seq++
	return batch, msg.Header
}

func TestEventsGoOverNATSInTheFormatOfVLLM(t *testing.T) {
	ns := runNATS(t, -1)
	r := subscribe(t, ns)
	p := start(t, "--nats", ns.ClientURL(), "--adapter", "sql", "--cache-blocks", "6")

	p.post("/v1/completions", ids(0, 40, 1, `,"model":"sql","cache_salt":"s1"`))
	batch, header := r.next()
	if header.Get("Warmroute-Epoch") == "" || header.Get("Warmroute-Instance") != "w.1" {
		t.Errorf("headers %v", header)
	}
	if len(batch.Events) != 1 || batch.Rank != 0 || time.Since(time.UnixMicro(int64(batch.Time*1e6))) > time.Hour {
		t.Fatalf("batch %+v", batch)
	}
	e := batch.Events[0]
	if e.Kind != feedback.BlockStored || len(e.Hashes) != 2 || e.HasParent || len(e.Tokens) != 32 || e.Tokens[31] != 31 ||
		e.BlockSize != 16 || e.LoRAName != "sql" || e.Medium != "GPU" || e.GroupKind != "full_attention" {
		t.Errorf("event %+v", e)
	}
	if keys := fmt.Sprint(e.ExtraKeys); keys != fmt.Sprint([][]feedback.ExtraKey{{{Text: "sql"}, {Text: "s1"}}, {{Text: "sql"}}}) {
		t.Errorf("extra keys %v", keys)
	}
	if ns := feedback.Namespace("llama", e); ns.Adapter != "sql" || ns.Salt != "s1" {
		t.Errorf("namespace %+v", ns)
	}

	// Four of the five blocks are needed: of the three free and never
	// filled ones and then the cached tail.
	p.post("/v1/completions", ids(1000, 64, 1, ""))
	batch, _ = r.next()
	if len(batch.Events) != 2 || batch.Events[0].Kind != feedback.BlockRemoved || batch.Events[0].Hashes[0] != e.Hashes[1] ||
		batch.Events[1].Kind != feedback.BlockStored || batch.Events[1].ExtraKeys != nil {
		t.Errorf("events %+v, want the removal of %x and then the store", batch.Events, e.Hashes[1])
	}

	p.post("/reset_prefix_cache", "")
	p.post("/v1/completions", ids(2000, 16, 1, ""))
	batch, _ = r.next()
	if len(batch.Events) != 2 || batch.Events[0].Kind != feedback.AllBlocksCleared {
		t.Errorf("events %+v, want AllBlocksCleared first", batch.Events)
	}
	if code := p.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestDecodeBlocksAreAnnouncedAsEachFills(t *testing.T) {
	ns := runNATS(t, -1)
	r := subscribe(t, ns)
	p := start(t, "--nats", ns.ClientURL())
	p.post("/v1/completions", ids(0, 20, 45, ""))
	stored := 0
	var last uint64
	for _, want := range []int{1, 1, 1, 1} { // 20 tokens, then up to 32, 48 and 64
		batch, _ := r.next()
		e := batch.Events[0]
		if len(batch.Events) != 1 || len(e.Hashes) != want || e.HasParent != (stored > 0) || e.Parent != last {
			t.Fatalf("after %d blocks: %+v", stored, batch.Events)
		}
		stored, last = stored+want, e.Hashes[0]
	}
}

func TestTwoProcessesHaveEpochsAndHashesOfTheirOwn(t *testing.T) {
	ns := runNATS(t, -1)
	epochs, hashes := map[string]bool{}, map[uint64]bool{}
	for range 2 {
		r := subscribe(t, ns)
		p := start(t, "--nats", ns.ClientURL())
		p.post("/v1/completions", ids(0, 20, 1, ""))
		batch, header := r.next()
		epochs[header.Get("Warmroute-Epoch")], hashes[batch.Events[0].Hashes[0]] = true, true
		p.end()
	}
	if len(epochs) != 2 || len(hashes) != 2 {
		t.Errorf("epochs %v, hashes %v", epochs, hashes)
	}
}

func TestRequestsAreServedWithoutNATSAndEventsFollow(t *testing.T) {
	ns := runNATS(t, -1)
	port := ns.Addr().String()
	port = port[strings.LastIndex(port, ":")+1:]
	url := ns.ClientURL()
	ns.Shutdown()
	ns.WaitForShutdown()
	p := start(t, "--nats", url)
	p.post("/v1/completions", ids(0, 40, 1, ""))
	if got := p.post("/v1/completions", ids(0, 40, 1, "")); got != 32 {
		t.Errorf("%d tokens cached, want 32", got)
	}
	number := 0
	if _, err := fmt.Sscan(port, &number); err != nil {
		t.Fatal(err)
	}
	r := subscribe(t, runNATS(t, number))
	// What was sent in the meantime may be lost, but not its number: a
	// reader must see that it missed something, and later events come.
	deadline := time.After(limit)
	for i := 1; ; i++ {
		p.post("/v1/completions", ids(1000*i, 40, 1, ""))
		if msg, err := r.sub.NextMsg(100 * time.Millisecond); err == nil {
			if _, err := feedback.Decode(msg.Data); err != nil {
				t.Error(err)
			}
			return
		}
		select {
		case <-deadline:
			t.Fatal("no events after NATS came up")
		default:
		}
	}
}

func TestStopCutsStreamsWithinABound(t *testing.T) {
	p := start(t, "--time-scale", "1", "--step-base", "1m")
	resp, err := http.Post(p.url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"a","stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if code := p.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if body, _ := io.ReadAll(resp.Body); !strings.Contains(string(body), `"error"`) {
		t.Errorf("the stream ends with %q", body)
	}
}

func TestFlagsThatMakeNoSenseEndWith2AndSayAllThatIsWrong(t *testing.T) {
	var out, errs bytes.Buffer
	if code := exitCode(t.Context(), []string{"--name", "", "--time-scale", "-1", "--block-size", "0", "--listen", "here"}, &out, &errs); code != 2 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"--name", "--tokenizer", "--time-scale", "block size", "--listen"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("%q does not name %s", errs.String(), want)
		}
	}
	for _, args := range [][]string{{"--nothing"}, {"word"}} {
		if code := exitCode(t.Context(), args, &out, &errs); code != 2 {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
	if code := exitCode(t.Context(), []string{"--tokenizer", t.TempDir() + "/none"}, &out, &errs); code != 1 {
		t.Errorf("no such tokenizer: exit code %d", code)
	}
	if out.Len() > 0 {
		t.Errorf("stdout has %q", out.String())
	}
}

func TestHelpSaysThatAnswersAreMadeUp(t *testing.T) {
	var out, errs bytes.Buffer
	if code := exitCode(t.Context(), []string{"--help"}, &out, &errs); code != 0 || !strings.Contains(out.String(), "MADE\nUP") {
		t.Errorf("exit code %d, help %q", code, out.String())
	}
}

func TestFlagsReachTheEngine(t *testing.T) {
	c, _, err := parseFlags(strings.Fields("--tokenizer t --prefill-rate 0 --decode-cost 0s --step-base 3ms --max-seqs 7 " +
		"--max-batched-tokens 9 --cache-blocks 11 --block-size 32 --hash-seed 5 --latency-free"))
	if err != nil {
		t.Fatal(err)
	}
	e := c.engine
	if e.Timing.PerPrefill != 0 || e.Timing.PerDecode != 0 || e.Timing.StepBase != 3*time.Millisecond || e.MaxSeqs != 7 ||
		e.MaxBatchedTokens != 9 || e.Blocks != 11 || e.BlockSize != 32 || e.HashSeed != 5 || c.timeScale != 0 {
		t.Errorf("got %+v, time scale %v", e, c.timeScale)
	}
	if c, _, _ = parseFlags([]string{"--tokenizer", "t"}); c.engine.Timing.PerPrefill != time.Second/32000 {
		t.Errorf("a prompt token takes %v", c.engine.Timing.PerPrefill)
	}
}
