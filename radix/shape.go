package radix

import "slices"

// split cuts n before block at: n keeps the head, a new child gets the tail,
// the children, and each holder's share. No place changes, for both stay
// segments of one run. The child is complete before readers can find it, and n
// shrinks before its holders do; a reader that saw n long sees that it changed.
func (t *tree) split(n *node, at int) {
	keys := n.blocks()
	m := &node{first: keys[at], run: n.run, start: n.start + at, depth: n.depth + at, stamp: n.stamp}
	m.hit.Store(n.hit.Load())
	for _, f := range n.forecasts {
		if len(f.blocks) > at {
			m.forecasts = append(m.forecasts, &forecast{of: f.of, blocks: slices.Clone(f.blocks[at:])})
		}
	}
	var tail []slot
	top := n.slots.Load()
	for i := range top.word {
		sid := slot(top.word[i].Load()).sid()
		if sid == 0 {
			continue
		}
		c := n.cover(sid).slice(at, len(keys))
		f := m.forecast(t.sids.owner[sid].of)
		if !c.empty() || f != nil {
			tail = append(tail, makeSlot(sid, c.n, reach(c, f)))
			t.putOdd(m, sid, c.odd)
		}
	}
	m.begin(keys[at:], len(tail))
	for _, s := range tail {
		m.slots.Load().add(s)
	}
	m.takeKids(n)
	i := slices.Index(n.run.segs, n)
	n.run.segs = slices.Insert(n.run.segs, i+1, m)
	t.addNode(m, n)
	t.show(n, keys[:at:at])

	for _, f := range slices.Clone(n.forecasts) {
		f.blocks = f.blocks[:min(at, len(f.blocks))]
		if !f.trim() {
			n.dropForecast(f.of)
		}
	}
	for i := range top.word {
		if s := slot(top.word[i].Load()); s.sid() != 0 {
			c := n.cover(s.sid()).slice(0, at)
			t.putOdd(n, s.sid(), c.odd)
			t.settle(n, s.sid(), c, n.forecast(t.sids.owner[s.sid()].of))
		}
	}
}

// mergeDown joins n with its only child, if that is what it has, and reports
// whether it was. The child's holders join n's before n shows the longer keys,
// and the child leaves last.
func (t *tree) mergeDown(n *node) bool {
	m := n.kid
	if n == &t.root || m == nil || m.next != nil || n.size()+m.size() > maxRun {
		return false
	}
	if n.run != m.run {
		t.absorb(n.run, m.run)
	}
	size := n.size()
	for _, f := range m.forecasts {
		mine := n.forecast(f.of)
		if mine == nil {
			mine = &forecast{of: f.of}
			n.forecasts = append(n.forecasts, mine)
		}
		for len(mine.blocks) < size {
			mine.blocks = append(mine.blocks, guess{})
		}
		mine.blocks = append(mine.blocks, f.blocks...)
	}
	low := m.slots.Load()
	for i := range low.word {
		if sid := slot(low.word[i].Load()).sid(); sid != 0 {
			c := n.cover(sid).join(size, m.cover(sid))
			t.putOdd(n, sid, c.odd)
			t.settle(n, sid, c, n.forecast(t.sids.owner[sid].of))
			t.putOdd(m, sid, nil)
		}
	}
	end := m.start + m.size()
	t.dropNode(m)
	n.takeKids(m)
	n.stamp = max(n.stamp, m.stamp)
	i := slices.Index(n.run.segs, m)
	n.run.segs = slices.Delete(n.run.segs, i, i+1)
	t.show(n, n.run.keys[n.start:end:end])
	return true
}

// absorb joins run o to the end of run r; places that name o stay good.
func (t *tree) absorb(r, o *run) {
	r = t.renew(r)
	shift := len(r.keys)
	for _, s := range o.segs {
		s.run, s.start = r, s.start+shift
	}
	segs := o.segs
	o.segs = nil
	o.limit = len(o.keys)
	keys := append(append(make([]Key, 0, shift+len(o.keys)), r.keys...), o.keys...)
	r.segs = append(r.segs, segs...)
	t.setKeys(r, keys)
	t.setKeys(o, nil)
	o.into, o.shift = r, shift
	r.refs++
	t.freeIfUnused(o)
}

// renew returns the run to append to in r's stead. Where pieces of tickets may
// name blocks that were cut off r's end, their offsets must not come to mean
// others: r becomes the alias of a new run.
func (t *tree) renew(r *run) *run {
	if !r.wasCut || r.pieces == 0 {
		return r
	}
	n := t.newRun(nil)
	n.keys, n.room, n.segs, n.refs = r.keys, r.room, r.segs, 1
	for _, s := range n.segs {
		s.run = n
	}
	r.into, r.shift, r.limit = n, 0, len(r.keys)
	r.keys, r.room, r.segs = nil, 0, nil
	return n
}

// tidy restores the shape after holders left n: cuts unheld tails, frees dead
// nodes upwards, joins single children.
func (t *tree) tidy(n *node) {
	// A child that joins n may have an end that is not held, and was to be
	// tidied later.
	for again := true; again; again = t.mergeDown(n) && n.kid == nil {
		if n = t.tidyLeaf(n); n == nil {
			return
		}
	}
}

// tidyLeaf cuts back a leaf, and frees it and what is above it where nothing is
// held. It returns the node where it ended if that may be joined with a child.
func (t *tree) tidyLeaf(n *node) *node {
	for n != &t.root && n.kid == nil {
		size := n.size()
		end := t.heldEnd(n, size)
		if end == size {
			return nil
		}
		r := n.run
		t.cutForecasts(n, end)
		if end > 0 {
			t.cutKeys(r, n.start+end)
			return nil
		}
		up := n.parent
		start := n.start
		t.dropNode(n)
		r.segs = r.segs[:len(r.segs)-1]
		t.cutKeys(r, start)
		t.freeIfUnused(r)
		n = up
	}
	return n
}

// heldEnd is one more than the last block of n that anyone holds or is
// predicted to hold.
func (t *tree) heldEnd(n *node, size int) int {
	end := 0
	for _, f := range n.forecasts {
		end = max(end, len(f.blocks))
	}
	s := n.slots.Load()
	for i := range s.word {
		if end >= size {
			return size
		}
		v := slot(s.word[i].Load())
		end = max(end, v.confirmed())
		if n.odd != nil {
			end = max(end, n.odd[v.sid()].end())
		}
	}
	return end
}

func (t *tree) cutForecasts(n *node, end int) {
	for _, f := range n.forecasts {
		f.blocks = f.blocks[:min(len(f.blocks), end)]
	}
}

// spansOf appends what is left of a piece, node by node.
func (t *tree) spansOf(p piece, out []span) []span {
	r, off, left := p.run.resolve(p.off, p.len)
	for left > 0 {
		n, lo := r.nodeAt(off)
		hi := min(n.size(), lo+left)
		out = append(out, span{n, lo, hi})
		off, left = off+hi-lo, left-(hi-lo)
	}
	return out
}

// tidyAll tidies the nodes of one piece, deepest first. The nodes lie on one
// path: tidying one may free those above it, and joins none of them that is
// still to come with anything but a sibling's subtree.
func (t *tree) tidyAll(spans []span) {
	for i := len(spans) - 1; i >= 0; i-- {
		if n := spans[i].n; n.keys.Load() != nil {
			t.tidy(n)
		}
	}
}
