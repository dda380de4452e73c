package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

func TestBadInputGetsAClearError(t *testing.T) {
	f := startFleet(t, fleetOptions{workers: 1})
	const openai, native = "/v1/chat/completions", "/endpoints/llama/invocations"
	const id = "X-Amzn-SageMaker-Prefix-Aware-Id"
	good := chat([]message{{"user", "Hello."}}, 4, nil)
	cases := []struct {
		name, route, body string
		header            []string
		status            int
		says              string // part of the message
	}{
		{"invalid JSON", openai, `{"model":`, nil, 400, "JSON"},
		{"an array", openai, `[1]`, nil, 400, "object"},
		{"no messages", openai, `{"model":"` + model + `"}`, nil, 400, "messages"},
		{"empty messages", openai, `{"model":"` + model + `","messages":[]}`, nil, 400, "messages"},
		{"null message", openai, `{"model":"` + model + `","messages":[null]}`, nil, 400, "messages"},
		{"no model", openai, `{"messages":[{"role":"user","content":"x"}]}`, nil, 400, "model"},
		{"unknown model", openai, `{"model":"gpt-9","messages":[{"role":"user","content":"x"}]}`, nil, 404, model},
		{"body over the limit", openai, `{"model":"` + model + `","messages":[{"role":"user","content":"` + strings.Repeat("x", 33<<20) + `"}]}`, nil, 413, "limit"},
		{"prefix id over 64 characters", openai, good, []string{id, strings.Repeat("a", 65)}, 400, "64"},
		{"prefix id not ASCII", openai, good, []string{id, "café"}, 400, "ASCII"},
		{"empty prefix id", openai, good, []string{id, ""}, 400, "1"},
		{"native: unknown endpoint", "/endpoints/nowhere/invocations", good, nil, 400, "nowhere"},
		{"native: prefix id over 64 characters", native, good, []string{id, strings.Repeat("a", 65)}, 400, "64"},
		{"native: prefix id not ASCII", native, good, []string{id, "café"}, 400, "ASCII"},
		{"native: body over the limit", native, strings.Repeat("x", 33<<20), nil, 413, "limit"},
		{"native: the worker's refusal", native, `{"model":"` + model + `"}`, nil, 424, ""},
		{"unknown route", "/v2/nothing", good, nil, 404, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := f.post(f.api+c.route, c.body, c.header...)
			if got.Err != nil || got.StatusCode != c.status {
				t.Fatalf("got status %d, %v, want %d: %s", got.StatusCode, got.Err, c.status, tail(string(got.Body), 400))
			}
			var message string
			if strings.HasPrefix(c.route, "/endpoints") {
				var e struct{ Message string }
				if err := json.Unmarshal(got.Body, &e); err != nil || e.Message == "" {
					t.Fatalf("not a SageMaker-shaped error (%v): %s", err, got.Body)
				}
				if got.Header.Get("x-amzn-ErrorType") == "" {
					t.Error("no x-amzn-ErrorType")
				}
				message = e.Message
			} else {
				var e struct {
					Error struct{ Message, Type, Code string }
				}
				if err := json.Unmarshal(got.Body, &e); err != nil || e.Error.Message == "" || e.Error.Type == "" {
					t.Fatalf("not an OpenAI-shaped error (%v): %s", err, got.Body)
				}
				message = e.Error.Message
			}
			if !strings.Contains(message, c.says) {
				t.Errorf("the message %q does not say %q", message, c.says)
			}
		})
	}
	if n := f.inFlightTotal(); n != 0 {
		t.Errorf("%d requests in flight after refusals", n)
	}
}

func TestRoutesAnswer(t *testing.T) {
	f := startFleet(t, fleetOptions{workers: 2})
	var models struct {
		Data []struct{ ID string }
	}
	if err := json.Unmarshal(f.get(f.api+"/v1/models").ok(t).Body, &models); err != nil || len(models.Data) != 1 || models.Data[0].ID != model {
		t.Errorf("got models %+v, %v, want %s alone", models, err, model)
	}
	completion := f.post(f.api+"/v1/completions", `{"model":"`+model+`","prompt":"Once upon a time","max_tokens":4}`).ok(t)
	if rec, use := completion.receipt(t), completion.usage(t); rec.prompt != use.PromptTokens {
		t.Errorf("the router counted %d prompt tokens, the worker %d", rec.prompt, use.PromptTokens)
	}
	stream := f.post(f.api+"/v1/completions", `{"model":"`+model+`","prompt":"Once upon a time","max_tokens":4,"stream":true}`).ok(t)
	if !strings.HasSuffix(string(stream.Body), "data: [DONE]\n\n") {
		t.Errorf("the stream does not end in [DONE]: %s", tail(string(stream.Body), 200))
	}
	for _, url := range []string{f.admin + "/healthz", f.admin + "/readyz", f.admin + "/metrics"} {
		f.get(url).ok(t)
	}
	if got := f.get(f.api + "/metrics"); got.StatusCode != http.StatusNotFound {
		t.Errorf("the API listener answers /metrics with %d, want 404", got.StatusCode)
	}
}
