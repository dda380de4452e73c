package tokenize

import (
	"encoding/binary"
	"math/bits"
)

const (
	inlineBytes = 15 // words up to this length are looked up without a pointer
	noToken     = ^Token(0)
)

// vocab finds the id of a whole word, and the text of an id. It is read-only
// once built.
type vocab struct {
	slots []vocabSlot // open addressing, a power of two
	mask  uint64
	long  map[string]Token // words over inlineBytes
	text  []byte           // the text of all ids, one after another
	ends  []uint32         // ends[id] is where that of id ends
}

// vocabSlot holds a word of up to inlineBytes bytes, its length in the last
// byte of hi. A slot with length 0 is free.
type vocabSlot struct {
	lo, hi uint64
	id     Token
}

// newVocab builds the table of words, where words[id] is the text of id.
func newVocab(words [][]byte) *vocab {
	size := 1 << bits.Len(uint(3*len(words)/2+1)) // never full, so that every search ends
	v := &vocab{slots: make([]vocabSlot, size), mask: uint64(size - 1), long: map[string]Token{}}
	v.ends = make([]uint32, len(words))
	for id, w := range words {
		v.text = append(v.text, w...)
		v.ends[id] = uint32(len(v.text))
		switch {
		case len(w) == 0:
		case len(w) > inlineBytes:
			v.long[string(w)] = Token(id)
		default:
			v.insert(w, Token(id))
		}
	}
	return v
}

func (v *vocab) insert(word []byte, id Token) {
	lo, hi := inline(word)
	for i := hashWord(lo, hi) & v.mask; ; i = (i + 1) & v.mask {
		if v.slots[i].hi == 0 {
			v.slots[i] = vocabSlot{lo, hi, id}
			return
		}
	}
}

// find returns the id of a whole word, or noToken.
func (v *vocab) find(word []byte) Token {
	if len(word) > inlineBytes {
		if id, ok := v.long[string(word)]; ok {
			return id
		}
		return noToken
	}
	lo, hi := inline(word)
	return v.findInline(lo, hi)
}

func (v *vocab) findInline(lo, hi uint64) Token {
	for i := hashWord(lo, hi) & v.mask; ; i = (i + 1) & v.mask {
		s := &v.slots[i]
		if s.hi == hi && s.lo == lo {
			return s.id
		}
		if s.hi == 0 {
			return noToken
		}
	}
}

// textOf is the text of id, which is below the number of words.
func (v *vocab) textOf(id Token) []byte {
	start := uint32(0)
	if id > 0 {
		start = v.ends[id-1]
	}
	return v.text[start:v.ends[id]]
}

func (v *vocab) bytes() int {
	n := len(v.slots)*24 + len(v.text) + 4*len(v.ends)
	for w := range v.long {
		n += len(w) + 24
	}
	return n
}

// inline packs a word of up to inlineBytes bytes and its length.
func inline(word []byte) (lo, hi uint64) {
	n := len(word)
	switch {
	case n >= 8:
		lo = binary.LittleEndian.Uint64(word)
		hi = tail(word[8:])
	default:
		lo = tail(word)
	}
	return lo, hi | uint64(n)<<56
}

// tail packs up to seven bytes.
func tail(b []byte) uint64 {
	switch {
	case len(b) >= 4:
		lo := uint64(binary.LittleEndian.Uint32(b))
		hi := uint64(binary.LittleEndian.Uint32(b[len(b)-4:]))
		return lo | hi<<(8*uint(len(b)-4))
	case len(b) >= 2:
		lo := uint64(binary.LittleEndian.Uint16(b))
		hi := uint64(binary.LittleEndian.Uint16(b[len(b)-2:]))
		return lo | hi<<(8*uint(len(b)-2))
	case len(b) == 1:
		return uint64(b[0])
	}
	return 0
}

func hashWord(lo, hi uint64) uint64 {
	a, b := bits.Mul64(lo^0x9E3779B97F4A7C15, hi^0x243F6A8885A308D3)
	return a ^ b
}
