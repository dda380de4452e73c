package tokenize

import "math/bits"

const (
	idBits   = 20 // most bits of a token id in a pair
	rankBits = 24 // most bits of a merge's rank
	noRank   = ^uint32(0)
	// linearBytes is the longest word whose merges are found by scanning all
	// pairs; longer words use a heap.
	linearBytes = 48
	// maxWordBytes bounds the time of one word: no text that a person or a
	// program wrote has longer ones, and merging one takes milliseconds.
	maxWordBytes = 128 << 10
)

// merges finds the rank of a pair of neighbouring tokens and the token that it
// becomes. It is read-only once built.
type merges struct {
	slots []uint64 // left id, right id, rank; open addressing, a power of two
	mask  uint64
	into  []Token // by rank
}

const freeSlot = ^uint64(0)

// newMerges makes a table for n merges.
func newMerges(n int) *merges {
	size := 1 << bits.Len(uint(3*n/2+1)) // never full, so that every search ends
	m := &merges{slots: make([]uint64, size), mask: uint64(size - 1), into: make([]Token, 0, n)}
	for i := range m.slots {
		m.slots[i] = freeSlot
	}
	return m
}

// add appends the merge of next rank. It reports false if the pair is known.
func (m *merges) add(left, right, into Token) bool {
	pair := uint64(left)<<idBits | uint64(right)
	i := hashPair(pair) & m.mask
	for m.slots[i] != freeSlot {
		if m.slots[i]>>rankBits == pair {
			return false
		}
		i = (i + 1) & m.mask
	}
	m.slots[i] = pair<<rankBits | uint64(len(m.into))
	m.into = append(m.into, into)
	return true
}

// rank returns the rank of a pair, or noRank.
func (m *merges) rank(left, right Token) uint32 {
	pair := uint64(left)<<idBits | uint64(right)
	for i := hashPair(pair) & m.mask; ; i = (i + 1) & m.mask {
		s := m.slots[i]
		if s>>rankBits == pair {
			return uint32(s & (1<<rankBits - 1))
		}
		if s == freeSlot {
			return noRank
		}
	}
}

func hashPair(pair uint64) uint64 {
	hi, lo := bits.Mul64(pair^0x243F6A8885A308D3, 0x9E3779B97F4A7C15)
	return hi ^ lo
}

// scratch is the working memory of one encoding.
type scratch struct {
	ids   []Token
	ranks []uint32
	next  []int32
	prev  []int32
	heap  []uint64
}

// appendWord appends the byte-pair encoding of a word that is no token itself:
// the pair of least rank, leftmost first, is merged until none is left.
func (m *merges) appendWord(dst []Token, word []byte, byteID *[256]Token, s *scratch) []Token {
	if len(word) > linearBytes {
		return m.appendLongWord(dst, word, byteID, s)
	}
	var idsBuf [linearBytes]Token
	var ranksBuf [linearBytes]uint32
	ids, ranks := idsBuf[:len(word)], ranksBuf[:len(word)]
	for i, b := range word {
		ids[i] = byteID[b]
	}
	last := len(ids) - 1
	for i := range last {
		ranks[i] = m.rank(ids[i], ids[i+1])
	}
	for last > 0 {
		best, at := noRank, 0
		for i, r := range ranks[:last] {
			if r < best {
				best, at = r, i
			}
		}
		if best == noRank {
			break
		}
		ids[at] = m.into[best]
		copy(ids[at+1:last], ids[at+2:last+1])
		copy(ranks[at+1:last], ranks[at+2:last+1])
		last--
		if at < last {
			ranks[at] = m.rank(ids[at], ids[at+1])
		}
		if at > 0 {
			ranks[at-1] = m.rank(ids[at-1], ids[at])
		}
	}
	return append(dst, ids[:last+1]...)
}

// appendLongWord is appendWord with a linked list and a heap of (rank,
// position): n log n for a word of n bytes.
func (m *merges) appendLongWord(dst []Token, word []byte, byteID *[256]Token, s *scratch) []Token {
	n := len(word)
	s.ids, s.ranks = grow(s.ids, n), grow(s.ranks, n)
	s.next, s.prev, s.heap = grow(s.next, n), grow(s.prev, n), s.heap[:0]
	for i, b := range word {
		s.ids[i], s.next[i], s.prev[i] = byteID[b], int32(i+1), int32(i-1)
	}
	s.ranks[n-1] = noRank
	for i := range n - 1 {
		s.ranks[i] = m.rank(s.ids[i], s.ids[i+1])
		if s.ranks[i] != noRank {
			s.heap = append(s.heap, uint64(s.ranks[i])<<32|uint64(i))
		}
	}
	for i := len(s.heap)/2 - 1; i >= 0; i-- {
		siftDown(s.heap, i)
	}
	for len(s.heap) > 0 {
		top := s.pop()
		at, rank := int32(uint32(top)), uint32(top>>32)
		if s.ranks[at] != rank {
			continue // the pair is gone or has changed
		}
		gone := s.next[at]
		s.ids[at], s.ranks[gone] = m.into[rank], noRank
		s.next[at] = s.next[gone]
		if after := s.next[at]; int(after) < n {
			s.prev[after] = at
		}
		s.rerank(m, at, n)
		if before := s.prev[at]; before >= 0 {
			s.rerank(m, before, n)
		}
	}
	for i := int32(0); int(i) < n; i = s.next[i] {
		dst = append(dst, s.ids[i])
	}
	return dst
}

// rerank finds the rank of the pair that begins at position at.
func (s *scratch) rerank(m *merges, at int32, n int) {
	s.ranks[at] = noRank
	after := s.next[at]
	if int(after) >= n {
		return
	}
	if r := m.rank(s.ids[at], s.ids[after]); r != noRank {
		s.ranks[at] = r
		s.push(uint64(r)<<32 | uint64(at))
	}
}

func (s *scratch) push(x uint64) {
	s.heap = append(s.heap, x)
	i := len(s.heap) - 1
	for i > 0 && s.heap[(i-1)/2] > x {
		s.heap[i] = s.heap[(i-1)/2]
		i = (i - 1) / 2
	}
	s.heap[i] = x
}

func (s *scratch) pop() uint64 {
	top, last := s.heap[0], len(s.heap)-1
	s.heap[0] = s.heap[last]
	s.heap = s.heap[:last]
	siftDown(s.heap, 0)
	return top
}

func siftDown(h []uint64, i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if h[i] <= h[child] {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// grow returns a slice of length n, with any contents, in s's memory if it
// is large enough.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
