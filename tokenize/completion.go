package tokenize

import "strconv"

// readCompletion reads the prompt of a /v1/completions body: a text, a list of
// ids, or a list of either, of which the first counts.
func (m *Model) readCompletion(s *state, body []byte) error {
	addSpecial := true
	var prompt []byte
	cur := members(body)
	for key, val, ok := cur.member(); ok; key, val, ok = cur.member() {
		switch string(key) {
		case "prompt":
			prompt = val
		case "add_special_tokens":
			addSpecial = kindOf(val) == 't'
			if k := kindOf(val); k != 't' && k != 'f' {
				return errShape
			}
		case "truncate_prompt_tokens":
			if isSet(val) {
				return errTruncate
			}
		case "prompt_embeds":
			if isSet(val) {
				return errShape
			}
		}
	}
	if kindOf(prompt) == '[' {
		cur := elements(prompt)
		first, ok := cur.element()
		if !ok {
			return errEmpty
		}
		if kindOf(first) == '0' {
			return m.readIDs(s, prompt)
		}
		if kindOf(first) == '[' {
			return m.readIDs(s, first)
		}
		prompt = first
	}
	if kindOf(prompt) != '"' {
		return errShape
	}
	s.start = addSpecial
	s.chat.reset()
	text, ok := appendString(s.chat.arena, prompt)
	s.chat.arena = text[:0]
	if !ok {
		return errSurrogate
	}
	s.text.content(text)
	return nil
}

// readIDs reads a prompt of ids. An id beyond the vocabulary is refused by the
// worker.
func (m *Model) readIDs(s *state, list []byte) error {
	s.isIDs = true
	size := uint64(m.encoder.VocabSize())
	cur := elements(list)
	for val, ok := cur.element(); ok; val, ok = cur.element() {
		id, err := strconv.ParseUint(string(val), 10, 32)
		if err != nil {
			return errShape
		}
		if id >= size {
			return errTokenRange
		}
		s.ids = append(s.ids, Token(id))
	}
	if len(s.ids) == 0 {
		return errEmpty
	}
	return nil
}
