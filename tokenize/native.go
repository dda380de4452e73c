package tokenize

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// native is the encoder for the Llama 3 family, in Go.
type native struct {
	classes  *classTable
	vocab    *vocab
	merges   *merges
	byteID   [256]Token
	specials specials
	special  map[Token]string
	start    []Token
	size     int
	chunks   *chunkCache // nil: none
	scratch  sync.Pool   // of *scratch
}

func (e *native) Name() string   { return "native" }
func (e *native) Start() []Token { return e.start }
func (e *native) VocabSize() int { return e.size }

// Encode implements [Encoder]. It fails on text that is not UTF-8 and on a word
// of more than 128 KiB.
func (e *native) Encode(dst []Token, text []byte) ([]Token, error) {
	if !utf8.Valid(text) {
		return dst, errUTF8
	}
	return e.encode(dst, text, 0, len(text), nil)
}

// EncodeHead implements [Encoder]: it stops at the last cut that text[:n]
// decides alone.
func (e *native) EncodeHead(dst []Token, text []byte, n int) ([]Token, error) {
	n = min(n, len(text))
	if !utf8.Valid(text[:lastWhole(text, n)]) {
		return dst, errUTF8
	}
	return e.encode(dst, text, 0, e.headEnd(text, 0, n), nil)
}

// headEnd is the last cut that text[:n] decides alone; from is a cut.
func (e *native) headEnd(text []byte, from, n int) int {
	n = lastWhole(text, n)
	for {
		start, end, _ := e.specials.next(text[:n], from)
		if start == n {
			return from + e.classes.lastCut(text[from:n], n-from)
		}
		from = end
	}
}

// lastWhole is the last place up to n that is not inside a character.
func lastWhole(text []byte, n int) int {
	for n < len(text) && n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return n
}

// encode appends the ids of text[from:to], both cuts. The text is valid UTF-8.
// A trace, if there is one, is told the cuts on the way.
func (e *native) encode(dst []Token, text []byte, from, to int, t *trace) ([]Token, error) {
	s, ok := e.scratch.Get().(*scratch)
	if !ok {
		s = &scratch{}
	}
	defer e.scratch.Put(s)
	text = text[:to]
	for from < to {
		start, end, id := e.specials.next(text, from)
		var err error
		if e.chunks != nil {
			dst, err = e.appendChunks(dst, text, from, start, s, t)
		} else {
			dst, err = e.appendPlain(dst, text[from:start], s)
		}
		if err != nil {
			return dst, err
		}
		if start < to {
			dst = append(dst, id)
			t.mark(mark{end, len(dst), end})
		}
		from = end
	}
	return dst, nil
}

// appendPlain appends the ids of text without special tokens.
func (e *native) appendPlain(dst []Token, text []byte, s *scratch) ([]Token, error) {
	for i := 0; i < len(text); {
		end := e.classes.nextWord(text, i)
		word := text[i:end]
		i = end
		if id := e.vocab.find(word); id != noToken {
			dst = append(dst, id)
			continue
		}
		if len(word) > maxWordBytes {
			return dst, errLongWord
		}
		dst = e.merges.appendWord(dst, word, &e.byteID, s)
	}
	return dst, nil
}

// Decode implements [Encoder]. Ids beyond the vocabulary are left out.
func (e *native) Decode(ids []Token) string {
	var b strings.Builder
	for _, id := range ids {
		if s, ok := e.special[id]; ok {
			b.WriteString(s)
		} else if int(id) < len(e.vocab.ends) {
			b.Write(e.vocab.textOf(id))
		}
	}
	return strings.ToValidUTF8(b.String(), string(utf8.RuneError))
}
