package tokenize

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// tokensOf is the ids of a chat, or the reason why there are none.
func tokensOf(m *Model, body string) ([]Token, string) {
	ids, _, err := m.Tokens(Chat, []byte(body))
	if err != nil && !errors.Is(err, ErrUncertain) {
		return nil, "not uncertain: " + err.Error()
	}
	return ids, Reason(err)
}

func TestC04_ContentPartsOfEveryRole(t *testing.T) {
	m := openTest(t, ModelOptions{})
	for _, tc := range []struct{ name, a, b string }{
		{
			"user parts are joined by a newline",
			`{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}`,
			`{"role":"user","content":"one\ntwo"}`,
		},
		{
			"tool parts are text",
			`{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"21.5"}]}`,
			`{"role":"tool","content":"21.5"}`,
		},
		{
			"a refusal is text",
			`{"role":"assistant","content":[{"type":"refusal","refusal":"No."}]}`,
			`{"role":"assistant","content":"No."}`,
		},
		{
			"no content is empty content",
			`{"role":"assistant","content":null}`,
			`{"role":"assistant","content":""}`,
		},
		{
			"no tool calls are none",
			`{"role":"assistant","content":"x","tool_calls":[]}`,
			`{"role":"assistant","content":"x"}`,
		},
		{
			"arguments are read and written again",
			`{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1.50,\"b\":\"é\",\"a\":2}"}}]}`,
			`{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"a": 2, "b": "\u00e9"}}}]}`,
		},
		{
			"no arguments are an empty object",
			`{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":""}}]}`,
			`{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}}]}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, ra := tokensOf(m, `{"messages":[`+tc.a+`]}`)
			b, rb := tokensOf(m, `{"messages":[`+tc.b+`]}`)
			if ra != "" || rb != "" || !slices.Equal(a, b) {
				t.Errorf("%d ids (%s) and %d ids (%s): want the same", len(a), ra, len(b), rb)
			}
		})
	}
}

func TestC04_TheMatchStopsAtMedia(t *testing.T) {
	m := openTest(t, ModelOptions{})
	roots := []Root{{1, 1}}
	const before = `{"messages":[{"role":"system","content":"You see things."},{"role":"user","content":"Before it."},`
	var p, q, text Prompt
	if err := m.Prompt(&text, Chat, []byte(before+`{"role":"user","content":"x"}]}`), 0, roots); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`{"type":"image_url","image_url":{"url":"http://a/b.png"}}`, `{"type":"input_audio","input_audio":{}}`, `{"type":"thinking","thinking":"x"}`,
	} {
		body := before + `{"role":"user","content":[{"type":"text","text":"Look: "},` + part + `,{"type":"text","text":"%s"}]}]}`
		for i, out := range []*Prompt{&p, &q} {
			if err := m.Prompt(out, Chat, fmt.Appendf(nil, body, []string{"what?", "why?"}[i]), 0, roots); err != nil {
				t.Fatal(err)
			}
		}
		keys := p.Chains[0].Keys
		if p.Whole || !samePrompt(p, q) || len(keys) < 20 || !slices.Equal(keys, text.Chains[0].Keys[:len(keys)]) {
			t.Errorf("%s: %d keys, whole %v: want those before the message with it", part, len(keys), p.Whole)
		}
		if _, reason := tokensOf(m, fmt.Sprintf(body, "x")); reason != "media" {
			t.Errorf("%s: Tokens gives the reason %q, want media", part, reason)
		}
	}
}

func TestC05_OddShapesAreNeverAnEmptyPrompt(t *testing.T) {
	m := openTest(t, ModelOptions{})
	a, _ := tokensOf(m, `{"messages":[{"role":"user","content":[{"type":"text","text":"one"}]}]}`)
	b, _ := tokensOf(m, `{"messages":[{"role":"user","content":[{"type":"text","text":"two"}]}]}`)
	if len(a) == 0 || slices.Equal(a, b) {
		t.Error("two requests with different parts have the same ids")
	}
	for body, want := range map[string]string{
		`{"messages":[{"role":"user","content":123}]}`:      "unknown_shape",
		`{"messages":[{"role":"developer","content":"x"}]}`: "developer_role",
		`{"messages":[]}`:                "empty_prompt",
		`{"messages":null}`:              "unknown_shape",
		`{}`:                             "unknown_shape",
		`[]`:                             "unknown_shape",
		`{"messages":[{"content":"x"}]}`: "unknown_shape",
		`{"messages":[{"role":"user","content":{"a":1}}]}`:                                                       "unknown_shape",
		`{"messages":[{"role":"user","content":[{"text":"x"}]}]}`:                                                "unknown_shape",
		`{"messages":[{"role":"user","content":"x"}],"tools":7}`:                                                 "unknown_shape",
		`{"messages":[{"role":"user","content":"x"}],"tools":[{"a":1}]}`:                                         "unknown_shape",
		`{"messages":[{"role":"user","content":"x"}],"add_generation_prompt":1}`:                                 "unknown_shape",
		`{"messages":[{"role":"user","content":"x"}],"chat_template":"{{1}}"}`:                                   "request_template",
		`{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":[]}`:                                 "unknown_shape",
		`{"messages":[{"role":"user","content":"x"}],"continue_final_message":true}`:                             "continue_final_message",
		`{"messages":[{"role":"user","content":"x"}],"truncate_prompt_tokens":9}`:                                "truncate_prompt_tokens",
		`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f"}},{"function":{"name":"g"}}]}]}`: "template_error",
		`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}]}`:           "unknown_shape",
		`{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"bos_token":"y"}}`:                  "request_template",
	} {
		if ids, reason := tokensOf(m, body); reason != want || len(ids) > 0 {
			t.Errorf("%s: %d ids, reason %q, want %q", body, len(ids), reason, want)
		}
	}
}

