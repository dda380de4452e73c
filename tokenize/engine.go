package tokenize

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// engine renders any chat template, by a Jinja engine with our own tojson, trim
// and strftime_now. Any error of a template makes the prompt uncertain.
type engine struct {
	compiled *jinja.Template
	bos, eos string
	asParts  bool // the template walks contents as lists of parts
	strips   bool // it uses strip methods, whose idea of space isn't Python's
	efforts  bool // it reads what vLLM may make of reasoning_effort
	thinks   bool // it reads reasoning, which versions of vLLM pass differently
}

// The places of media and the end of the known text, which no message is
// likely to hold; one that does ends the match early, and no more.
const mediaMark = "\uE000\uE001warmroute\uE001\uE000"

// contentLoop finds templates that walk contents, to which vLLM passes lists.
const contentLoop = `\bin\s+\w+(\.content|\[\s*['"]content['"]\s*\])|set\s+content\s*=[^%]*%\}[\s\S]*\bin\s+content\b`

func newEngine(text, bos, eos string) (template, error) {
	for name, token := range map[string]string{"bos_token": bos, "eos_token": eos} {
		if token == "" && strings.Contains(text, name) {
			return nil, fmt.Errorf("the chat template needs %s, which no tokenizer_config.json beside the tokenizer names", name)
		}
	}
	own := ownFilters(text)
	if used := regexp.MustCompile(`\|\s*map\(\s*['"][^'"]*['"]`).FindString(own); used != "" {
		return nil, fmt.Errorf("the chat template uses the filter %s), which the engine does not know", used)
	}
	compiled, err := jinja.Compile(own)
	if err != nil {
		return nil, fmt.Errorf("compile the chat template: %w", err)
	}
	return &engine{
		compiled: compiled, bos: bos, eos: eos,
		asParts: regexp.MustCompile(`for\s+\w+\s+` + contentLoop).MatchString(text),
		strips:  strings.Contains(text, "strip("),
		efforts: strings.Contains(text, "reasoning_effort") || strings.Contains(text, "enable_thinking"),
		thinks:  strings.Contains(text, "reasoning"),
	}, nil
}

func (e *engine) name() string { return "jinja" }

// ownFilters renames the filters trim, tojson and map('trim') inside of {{ }}
// and {% %}: the engine prefers its own to those that are passed in.
func ownFilters(text string) string {
	block := regexp.MustCompile(`(?s)\{#.*?#\}|\{\{.*?\}\}|\{%.*?%\}`)
	item := regexp.MustCompile(`(?s)'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|\|\s*(?:trim|tojson)\b|` + mapTrim)
	return block.ReplaceAllStringFunc(text, func(b string) string {
		if strings.HasPrefix(b, "{#") {
			return b
		}
		return item.ReplaceAllStringFunc(b, func(s string) string {
			switch {
			case s[0] != '|':
				return s
			case strings.Contains(s, "map"):
				return "|own_trim_each"
			}
			return "|own_" + strings.TrimSpace(s[1:])
		})
	})
}

// mapTrim is map with the name of a filter, of which the engine knows none.
const mapTrim = `\|\s*map\(\s*['"]trim['"]\s*\)`

func (e *engine) render(r *rendering, c *chat) error {
	if c.effort && e.efforts {
		return errTemplateFail
	}
	out, err := e.text(c, false)
	if err == nil && e.asParts && hasTool(c) {
		// Newer versions of vLLM pass a tool's parts as one text.
		if other, err := e.text(c, true); err != nil || other != out {
			return errTemplateFail
		}
	}
	if err != nil {
		return err
	}
	r.out = append(r.out, out...)
	if at := strings.Index(out, mediaMark); at >= 0 {
		r.cut, r.open = at, true
	}
	e.limit(r, c)
	return nil
}

func hasTool(c *chat) bool {
	for i := range c.messages {
		if c.messages[i].role == "tool" {
			return true
		}
	}
	return false
}

