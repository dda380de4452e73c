package radix

import (
	"cmp"
	"slices"
)

// pruneTo is the share of MaxBytes, in percent, that pruning leaves. The tenth
// that goes at once pays for the walk over everything that it takes.
const pruneTo = 90

// entryCost is what an entry takes of its table on average: tables are 40 to 75 % full.
const entryCost = entryBytes * 2

// after prunes once a complete change has left the index above its budget. The
// caller holds no lock.
func (x *Index) after() {
	if x.o.MaxBytes > 0 && x.used() > x.o.MaxBytes {
		x.prune()
	}
}

func (x *Index) used() int64 {
	x.treeMu.Lock()
	defer x.treeMu.Unlock()
	return x.tree.bytes() + x.bytes.Load()
}

// prune gives up the least valuable leaves until the budget is kept: those
// never matched since the last prune before those matched, and of these the
// ones stored to longest ago. Their instances simply hold less. No writer runs
// meanwhile; readers do.
func (x *Index) prune() {
	x.gate.Lock()
	defer x.gate.Unlock()
	x.treeMu.Lock()
	for x.sweepLocked(sweepChunk) {
	}
	x.treeMu.Unlock()
	target := x.o.MaxBytes / 100 * pruneTo
	for {
		excess := x.used() - target
		if excess <= 0 {
			return
		}
		x.treeMu.Lock()
		victims := x.tree.cheapest(excess)
		gone := 0
		for _, n := range victims {
			gone += x.tree.vacate(n)
		}
		x.treeMu.Unlock()
		if len(victims) == 0 {
			return // what is left are the instances themselves
		}
		x.pruned.Add(uint64(gone))
		x.purge()
		// Only now: cutting runs would give the places of purged entries new meanings.
		x.treeMu.Lock()
		for _, n := range victims {
			if n.keys.Load() != nil {
				x.tree.tidy(n)
			}
		}
		x.treeMu.Unlock()
	}
}

// cheapest returns leaves to give up that free about this many bytes, the least
// valuable first, and lets all nodes start again as not matched.
func (t *tree) cheapest(bytes int64) []*node {
	type leaf struct {
		n   *node
		hit bool
	}
	var leaves []leaf
	t.each(&t.root, func(n *node) {
		hit := n.hit.Load()
		n.hit.Store(false)
		if n.kid == nil {
			leaves = append(leaves, leaf{n, hit})
		}
	})
	slices.SortFunc(leaves, func(a, b leaf) int {
		if a.hit != b.hit {
			if b.hit {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.n.stamp, b.n.stamp)
	})
	var out []*node
	for _, l := range leaves {
		if bytes <= 0 {
			l.n.hit.Store(l.hit) // it was not judged
			continue
		}
		out = append(out, l.n)
		bytes -= nodeBytes + runBytes + int64(l.n.size())*8 + int64(t.heldBlocks(l.n))*entryCost
	}
	return out
}

// each calls do for every node below n.
func (t *tree) each(n *node, do func(*node)) {
	for k := n.kid; k != nil; k = k.next {
		do(k)
		t.each(k, do)
	}
}

func (t *tree) heldBlocks(n *node) int {
	total := 0
	tab := n.slots.Load()
	for i := range tab.word {
		if sid := slot(tab.word[i].Load()).sid(); sid != 0 {
			total += n.cover(sid).count()
		}
	}
	return total
}

// vacate takes every holder and prediction out of n and returns how many
// entries that were. The caller purges the tables and tidies n.
func (t *tree) vacate(n *node) int {
	gone := t.heldBlocks(n)
	for len(n.forecasts) > 0 {
		f := n.forecasts[0]
		t.endGuesses(n, f.of, 0, len(f.blocks))
	}
	tab := n.slots.Load()
	for i := range tab.word {
		if sid := slot(tab.word[i].Load()).sid(); sid != 0 {
			t.putOdd(n, sid, nil)
			t.settle(n, sid, cover{}, nil)
			t.lost(sid)
		}
	}
	return gone
}

// purge drops the entries whose blocks are no longer held.
func (x *Index) purge() {
	x.treeMu.Lock()
	defer x.treeMu.Unlock()
	for _, in := range x.instances {
		if in == nil || in.now == nil {
			continue
		}
		for _, s := range in.now.sources {
			x.purgeSource(s)
		}
	}
}

func (x *Index) purgeSource(s *source) {
	before := len(s.table.slots)
	for i := range s.table.slots {
		for s.table.slots[i].at.run != 0 { // deleting may move another entry here
			e := s.table.slots[i]
			r := x.tree.runs[e.at.run]
			n, k := r.find(int(e.at.off))
			if n != nil && n.cover(s.sid).has(k) {
				break
			}
			s.table.deleteAt(i)
			delete(s.copies, e.hash)
			if n != nil {
				delete(s.twins, n.blocks()[k])
			}
			x.tree.unref(r, 1)
		}
	}
	s.table.shrink()
	x.bytes.Add(int64(len(s.table.slots)-before) * entryBytes)
}