func TestC07_HostileBodies(t *testing.T) {
	m := openTest(t, ModelOptions{})
	deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	wide := `{"x":{` + strings.Repeat(`"k":1,`, 100_000) + `"k":1},"messages":[{"role":"user","content":"x"}]}`
	for _, tc := range []struct{ name, body, want string }{
		{"null part", `{"messages":[{"role":"user","content":[null]}]}`, "unknown_shape"},
		{"null tool call", `{"messages":[{"role":"assistant","tool_calls":[null]}]}`, "unknown_shape"},
		{"null message", `{"messages":[null]}`, "unknown_shape"},
		{"numbers", `{"messages":[1,2]}`, "unknown_shape"},
		{"deep", `{"messages":` + deep + `}`, "deep_json"},
		{"deeper than any stack", strings.Repeat("[", 20_000_000), "deep_json"},
		{"wide", wide, ""},
		{"many brackets, not deep", `{"x":[` + strings.Repeat(`[],`, 5000) + `0],"messages":[{"role":"user","content":"[[[["}]}`, ""},
		{"invalid UTF-8", "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", "invalid_utf8"},
		{"lone surrogate", `{"messages":[{"role":"user","content":"\ud800"}]}`, "lone_surrogate"},
		{"surrogates in the wrong order", `{"messages":[{"role":"user","content":"\udc00\ud800"}]}`, "lone_surrogate"},
		{"not JSON", `{"messages":`, "invalid_json"},
		{"empty", ``, "invalid_json"},
		{"two values", `{}{}`, "invalid_json"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, reason := tokensOf(m, tc.body); reason != tc.want {
				t.Errorf("reason %q, want %q", reason, tc.want)
			}
		})
	}
}

