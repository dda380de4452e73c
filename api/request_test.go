package api

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/warmroute/warmroute/tokenize"
)

// openAIError is the envelope.
type openAIError struct {
	Error struct {
		Message, Type, Code string
		Param               *string
	}
}

func TestC15_RouterErrorsHaveTheEnvelopeAndACode(t *testing.T) {
	f := newFront(t, 1)
	for _, c := range []struct {
		name, body string
		header     []string
		status     int
		code       code
		param      string
	}{
		{"broken JSON", `{"model":`, nil, 400, codeJSON, ""},
		{"an array", `[]`, nil, 400, codeJSON, ""},
		{"empty", ``, nil, 400, codeJSON, ""},
		{"invalid UTF-8", "{\"model\":\"\xff\"}", nil, 400, codeJSON, ""},
		{"no model", `{"messages":[]}`, nil, 400, codeRequest, "model"},
		{"a number for the model", `{"model":7}`, nil, 400, codeRequest, "model"},
		{"unknown model", `{"model":"gpt-9","messages":[{}]}`, nil, 404, codeModel, "model"},
		{"no messages", `{"model":"` + testModel + `"}`, nil, 400, codeRequest, "messages"},
		{"empty messages", `{"model":"` + testModel + `","messages":[]}`, nil, 400, codeRequest, "messages"},
		{"C07: null message", `{"model":"` + testModel + `","messages":[null]}`, nil, 400, codeRequest, "messages"},
		{"long prefix id", chat("hi", ""), []string{prefixIDHeader, strings.Repeat("x", 65)}, 400, codePrefixID, prefixIDHeader},
		{"prefix id that begins with a space", chat("hi", ""), []string{prefixIDHeader, "\tx"}, 200, "", ""}, // trimmed by HTTP itself
		{"prefix id outside ASCII", chat("hi", ""), []string{prefixIDHeader, "é"}, 400, codePrefixID, prefixIDHeader},
		{"empty prefix id", chat("hi", ""), []string{prefixIDHeader, ""}, 400, codePrefixID, prefixIDHeader},
		{"I09: over the limit", `{"model":"` + strings.Repeat("x", 9<<20) + `"}`, nil, 413, codeTooLarge, ""},
		{"unknown coding", "x", []string{"Content-Encoding", "br"}, 415, codeEncoding, ""},
		{"not gzip", "x", []string{"Content-Encoding", "gzip"}, 400, codeEncoding, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := f.post(chatPath, c.body, c.header...)
			if r.status != c.status {
				t.Fatalf("got %d %s, want %d", r.status, r.body, c.status)
			}
			if c.status == http.StatusOK {
				return
			}
			var e openAIError
			if err := json.Unmarshal([]byte(r.body), &e); err != nil || e.Error.Message == "" || e.Error.Type == "" || e.Error.Code != string(c.code) {
				t.Errorf("%v: %s, want the code %s", err, r.body, c.code)
			}
			if c.param != "" && (e.Error.Param == nil || *e.Error.Param != c.param) {
				t.Errorf("got param %v, want %s", e.Error.Param, c.param)
			}
			if len(r.body) > 2000 {
				t.Errorf("an error of %d bytes", len(r.body))
			}
		})
	}
}

func TestIDsFollowTheirRules(t *testing.T) {
	for id, want := range map[string]bool{
		"a": true, "tenant 7!": true, "~": true, strings.Repeat("x", 64): true,
		"": false, " a": false, "a\tb": false, "\x7f": false, "caf\u00e9": false, strings.Repeat("x", 65): false,
	} {
		if got := validPrefixID(id); got != want {
			t.Errorf("prefix id %q: %v, want %v", id, got, want)
		}
	}
	for id, want := range map[string]bool{
		"abc-1.2_3:4": true, strings.Repeat("x", 128): true, "": false, "a b": false, "a\nb": false, strings.Repeat("x", 129): false,
	} {
		if got := validRequestID(id); got != want {
			t.Errorf("request id %q: %v, want %v", id, got, want)
		}
	}
}

