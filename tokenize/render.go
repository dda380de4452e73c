package tokenize

import "unicode/utf8"

// rendering is a prompt's text while a template writes it.
type rendering struct {
	out  []byte
	left int // characters of message text still to come; below 0: no limit
	// cut is where the known text ends: the rest of out is not read. It is -1
	// as long as all of it is known.
	cut  int
	open bool // what follows the cut is not what the worker has there
}

func (r *rendering) reset(limit int) {
	if limit <= 0 {
		limit = -1
	}
	r.out, r.left, r.cut, r.open = r.out[:0], limit, -1, false
}

func (r *rendering) literal(s string) { r.out = append(r.out, s...) }

// content appends a message's text and counts it. Once it has met the limit
// it marks the cut.
func (r *rendering) content(text []byte) {
	if r.left >= 0 && r.cut < 0 {
		n := cutChars(text, r.left)
		r.left -= utf8.RuneCount(text[:n])
		if n < len(text) {
			r.cut = len(r.out) + n
		}
	}
	r.out = append(r.out, text...)
}

// stop marks the cut here, since what follows is not known, unless there is one
// before.
func (r *rendering) stop() {
	if r.cut < 0 {
		r.cut, r.open = len(r.out), true
	}
}

// done reports whether the rest of the prompt need not be rendered.
func (r *rendering) done() bool { return r.cut >= 0 }

// cutChars is the length in bytes of the first n characters of text.
func cutChars(text []byte, n int) int {
	if n >= len(text) {
		return len(text)
	}
	for i := range text {
		if utf8.RuneStart(text[i]) {
			if n == 0 {
				return i
			}
			n--
		}
	}
	return len(text)
}
