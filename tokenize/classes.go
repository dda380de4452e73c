package tokenize

import "unicode/utf8"

// class is what the tokenizer's regular expression can tell of a code point.
type class = uint8

const (
	other   class = iota // visible, neither letter nor number; also unassigned
	letter               // \p{L}
	number               // \p{N}
	blank                // \s but for newline
	newline              // \r and \n
)

const pageBits = 8

// classTable maps code points to classes by pages of 256; equal pages are
// stored once.
type classTable struct {
	ascii [utf8.RuneSelf]class
	index [(utf8.MaxRune + 1) >> pageBits]uint16
	pages [][1 << pageBits]class
}

// newClassTable unpacks classRuns.
func newClassTable() *classTable {
	flat := make([]class, utf8.MaxRune+1)
	start, delta := 0, 0
	current := other
	for i := range len(classRuns) {
		c := classRuns[i]
		switch {
		case c >= '0' && c <= '9':
			delta = delta<<4 | int(c-'0')
			continue
		case c >= 'a' && c <= 'f':
			delta = delta<<4 | int(c-'a'+10)
			continue
		}
		fill(flat[start:start+delta], current)
		start, delta = start+delta, 0
		current = classOfLetter(c)
	}
	fill(flat[start:], current)
	flat['\r'], flat['\n'] = newline, newline

	t := &classTable{}
	copy(t.ascii[:], flat)
	seen := map[[1 << pageBits]class]uint16{}
	for i := range t.index {
		page := [1 << pageBits]class(flat[i<<pageBits:])
		n, ok := seen[page]
		if !ok {
			n = uint16(len(t.pages))
			seen[page] = n
			t.pages = append(t.pages, page)
		}
		t.index[i] = n
	}
	return t
}

func fill(dst []class, c class) {
	for i := range dst {
		dst[i] = c
	}
}

func classOfLetter(c byte) class {
	switch c {
	case 'L':
		return letter
	case 'N':
		return number
	case 'S':
		return blank
	}
	return other
}

// at returns the class and the length in bytes of the code point at text[i].
// text is valid UTF-8 and i < len(text).
func (t *classTable) at(text []byte, i int) (class, int) {
	if c := text[i]; c < utf8.RuneSelf {
		return t.ascii[c], 1
	}
	r, n := utf8.DecodeRune(text[i:])
	return t.pages[t.index[r>>pageBits]][r&(1<<pageBits-1)], n
}