func TestC07_TheLastOfEqualKeysCounts(t *testing.T) {
	m := openTest(t, ModelOptions{})
	a, ra := tokensOf(m, `{"messages":[{"role":"user","content":"no"}],"mess\u0061ges":[{"role":"x","role":"user","content":"no","content":"yes"}]}`)
	b, rb := tokensOf(m, `{"messages":[{"role":"user","content":"yes"}]}`)
	if ra != "" || rb != "" || !slices.Equal(a, b) {
		t.Errorf("%d ids (%s) and %d ids (%s): want the same", len(a), ra, len(b), rb)
	}
}

func TestDeveloperMessagesAreWhatTheWorkersMakeOfThem(t *testing.T) {
	m := openTest(t, ModelOptions{})
	text := func(role string) string {
		t.Helper()
		body := `{"messages":[{"role":"` + role + `","content":"Be brief."},{"role":"user","content":"Hello."},{"role":"` + role + `","content":"In French."}]}`
		_, text, err := m.Tokens(Chat, []byte(body))
		if err != nil {
			return Reason(err)
		}
		return text
	}
	if got := text("developer"); got != "developer_role" {
		t.Errorf("before anything is known: %q", got)
	}
	m.SetDeveloperRole(DeveloperAsSystem)
	if got := text("developer"); got != text("system") {
		t.Errorf("as system: %q", got)
	}
	m.SetDeveloperRole(DeveloperAsIs)
	// The template has no case for it, and writes the role as it is.
	if got := text("developer"); !strings.Contains(got, "Today Date: 26 Jul 2024\n\n<|eot_id|><|start_header_id|>developer<|end_header_id|>\n\nBe brief.<|eot_id|>") {
		t.Errorf("as it is: %q", got)
	}
	m.SetDeveloperRole(DeveloperUnknown)
	if got := text("developer"); got != "developer_role" {
		t.Errorf("unknown again: %q", got)
	}
}

func TestF03_TheDateIsTheTemplates(t *testing.T) {
	m := openTest(t, ModelOptions{})
	const body = `{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{%s}}`
	for kwargs, want := range map[string]string{
		``:                              "Today Date: 26 Jul 2024\n",
		`"date_string":"01 Dec 2026"`:   "Today Date: 01 Dec 2026\n",
		`"date_string":"a","unused":[]`: "Today Date: a\n",
	} {
		_, text, err := m.Tokens(Chat, fmt.Appendf(nil, body, kwargs))
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%s: %v, no %q in the prompt", kwargs, err, want)
		}
	}
}

func TestF03_ATemplateThatAsksTheClockIsUncertain(t *testing.T) {
	e, err := newEngine(`{%- if not date_string is defined %}{%- set date_string = strftime_now("%d %b %Y") %}{%- endif %}`+
		`{{ date_string }}{% for m in messages %}{{ m.content | trim }}{% endfor %}`, "", "")
	if err != nil {
		t.Fatal(err)
	}
	m := openTest(t, ModelOptions{})
	m.template = e
	if _, reason := tokensOf(m, `{"messages":[{"role":"user","content":"x"}]}`); reason != "template_clock" {
		t.Errorf("reason %q, want template_clock", reason)
	}
	_, text, err := m.Tokens(Chat, []byte(`{"messages":[{"role":"user","content":" x "}],"chat_template_kwargs":{"date_string":"now"}}`))
	if err != nil || text != "nowx" {
		t.Errorf("with a date: %q, %v", text, err)
	}
}

func TestF08_TextsThatBreakTokenizers(t *testing.T) {
	m := openTest(t, ModelOptions{CacheBytes: -1})
	for _, tc := range []struct {
		name, text, want string
	}{
		{"raw 0xff", "a\xffb", "invalid_utf8"},
		{"an encoded surrogate", "\xed\xa0\x80", "invalid_utf8"},
		{"a cut character", "\xe6\xbc", "invalid_utf8"},
		{"NUL", "a\x00b", ""},
		{"a million combining marks", strings.Repeat("\u0301", 1_000_000), "long_word"},
		{"nothing", "", ""},
		{"64 KB of one letter", strings.Repeat("a", 65536), ""},
		{"a megabyte of one letter", strings.Repeat("a", 1<<20), "long_word"},
		{"a megabyte of spaces", strings.Repeat(" ", 1<<20), "long_word"},
		{"a megabyte of openings", strings.Repeat("<|", 1<<19), "long_word"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ids, err := m.Encode(nil, []byte(tc.text))
			if Reason(err) != tc.want {
				t.Fatalf("got %v, want the reason %q", err, tc.want)
			}
			if err == nil && m.Decode(ids) != tc.text {
				t.Error("the text does not come back")
			}
		})
	}
}

