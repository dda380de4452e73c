package tokenize

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// maxDepth bounds the nesting of a body; what a request needs is far below.
const maxDepth = 512

// checkJSON reports whether body is one JSON value that can be walked without
// further checks: valid, UTF-8 and not nested too deeply. A body that it
// refuses can still be one that the worker accepts (NaN, a byte order mark).
func checkJSON(body []byte) error {
	if !utf8.Valid(body) {
		return errUTF8
	}
	// Counting is far cheaper than following strings, and nearly always enough.
	if bytes.Count(body, []byte{'['})+bytes.Count(body, []byte{'{'}) > maxDepth && depth(body) > maxDepth {
		return errDepth
	}
	if !gjson.ValidBytes(body) {
		return errJSON
	}
	return nil
}

// depth is the deepest nesting of arrays and objects.
func depth(body []byte) int {
	deepest, now := 0, 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			i += skipString(body[i:]) - 1
		case '[', '{':
			now++
			deepest = max(deepest, now)
		case ']', '}':
			now--
		}
	}
	return deepest
}

// skipString is the length of the JSON string at the beginning of raw, with
// its quotes; it is at most len(raw), also for a string that has no end.
func skipString(raw []byte) int {
	i := 1
	for i < len(raw) {
		at := bytes.IndexByte(raw[i:], '"')
		if at < 0 {
			return len(raw)
		}
		i += at
		slashes := 0
		for raw[i-1-slashes] == '\\' {
			slashes++
		}
		i++
		if slashes%2 == 0 {
			return i
		}
	}
	return len(raw)
}

// skipValue is the length of the JSON value at the beginning of raw, which is
// valid JSON.
func skipValue(raw []byte) int {
	nested := 0
	for i := 0; i < len(raw); {
		switch raw[i] {
		case '"':
			i += skipString(raw[i:])
			if nested == 0 {
				return i
			}
			continue
		case '[', '{':
			nested++
		case ']', '}':
			if nested == 0 {
				return i
			}
			nested--
			if nested == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\n', '\r':
			if nested == 0 {
				return i
			}
		}
		i++
	}
	return len(raw)
}

func skipSpace(raw []byte) []byte {
	for len(raw) > 0 && (raw[0] == ' ' || raw[0] == '\n' || raw[0] == '\t' || raw[0] == '\r') {
		raw = raw[1:]
	}
	return raw
}

// cursor walks the members of an object or the elements of an array that
// checkJSON has passed.
type cursor struct{ rest []byte }

// members starts at an object, elements at an array; any other value has none.
func members(object []byte) cursor { return enter(object, '{') }
func elements(array []byte) cursor { return enter(array, '[') }

func enter(raw []byte, open byte) cursor {
	if raw = skipSpace(raw); len(raw) == 0 || raw[0] != open {
		return cursor{}
	}
	return cursor{raw[1:]}
}

// element returns the next element's JSON text.
func (c *cursor) element() (value []byte, ok bool) {
	c.rest = skipSpace(c.rest)
	if len(c.rest) > 0 && c.rest[0] == ',' {
		c.rest = skipSpace(c.rest[1:])
	}
	if len(c.rest) == 0 || c.rest[0] == ']' || c.rest[0] == '}' {
		return nil, false
	}
	n := skipValue(c.rest)
	value, c.rest = c.rest[:n], c.rest[n:]
	return value, true
}

// member returns the next member; key is as it would be without escapes.
func (c *cursor) member() (key, value []byte, ok bool) {
	key, ok = c.element()
	if !ok {
		return nil, nil, false
	}
	key = key[1 : len(key)-1]
	if bytes.IndexByte(key, '\\') >= 0 {
		var whole bool
		if key, whole = appendUnescaped(nil, key); !whole {
			key = []byte{0xFF} // no UTF-8, so no key that anybody looks for
		}
	}
	if c.rest = skipSpace(c.rest); len(c.rest) > 0 && c.rest[0] == ':' {
		c.rest = c.rest[1:]
	}
	value, ok = c.element()
	return key, value, ok
}

// kindOf tells JSON values apart by their first byte: '"', '{', '[', 't', 'f',
// 'n', '0' for a number, and 0 for none.
func kindOf(raw []byte) byte {
	if len(raw) == 0 {
		return 0
	}
	switch c := raw[0]; c {
	case '"', '{', '[', 't', 'f', 'n':
		return c
	}
	return '0'
}

// isSet reports whether a member is there and not null.
func isSet(raw []byte) bool { return len(raw) > 0 && raw[0] != 'n' }

// appendString appends the text of a JSON string. It reports false for any
// other value and for lone surrogates, which no UTF-8 text can hold.
func appendString(dst, raw []byte) ([]byte, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return dst, false
	}
	return appendUnescaped(dst, raw[1:len(raw)-1])
}

// appendUnescaped is appendString for what stands between the quotes.
func appendUnescaped(dst, s []byte) ([]byte, bool) {
	for {
		at := bytes.IndexByte(s, '\\')
		if at < 0 {
			return append(dst, s...), true
		}
		dst = append(dst, s[:at]...)
		c := s[at+1]
		s = s[at+2:]
		switch c {
		case 'n':
			c = '\n'
		case 't':
			c = '\t'
		case 'r':
			c = '\r'
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'u':
			r := hex4(s)
			s = s[4:]
			if utf16.IsSurrogate(r) {
				if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
					return dst, false
				}
				if r = utf16.DecodeRune(r, hex4(s[2:])); r == utf8.RuneError {
					return dst, false
				}
				s = s[6:]
			}
			dst = utf8.AppendRune(dst, r)
			continue
		}
		dst = append(dst, c)
	}
}

// hex4 reads four hexadecimal digits.
func hex4(s []byte) rune {
	var r rune
	for _, c := range s[:4] {
		switch {
		case c <= '9':
			c -= '0'
		case c <= 'F':
			c -= 'A' - 10
		default:
			c -= 'a' - 10
		}
		r = r<<4 | rune(c)
	}
	return r
}
