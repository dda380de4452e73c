package tokenize

// nextWord returns the end of the word that starts at text[i], i < len(text):
// what the Llama 3 family's regular expression matches there.
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N}{1,3} |
//	 ?[^\s\p{L}\p{N}]+[\r\n]* | \s*[\r\n]+ | \s+(?!\S) | \s+
//
// Every character is in one of its classes, so words follow each other without
// gaps. text is valid UTF-8.
func (t *classTable) nextWord(text []byte, i int) int {
	c, n := t.at(text, i)
	switch c {
	case letter:
		return t.endOf(letter, text, i+n)
	case number:
		for range 2 {
			if i+n == len(text) {
				break
			}
			c, m := t.at(text, i+n)
			if c != number {
				break
			}
			n += m
		}
		return i + n
	case newline:
		return t.endOfSpace(text, i)
	}
	if text[i] == '\'' {
		if end := contraction(text, i+1); end > 0 {
			return end
		}
	}
	if i+n == len(text) {
		return i + n
	}
	d, m := t.at(text, i+n)
	switch {
	case d == letter:
		return t.endOf(letter, text, i+n+m)
	case c == other:
		return endOfNewlines(text, t.endOf(other, text, i+n))
	case text[i] == ' ' && d == other:
		return endOfNewlines(text, t.endOf(other, text, i+n+m))
	}
	return t.endOfSpace(text, i)
}

// endOf returns the end of the run of class c that goes on at text[i].
func (t *classTable) endOf(c class, text []byte, i int) int {
	for i < len(text) {
		d, n := t.at(text, i)
		if d != c {
			break
		}
		i += n
	}
	return i
}

func endOfNewlines(text []byte, i int) int {
	for i < len(text) && (text[i] == '\n' || text[i] == '\r') {
		i++
	}
	return i
}

// endOfSpace ends a word of white space at text[i]: after the last newline of
// the run; else before its last character, unless that is its only one or the
// text's last.
func (t *classTable) endOfSpace(text []byte, i int) int {
	lastNewline, last, j := 0, i, i
	for j < len(text) {
		c, n := t.at(text, j)
		if c != blank && c != newline {
			break
		}
		last = j
		j += n
		if c == newline {
			lastNewline = j
		}
	}
	switch {
	case lastNewline > 0:
		return lastNewline
	case j < len(text) && last > i:
		return last
	}
	return j
}

// contraction returns the end of one of s, t, re, ve, m, ll, d at text[i], in
// any case, or 0. Case folding makes U+017F an s.
func contraction(text []byte, i int) int {
	if i >= len(text) {
		return 0
	}
	switch text[i] | 0x20 {
	case 's', 't', 'm', 'd':
		return i + 1
	}
	if i+1 >= len(text) {
		return 0
	}
	if text[i] == 0xC5 && text[i+1] == 0xBF {
		return i + 2
	}
	a, b := text[i]|0x20, text[i+1]|0x20
	if a == 'r' && b == 'e' || a == 'v' && b == 'e' || a == 'l' && b == 'l' {
		return i + 2
	}
	return 0
}
