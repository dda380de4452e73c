package tokenize

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
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
	if err := e.fill(data, c); err != nil {
		return err
	}
	out, err := e.run(data)
	if clock {
		return errClock // the worker's clock and time zone are not known
	}
	if err != nil {
		return errTemplateFail
	}
	r.out = append(r.out, out...)
	if at := strings.Index(out, mediaMark); at >= 0 {
		r.cut, r.open = at, true
	}
	e.limit(r, c)
	return nil
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
func (e *engine) fill(data map[string]jinja.Value, c *chat) error {
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
		if messages[i], ok = e.message(&c.messages[i]); !ok {
			return errTemplateFail
		}
	}
	data["messages"] = jinja.NewList(messages)
	return nil
}

// message is a message as vLLM passes it.
func (e *engine) message(m *message) (jinja.Value, bool) {
	if e.strips && bytes.ContainsAny(m.text, "\x1c\x1d\x1e\x1f") || e.thinks && isSet(m.thinking) ||
		e.asParts && m.role == "tool" && !m.none { // a text since some version, a list before
		return jinja.Undefined(), false
	}
	out := jinja.NewDict()
	d := out.AsDict()
	d.Set("role", jinja.NewString(m.role))
	content, ok := e.content(m)
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

func (e *engine) content(m *message) (jinja.Value, bool) {
	if m.raw != nil {
		return m.raw.jinja()
	}
	if !e.asParts {
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

func (t *toolCall) jinja() (jinja.Value, bool) {
	args, ok := t.arguments.jinja()
	if !ok {
		return args, false
	}
	fn, call := jinja.NewDict(), jinja.NewDict()
	fn.AsDict().Set("name", jinja.NewString(t.name.text))
	fn.AsDict().Set("arguments", args)
	if id, ok := appendString(nil, t.id); ok {
		call.AsDict().Set("id", jinja.NewString(string(id)))
	}
	call.AsDict().Set("type", jinja.NewString("function"))
	call.AsDict().Set("function", fn)
	return call, true
}

// jinja is v for the engine; it reports false for an int of more than 64 bits.
func (v *value) jinja() (jinja.Value, bool) {
	switch v.kind {
	case '"':
		return jinja.NewString(v.text), true
	case 't', 'f':
		return jinja.NewBool(v.kind == 't'), true
	case '0':
		if n, err := strconv.ParseInt(v.text, 10, 64); err == nil {
			return jinja.NewInt(n), true
		}
		f, err := strconv.ParseFloat(v.text, 64)
		return jinja.NewFloat(f), err == nil && strings.ContainsAny(v.text, ".e")
	case '[':
		items := make([]jinja.Value, len(v.items))
		for i := range v.items {
			var ok bool
			if items[i], ok = v.items[i].jinja(); !ok {
				return items[i], false
			}
		}
		return jinja.NewList(items), true
	case '{':
		out := jinja.NewDict()
		for i, k := range v.keys {
			item, ok := v.items[i].jinja()
			if !ok {
				return item, false
			}
			out.AsDict().Set(k, item)
		}
		return out, true
	}
	return jinja.None(), true
}

// fromJinja is the inverse of jinja.
func fromJinja(j jinja.Value) (value, error) {
	switch {
	case j.IsString():
		return value{kind: '"', text: j.AsString()}, nil
	case j.IsBool() && j.AsBool():
		return value{kind: 't'}, nil
	case j.IsBool():
		return value{kind: 'f'}, nil
	case j.IsInt():
		return value{kind: '0', text: strconv.FormatInt(j.AsInt(), 10)}, nil
	case j.IsFloat():
		return value{kind: '0', text: pythonFloat(j.AsFloat())}, nil
	case j.IsNone():
		return value{kind: 'n'}, nil
	case j.IsList():
		v := value{kind: '['}
		for _, item := range j.AsList().Items {
			i, err := fromJinja(item)
			if err != nil {
				return v, err
			}
			v.items = append(v.items, i)
		}
		return v, nil
	case j.IsDict():
		v := value{kind: '{'}
		for _, k := range j.AsDict().Keys {
			item, _ := j.AsDict().Get(k)
			i, err := fromJinja(item)
			if err != nil {
				return v, err
			}
			v.keys, v.items = append(v.keys, k), append(v.items, i)
		}
		return v, nil
	}
	return value{}, errTemplateFail // undefined and functions are no JSON
}

// ownToJSON is json.dumps as transformers calls it: keys in their order, no
// escapes beyond JSON's own.
func ownToJSON(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	indent := -1
	for k, v := range kwargs {
		switch {
		case k == "indent" && v.IsInt():
			indent = int(min(max(v.AsInt(), 0), 64))
		case k == "indent" && v.IsNone(), k == "ensure_ascii" && v.IsBool() && !v.AsBool():
		default:
			return jinja.None(), errTemplateFail
		}
	}
	if len(args) != 1 {
		return jinja.None(), errTemplateFail
	}
	v, err := fromJinja(args[0])
	if err != nil {
		return jinja.None(), err
	}
	return jinja.NewString(string(v.appendJSON(nil, indent, 0))), nil
}

// ownTrim is str(x).strip().
func ownTrim(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	if len(args) != 1 || len(kwargs) > 0 {
		return jinja.None(), errTemplateFail
	}
	switch x := args[0]; {
	case x.IsString():
		return jinja.NewString(string(pythonTrim([]byte(x.AsString())))), nil
	case x.IsUndefined():
		return jinja.NewString(""), nil
	default:
		v, err := fromJinja(x)
		if err != nil {
			return jinja.None(), err
		}
		text, ok := v.appendRepr(nil)
		if !ok {
			return jinja.None(), errTemplateFail
		}
		return jinja.NewString(string(text)), nil
	}
}

// ownTrimEach is map('trim').
func ownTrimEach(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if len(args) != 1 || !args[0].IsList() {
		return jinja.None(), errTemplateFail
	}
	items := make([]jinja.Value, 0, args[0].AsList().Len())
	for _, item := range args[0].AsList().Items {
		trimmed, err := ownTrim([]jinja.Value{item}, nil)
		if err != nil {
			return jinja.None(), err
		}
		items = append(items, trimmed)
	}
	return jinja.NewList(items), nil
}
