package radix

import "sync"

// A reader never waits. It finds the nodes of its prompt, reads the holders'
// slots, and then checks that what it read belonged together:
//
//   - a node's keys and its table of slots are still the ones it read from: so
//     each slot was in force when it was read;
//   - a source's version is still what it was before its first slot was read: so
//     the source lost nothing in between, or its last loss is not told of yet, and
//     everything read of it was true at one moment (see lost).
//
// A source that fails is read again, by itself; one that goes on failing gets no
// credit this time. Losing some credit in a race is allowed, inventing it is not.
const (
	pathTries   = 16 // times that a changing path is followed again
	sourceTries = 8  // times that a changing source is read again
)

// scratch is a reader's working memory.
type scratch struct {
	path  []step
	cands []candidate
	where []uint32 // by instance: its entry's index in the result, to be checked
}

type step struct {
	n     *node
	keys  *[]Key
	slots *slots
	hi    int // leading blocks of the node that the prompt has
}

// steady reports whether the node still has the keys and slots that were read.
func (s *step) steady() bool { return s.n.keys.Load() == s.keys && s.n.slots.Load() == s.slots }

type candidate struct {
	sid, version   uint32
	confirmed, all int32
}

func (c *candidate) add(s slot, before, hi int) {
	if int(c.confirmed) == before {
		c.confirmed += int32(min(s.confirmed(), hi))
	}
	c.all += int32(min(s.all(), hi))
}

type matcher struct {
	tree *tree
	pool sync.Pool
}

func (m *matcher) match(dst []Match, keys []Key) []Match {
	if len(keys) == 0 || m.tree.dir.at.Load().find(keys[0]) == nil {
		return dst
	}
	sc, _ := m.pool.Get().(*scratch)
	if sc == nil {
		sc = &scratch{}
	}
	defer m.pool.Put(sc)
	for range pathTries {
		if m.tree.follow(sc, keys) && m.tree.gather(sc) {
			return m.tree.credit(dst, sc)
		}
	}
	return dst
}

// follow notes the nodes that keys lead through. False: one left meanwhile.
func (t *tree) follow(sc *scratch, keys []Key) bool {
	sc.path = sc.path[:0]
	dir := t.dir.at.Load()
	for len(keys) > 0 {
		n := dir.find(keys[0])
		if n == nil {
			break
		}
		t.step()
		own := n.keys.Load()
		t.step()
		if own == nil {
			return false
		}
		c := common(*own, keys)
		sc.path = append(sc.path, step{n, own, n.slots.Load(), c})
		if !n.hit.Load() {
			n.hit.Store(true)
		}
		if c < len(*own) {
			break
		}
		keys = keys[c:]
	}
	return true
}

// gather reads what each source holds along the path.
func (t *tree) gather(sc *scratch) bool {
	sc.cands = sc.cands[:0]
	if len(sc.path) == 0 {
		return true
	}
	first := &sc.path[0]
	chunks := *t.sids.chunks.Load()
	for i := range first.slots.word {
		w := &first.slots.word[i]
		sid := slot(w.Load()).sid()
		if sid == 0 || int(sid) >= len(chunks)*sidChunk {
			continue
		}
		version := chunks[sid/sidChunk][sid%sidChunk].version.Load()
		t.step()
		s := slot(w.Load()) // again: after the version
		if version&1 == 1 || s.sid() != sid || s.all() == 0 {
			continue
		}
		sc.cands = append(sc.cands, candidate{sid, version, int32(min(s.confirmed(), first.hi)), int32(min(s.all(), first.hi))})
	}
	t.step()
	if !first.steady() {
		return false
	}
	before := first.hi
	for j := 1; j < len(sc.path); j++ {
		st := &sc.path[j]
		carried := false
		for i := range sc.cands {
			c := &sc.cands[i]
			if int(c.all) != before {
				continue
			}
			t.step()
			if _, s := st.slots.find(c.sid); s != 0 {
				c.add(s, before, st.hi)
				carried = true
			}
		}
		if !st.steady() {
			return false
		}
		if !carried {
			break
		}
		before += st.hi
	}
	return true
}

// again reads one source along the path.
func (t *tree) again(sc *scratch, c *candidate) bool {
	c.version = t.sids.state(c.sid).version.Load()
	c.confirmed, c.all = 0, 0
	if c.version&1 == 1 {
		return false
	}
	before := 0
	for j := range sc.path {
		st := &sc.path[j]
		t.step()
		_, s := st.slots.find(c.sid)
		t.step()
		if !st.steady() {
			return false
		}
		c.add(s, before, st.hi)
		before += st.hi
		if int(c.all) < before {
			break
		}
	}
	return true
}

// insist reads a source again until it stays as it was while it was read.
func (t *tree) insist(sc *scratch, c *candidate, st *sidState) (instance uint32, ok bool) {
	for range sourceTries {
		if !t.again(sc, c) || c.all == 0 {
			return 0, false
		}
		instance = st.instance.Load()
		if st.version.Load() == c.version {
			return instance, true
		}
	}
	return 0, false
}

// credit appends the instances whose reading holds together.
func (t *tree) credit(dst []Match, sc *scratch) []Match {
	base := len(dst)
	chunks := *t.sids.chunks.Load()
	for i := range sc.cands {
		c := &sc.cands[i]
		st := &chunks[c.sid/sidChunk][c.sid%sidChunk]
		t.step()
		instance := st.instance.Load()
		t.step()
		ok := st.version.Load() == c.version
		if !ok {
			if instance, ok = t.insist(sc, c, st); !ok {
				continue
			}
		}
		id := instance &^ manyRanks
		for int(id) >= len(sc.where) {
			sc.where = append(sc.where, 0)
		}
		if at := int(sc.where[id]); instance != id && at >= base && at < len(dst) && dst[at].Instance == Instance(id) {
			dst[at].Blocks = max(dst[at].Blocks, int(c.all))
			dst[at].Confirmed = max(dst[at].Confirmed, int(c.confirmed))
			continue
		}
		sc.where[id] = uint32(len(dst))
		dst = append(dst, Match{Instance(id), int(c.all), int(c.confirmed)})
	}
	return dst
}
