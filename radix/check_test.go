package radix

import (
	"fmt"
	"slices"
)

// check verifies what must always hold of a quiet index: the shape, the counts,
// that every entry's block is held and every held block has an entry, and that
// what lives is what can be reached.
func (x *Index) check() error {
	t := &x.tree
	var n counts
	covered := 0
	segs := map[*run]int{}
	var walk func(p *node) error
	walk = func(p *node) error {
		for k, prev := p.kid, (*node)(nil); k != nil; prev, k = k, k.next {
			if k.parent != p || k.prev != prev {
				return fmt.Errorf("node %x: family ties are wrong", k.first)
			}
			c, err := t.checkNode(k)
			if err != nil {
				return fmt.Errorf("node %x of %d blocks: %w", k.first, k.size(), err)
			}
			covered += c
			segs[k.run]++
			n.nodes++
			n.depths[bucket(k.depth)]++
			n.holders[bucket(k.slots.Load().live)]++
			n.slotCap += len(k.slots.Load().word)
			for _, b := range k.odd {
				n.oddWords += len(b)
			}
			if err := walk(k); err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk(&t.root); err != nil {
		return err
	}
	refs, entries, err := x.names()
	if err != nil {
		return err
	}
	if len(x.grave.list) == 0 && entries != covered {
		return fmt.Errorf("%d blocks held, but %d have an entry", covered, entries)
	}
	for _, r := range t.runs {
		if r == nil {
			continue
		}
		n.runs++
		n.keyRoom += r.room
		if r.refs != refs[r] || r.refs == 0 && len(r.segs) == 0 {
			return fmt.Errorf("run %d: %d references, counted %d, %d segments", r.id, r.refs, refs[r], len(r.segs))
		}
		if len(r.segs) != segs[r] {
			return fmt.Errorf("run %d: %d segments, %d reachable", r.id, len(r.segs), segs[r])
		}
	}
	if n != t.count {
		return fmt.Errorf("counts %+v, counted %+v", t.count, n)
	}
	if bytes, tickets := x.owned(); bytes != x.bytes.Load() || tickets != t.tickets {
		return fmt.Errorf("%d bytes of tables and %d tickets, counted %d and %d", bytes, tickets, x.bytes.Load(), t.tickets)
	}
	if d := t.dir.at.Load(); d.live != n.nodes {
		return fmt.Errorf("directory has %d nodes, %d reachable", d.live, n.nodes)
	}
	return nil
}

func (t *tree) checkNode(k *node) (covered int, err error) {
	size := k.size()
	r := k.run
	i := slices.Index(r.segs, k)
	end := len(r.keys)
	if i >= 0 && i+1 < len(r.segs) {
		end = r.segs[i+1].start
	}
	switch {
	case size == 0 || size > maxRun:
		return 0, fmt.Errorf("%d blocks", size)
	case i < 0 || r.into != nil:
		return 0, fmt.Errorf("not a segment of its run")
	case i > 0 && k.parent != r.segs[i-1]:
		return 0, fmt.Errorf("its run's segment before is not its parent")
	case !slices.Equal(k.blocks(), r.keys[k.start:end]):
		return 0, fmt.Errorf("keys differ from its run's")
	case k.first != k.blocks()[0] || t.dir.at.Load().find(k.first) != k:
		return 0, fmt.Errorf("not found by its first key")
	case k.depth != k.parent.depth+k.parent.size():
		return 0, fmt.Errorf("depth %d", k.depth)
	case k.kid != nil && k.kid.next == nil && size+k.kid.size() <= maxRun:
		return 0, fmt.Errorf("single child not joined")
	case k.kid == nil && t.heldEnd(k, size) != size:
		return 0, fmt.Errorf("only %d blocks of a leaf are held", t.heldEnd(k, size))
	}
	tab, live := k.slots.Load(), int32(0)
	for i := range tab.word {
		s := slot(tab.word[i].Load())
		if s.sid() == 0 {
			continue
		}
		live++
		src := t.sids.owner[s.sid()]
		if src == nil {
			return 0, fmt.Errorf("slot of free source %d", s.sid())
		}
		c, f := k.cover(s.sid()), k.forecast(src.of)
		if c.empty() && f == nil {
			return 0, fmt.Errorf("slot of source %d, which holds nothing", s.sid())
		}
		if c.odd != nil && (c.odd.lead() != c.n || c.odd.end() <= c.n) || c.end() > size {
			return 0, fmt.Errorf("cover %+v", c)
		}
		if s.all() != reach(c, f) {
			return 0, fmt.Errorf("slot says %d, reach is %d", s.all(), reach(c, f))
		}
		covered += c.count()
	}
	if live != tab.live {
		return 0, fmt.Errorf("%d holders, counted %d", tab.live, live)
	}
	for _, f := range k.forecasts {
		for i, g := range f.blocks {
			if g.tickets > 0 && t.confirmed(k, f.of, i) {
				return 0, fmt.Errorf("block %d is predicted and confirmed", i)
			}
		}
		if k := len(f.blocks); k == 0 || f.blocks[k-1].tickets == 0 {
			return 0, fmt.Errorf("empty forecast")
		}
	}
	return covered, nil
}

// owned adds up what the sources and contents have of their own.
func (x *Index) owned() (bytes int64, tickets int) {
	for _, in := range x.instances {
		if in == nil {
			continue
		}
		tickets += in.now.tickets.live()
		for _, s := range in.now.sources {
			bytes += s.bytes()
		}
	}
	for _, d := range x.grave.list {
		tickets += d.of.tickets.live()
		for _, s := range d.sources {
			bytes += s.bytes()
		}
	}
	return bytes, tickets
}

// names counts what refers to each run, and the blocks that have an entry.
func (x *Index) names() (refs map[*run]int, entries int, err error) {
	refs = map[*run]int{}
	fromSource := func(s *source, from int) error {
		for _, e := range s.table.slots[from:] {
			if e.at.run == 0 {
				continue
			}
			r := x.tree.runs[e.at.run]
			if r == nil {
				return fmt.Errorf("entry %x names no run", e.hash)
			}
			refs[r]++
			n, i := r.find(int(e.at.off))
			if from == 0 && (n == nil || !n.cover(s.sid).has(i)) {
				return fmt.Errorf("entry %x: its block is not held", e.hash)
			}
			if n != nil && n.cover(s.sid).has(i) {
				entries++
			}
		}
		for _, n := range s.twins {
			entries -= n
		}
		return nil
	}
	fromContents := func(c *contents) {
		for i := range c.tickets.live() {
			for _, p := range c.tickets.at(i).pieces {
				refs[p.run]++
			}
		}
	}
	for _, in := range x.instances {
		if in == nil {
			continue
		}
		fromContents(in.now)
		for _, s := range in.now.sources {
			if err := fromSource(s, 0); err != nil {
				return nil, 0, err
			}
		}
	}
	for _, d := range x.grave.list {
		fromContents(d.of)
		for i, s := range d.sources {
			from := 0
			if i == 0 {
				from = d.next
			}
			if err := fromSource(s, from); err != nil && from == 0 && d.next == 0 {
				return nil, 0, err
			}
		}
	}
	for _, r := range x.tree.runs {
		if r != nil && r.into != nil {
			refs[r.into]++
		}
	}
	return refs, entries, nil
}
