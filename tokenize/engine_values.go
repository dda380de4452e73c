package tokenize

import (
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"
)

// jinja is the call as the engine sees it.
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
