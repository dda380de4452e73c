package tokenize

import "unicode/utf8"

// llama31SHA256 is the sum of the official chat template of Llama 3.1.
const llama31SHA256 = "e10ca381b1ccc5cf9db52e371f3b6651576caee0a630b452e2816b2d404d4b65"

const (
	eot       = "<|eot_id|>"
	assistant = "<|start_header_id|>assistant<|end_header_id|>\n\n"
	format    = `Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.` +
		"Do not use variables.\n\n"
)

// llama31 renders chats as Llama 3.1's official template does, in the order in
// which the template goes.
type llama31 struct{ bos string }

// llama31Options are the template's variables.
type llama31Options struct {
	tools       *value
	toolsInUser bool
	date        string
	builtin     *value
}

func (t *llama31) name() string { return "llama3.1" }

func (t *llama31) render(r *rendering, c *chat) error {
	o, err := readLlama31Options(c)
	if err != nil {
		return err
	}
	messages := c.messages
	r.literal(t.bos)
	r.literal("<|start_header_id|>system<|end_header_id|>\n\n")
	t.environment(r, o)
	if len(messages) == 0 {
		return errTemplateFail
	}
	if messages[0].role == "system" {
		if err := trimmed(r, &messages[0]); err != nil {
			return err
		}
		messages = messages[1:]
	}
	if r.done() {
		return nil
	}
	r.literal(eot)
	if o.tools != nil && o.toolsInUser {
		if len(messages) == 0 {
			return errTemplateFail
		}
		r.literal("<|start_header_id|>user<|end_header_id|>\n\n")
		r.literal("Given the following functions, please respond with a JSON for a function call " +
			"with its proper arguments that best answers the given prompt.\n\n")
		r.literal(format)
		appendTools(r, o.tools)
		if err := trimmed(r, &messages[0]); err != nil {
			return err
		}
		messages = messages[1:]
		r.literal(eot)
	}
	for i := range messages {
		if r.done() {
			return nil
		}
		if err := t.message(r, &messages[i], o); err != nil {
			return err
		}
	}
	if c.generate {
		r.literal(assistant)
	}
	return nil
}

func (t *llama31) environment(r *rendering, o *llama31Options) {
	if o.builtin != nil || o.tools != nil {
		r.literal("Environment: ipython\n")
	}
	if o.builtin != nil {
		r.literal("Tools: ")
		first := true
		for _, b := range o.builtin.items {
			if b.text == "code_interpreter" {
				continue
			}
			if !first {
				r.literal(", ")
			}
			first = false
			r.literal(b.text)
		}
		r.literal("\n\n")
	}
	r.literal("Cutting Knowledge Date: December 2023\nToday Date: ")
	r.literal(o.date)
	r.literal("\n\n")
	if o.tools != nil && !o.toolsInUser {
		r.literal("You have access to the following functions. " +
			"To call a function, please respond with JSON for a function call.")
		r.literal(format)
		appendTools(r, o.tools)
	}
}

func appendTools(r *rendering, tools *value) {
	for i := range tools.items {
		r.out = tools.items[i].appendJSON(r.out, 4, 0)
		r.literal("\n\n")
	}
}

func (t *llama31) message(r *rendering, m *message, o *llama31Options) error {
	switch {
	case m.hasCalls:
		return t.call(r, m, o)
	case m.role == "tool" || m.role == "ipython":
		r.literal("<|start_header_id|>ipython<|end_header_id|>\n\n")
		switch {
		case m.raw != nil && (m.raw.kind == '[' || m.raw.kind == '{'):
			r.out = m.raw.appendJSON(r.out, -1, 0)
		case m.raw != nil:
			return errTemplateFail
		case m.media:
			r.stop()
		default:
			quoted(r, m.text)
		}
	default:
		r.literal("<|start_header_id|>")
		r.literal(m.role)
		r.literal("<|end_header_id|>\n\n")
		if err := trimmed(r, m); err != nil {
			return err
		}
	}
	r.literal(eot)
	return nil
}

