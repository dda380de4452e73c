package radix

import (
	"cmp"
	"slices"
)

// pruneTo is the share of MaxBytes, in percent, that pruning leaves. The tenth
// that goes at once pays for the walk over everything that it takes.
const pruneTo = 90

// pruneWait is the share of MaxBytes, in percent, at which writers wait for a
// prune that goes on: they must not outrun it.
const pruneWait = 105

// entryCost is what an entry takes of its table on average: tables are 40 to 75 % full.
const entryCost = entryBytes * 2

// pruneChunk is how many runs, nodes or slots a prune looks at under one hold of
// the tree's lock.
const pruneChunk = 1024

// after prunes once a complete change has left the index above its budget. The
// caller holds no lock.
func (x *Index) after() {
	if x.o.MaxBytes <= 0 {
		return
	}
	used := x.used()
	if used <= x.o.MaxBytes {
		return
	}
	if !x.pruning.TryLock() {
		if used > x.o.MaxBytes/100*pruneWait {
			x.pruning.Lock()
			x.pruning.Unlock() //nolint:staticcheck // an empty section: waiting is all
		}
		return
	}
	defer x.pruning.Unlock()
	x.prune()
}

func (x *Index) used() int64 {
	x.treeMu.Lock()
	defer x.treeMu.Unlock()
	return x.tree.bytes() + x.bytes.Load()
}

// prune gives up the least valuable leaves, or their ends, until the budget is
// kept: those never matched since the last prune before those matched, and of
// these the ones stored to longest ago. Their instances simply hold less.
// Writers go on meanwhile, but for those of the instance whose table is being
// gone through.
func (x *Index) prune() {
	target := x.o.MaxBytes / 100 * pruneTo
	for {
		for x.sweep(sweepChunk) {
		}
		excess := x.used() - target
		if excess <= 0 {
			return
		}
		victims := x.cheapest(excess)
		gone := 0
		for i, blocks := range x.holders(victims) {
			gone += x.forgetBlocks(i, blocks)
		}
		x.tidyVictims(victims)
		if gone == 0 {
			return // what is left are the instances themselves, or all of it is new
		}
	}
}

// victim is a leaf to give up, from a block on.
type victim struct {
	n     *node
	from  int
	stamp uint64
	hit   bool
	bytes int64 // that it takes, about
}

// current reports whether the node is still as it was chosen; the caller holds
// treeMu.
func (v *victim) current() bool {
	return v.n.keys.Load() != nil && v.n.kid == nil && v.n.stamp == v.stamp && v.from < v.n.size()
}