func TestF09_OneModelServesManyGoroutines(t *testing.T) {
	m := openTest(t, ModelOptions{CacheBytes: 4 << 20})
	texts := append(sampleTexts(), strings.Repeat("long word"[:4], 500))
	want := make([][]Token, len(texts))
	for i, text := range texts {
		want[i], _ = m.Encode(nil, []byte(text))
	}
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i, text := range texts {
				if got, err := m.Encode(nil, []byte(text)); err != nil || !slices.Equal(got, want[i]) {
					t.Errorf("text %d: %v, or other ids than alone", i, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestF11_ModelsKeepApart(t *testing.T) {
	a, b := openTest(t, ModelOptions{}), openTest(t, ModelOptions{})
	var err error
	if b.template, err = newEngine(`{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}`, "", ""); err != nil {
		t.Fatal(err)
	}
	const body = `{"messages":[{"role":"user","content":"Hello"}]}`
	x, _ := tokensOf(a, body)
	y, _ := tokensOf(b, body)
	if slices.Equal(x, y) || b.Decode(y) != "[user] Hello" {
		t.Errorf("the second model renders %q", b.Decode(y))
	}
}

func TestF13_OneChainForEveryBlockSize(t *testing.T) {
	m := openTest(t, ModelOptions{})
	body := chatBody(t, strings.Repeat("All work and no play. ", 400))
	ids, _, err := m.Tokens(Chat, body)
	if err != nil {
		t.Fatal(err)
	}
	var p Prompt
	for range 3 {
		if err := m.Prompt(&p, Chat, body, 0, []Root{{16, 1}, {32, 2}, {64, 3}}); err != nil {
			t.Fatal(err)
		}
		for i, size := range []int{16, 32, 64} {
			if got := len(p.Chains[i].Keys); got != len(ids)/size {
				t.Errorf("block size %d: %d keys for %d tokens", size, got, len(ids))
			}
		}
	}
}

func TestErrorsHoldNoTextOfThePrompt(t *testing.T) {
	m := openTest(t, ModelOptions{})
	for _, body := range []string{
		`{"messages":[{"role":"user","content":"canary` + "\xff" + `"}]}`, `{"messages":[{"role":"user","content":{"canary":1}}]}`,
		`{"messages":["canary"]}`, `canary`, `{"prompt":{"canary":1}}`,
	} {
		for _, kind := range []Kind{Chat, Completion} {
			_, _, err := m.Tokens(kind, []byte(body))
			if err == nil || strings.Contains(err.Error(), "canary") || bytes.Contains([]byte(Reason(err)), []byte("canary")) {
				t.Errorf("%q: %v", body, err)
			}
		}
	}
}

func TestReasoningEffortIsUncertainWhereATemplateReadsIt(t *testing.T) {
	m := openTest(t, ModelOptions{})
	const body = `{"messages":[{"role":"user","content":"x"}],"reasoning_effort":"low"}`
	if _, reason := tokensOf(m, body); reason != "" {
		t.Errorf("Llama 3.1's template does not read it, but the reason is %q", reason)
	}
	var err error
	if m.template, err = newEngine(`{% if enable_thinking is defined %}t{% endif %}{{ messages[0].content }}`, "", ""); err != nil {
		t.Fatal(err)
	}
	if _, reason := tokensOf(m, body); reason != "template_error" {
		t.Errorf("reason %q, want template_error", reason)
	}
}
