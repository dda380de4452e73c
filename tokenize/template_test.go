package tokenize

import (
	"encoding/json"
	"os"
	"testing"
)

// templateCase is a conversation and what Python's transformers renders for it
// by the official template.
type templateCase struct {
	Name     string            `json:"name"`
	Messages []json.RawMessage `json:"messages"`
	Tools    json.RawMessage   `json:"tools"`
	Generate bool              `json:"gen"`
	Kwargs   json.RawMessage   `json:"kw"`
	Want     *string           `json:"want"`
}

func readCases(t testing.TB, path string) []templateCase {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var cases []templateCase
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatalf("%s holds no case", path)
	}
	return cases
}

// chat is the case as transformers gets it: contents and tools go to the
// template as they are.
func (tc *templateCase) chat(t testing.TB) *chat {
	t.Helper()
	c := &chat{}
	c.reset()
	c.generate = tc.Generate
	if len(tc.Tools) > 0 && string(tc.Tools) != "null" {
		tools := mustParse(t, tc.Tools)
		c.tools = &tools
	}
	if len(tc.Kwargs) > 0 {
		c.kwargs = mustParse(t, tc.Kwargs)
	}
	for _, raw := range tc.Messages {
		v := mustParse(t, raw)
		role, _ := v.get("role")
		m := message{role: role.text}
		switch content, _ := v.get("content"); content.kind {
		case '"':
			m.text = []byte(content.text)
		case 'n':
		default:
			m.raw = &content
		}
		if calls, ok := v.get("tool_calls"); ok {
			if err := m.readCalls(calls.appendJSON(nil, -1, 0)); err != nil {
				t.Fatal(err)
			}
		}
		c.messages = append(c.messages, m)
	}
	return c
}

func mustParse(t testing.TB, raw []byte) value {
	t.Helper()
	v, ok := parseValue(raw)
	if !ok {
		t.Fatalf("cannot read %s", raw)
	}
	return v
}

func TestLlama31RendersAsTransformers(t *testing.T) {
	for _, tc := range readCases(t, "testdata/chat_template_cases.json") {
		t.Run(tc.Name, func(t *testing.T) {
			checkRendering(t, &llama31{bos: "<|begin_of_text|>"}, &tc)
		})
	}
}

func checkRendering(t *testing.T, tpl template, tc *templateCase) {
	t.Helper()
	var r rendering
	r.reset(0)
	err := tpl.render(&r, tc.chat(t))
	switch {
	case tc.Want == nil && err == nil:
		t.Errorf("rendered %q, want an error", r.out)
	case tc.Want != nil && err != nil:
		t.Errorf("got %v, want %q", err, *tc.Want)
	case tc.Want != nil && string(r.out) != *tc.Want:
		t.Errorf("got  %q\nwant %q", r.out, *tc.Want)
	}
}

// TestEngineRendersAsTransformers needs the official template, which is not in
// this repository: test/templates/check.py fetches it.
func TestEngineRendersAsTransformers(t *testing.T) {
	path := os.Getenv("WARMROUTE_LLAMA31_TEMPLATE")
	if path == "" {
		t.Skip("WARMROUTE_LLAMA31_TEMPLATE does not name the official template; see test/templates/check.py")
	}
	text, err := readTemplate(path)
	if err != nil {
		t.Fatal(err)
	}
	if tpl, err := newTemplate(text, "", ""); err != nil || tpl.name() != "llama3.1" {
		t.Fatalf("the official template is not known as such: %v, %v", tpl, err)
	}
	e, err := newEngine(text, "<|begin_of_text|>", "<|eot_id|>")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range readCases(t, "testdata/chat_template_cases.json") {
		t.Run(tc.Name, func(t *testing.T) { checkRendering(t, e, &tc) })
	}
}