func TestI13_ASlowBodyIsEnded(t *testing.T) {
	f := newFront(t, 1, func(o *Options) { o.Timeouts.ReadBody = 100 * time.Millisecond })
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.public.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST "+chatPath+" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
	answer, err := io.ReadAll(conn) // ends since the router closes the connection
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") || !strings.Contains(string(answer), string(codeSlow)) {
		t.Errorf("got %v: %s", err, answer)
	}
	if f.workers[0].count() != 0 {
		t.Error("half a request reached a worker")
	}
}

func TestC16_UnknownRoutesAndMethodsHaveTheEnvelope(t *testing.T) {
	f := newFront(t, 1)
	for _, path := range []string{"/v1/nothing", "/x.php", "/"} {
		r := f.post(path, "{}")
		var e openAIError
		if err := json.Unmarshal([]byte(r.body), &e); r.status != 404 || err != nil || e.Error.Code != string(codeRoute) {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	if r := f.get(f.public.URL + chatPath); r.status != http.StatusMethodNotAllowed || r.header.Get("Allow") == "" {
		t.Errorf("GET: %d %v %s", r.status, r.header, r.body)
	}
	if r := f.post("/endpoints/llama/unknown", "{}"); r.header.Get("x-amzn-ErrorType") != "ValidationError" {
		t.Errorf("native: %d %v %s", r.status, r.header, r.body)
	}
	if r := f.post("/v1/embeddings", `{"model":"`+testModel+`","input":"x"}`); r.status != 200 || r.header.Get("X-Warmroute-Rule") == "" {
		t.Errorf("embeddings: %d %s", r.status, r.body)
	}
}

func TestC05_C07_OddShapesGoOnWithoutAffinity(t *testing.T) {
	f := newFront(t, 1)
	for _, messages := range []string{
		`[{"role":"user","content":123}]`,
		`[{"role":"user","content":[null]}]`,
		`[{"role":"user","content":"x","tool_calls":[null]}]`,
		`[{"role":7,"content":{"a":1}}]`,
		`[{}]`,
		`[{"role":"user","content":"\ud800"}]`,
		`[{"role":"user","content":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}]`,
	} {
		before := f.workers[0].count()
		r := f.post(chatPath, `{"model":"`+testModel+`","messages":`+messages+`}`)
		if r.status != http.StatusOK || f.workers[0].count() != before+1 {
			t.Errorf("%.80s: %d %s", messages, r.status, r.body)
		}
		if n := r.header.Get("X-Warmroute-Matched-Tokens"); n != "0" {
			t.Errorf("%.80s: matched %s tokens", messages, n)
		}
	}
	if f.counter("warmroute_uncertain_prompts_total") == 0 {
		t.Error("no uncertain prompt was counted")
	}
}

func TestC08_CompletionsTakeEveryShapeOfPrompt(t *testing.T) {
	f := newFront(t, 1)
	for _, prompt := range []string{`"text"`, `["a","b"]`, `[1,2,3]`, `[[1,2],[3]]`, `[]`, `{}`} {
		body := `{"model":"` + testModel + `","prompt":` + prompt + `}`
		if r := f.post("/v1/completions", body); r.status != http.StatusOK {
			t.Errorf("%s: %d %s", prompt, r.status, r.body)
		}
		if got, _, _ := f.workers[0].last(); string(got) != body {
			t.Errorf("%s: the worker got %s", prompt, got)
		}
	}
}

func TestC12_CompressedBodiesAreReadForRoutingAndSentAsTheyCame(t *testing.T) {
	f := newFront(t, 1)
	plain := chat(strings.Repeat("The sea is wide. ", 40), "")
	f.post(chatPath, plain)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, plain)
	_ = z.Close()
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for coding, body := range map[string]string{"gzip": packed.String(), "zstd": string(e.EncodeAll([]byte(plain), nil))} {
		r := f.post(chatPath, body, "Content-Encoding", coding)
		got, h, _ := f.workers[0].last()
		if r.status != 200 || string(got) != body || h.Get("Content-Encoding") != coding {
			t.Errorf("%s: %d %s", coding, r.status, r.body)
		}
		if n := r.header.Get("X-Warmroute-Matched-Tokens"); n == "0" {
			t.Errorf("%s: nothing matched of a prompt sent before", coding)
		}
	}
	var bomb bytes.Buffer
	z = gzip.NewWriter(&bomb)
	for range 64 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	_ = z.Close()
	if r := f.post(chatPath, bomb.String(), "Content-Encoding", "gzip"); r.status != http.StatusRequestEntityTooLarge {
		t.Errorf("a bomb is %d %s", r.status, r.body)
	}
}

func TestC13_LengthIsRight(t *testing.T) {
	f := newFront(t, 1)
	lengths := make(chan int64, 1)
	f.workers[0].does(func(rw http.ResponseWriter, r *http.Request) { lengths <- r.ContentLength; answerOK(rw) })
	body := chat("hi", "")
	f.post(chatPath, body)
	if n := <-lengths; n != int64(len(body)) {
		t.Errorf("the worker saw a length of %d, want %d", n, len(body))
	}
}

func TestPrefixIDsComeFromHeaderOrCacheKey(t *testing.T) {
	f := newFront(t, 3)
	long := strings.Repeat("The sea is wide and the lamp is lit. ", 20)
	matched := func(r got) string { return r.header.Get("X-Warmroute-Matched-Tokens") }
	f.post(chatPath, chat(long, `,"prompt_cache_key":"a"`))
	if m := matched(f.post(chatPath, chat(long, `,"prompt_cache_key":"b"`))); m != "0" {
		t.Errorf("another key matched %s tokens", m)
	}
	if m := matched(f.post(chatPath, chat(long, `,"prompt_cache_key":"a"`))); m == "0" {
		t.Error("the same key matched nothing")
	}
	if m := matched(f.post(chatPath, chat(long, ""), prefixIDHeader, "a")); m == "0" {
		t.Error("the same id in the header matched nothing")
	}
}

func TestF04_F05_AdaptersAndSaltsShareNothing(t *testing.T) {
	f := newFront(t, 1)
	long := strings.Repeat("The sea is wide and the lamp is lit. ", 20)
	bodies := []string{
		chat(long, ""), chat(long, `,"cache_salt":"s1"`), chat(long, `,"cache_salt":"s2"`),
		strings.Replace(chat(long, ""), testModel, "sql-lora", 1),
	}
	for i, b := range bodies {
		if r := f.post(chatPath, b); r.status != 200 || r.header.Get("X-Warmroute-Matched-Tokens") != "0" {
			t.Errorf("body %d: %d, matched %s tokens of another's", i, r.status, r.header.Get("X-Warmroute-Matched-Tokens"))
		}
	}
	for i, b := range bodies {
		if r := f.post(chatPath, b); r.header.Get("X-Warmroute-Matched-Tokens") == "0" {
			t.Errorf("body %d: matched nothing the second time", i)
		}
	}
}

func TestNativeBodiesMayBeAnything(t *testing.T) {
	f := newFront(t, 2)
	opaque := strings.Repeat("\x00\xff binary \x01", 200)
	first := f.post("/endpoints/llama/invocations", opaque, "Content-Type", "application/x-npy")
	second := f.post("/endpoints/llama/invocations", opaque)
	if first.status != 200 || second.header.Get("X-Warmroute-Instance") != first.header.Get("X-Warmroute-Instance") || second.header.Get("X-Warmroute-Rule") != "prefix_hit" {
		t.Errorf("first %v, second %v", first.header, second.header)
	}
	if first.header.Get("X-Amzn-Invoked-Production-Variant") != "AllTraffic" || first.header.Get("X-Amzn-Requestid") == "" {
		t.Errorf("got %v", first.header)
	}
}

func TestNativeKeyOrderAndWhiteSpaceDoNotMatter(t *testing.T) {
	f := newFront(t, 3)
	text := strings.Repeat("The sea is wide and the lamp is lit. ", 20)
	a := `{"messages":[{"role":"user","content":"` + text + `"}],"max_tokens":5}`
	b := "{ \"max_tokens\": 5,\n\"messages\": [ {\"content\":\"" + text + "\", \"role\":\"user\"} ] }"
	first, second := f.post("/endpoints/llama/invocations", a), f.post("/endpoints/llama/invocations", b)
	if second.header.Get("X-Warmroute-Instance") != first.header.Get("X-Warmroute-Instance") || second.header.Get("X-Warmroute-Matched-Tokens") == "0" {
		t.Errorf("first %v, second %v", first.header, second.header)
	}
}

func TestD07_AWorkersErrorIsAModelError(t *testing.T) {
	f := newFront(t, 1)
	for _, status := range []int{400, 404, 422, 500} {
		long := strings.Repeat("y", 1<<20)
		f.workers[0].does(func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, long, status) })
		r := f.post("/endpoints/llama/invocations", "{}")
		var e struct {
			Message, OriginalMessage string
			OriginalStatusCode       int
		}
		if err := json.Unmarshal([]byte(r.body), &e); err != nil || r.status != 424 || r.header.Get("X-Amzn-Errortype") != "ModelError" || e.OriginalStatusCode != status {
			t.Errorf("%d came as %d %v: %.200s", status, r.status, r.header, r.body)
		}
		if e.OriginalMessage == "" || len(e.OriginalMessage) > 5000 {
			t.Errorf("OriginalMessage has %d bytes", len(e.OriginalMessage))
		}
	}
}

