package radix

// StoreRoot records that s holds a run of blocks from a namespace's root. A
// block that it holds already gets one more copy.
func (x *Index) StoreRoot(s Source, keys []Key, hashes []Hash) error {
	return x.store(s, nil, keys, hashes)
}

// Store is [Index.StoreRoot] for a run after the block that s knows as parent.
// If it knows none of that name, it returns [ErrUnknownParent] and stores nothing.
func (x *Index) Store(s Source, parent Hash, keys []Key, hashes []Hash) error {
	return x.store(s, &parent, keys, hashes)
}

func (x *Index) store(s Source, parent *Hash, keys []Key, hashes []Hash) error {
	if err := lengths(keys, hashes); err != nil {
		return err
	}
	in := x.enter(s.Instance)
	if in == nil {
		return ErrUnknownInstance
	}
	defer x.after()
	defer x.leave(in)
	src := in.now.source(s.Rank, s.Group)
	if src == nil {
		if parent != nil {
			return ErrUnknownParent
		}
		x.treeMu.Lock()
		src = x.tree.addSource(in.now, s.Rank, s.Group)
		x.treeMu.Unlock()
	}
	var at place // of the block before the next; run 0: the root
	if parent != nil {
		k, ok := src.table.find(*parent)
		if !ok {
			return ErrUnknownParent
		}
		at = src.table.slots[k].at
	}
	defer x.account(src, src.bytes())
	src.table.reserve(len(hashes))
	for i := 0; i < len(hashes); {
		known, fresh := x.claimRun(in, src, hashes[i:])
		if known > 0 {
			i += known
			at = src.table.slots[in.slot].at
			if fresh > 0 && x.keyAt(at) != keys[i-1] {
				src.unclaim(hashes[i : i+fresh])
				return ErrNotChained // the worker knew another block by this hash
			}
		}
		if fresh == 0 {
			continue
		}
		done := x.storeNew(in, src, &at, keys[i:i+fresh])
		if done < fresh {
			src.unclaim(hashes[i+done : i+fresh])
			return ErrNotChained
		}
		i += fresh
	}
	return nil
}

// claimRun goes through hashes that src knows, which get another copy each, and
// then through hashes that it does not, which get a slot each in in.slots. It
// stops before the next known one. in.slot is the last known one's.
func (x *Index) claimRun(in *instance, src *source, hashes []Hash) (known, fresh int) {
	in.slots = in.slots[:0]
	touched := 0
	for i, h := range hashes {
		if i >= touched {
			touched = src.touchNext(hashes, i)
		}
		k, isNew := src.table.claim(h)
		if isNew {
			in.slots = append(in.slots, uint32(k))
			fresh++
			continue
		}
		if fresh > 0 {
			break
		}
		src.addCopy(h)
		in.slot = k
		known++
	}
	return known, fresh
}

// storeNew records blocks whose slots are in in.slots, after the block at at,
// which it moves on. It returns how many it could record: all, if the keys are
// chained.
func (x *Index) storeNew(in *instance, src *source, at *place, keys []Key) int {
	x.treeMu.Lock()
	in.spans = x.tree.placeAfter(*at, keys, in.spans[:0])
	done := 0
	in.places = in.places[:0]
	for _, sp := range in.spans {
		x.tree.take(src, sp)
		n := sp.hi - sp.lo
		sp.n.run.refs += n
		in.places = append(in.places, stretch{place{sp.n.run.id, uint32(sp.n.start + sp.lo)}, n})
		done += n
	}
	x.sweepLocked(len(keys) * 2)
	x.treeMu.Unlock()

	i := 0
	for _, p := range in.places {
		for off := range uint32(p.n) {
			src.table.slots[in.slots[i]].at = place{p.at.run, p.at.off + off}
			i++
		}
		*at = place{p.at.run, p.at.off + uint32(p.n) - 1}
	}
	return done
}

// unclaim takes back slots that no block was stored for.
func (s *source) unclaim(hashes []Hash) {
	for _, h := range hashes {
		if k, ok := s.table.find(h); ok {
			s.table.deleteAt(k)
		}
	}
}

