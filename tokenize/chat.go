package tokenize

import "bytes"

// message is one message of a chat as vLLM hands it to the template.
type message struct {
	role  string
	text  []byte // its content: text parts are joined by a newline
	none  bool   // it has no content, which is not the same as an empty one
	media bool   // the content has a part that is not text: it is not known
	parts []part // only for templates that take contents as lists
	raw   *value // a content that is neither text nor parts; never from vLLM

	hasCalls bool
	calls    []toolCall
	callID   []byte // JSON of tool_call_id
	name     []byte // JSON of name
	thinking []byte // JSON of reasoning or reasoning_content
}

// billingHeader begins a line that vLLM 0.32 cuts out of system messages, and
// older versions do not: such a text is not known.
const billingHeader = "x-anthropic-billing-header"

// part is one content part; text is nil for media.
type part struct{ text []byte }

// toolCall is a call of an assistant message. The arguments are parsed.
type toolCall struct {
	id        []byte // JSON
	name      value
	arguments value
}

// chat is the body of a /v1/chat/completions request: what of it becomes part
// of the prompt.
type chat struct {
	messages   []message
	tools      *value // as vLLM dumps them; nil for none
	kwargs     value  // chat_template_kwargs
	documents  *value
	generate   bool // add_generation_prompt
	effort     bool // reasoning_effort is set, which versions of vLLM pass differently
	continues  bool // continue_final_message
	addSpecial bool // add_special_tokens
	developer  DeveloperRole

	arena []byte // holds the texts
}

// reset empties c and keeps its memory.
func (c *chat) reset() {
	*c = chat{messages: c.messages[:0], arena: c.arena[:0], generate: true}
}

// readChat reads body, which checkJSON has passed. The last of equal keys
// counts, as in Python.
func (c *chat) readChat(body []byte, d DeveloperRole) error {
	c.reset()
	c.developer = d
	var messages, tools, kwargs, documents []byte
	cur := members(body)
	for key, val, ok := cur.member(); ok; key, val, ok = cur.member() {
		switch string(key) {
		case "messages":
			messages = val
		case "tools":
			tools = val
		case "chat_template_kwargs":
			kwargs = val
		case "documents":
			documents = val
		case "reasoning_effort":
			c.effort = isSet(val)
		case "add_generation_prompt":
			c.generate = kindOf(val) == 't'
			if k := kindOf(val); k != 't' && k != 'f' {
				return errShape
			}
		case "continue_final_message":
			c.continues = kindOf(val) == 't'
			if k := kindOf(val); k != 't' && k != 'f' {
				return errShape
			}
		case "add_special_tokens":
			c.addSpecial = kindOf(val) == 't'
			if k := kindOf(val); k != 't' && k != 'f' {
				return errShape
			}
		case "chat_template":
			if isSet(val) {
				return errOwnTemplate
			}
		case "truncate_prompt_tokens":
			if isSet(val) {
				return errTruncate
			}
		}
	}
	if c.continues && c.generate {
		return errContinue // vLLM refuses it
	}
	if err := c.readOptions(tools, kwargs, documents); err != nil {
		return err
	}
	return c.readMessages(messages)
}

func (c *chat) readOptions(tools, kwargs, documents []byte) error {
	if isSet(kwargs) {
		k, ok := parseValue(kwargs)
		if !ok || k.kind != '{' {
			return errShape
		}
		c.kwargs = k
	}
	if isSet(documents) {
		d, ok := parseValue(documents)
		if !ok || d.kind != '[' {
			return errShape
		}
		c.documents = &d
	}
	if isSet(tools) {
		t, ok := parseValue(tools)
		if !ok || t.kind != '[' {
			return errShape
		}
		if len(t.items) == 0 {
			return nil
		}
		if !dumpTools(&t) {
			return errShape
		}
		c.tools = &t
	}
	return nil
}

// dumpTools puts tools in the form of pydantic's model_dump: in the order of
// vLLM's declaration, absent fields null. It reports false for fields that
// versions of vLLM treat differently: 0.16 keeps any, 0.32 drops most.
func dumpTools(tools *value) bool {
	for i := range tools.items {
		t := &tools.items[i]
		fn, ok := t.get("function")
		if !ok || fn.kind != '{' {
			return false
		}
		kind, ok := t.get("type")
		if ok && kind.text != "function" {
			return false
		}
		dumped, ok := fn.dump("name", "description", "parameters")
		if !ok || dumped.items[0].kind != '"' {
			return false
		}
		for _, k := range t.keys {
			if k != "type" && k != "function" {
				return false
			}
		}
		*t = value{
			kind: '{', keys: []string{"type", "function"},
			items: []value{{kind: '"', text: "function"}, dumped},
		}
	}
	return true
}

// dump returns an object with the given keys, null when absent, and strict if it
// is set. It reports false if there are others.
func (v *value) dump(keys ...string) (value, bool) {
	out := value{kind: '{', keys: keys}
	known := 0
	for _, k := range keys {
		item, ok := v.get(k)
		out.items = append(out.items, item)
		if ok {
			known++
		}
	}
	if strict, ok := v.get("strict"); ok && (strict.kind == 't' || strict.kind == 'f') {
		out.keys, out.items = append(out.keys, "strict"), append(out.items, strict)
		known++
	}
	return out, known == len(v.keys)
}

func (c *chat) readMessages(raw []byte) error {
	if kindOf(raw) != '[' {
		return errShape
	}
	if cap(c.arena) < len(raw) {
		c.arena = make([]byte, 0, len(raw)+len(raw)/4)
	}
	cur := elements(raw)
	for val, ok := cur.element(); ok; val, ok = cur.element() {
		if kindOf(val) != '{' {
			return errShape
		}
		if err := c.readMessage(val); err != nil {
			return err
		}
	}
	if len(c.messages) == 0 {
		return errEmpty
	}
	return nil
}

func (c *chat) readMessage(raw []byte) error {
	var m message
	var role, content, calls []byte
	cur := members(raw)
	for key, val, ok := cur.member(); ok; key, val, ok = cur.member() {
		switch string(key) {
		case "role":
			role = val
		case "content":
			content = val
		case "tool_calls":
			calls = val
		case "tool_call_id":
			m.callID = val
		case "name":
			m.name = val
		case "reasoning", "reasoning_content":
			m.thinking = val
		}
	}
	if m.role = roleName(role); m.role == "" {
		text, ok := appendString(nil, role)
		if m.role = string(text); !ok || m.role == "" {
			return errShape
		}
	}
	if m.role == "developer" {
		switch c.developer {
		case DeveloperAsIs:
		case DeveloperAsSystem:
			m.role = "system"
		case DeveloperUnknown:
			return errDeveloper
		}
	}
	if err := c.readContent(&m, content); err != nil {
		return err
	}
	if m.role == "system" && bytes.Contains(m.text, []byte(billingHeader)) {
		m.media = true
	}
	if m.role == "assistant" && isSet(calls) {
		if err := m.readCalls(calls); err != nil {
			return err
		}
	}
	c.messages = append(c.messages, m)
	return nil
}

// roleName is a usual role without an allocation, or "".
func roleName(raw []byte) string {
	switch string(raw) {
	case `"user"`:
		return "user"
	case `"assistant"`:
		return "assistant"
	case `"system"`:
		return "system"
	case `"tool"`:
		return "tool"
	}
	return ""
}