func (t *llama31) call(r *rendering, m *message, o *llama31Options) error {
	if len(m.calls) != 1 {
		return errTemplateFail
	}
	call := &m.calls[0]
	r.literal(assistant)
	builtin := false
	if o.builtin != nil {
		for _, b := range o.builtin.items {
			builtin = builtin || b.text == call.name.text
		}
	}
	if builtin {
		if call.arguments.kind != '{' {
			return errTemplateFail
		}
		r.literal("<|python_tag|>")
		r.literal(call.name.text)
		r.literal(".call(")
		for i, k := range call.arguments.keys {
			arg := &call.arguments.items[i]
			if arg.kind != '"' {
				return errTemplateFail
			}
			if i > 0 {
				r.literal(", ")
			}
			r.literal(k)
			r.literal(`="`)
			r.literal(arg.text)
			r.literal(`"`)
		}
		r.literal(")")
	} else {
		r.literal(`{"name": "`)
		r.literal(call.name.text)
		r.literal(`", "parameters": `)
		r.out = call.arguments.appendJSON(r.out, -1, 0)
		r.literal("}")
	}
	if o.builtin != nil {
		r.literal("<|eom_id|>")
	} else {
		r.literal(eot)
	}
	return nil
}

// trimmed appends content|trim. A message with media stops the match before
// its text, since vLLM puts the media's places at the text's beginning.
func trimmed(r *rendering, m *message) error {
	switch {
	case m.media:
		r.stop()
	case m.raw == nil:
		r.content(pythonTrim(m.text))
	default:
		text, ok := m.raw.appendRepr(nil)
		if !ok {
			return errTemplateFail
		}
		r.content(pythonTrim(text))
	}
	return nil
}

// quoted appends content|tojson of a text; the limit counts the text's
// characters, and cuts before the first that is beyond it.
func quoted(r *rendering, text []byte) {
	n := len(text)
	if r.left >= 0 && r.cut < 0 {
		n = cutChars(text, r.left)
		r.left -= utf8.RuneCount(text[:n])
	}
	r.out = appendJSONString(r.out, string(text[:n]))
	if n < len(text) {
		r.out = r.out[:len(r.out)-1] // no closing quote
		r.cut = len(r.out)
	}
}

// readLlama31Options reads the template's variables from chat_template_kwargs.
// A variable that is not of the type that the template works with makes the
// prompt uncertain, as does one that changes what vLLM itself passes.
func readLlama31Options(c *chat) (*llama31Options, error) {
	o := &llama31Options{tools: c.tools, toolsInUser: true, date: "26 Jul 2024"}
	for i, k := range c.kwargs.keys {
		v := &c.kwargs.items[i]
		switch k {
		case "date_string":
			if v.kind != '"' {
				return nil, errShape
			}
			o.date = v.text
		case "tools_in_user_message":
			if v.kind != 't' && v.kind != 'f' {
				return nil, errShape
			}
			o.toolsInUser = v.kind == 't'
		case "custom_tools":
			switch v.kind {
			case 'n':
				o.tools = nil
			case '[':
				o.tools = v
			default:
				return nil, errShape
			}
		case "builtin_tools":
			if v.kind != '[' {
				return nil, errShape
			}
			for _, b := range v.items {
				if b.kind != '"' {
					return nil, errShape
				}
			}
			o.builtin = v
		}
	}
	return o, nil
}

// reservedKwarg reports whether a key of chat_template_kwargs collides with
// what vLLM or transformers pass to every template.
func reservedKwarg(key string) bool {
	switch key {
	case "messages", "conversation", "tools", "documents", "add_generation_prompt", "continue_final_message",
		"chat_template", "tokenize", "tokenizer", "bos_token", "eos_token", "pad_token", "unk_token",
		"return_dict", "return_tensors", "padding", "truncation", "max_length", "return_assistant_tokens_mask",
		"tokenizer_kwargs":
		return true
	}
	return false
}
