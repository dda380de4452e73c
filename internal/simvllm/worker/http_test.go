package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/warmroute/warmroute/internal/simvllm"
)

func TestCachedTokensAreAllFullBlocksBeforeTheLastToken(t *testing.T) {
	b := start(t)
	body := chat(prompt("whales", 20), `,"max_tokens":3`)
	cold, warm := b.post("/v1/chat/completions", body), b.post("/v1/chat/completions", body)
	n := cold.Usage.PromptTokens
	if cold.Usage.Details.CachedTokens != 0 || n < 100 {
		t.Errorf("the cold prompt of %d tokens has %d cached", n, cold.Usage.Details.CachedTokens)
	}
	if got, want := warm.Usage.Details.CachedTokens, (n-1)/16*16; got != want {
		t.Errorf("the warm prompt of %d tokens has %d cached, want %d", n, got, want)
	}
	if cold.Usage.CompletionTokens != 3 || cold.Usage.TotalTokens != n+3 || *cold.Choices[0].FinishReason != "length" {
		t.Errorf("with max_tokens 3: %+v, %s", *cold.Usage, *cold.Choices[0].FinishReason)
	}
	if got, want := b.metric("vllm:prefix_cache_hits_total"), fmt.Sprint((n-1)/16*16); got != want {
		t.Errorf("prefix_cache_hits_total is %s, want %s", got, want)
	}
	if got, want := b.metric("vllm:prefix_cache_queries_total"), fmt.Sprint(2*n); got != want {
		t.Errorf("prefix_cache_queries_total is %s, want %s", got, want)
	}
}

