package tokenize

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// value is a JSON value as Python's json.loads reads it: the templates of
// models print such values, and what Python prints becomes tokens.
type value struct {
	kind  byte   // as of kindOf
	text  string // of a string; of a number as Python prints it
	items []value
	keys  []string // of an object, items being its values, in order of first appearance
}

// parseValue reads JSON that checkJSON has passed. It reports false for what
// Python reads as no text or number that can be known here.
func parseValue(raw []byte) (value, bool) {
	raw = skipSpace(raw)
	v := value{kind: kindOf(raw)}
	switch v.kind {
	case '"':
		text, ok := appendString(nil, raw)
		v.text = string(text)
		return v, ok
	case '0':
		var ok bool
		v.text, ok = pythonNumber(string(raw))
		return v, ok
	case '[':
		c := elements(raw)
		for e, ok := c.element(); ok; e, ok = c.element() {
			item, ok := parseValue(e)
			if !ok {
				return v, false
			}
			v.items = append(v.items, item)
		}
	case '{':
		c := members(raw)
		seen := map[string]int{}
		for key, e, more := c.member(); more; key, e, more = c.member() {
			item, ok := parseValue(e)
			if !ok || !utf8.Valid(key) {
				return v, false
			}
			v.set(string(key), item, seen)
		}
	}
	return v, true
}

// set sets a key: the last of equal keys counts, at the place of the first.
func (v *value) set(key string, item value, seen map[string]int) {
	if i, ok := seen[key]; ok {
		v.items[i] = item
		return
	}
	seen[key] = len(v.keys)
	v.keys = append(v.keys, key)
	v.items = append(v.items, item)
}

// get returns the value of a key of an object.
func (v *value) get(key string) (value, bool) {
	for i, k := range v.keys {
		if k == key {
			return v.items[i], true
		}
	}
	return value{kind: 'n'}, false
}

// pythonNumber is the repr of a JSON number in Python: an int stays as it is, a
// float is its shortest form. It reports false where json.loads fails (an int
// of more than 4,300 digits) or gives an infinity.
func pythonNumber(s string) (text string, ok bool) {
	if !strings.ContainsAny(s, ".eE") {
		if s == "-0" {
			s = "0"
		}
		return s, len(s) <= 4300
	}
	f, err := strconv.ParseFloat(s, 64)
	return pythonFloat(f), err == nil
}

// pythonFloat is repr(f) for a finite f.
func pythonFloat(f float64) string {
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// appendJSON appends json.dumps(v, ensure_ascii=False, indent=indent); an
// indent below 0 is None.
func (v *value) appendJSON(dst []byte, indent, level int) []byte {
	switch v.kind {
	case '"':
		return appendJSONString(dst, v.text)
	case '0':
		return append(dst, v.text...)
	case 't':
		return append(dst, "true"...)
	case 'f':
		return append(dst, "false"...)
	case '[', '{':
	default:
		return append(dst, "null"...)
	}
	open, end := v.kind, v.kind+2 // ']' and '}' come two after '[' and '{'
	dst = append(dst, open)
	for i := range v.items {
		if i > 0 {
			dst = append(dst, ',')
		}
		if indent >= 0 {
			dst = appendIndent(dst, indent*(level+1))
		} else if i > 0 {
			dst = append(dst, ' ')
		}
		if v.kind == '{' {
			dst = append(appendJSONString(dst, v.keys[i]), ": "...)
		}
		dst = v.items[i].appendJSON(dst, indent, level+1)
	}
	if len(v.items) > 0 && indent >= 0 {
		dst = appendIndent(dst, indent*level)
	}
	return append(dst, end)
}

func appendIndent(dst []byte, n int) []byte {
	dst = append(dst, '\n')
	for range n {
		dst = append(dst, ' ')
	}
	return dst
}

func appendJSONString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		default:
			if c < ' ' {
				dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			} else {
				dst = append(dst, c)
			}
		}
	}
	return append(dst, '"')
}

// isPythonSpace reports whether str.strip removes r: Unicode white space and
// the four separators U+001C to U+001F.
func isPythonSpace(r rune) bool {
	switch {
	case r < utf8.RuneSelf:
		return r == ' ' || r >= '\t' && r <= '\r' || r >= 0x1C && r <= 0x1F
	case r >= 0x2000 && r <= 0x200A:
		return true
	}
	switch r {
	case 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000:
		return true
	}
	return false
}

// pythonTrim is s.strip() on UTF-8.
func pythonTrim(s []byte) []byte {
	for len(s) > 0 {
		r, n := utf8.DecodeRune(s)
		if !isPythonSpace(r) {
			break
		}
		s = s[n:]
	}
	for len(s) > 0 {
		r, n := utf8.DecodeLastRune(s)
		if !isPythonSpace(r) {
			break
		}
		s = s[:len(s)-n]
	}
	return s
}

// appendRepr appends str(v) for a list or an object and repr(v) inside of one.
// It reports false for a character that is not ASCII, for which it would need
// Python's table of printable ones.
func (v *value) appendRepr(dst []byte) ([]byte, bool) {
	switch v.kind {
	case '"':
		return appendStringRepr(dst, v.text)
	case '0':
		return append(dst, v.text...), true
	case 't':
		return append(dst, "True"...), true
	case 'f':
		return append(dst, "False"...), true
	case '[', '{':
	default:
		return append(dst, "None"...), true
	}
	ok := true
	dst = append(dst, v.kind)
	for i := 0; i < len(v.items) && ok; i++ {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		if v.kind == '{' {
			if dst, ok = appendStringRepr(dst, v.keys[i]); !ok {
				break
			}
			dst = append(dst, ": "...)
		}
		dst, ok = v.items[i].appendRepr(dst)
	}
	return append(dst, v.kind+2), ok
}

func appendStringRepr(dst []byte, s string) ([]byte, bool) {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	dst = append(dst, quote)
	for i := range len(s) {
		c := s[i]
		switch {
		case c == quote || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		case c < ' ' || c == 0x7F:
			dst = append(dst, '\\', 'x', "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		case c >= utf8.RuneSelf:
			return dst, false
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, quote), true
}