func TestI08_NothingOfARequestIsLogged(t *testing.T) {
	f := newFront(t, 1)
	const canary = "canary-7f3a"
	f.workers[0].does(func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, canary, http.StatusInternalServerError) })
	f.post(chatPath, chat(canary, ""), "Authorization", "Bearer "+canary, prefixIDHeader, canary, "Cookie", canary)
	f.post(chatPath, `{"model":"`+testModel+`","messages":"`+canary+`"}`)
	f.post("/endpoints/llama/invocations", canary)
	f.post("/v1/"+canary, canary)
	if logs := f.logs.String(); strings.Contains(logs, canary) || !strings.Contains(logs, `"msg":"request"`) {
		t.Errorf("got %s", logs)
	}
	if m := f.get(f.admin.URL + "/metrics").body; strings.Contains(m, canary) {
		t.Error("the canary is in the metrics")
	}
}

func TestH01_H02_LabelsAreBounded(t *testing.T) {
	f := newFront(t, 1)
	f.post(chatPath, chat("hi", ""))
	size := func() int { return strings.Count(f.get(f.admin.URL+"/metrics").body, "\nwarmroute_requests_total{") }
	f.post(chatPath, `{"model":"x"}`)
	f.post("/endpoints/nowhere/invocations", "{}")
	before := size()
	for i := range 50 {
		f.post(chatPath, fmt.Sprintf(`{"model":"m%d"}`, i))
		f.post(fmt.Sprintf("/x%d.php", i), "")
		f.post(fmt.Sprintf("/endpoints/e%d/invocations", i), "{}")
	}
	if after := size(); after != before {
		t.Errorf("%d series became %d", before, after)
	}
}