// text renders the chat, contents of tools as texts if toolText.
func (e *engine) text(c *chat, toolText bool) (string, error) {
	var clock bool
	data := map[string]jinja.Value{
		"bos_token":             jinja.NewString(e.bos),
		"eos_token":             jinja.NewString(e.eos),
		"add_generation_prompt": jinja.NewBool(c.generate),
		"tools":                 jinja.None(),
		"documents":             jinja.None(),
		"own_trim":              jinja.NewCallable("trim", ownTrim),
		"own_trim_each":         jinja.NewCallable("map", ownTrimEach),
		"own_tojson":            jinja.NewCallable("tojson", ownToJSON),
		"strftime_now": jinja.NewCallable("strftime_now", func([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
			clock = true
			return jinja.None(), errClock
		}),
	}
	if err := e.fill(data, c, toolText); err != nil {
		return "", err
	}
	out, err := e.run(data)
	if clock {
		return "", errClock // the worker's clock and time zone are not known
	}
	if err != nil {
		return "", errTemplateFail
	}
	return out, nil
}

// run executes the template. The engine is not ours and works on text from the
// network: a panic in it is one more template that cannot be rendered.
func (e *engine) run(data map[string]jinja.Value) (out string, err error) {
	defer func() {
		if recover() != nil {
			err = errTemplateFail
		}
	}()
	return e.compiled.RenderValues(data)
}

// fill sets the variables that come from the request.
func (e *engine) fill(data map[string]jinja.Value, c *chat, toolText bool) error {
	for name, v := range map[string]*value{"tools": c.tools, "documents": c.documents} {
		if v != nil {
			j, ok := v.jinja()
			if !ok {
				return errTemplateFail
			}
			data[name] = j
		}
	}
	for i, k := range c.kwargs.keys {
		j, ok := c.kwargs.items[i].jinja()
		if !ok {
			return errTemplateFail
		}
		data[k] = j
	}
	messages := make([]jinja.Value, len(c.messages))
	for i := range c.messages {
		var ok bool
		if messages[i], ok = e.message(&c.messages[i], toolText); !ok {
			return errTemplateFail
		}
	}
	data["messages"] = jinja.NewList(messages)
	return nil
}

// message is a message as vLLM passes it.
func (e *engine) message(m *message, toolText bool) (jinja.Value, bool) {
	if e.strips && bytes.ContainsAny(m.text, "\x1c\x1d\x1e\x1f") || e.thinks && isSet(m.thinking) {
		return jinja.Undefined(), false
	}
	out := jinja.NewDict()
	d := out.AsDict()
	d.Set("role", jinja.NewString(m.role))
	content, ok := e.content(m, e.asParts && (m.role != "tool" || !toolText))
	if !ok {
		return out, false
	}
	d.Set("content", content)
	if m.hasCalls {
		calls := make([]jinja.Value, len(m.calls))
		for i := range m.calls {
			if calls[i], ok = m.calls[i].jinja(); !ok {
				return out, false
			}
		}
		d.Set("tool_calls", jinja.NewList(calls))
	}
	for _, field := range []struct {
		name, role string
		raw        []byte
	}{{"tool_call_id", "tool", m.callID}, {"name", m.role, m.name}} {
		if text, ok := appendString(nil, field.raw); ok && m.role == field.role {
			d.Set(field.name, jinja.NewString(string(text)))
		}
	}
	return out, true
}

func (e *engine) content(m *message, asParts bool) (jinja.Value, bool) {
	if m.raw != nil {
		return m.raw.jinja()
	}
	if !asParts {
		if m.media {
			return jinja.NewString(mediaMark), true
		}
		return jinja.NewString(string(m.text)), true
	}
	parts := m.parts
	if parts == nil && !m.none {
		parts = []part{{text: append([]byte{}, m.text...)}}
	}
	items := make([]jinja.Value, len(parts))
	for i, p := range parts {
		text := mediaMark
		if p.text != nil {
			text = string(p.text)
		}
		items[i] = jinja.NewDict()
		items[i].AsDict().Set("type", jinja.NewString("text"))
		items[i].AsDict().Set("text", jinja.NewString(text))
	}
	return jinja.NewList(items), true
}

// limit finds where the prefix length ends: every message's text is looked for
// in order. Should a template write a text otherwise, what is between
// counts as well. The cut is only a place to stop at; keys stay true.
func (e *engine) limit(r *rendering, c *chat) {
	if r.left < 0 {
		return
	}
	at := 0
	for i := range c.messages {
		text := pythonTrim(c.messages[i].text)
		found := bytes.Index(r.out[at:], text)
		if found < 0 {
			found = 0
			text = nil
		}
		at += found
		n := cutChars(text, r.left)
		r.left -= utf8.RuneCount(text[:n])
		if n < len(text) {
			if r.cut < 0 || at+n < r.cut {
				r.cut = at + n
			}
			return
		}
		at += len(text)
	}
}