func TestNextTurnFindsTheAnswerCached(t *testing.T) {
	b := start(t)
	first := b.post("/v1/chat/completions", chat("Tell me about the sea.", `,"max_tokens":100`))
	said, _ := json.Marshal(first.Choices[0].Message.Content)
	second := b.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"Tell me about the sea."},{"role":"assistant","content":`+
		string(said)+`},{"role":"user","content":"And then?"}],"max_tokens":1}`)
	// All but the last generated token is computed.
	want := (first.Usage.PromptTokens + 99) / 16 * 16
	if got := second.Usage.Details.CachedTokens; got != want {
		t.Errorf("%d tokens cached, want %d", got, want)
	}
}

func TestAnswersAreTheSameForTheSamePromptAndReadBackAsTheirTokens(t *testing.T) {
	b, other := start(t), start(t, func(o *Options) { o.AnswerSeed = 7 })
	body := chat("Who are you?", `,"max_tokens":60,"return_token_ids":true`)
	one, two, three := b.post("/v1/chat/completions", body), b.post("/v1/chat/completions", body), other.post("/v1/chat/completions", body)
	text := one.Choices[0].Message.Content
	if text != two.Choices[0].Message.Content {
		t.Error("two answers to the same prompt differ")
	}
	if text == three.Choices[0].Message.Content {
		t.Error("another seed makes up the same answer")
	}
	quoted, _ := json.Marshal(text)
	read := b.post("/tokenize", fmt.Sprintf(`{"prompt":%s,"add_special_tokens":false}`, quoted))
	if len(one.Choices[0].TokenIDs) != 60 || !slices.Equal(read.Tokens, one.Choices[0].TokenIDs) {
		t.Errorf("generated %v, read back %v", one.Choices[0].TokenIDs, read.Tokens)
	}
	asked := b.post("/tokenize", chat("Who are you?", ""))
	if !slices.Equal(asked.Tokens, one.PromptTokenIDs) || asked.Count != one.Usage.PromptTokens {
		t.Errorf("/tokenize gives %v, the chat had %v", asked.Tokens, one.PromptTokenIDs)
	}
}

func TestStreamSaysTheSameAsTheWholeAnswer(t *testing.T) {
	b := start(t)
	whole := b.post("/v1/chat/completions", chat("Hello", `,"max_tokens":40,"n":2,"return_token_ids":true`))
	resp := b.do(t.Context(), http.MethodPost, "/v1/chat/completions", chat("Hello", `,"max_tokens":40,"n":2,"return_token_ids":true,"stream":true`))
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream; charset=utf-8" {
		t.Errorf("Content-Type %q", got)
	}
	events := b.events(resp.Body)
	text, tokens, roles, ends := make([]string, 2), make([][]uint32, 2), make([]int, 2), make([]int, 2)
	for _, e := range events {
		if e.Usage != nil {
			t.Error("usage, not asked for")
		}
		if e.ID != "chatcmpl-req-1" || e.Object != "chat.completion.chunk" || e.Model != modelName || e.SystemFingerprint != "simworker" {
			t.Errorf("an event is %+v", e)
		}
		c := e.Choices[0]
		if c.Delta.Role != "" {
			roles[c.Index]++
			if !slices.Equal(e.PromptTokenIDs, whole.PromptTokenIDs) {
				t.Error("the first event is without the prompt's ids")
			}
		}
		if c.FinishReason != nil {
			ends[c.Index]++
		}
		text[c.Index] += c.Delta.Content
		tokens[c.Index] = append(tokens[c.Index], c.TokenIDs...)
	}
	for i := range text {
		if text[i] != whole.Choices[i].Message.Content || !slices.Equal(tokens[i], whole.Choices[i].TokenIDs) {
			t.Errorf("choice %d streams %q, whole %q", i, text[i], whole.Choices[i].Message.Content)
		}
		if roles[i] != 1 || ends[i] != 1 {
			t.Errorf("choice %d has %d first and %d last events", i, roles[i], ends[i])
		}
	}
	if whole.Choices[0].Message.Content == whole.Choices[1].Message.Content {
		t.Error("both choices are the same")
	}
}

func TestStreamHasUsageInItsLastEventIfAskedFor(t *testing.T) {
	b := start(t)
	resp := b.do(t.Context(), http.MethodPost, "/v1/completions", completion(`"Once upon a time"`, `,"stream":true,"stream_options":{"include_usage":true}`))
	defer resp.Body.Close()
	events := b.events(resp.Body)
	last := events[len(events)-1]
	if last.Usage == nil || last.Usage.CompletionTokens != defaultCompletion || len(last.Choices) != 0 {
		t.Errorf("the last event is %+v", last)
	}
	for _, e := range events[:len(events)-1] {
		if e.Usage != nil || e.Object != "text_completion" || e.ID != "cmpl-req-1" {
			t.Errorf("an event before the last is %+v", e)
		}
	}
}

func TestPromptMayBeTextIdsOrListsOfEither(t *testing.T) {
	b := start(t)
	ids := b.post("/tokenize", completion(`"one two three"`, "")).Tokens
	list, _ := json.Marshal(ids)
	for _, tt := range []struct {
		name, prompt string
		want         [][]uint32
	}{
		{"text", `"one two three"`, [][]uint32{ids}},
		{"ids", string(list), [][]uint32{ids}},
		{"texts", `["one two three","one two three"]`, [][]uint32{ids, ids}},
		{"lists of ids", "[" + string(list) + ",[5]]", [][]uint32{ids, {5}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := b.post("/v1/completions", completion(tt.prompt, `,"return_token_ids":true,"n":2,"max_tokens":4`))
			var prompts [][]uint32
			total := 0
			for i, c := range got.Choices {
				if c.Index != i || len(c.TokenIDs) != 4 {
					t.Errorf("choice %d is %+v", i, c)
				}
				if i%2 == 0 {
					prompts = append(prompts, c.PromptTokenIDs)
					total += len(c.PromptTokenIDs)
				}
			}
			if !reflect.DeepEqual(prompts, tt.want) {
				t.Errorf("prompts %v, want %v", prompts, tt.want)
			}
			if got.Usage.PromptTokens != total || got.Usage.CompletionTokens != 4*len(got.Choices) {
				t.Errorf("usage %+v", *got.Usage)
			}
		})
	}
}

func TestErrorsComeInTheEnvelopeOfVLLM(t *testing.T) {
	b := start(t, func(o *Options) { o.Engine.Blocks = 513 }) // 8192 tokens
	const chats, texts = "/v1/chat/completions", "/v1/completions"
	for _, tt := range []struct {
		name, path, body string
		code             int
		kind, param      string
	}{
		{"not JSON", chats, `{"model"`, 400, "BadRequestError", ""},
		{"unknown model", chats, `{"model":"other","messages":[]}`, 404, "NotFoundError", "model"},
		{"no messages", chats, `{"model":"llama"}`, 400, "BadRequestError", "messages"},
		{"no prompt", texts, `{"model":"llama"}`, 400, "BadRequestError", "prompt"},
		{"empty list", texts, completion(`[]`, ""), 400, "BadRequestError", "prompt"},
		{"empty ids", texts, completion(`[[1],[]]`, ""), 400, "BadRequestError", "prompt"},
		{"no answers", texts, completion(`"a"`, `,"n":0`), 400, "BadRequestError", "n"},
		{"too many answers", texts, completion(`["a","b"]`, `,"n":1000`), 400, "BadRequestError", "n"},
		{"too many tokens in all", texts, completion(`"a"`, `,"n":1024,"max_tokens":5000`), 400, "BadRequestError", "n"},
		{"no tokens", texts, completion(`"a"`, `,"max_tokens":0`), 400, "BadRequestError", "max_tokens"},
		{"empty salt", texts, completion(`"a"`, `,"cache_salt":""`), 400, "BadRequestError", "cache_salt"},
		{"stream options of no stream", texts, completion(`"a"`, `,"stream_options":{"include_usage":true}`), 400, "BadRequestError", "stream_options"},
		{"prompt longer than the cache", chats, chat(prompt("whales", 2000), ""), 400, "BadRequestError", "input_tokens"},
		{"answer longer than the cache", texts, completion(`"a"`, `,"max_tokens":8192`), 400, "BadRequestError", "max_tokens"},
		{"neither kind", "/invocations", `{"inputs":"a"}`, 400, "BadRequestError", "prompt"},
		{"tokens missing", "/detokenize", `{}`, 400, "BadRequestError", "tokens"},
		{"adapter missing", "/v1/load_lora_adapter", `{}`, 400, "BadRequestError", "lora_name"},
		{"steps no number", "/dev/hold?steps=x", ``, 400, "BadRequestError", "steps"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, a := b.call(http.MethodPost, tt.path, tt.body)
			if a.Error == nil {
				t.Fatalf("status %d without an error", code)
			}
			param := ""
			if a.Error.Param != nil {
				param = *a.Error.Param
			}
			if code != tt.code || a.Error.Code != tt.code || a.Error.Type != tt.kind || param != tt.param || a.Error.Message == "" {
				t.Errorf("got %d %+v, param %q; want %d %s, param %q", code, *a.Error, param, tt.code, tt.kind, tt.param)
			}
		})
	}
	if s := b.runner.stats(); s.Running+s.Waiting != 0 {
		t.Errorf("a refused request is in flight: %+v", s)
	}
}

func TestRoutesThatDoNotExistSayDetail(t *testing.T) {
	b := start(t, func(o *Options) { o.Dev = false })
	for _, tt := range []struct {
		method, path string
		code         int
	}{
		{http.MethodGet, "/nothing", 404},
		{http.MethodPost, "/dev/hold", 404}, // only with Dev
		{http.MethodGet, "/v1/completions", 405},
		{http.MethodPost, "/health", 405},
	} {
		if code, a := b.call(tt.method, tt.path, ""); code != tt.code || a.Detail != http.StatusText(tt.code) {
			t.Errorf("%s %s answers %d %q, want %d", tt.method, tt.path, code, a.Detail, tt.code)
		}
	}
	for _, path := range []string{"/health", "/ping", "/version", "/v1/models", "/metrics"} {
		if code, _ := b.call(http.MethodGet, path, ""); code != 200 {
			t.Errorf("%s answers %d", path, code)
		}
	}
}

func TestInvocationsDispatchesByTheBody(t *testing.T) {
	b := start(t)
	for body, object := range map[string]string{
		chat("Hello", `,"max_tokens":1`):                                           "chat.completion",
		completion(`"Hello"`, `,"max_tokens":1`):                                   "text_completion",
		`{"prompt":[1,2],"max_tokens":1}`:                                          "text_completion",
		`{"messages":null,"prompt":"a"}`:                                           "text_completion",
		`{"prompt":"a","messages":[{"role":"user","content":"b"}],"max_tokens":1}`: "chat.completion",
	} {
		if got := b.post("/invocations", body).Object; got != object {
			t.Errorf("%s gives a %s, want %s", body, got, object)
		}
	}
}

func TestSaltsAndAdaptersShareNoBlocks(t *testing.T) {
	b := start(t, func(o *Options) { o.Adapters = []string{"sql"} })
	long, _ := json.Marshal(prompt("whales", 10))
	var scopes []string
	for _, model := range []string{modelName, "sql"} {
		for _, salt := range []string{"", `,"cache_salt":"a"`, `,"cache_salt":"b"`} {
			scopes = append(scopes, fmt.Sprintf(`{"model":%q,"prompt":%s,"max_tokens":1%s}`, model, long, salt))
		}
	}
	for _, body := range scopes {
		if got := b.post("/v1/completions", body); got.Usage.Details.CachedTokens != 0 {
			t.Errorf("%.20s… %s: %d tokens cached before its first", body, body[len(body)-20:], got.Usage.Details.CachedTokens)
		}
	}
	for _, body := range scopes {
		if got := b.post("/v1/completions", body); got.Usage.Details.CachedTokens == 0 {
			t.Errorf("%.20s… %s: nothing cached the second time", body, body[len(body)-20:])
		}
	}
}

func TestAdapterIsServedWhileLoadedAndKeepsItsBlocks(t *testing.T) {
	b := start(t)
	ask := func() (int, answer) {
		return b.call(http.MethodPost, "/v1/chat/completions", strings.Replace(chat(prompt("whales", 5), `,"max_tokens":1`), modelName, "sql", 1))
	}
	if code, _ := ask(); code != 404 {
		t.Errorf("not loaded: status %d", code)
	}
	b.post("/v1/load_lora_adapter", `{"lora_name":"sql","lora_path":"/x"}`)
	if code, a := b.call(http.MethodPost, "/v1/load_lora_adapter", `{"lora_name":"sql"}`); code != 400 || a.Error.Type != "InvalidUserInput" {
		t.Errorf("loaded twice: %d %+v", code, a.Error)
	}
	if code, a := ask(); code != 200 || a.Model != "sql" {
		t.Errorf("loaded: %d, model %q", code, a.Model)
	}
	b.post("/v1/unload_lora_adapter", `{"lora_name":"sql"}`)
	if code, _ := ask(); code != 404 {
		t.Errorf("unloaded: status %d", code)
	}
	b.post("/v1/load_lora_adapter", `{"lora_name":"sql"}`)
	if _, a := ask(); a.Usage.Details.CachedTokens == 0 {
		t.Error("reloaded: nothing cached")
	}
}

func TestAnswerWithoutMaxTokensEndsByItself(t *testing.T) {
	b := start(t)
	a := b.post("/v1/chat/completions", chat("Hello", ""))
	if n := a.Usage.CompletionTokens; n < 16 || n > 255 || *a.Choices[0].FinishReason != "stop" {
		t.Errorf("%d tokens, finish_reason %s", n, *a.Choices[0].FinishReason)
	}
	if got := b.metric("vllm:request_success_total"); got != "1" {
		t.Errorf("request_success_total is %s", got)
	}
}

func TestDisconnectEndsTheRequestAndKeepsItsBlocks(t *testing.T) {
	for _, stream := range []string{"true", "false"} {
		t.Run("stream "+stream, func(t *testing.T) {
			b := start(t)
			b.runner.hold(1) // the first step runs, no other
			body := chat(prompt("whales", 20), `,"max_tokens":100,"stream":`+stream)
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan struct{})
			go func() { // ends at cancel
				defer close(gone)
				req, _ := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/v1/chat/completions", strings.NewReader(body))
				if resp, err := b.client.Do(req); err == nil {
					_, _ = resp.Body.Read(make([]byte, 1<<16))
					<-ctx.Done()
					_ = resp.Body.Close()
				}
			}()
			eventually(t, func() bool { s := b.runner.stats(); return s.Running == 1 && s.Generated == 1 })
			if got := b.metric("vllm:num_requests_running"); got != "1" {
				t.Errorf("num_requests_running is %s", got)
			}
			cancel()
			<-gone
			b.rest()
			if s := b.runner.stats(); s.Running != 0 || s.UsedBlocks != 0 {
				t.Errorf("after the disconnect: %+v", s)
			}
			b.runner.releaseHold()
			if a := b.post("/v1/chat/completions", strings.Replace(body, `"stream":`+stream, `"stream":false`, 1)); a.Usage.Details.CachedTokens == 0 {
				t.Error("its blocks are gone")
			}
		})
	}
}

func TestHoldKeepsRequestsInFlightUntilRelease(t *testing.T) {
	b := start(t)
	b.post("/dev/hold", "")
	done := make(chan answer, 3)
	for range cap(done) {
		go func() { done <- b.post("/v1/completions", completion(`"Hello there"`, "")) }()
	}
	b.inFlight(3)
	if got := b.metric("vllm:num_requests_waiting"); got != "3" {
		t.Errorf("num_requests_waiting is %s", got)
	}
	b.post("/dev/hold?steps=2", "")
	eventually(t, func() bool { return b.runner.stats().Generated == 6 })
	if got := b.metric("vllm:num_requests_running"); got != "3" {
		t.Errorf("num_requests_running is %s", got)
	}
	if b.post("/reset_prefix_cache", "").Success == nil || *b.post("/reset_prefix_cache", "").Success {
		t.Error("the cache was cleared while in use")
	}
	b.post("/dev/release", "")
	for range cap(done) {
		<-done
	}
	b.rest()
	if !*b.post("/reset_prefix_cache", "").Success {
		t.Error("the cache was not cleared at rest")
	}
	if got := b.metric("vllm:kv_cache_usage_perc"); got != "0" {
		t.Errorf("kv_cache_usage_perc is %s at rest", got)
	}
}

func TestMetricsHaveTheNamesOfVLLM(t *testing.T) {
	b := start(t)
	b.post("/v1/completions", completion(`"Hello"`, ""))
	for name, want := range map[string]string{
		"vllm:num_requests_running": "0", "vllm:num_requests_waiting": "0", "vllm:kv_cache_usage_perc": "0",
		"vllm:prefix_cache_hits_total": "0", "vllm:generation_tokens_total": "16", "vllm:num_preemptions_total": "0",
		"vllm:time_to_first_token_seconds_count": "1", "vllm:inter_token_latency_seconds_count": "15",
		"vllm:request_queue_time_seconds_count": "1", "vllm:e2e_request_latency_seconds_count": "1",
		`vllm:cache_config_info`: "1",
	} {
		if got := b.metric(name); got != want {
			t.Errorf("%s is %q, want %s", name, got, want)
		}
	}
}

func TestConfigurationThatMakesNoSenseIsRefused(t *testing.T) {
	for _, change := range []func(*Options){
		func(o *Options) { o.TimeScale = -1 },
		func(o *Options) { o.Engine = simvllm.Config{} },
	} {
		o := defaults(t)
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%+v was taken", o.Engine)
		}
	}
}