func TestI12_AmbiguousFramingIsRefused(t *testing.T) {
	f := newFront(t, 1)
	body := chat("hi", "")
	for name, head := range map[string]string{
		"two lengths":         fmt.Sprintf("Content-Length: %d\r\nContent-Length: 3\r\n\r\n%s", len(body), body),
		"length and chunked":  fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", len(body)),
		"odd coding":          "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"space before colon":  fmt.Sprintf("Content-Length : %d\r\n\r\n%s", len(body), body),
		"folded header":       fmt.Sprintf("X-A: b\r\n c\r\nContent-Length: %d\r\n\r\n%s", len(body), body),
		"bad chunk size line": "Transfer-Encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(f.public.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "POST "+chatPath+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"+head)
		answer, _ := io.ReadAll(conn)
		conn.Close()
		if n := strings.Count(string(answer), "HTTP/1.1 "); n != 1 {
			t.Errorf("%s: %d answers: %.200s", name, n, answer)
		}
	}
	if n := f.workers[0].count(); n > 1 { // a folded header alone may be unfolded and served
		t.Errorf("%d requests reached the worker", n)
	}
}

func TestModelsListsEndpointsAndAdapters(t *testing.T) {
	f := newFront(t, 2)
	r := f.get(f.public.URL + "/v1/models")
	if !strings.Contains(r.body, testModel) || strings.Count(r.body, `"id":"sql-lora"`) != 1 {
		t.Errorf("got %s", r.body)
	}
}