// cheapest returns leaves to give up that free about this many bytes, the least
// valuable first, and lets all nodes start again as not matched. Of the last it
// takes no more than is needed.
func (x *Index) cheapest(bytes int64) []victim {
	var leaves []victim
	t := &x.tree
	for next, done := 1, false; !done; next += pruneChunk {
		x.treeMu.Lock()
		end := min(len(t.runs), next+pruneChunk)
		for _, r := range t.runs[min(next, end):end] {
			if r == nil {
				continue
			}
			for _, n := range r.segs {
				hit := n.hit.Swap(false)
				if n.kid == nil {
					leaves = append(leaves, victim{n: n, stamp: n.stamp, hit: hit, bytes: nodeBytes + runBytes + t.blockBytes(n)})
				}
			}
		}
		done = end == len(t.runs)
		x.treeMu.Unlock()
	}
	slices.SortFunc(leaves, func(a, b victim) int {
		if a.hit != b.hit {
			if b.hit {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.stamp, b.stamp)
	})
	k := 0
	for ; k < len(leaves) && bytes > 0; k++ {
		bytes -= leaves[k].bytes
	}
	for _, l := range leaves[k:] {
		if l.hit {
			l.n.hit.Store(true) // it was not judged
		}
	}
	if bytes < 0 { // the last one's end is enough
		x.treeMu.Lock()
		v := &leaves[k-1]
		if v.current() {
			size := int64(v.n.size())
			v.from = int(size * min(-bytes, v.bytes) / v.bytes)
		}
		x.treeMu.Unlock()
	}
	return leaves[:k]
}

// blockBytes is about what the blocks of n take, with their entries.
func (t *tree) blockBytes(n *node) int64 {
	held := 0
	tab := n.slots.Load()
	for i := range tab.word {
		if sid := slot(tab.word[i].Load()).sid(); sid != 0 {
			held += n.cover(sid).count()
		}
	}
	return int64(n.size())*8 + int64(held)*entryCost
}

// holders sorts victims by the instances that hold or are predicted to hold
// some of them.
func (x *Index) holders(victims []victim) map[Instance][]victim {
	by := map[Instance][]victim{}
	for chunk := range slices.Chunk(victims, pruneChunk) {
		x.treeMu.Lock()
		for _, v := range chunk {
			if !v.current() {
				continue
			}
			add := func(i Instance) {
				if list := by[i]; len(list) == 0 || list[len(list)-1].n != v.n {
					by[i] = append(list, v)
				}
			}
			tab := v.n.slots.Load()
			for k := range tab.word {
				if sid := slot(tab.word[k].Load()).sid(); sid != 0 {
					add(x.tree.sids.owner[sid].of.instance)
				}
			}
			for _, f := range v.n.forecasts {
				add(f.of.instance)
			}
		}
		x.treeMu.Unlock()
	}
	return by
}

// forgetBlocks takes one instance out of the victims, and their entries out of
// its tables. It returns how many entries and predictions those were.
func (x *Index) forgetBlocks(i Instance, victims []victim) (total int) {
	in := x.enter(i)
	if in == nil {
		return 0
	}
	defer x.leave(in)
	gone := map[*source]int{}
	for _, s := range in.now.sources {
		defer x.account(s, s.bytes())
	}
	for chunk := range slices.Chunk(victims, pruneChunk) {
		x.treeMu.Lock()
		for _, v := range chunk {
			if !v.current() {
				continue // somebody stored to it meanwhile, or it has left
			}
			for _, s := range in.now.sources {
				gone[s] += x.tree.vacate(v.n, s, v.from)
			}
			before := in.now.predicted
			x.tree.endGuesses(v.n, in.now, v.from, v.n.size())
			total += before - in.now.predicted
		}
		x.treeMu.Unlock()
	}
	for s, n := range gone {
		if n > 0 {
			x.pruned.Add(uint64(n))
			x.purge(s)
			total += n
		}
	}
	return total
}

// vacate takes a source out of the blocks of n from one on, and returns how many
// it held there. Its table must be purged before its lock is given back.
func (t *tree) vacate(n *node, s *source, from int) int {
	c := n.cover(s.sid)
	before := c.count()
	if before == 0 {
		return 0
	}
	if len(s.twins) > 0 {
		keys := n.blocks()
		for i := from; i < len(keys); i++ {
			if c.has(i) {
				delete(s.twins, keys[i])
			}
		}
	}
	c = c.without(from, n.size())
	if c.count() == before {
		return 0
	}
	t.putOdd(n, s.sid, c.odd)
	t.settle(n, s.sid, c, n.forecast(s.of))
	t.lost(s.sid)
	return before - c.count()
}

// purge drops the entries of s whose blocks it no longer holds.
func (x *Index) purge(s *source) {
	for i := 0; i < len(s.table.slots); {
		end := min(len(s.table.slots), i+pruneChunk)
		x.treeMu.Lock()
		for ; i < end; i++ {
			for s.table.slots[i].at.run != 0 { // deleting may move another entry here
				e := s.table.slots[i]
				r := x.tree.runs[e.at.run]
				if n, k := r.find(int(e.at.off)); n != nil && n.cover(s.sid).has(k) {
					break
				}
				s.table.deleteAt(i)
				delete(s.copies, e.hash)
				x.tree.unref(r, 1)
			}
		}
		x.treeMu.Unlock()
	}
	if s.table.used*2 < len(s.table.slots) { // memory is what this is about
		s.table.rebuild(s.table.used * 3 / 2)
	}
}

// tidyVictims cuts off what nobody holds any more.
func (x *Index) tidyVictims(victims []victim) {
	for chunk := range slices.Chunk(victims, pruneChunk) {
		x.treeMu.Lock()
		for _, v := range chunk {
			if v.n.keys.Load() != nil {
				x.tree.tidy(v.n)
			}
		}
		x.treeMu.Unlock()
	}
}

// each calls do for every node below n.
func (t *tree) each(n *node, do func(*node)) {
	for k := n.kid; k != nil; k = k.next {
		do(k)
		t.each(k, do)
	}
}
