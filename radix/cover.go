package radix

// cover says which blocks of a node one source holds. Nearly always they are
// the leading ones, and n says it all; a source with a hole has a set as well.
type cover struct {
	n   int
	odd bitset // nil: exactly the leading n. Else the blocks held, n of them leading
}

func (c cover) empty() bool { return c.n == 0 && c.odd == nil }

func (c cover) has(i int) bool { return i < c.n || c.odd.has(i) }

// end is one more than the last block held.
func (c cover) end() int {
	if c.odd != nil {
		return c.odd.end()
	}
	return c.n
}

func (c cover) count() int {
	if c.odd != nil {
		return c.odd.count()
	}
	return c.n
}

// overlaps reports whether any of lo…hi-1 is held.
func (c cover) overlaps(lo, hi int) bool {
	if lo < c.n {
		return true
	}
	if c.odd != nil {
		for i := lo; i < hi; i++ {
			if c.odd.has(i) {
				return true
			}
		}
	}
	return false
}

// set is a copy's set of the blocks held: readers never see it, but callers
// keep the cover they passed in.
func (c cover) set() bitset {
	if c.odd != nil {
		return append(bitset(nil), c.odd...)
	}
	return bitset(nil).set(0, c.n)
}

func (c cover) with(lo, hi int) cover {
	if c.odd == nil && lo <= c.n {
		return cover{n: max(c.n, hi)}
	}
	return coverOf(c.set().set(lo, hi))
}

func (c cover) without(lo, hi int) cover {
	if c.odd == nil {
		if lo >= c.n {
			return c
		}
		if hi >= c.n {
			return cover{n: lo}
		}
	}
	b := c.set()
	b.clear(lo, hi)
	return coverOf(b)
}

// slice is the cover of blocks lo…hi-1, counted from lo.
func (c cover) slice(lo, hi int) cover {
	if c.odd == nil {
		return cover{n: max(0, min(c.n, hi)-lo)}
	}
	var b bitset
	for i := lo; i < hi; i++ {
		if c.odd.has(i) {
			b = b.set(i-lo, i-lo+1)
		}
	}
	return coverOf(b)
}

// join is the cover of a node of size blocks followed by another.
func (c cover) join(size int, next cover) cover {
	if next.empty() {
		return c
	}
	if c.odd == nil && c.n == size && next.odd == nil {
		return cover{n: size + next.n}
	}
	b := c.set()
	for i := range next.end() {
		if next.has(i) {
			b = b.set(size+i, size+i+1)
		}
	}
	return coverOf(b)
}

// coverOf drops a set that says no more than its leading count.
func coverOf(b bitset) cover {
	n := b.lead()
	if b.end() == n {
		return cover{n: n}
	}
	return cover{n: n, odd: b}
}