func TestExplainReservesNothing(t *testing.T) {
	f := newFront(t, 2)
	body := chat(strings.Repeat("The sea is wide. ", 40), "")
	served := f.post(chatPath, body).header.Get("X-Warmroute-Instance")
	req, err := http.NewRequest(http.MethodPost, f.admin.URL+"/admin/v1/explain", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r := f.do(req)
	var e struct {
		Decision struct{ Instance, Rule string }
	}
	if err := json.Unmarshal([]byte(r.body), &e); err != nil || e.Decision.Instance != served || e.Decision.Rule != "prefix_hit" {
		t.Errorf("served by %s, explained as %s (%v)", served, r.body, err)
	}
	if f.inFlight() != 0 {
		t.Error("explaining reserved a place")
	}
}

func TestWithoutATokenizerBodiesAreMatchedByTheirBytes(t *testing.T) {
	f := newFront(t, 3, func(o *Options) { o.Models = func(string) *tokenize.Model { return nil } })
	body := chat(strings.Repeat("The sea is wide. ", 40), "")
	first, second := f.post(chatPath, body), f.post(chatPath, body)
	if second.header.Get("X-Warmroute-Rule") != "prefix_hit" || second.header.Get("X-Warmroute-Instance") != first.header.Get("X-Warmroute-Instance") {
		t.Errorf("first %v, second %v", first.header, second.header)
	}
}

func TestHealthAnswersHEADToo(t *testing.T) {
	f := newFront(t, 1)
	for _, path := range []string{"/health", "/healthz", "/livez", "/readyz", "/v1/models"} {
		req, err := http.NewRequest(http.MethodHead, f.public.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if r := f.do(req); r.status != http.StatusOK || r.body != "" {
			t.Errorf("HEAD %s: %d %q", path, r.status, r.body)
		}
	}
}

func TestNotReadySaysSo(t *testing.T) {
	f := newFront(t, 1, func(o *Options) { o.Ready = func() (bool, string) { return false, "draining" } })
	if r := f.get(f.admin.URL + "/readyz"); r.status != http.StatusServiceUnavailable || !strings.Contains(r.body, "draining") {
		t.Errorf("got %d %s", r.status, r.body)
	}
	if r := f.get(f.admin.URL + "/livez"); r.status != http.StatusOK {
		t.Errorf("alive: got %d", r.status)
	}
	if r := f.get(f.public.URL + "/metrics"); r.status != http.StatusNotFound {
		t.Errorf("the public listener serves metrics: %d", r.status)
	}
}

func TestNoInstanceIsA503WithRetryAfter(t *testing.T) {
	f := newFront(t, 1)
	f.fleet.Endpoints()[0].Variants()[0].Instances()[0].SetReady(false)
	r := f.post(chatPath, chat("hi", ""))
	if r.status != 503 || r.header.Get("Retry-After") == "" || !strings.Contains(r.body, string(codeNoWorker)) {
		t.Errorf("got %d %v %s", r.status, r.header, r.body)
	}
}

// counter is the sum over the series of a metric.
func (f *front) counter(name string) float64 {
	f.t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() == name {
			for _, m := range family.GetMetric() {
				sum += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func TestTruthIsCounted(t *testing.T) {
	f := newFront(t, 1)
	f.workers[0].does(func(rw http.ResponseWriter, _ *http.Request) {
		stream(rw, "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n", ": ping\n\n", "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n",
			"data: {\"choices\":[],\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":32}}}\n\n", "data: [DONE]\n\n")
	})
	f.post(chatPath, chat("hi", `,"stream":true`))
	if got := f.counter("warmroute_cached_tokens_total"); got != 32 {
		t.Errorf("counted %v cached tokens, want 32", got)
	}
	if f.counter("warmroute_time_to_first_token_seconds") != 1 || f.counter("warmroute_match_error_tokens") != 1 {
		t.Error("no first token or no error was counted")
	}
}

func TestH05_TheFirstTokenIsTheFirstGeneratedText(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		want bool
	}{
		"role only":  {`{"choices":[{"delta":{"role":"assistant","content":""}}]}`, false},
		"content":    {`{"choices":[{"delta":{"content":"x"}}]}`, true},
		"reasoning":  {`{"choices":[{"delta":{"reasoning_content":"x"}}]}`, true},
		"tool call":  {`{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}`, true},
		"completion": {`{"choices":[{"text":"x"}]}`, true},
		"usage":      {`{"choices":[],"usage":{}}`, false},
		"error":      {`{"error":{}}`, false},
		"done":       {`[DONE]`, false},
	} {
		if got := hasToken([]byte(c.data)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The observer sees the same whatever the chunks are, and never panics.
func FuzzObserver(f *testing.F) {
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: {\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":3}}}\n\n"), 5)
	f.Add([]byte(": ping\r\n\r\ndata:x\n"), 1)
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		h := http.Header{"Content-Type": {"text/event-stream"}}
		whole, parts := newObserver(h), newObserver(h)
		whole.see(data)
		size = max(1, size&0xff)
		for rest := data; len(rest) > 0; {
			n := min(size, len(rest))
			parts.see(rest[:n])
			rest = rest[n:]
		}
		if whole.first != parts.first || whole.cached != parts.cached || whole.counted != parts.counted {
			t.Errorf("whole %+v, in parts of %d %+v", whole, size, parts)
		}
	})
}

// Reading a body's fields never panics, and its faults are 4xx.
func FuzzReadFields(f *testing.F) {
	for _, s := range []string{`{}`, `{"model":null}`, `[null]`, `{"messages":[null],"model":"x"}`, "{\"a\":\"\xff\"}", `{"model":"a","model":"b","stream":true}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r := &request{route: chatRoute(), body: body}
		fault := r.readFields()
		if fault == nil {
			fault = r.checkMessages()
		}
		if fault != nil && (fault.status < 400 || fault.status > 499) {
			t.Errorf("status %d", fault.status)
		}
		var probe struct{ Model string }
		if err := json.Unmarshal(body, &probe); err == nil && r.json && r.model != probe.Model && !hasFolded(body) {
			t.Errorf("model %q, encoding/json reads %q", r.model, probe.Model)
		}
		var syntax *json.SyntaxError
		if err := json.Unmarshal(body, &probe); errors.As(err, &syntax) && r.json {
			t.Errorf("took what encoding/json calls %v", err)
		}
	})
}

// hasFolded reports whether encoding/json, which ignores case and replaces what
// is no text, may read another model than ours.
func hasFolded(body []byte) bool {
	lower := bytes.ToLower(body)
	return bytes.Count(lower, []byte(`model`)) != bytes.Count(body, []byte(`"model"`)) || bytes.Contains(body, []byte(`\`)) || bytes.Contains(body, []byte(`null`))
}