// take lets src hold a span. Blocks that it held already, under other hashes,
// are counted.
func (t *tree) take(src *source, sp span) {
	if c := sp.n.cover(src.sid); c.overlaps(sp.lo, sp.hi) {
		if src.twins == nil {
			src.twins = map[Key]int{}
		}
		keys := sp.n.blocks()
		for i := sp.lo; i < sp.hi; i++ {
			if c.has(i) {
				src.twins[keys[i]]++
			}
		}
	}
	t.hold(sp.n, src, sp.lo, sp.hi)
}

// placeAfter is place for keys that follow the block at at.
func (t *tree) placeAfter(at place, keys []Key, out []span) []span {
	if at.run == 0 {
		return t.place(&t.root, 0, keys, out)
	}
	n, i := t.runs[at.run].find(int(at.off))
	return t.place(n, i+1, keys, out)
}

func (x *Index) keyAt(at place) Key {
	x.treeMu.Lock()
	defer x.treeMu.Unlock()
	return x.tree.keyAt(at)
}

func (t *tree) keyAt(at place) Key {
	r, off, _ := t.runs[at.run].resolve(int(at.off), 1)
	return r.keys[off]
}

// touchNext touches some hashes from the i-th on and returns where it stopped.
func (s *source) touchNext(hashes []Hash, i int) int {
	end := min(len(hashes), i+touchAhead)
	s.touched |= s.table.touch(hashes[i:end])
	return end
}

func (s *source) addCopy(h Hash) {
	if s.copies == nil {
		s.copies = map[Hash]int{}
	}
	s.copies[h]++
}

// stretch is some consecutive blocks, by name.
type stretch struct {
	at place
	n  int
}

// Remove records that s dropped one copy of each block, and returns how many of
// them it did not know. (They had no predictions left: confirming ended those.)
func (x *Index) Remove(s Source, hashes []Hash) (unknown int) {
	in := x.enter(s.Instance)
	if in == nil {
		return len(hashes)
	}
	defer x.leave(in)
	src := in.now.source(s.Rank, s.Group)
	if src == nil {
		return len(hashes)
	}
	defer x.account(src, src.bytes())
	in.removals = in.removals[:0]
	touched := 0
	for i, h := range hashes {
		if i >= touched {
			touched = src.touchNext(hashes, i)
		}
		k, ok := src.table.find(h)
		if !ok {
			unknown++
			continue
		}
		if src.dropCopy(h) {
			continue
		}
		at := src.table.slots[k].at
		src.table.deleteAt(k)
		in.removals = addBlock(in.removals, at)
	}
	src.table.shrink()
	x.treeMu.Lock()
	defer x.treeMu.Unlock()
	for _, rm := range in.removals {
		x.tree.giveUp(src, rm)
	}
	x.sweepLocked(len(hashes) * 2)
	return unknown
}

// dropCopy takes one of several copies away and reports whether there were several.
func (s *source) dropCopy(h Hash) bool {
	n := s.copies[h]
	if n == 0 {
		return false
	}
	if n--; n == 0 {
		delete(s.copies, h)
	} else {
		s.copies[h] = n
	}
	return true
}

// addBlock joins a block to the last stretch where it continues it upwards or
// downwards, as workers evict in both orders.
func addBlock(rs []stretch, at place) []stretch {
	if k := len(rs) - 1; k >= 0 && rs[k].at.run == at.run {
		switch last := &rs[k]; at.off {
		case last.at.off + uint32(last.n):
			last.n++
			return rs
		case last.at.off - 1:
			last.at.off--
			last.n++
			return rs
		}
	}
	return append(rs, stretch{at, 1})
}

// giveUp takes a stretch of blocks from src, whose table has lost them already.
func (t *tree) giveUp(src *source, rm stretch) {
	named := t.runs[rm.at.run]
	t.spans = t.spansOf(piece{named, int(rm.at.off), rm.n}, t.spans[:0])
	for _, sp := range t.spans {
		if len(src.twins) == 0 {
			t.drop(sp.n, src, sp.lo, sp.hi)
			continue
		}
		keys := sp.n.blocks()
		for i := sp.lo; i < sp.hi; i++ {
			if !src.dropTwin(keys[i]) {
				t.drop(sp.n, src, i, i+1)
			}
		}
	}
	t.tidyAll(t.spans)
	t.unref(named, rm.n)
}

func (s *source) dropTwin(k Key) bool {
	n := s.twins[k]
	if n == 0 {
		return false
	}
	if n--; n == 0 {
		delete(s.twins, k)
	} else {
		s.twins[k] = n
	}
	return true
}
