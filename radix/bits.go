package radix

import "math/bits"

// bitset is a set of small numbers. Only holders with holes have one.
type bitset []uint64

func (b bitset) has(i int) bool { return i>>6 < len(b) && b[i>>6]>>(i&63)&1 == 1 }

// set adds lo…hi-1 and returns the set, grown if need be.
func (b bitset) set(lo, hi int) bitset {
	for need := (hi + 63) >> 6; len(b) < need; {
		b = append(b, 0)
	}
	for i := lo; i < hi; i++ {
		b[i>>6] |= 1 << (i & 63)
	}
	return b
}

func (b bitset) clear(lo, hi int) {
	for i := lo; i < min(hi, len(b)<<6); i++ {
		b[i>>6] &^= 1 << (i & 63)
	}
}

// lead counts the members 0, 1, 2… before the first that lacks.
func (b bitset) lead() int {
	for w, v := range b {
		if v != ^uint64(0) {
			return w<<6 + bits.TrailingZeros64(^v)
		}
	}
	return len(b) << 6
}

// end is one more than the largest member; 0 for the empty set.
func (b bitset) end() int {
	for w := len(b) - 1; w >= 0; w-- {
		if b[w] != 0 {
			return w<<6 + bits.Len64(b[w])
		}
	}
	return 0
}

func (b bitset) count() int {
	n := 0
	for _, v := range b {
		n += bits.OnesCount64(v)
	}
	return n
}
