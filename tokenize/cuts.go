package tokenize

import (
	"bytes"
	"unicode/utf8"
)

// Cuts hold for the Llama 3 family's regular expression without a normalizer.
// Between two neighbouring characters a and b lies a cut if
//
//	a is no white space and b is blank,
//	a is a newline and b is no white space, or
//	a is a letter and b is visible, not ASCII and neither letter nor number:
//
// a word always ends there, whatever stands before a and after b, and the place
// cannot lie inside a special token. A special token that is whole has a cut on
// both sides.
func isCut(a, b class, bASCII bool) bool {
	switch a {
	case letter:
		return b == blank || b == other && !bASCII
	case newline:
		return b != blank && b != newline
	case blank:
		return false
	}
	return b == blank
}

// firstCut returns the first cut of text at or after from and before to, or to.
// There is none at 0.
func (t *classTable) firstCut(text []byte, from, to int) int {
	if from <= 0 {
		from = 1
	}
	for from < to && !utf8.RuneStart(text[from]) {
		from++
	}
	if from >= to {
		return to
	}
	a := t.before(text, from)
	for i := from; i < to; {
		b, n := t.at(text, i)
		if isCut(a, b, n == 1) {
			return i
		}
		a = b
		i += n
	}
	return to
}

// lastCut returns the last cut of text that the text after end cannot change,
// or 0 if there is none.
func (t *classTable) lastCut(text []byte, end int) int {
	for end < len(text) && end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	if end == 0 {
		return 0
	}
	i := lastRune(text, end)
	b, n := t.at(text, i)
	for i > 0 {
		j := lastRune(text, i)
		a, m := t.at(text, j)
		if isCut(a, b, n == 1) {
			return i
		}
		b, n, i = a, m, j
	}
	return 0
}

// before is the class of the character that ends at i > 0.
func (t *classTable) before(text []byte, i int) class {
	c, _ := t.at(text, lastRune(text, i))
	return c
}

// lastRune is where the character that ends at end > 0 starts.
func lastRune(text []byte, end int) int {
	i := end - 1
	for i > 0 && !utf8.RuneStart(text[i]) {
		i--
	}
	return i
}

// specials finds special tokens in text. All have the form <|name|>, so that no
// two of them can begin at the same place or overlap.
type specials struct {
	ids map[string]Token
	max int // length of the longest
}

// next returns where the next special token of text at or after i starts and
// ends and its id; start is len(text) when there is none.
func (s *specials) next(text []byte, i int) (start, end int, id Token) {
	for {
		at := bytes.Index(text[i:], []byte("<|"))
		if at < 0 {
			return len(text), len(text), 0
		}
		start = i + at
		window := text[start:min(len(text), start+s.max)]
		if n := bytes.Index(window, []byte("|>")); n > 0 {
			if id, ok := s.ids[string(window[:n+2])]; ok {
				return start, start + n + 2, id
			}
		}
		i = start + 1
	}
}
