package tokenize

// readContent reads a content: a string, null or none, or a list of parts.
func (c *chat) readContent(m *message, raw []byte) error {
	start := len(c.arena)
	switch kindOf(raw) {
	case 0, 'n':
		m.none = true
	case '"':
		var ok bool
		if c.arena, ok = appendString(c.arena, raw); !ok {
			return errSurrogate
		}
	case '[':
		cur := elements(raw)
		for val, ok := cur.element(); ok; val, ok = cur.element() {
			if err := c.readPart(m, val, start); err != nil {
				return err
			}
		}
	default:
		return errShape
	}
	m.text = c.arena[start:len(c.arena):len(c.arena)]
	return nil
}

// readPart appends a part's text to the message's text, which starts at start
// in the arena.
func (c *chat) readPart(m *message, raw []byte, start int) error {
	field := raw
	if kindOf(raw) != '"' {
		var err error
		if field, err = partText(raw); err != nil {
			return err
		}
	}
	if field == nil {
		m.media = true
		m.parts = append(m.parts, part{})
		return nil
	}
	if len(c.arena) > start && len(field) > len(`""`) {
		c.arena = append(c.arena, '\n') // vLLM leaves out empty parts
	}
	begin := len(c.arena)
	var ok bool
	if c.arena, ok = appendString(c.arena, field); !ok {
		return errSurrogate
	}
	m.parts = append(m.parts, part{text: c.arena[begin:len(c.arena):len(c.arena)]})
	return nil
}

// partText returns the JSON string of a text part, nil for any other part.
func partText(raw []byte) ([]byte, error) {
	if kindOf(raw) != '{' {
		return nil, errShape
	}
	var kind, text, refusal []byte
	cur := members(raw)
	for key, val, ok := cur.member(); ok; key, val, ok = cur.member() {
		switch string(key) {
		case "type":
			kind = val
		case "text":
			text = val
		case "refusal":
			refusal = val
		}
	}
	if kindOf(kind) != '"' {
		return nil, errShape
	}
	switch string(kind) {
	case `"text"`:
	case `"refusal"`:
		text = refusal
	default:
		return nil, nil //nolint:nilnil // no text is an answer of its own
	}
	if kindOf(text) != '"' {
		return nil, errShape
	}
	return text, nil
}
