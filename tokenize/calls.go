package tokenize

import "bytes"

// readCalls reads tool_calls as vLLM does: an empty list is as none, arguments
// are parsed, absent or empty ones are an empty object.
func (m *message) readCalls(raw []byte) error {
	list, ok := parseValue(raw)
	if !ok || list.kind != '[' {
		return errShape
	}
	for i := range list.items {
		call := &list.items[i]
		fn, ok := call.get("function")
		if !ok || fn.kind != '{' {
			return errShape
		}
		var t toolCall
		t.name, _ = fn.get("name")
		args, _ := fn.get("arguments")
		if t.arguments, ok = parseArguments(args); !ok {
			return errShape
		}
		if t.name.kind != '"' {
			return errShape
		}
		if id, ok := call.get("id"); ok {
			t.id = id.appendJSON(nil, -1, 0)
		}
		m.calls = append(m.calls, t)
	}
	m.hasCalls = len(m.calls) > 0
	return nil
}

// parseArguments returns the arguments of a call as an object. It reports false
// for what versions of vLLM refuse or take for an empty object.
func parseArguments(args value) (value, bool) {
	switch args.kind {
	case 'n':
		return value{kind: '{'}, true
	case '{':
		return args, true
	case '"':
	default:
		return args, false
	}
	if args.text == "" {
		return value{kind: '{'}, true
	}
	text := bytes.Trim([]byte(args.text), " \t\r\n")
	if checkJSON(text) != nil || text[0] != '{' {
		return args, false
	}
	return parseValue(text)
}
