package radix

import "sync/atomic"

// sidState is what readers know of a source number.
type sidState struct {
	// version goes up after each loss of a block. It is odd once the source's
	// contents are cleared, and even again when the number has a new owner.
	version  atomic.Uint32
	instance atomic.Uint32 // with manyRanks if the instance has other sources
}

const manyRanks = 1 << 31

const sidChunk = 1024

// sidTable numbers sources. Slots in nodes name sources by these numbers, so a
// whole source is cleared by marking one word; its slots are swept later, and
// only then is the number used again.
type sidTable struct {
	chunks atomic.Pointer[[]*[sidChunk]sidState]
	owner  []*source // writers'; nil: free
	free   []uint32
}

func (t *sidTable) init() {
	t.chunks.Store(&[]*[sidChunk]sidState{{}})
	t.owner = []*source{nil} // number 0 is no source
}

func (t *sidTable) state(sid uint32) *sidState {
	return &(*t.chunks.Load())[sid/sidChunk][sid%sidChunk]
}

func (t *sidTable) add(s *source) {
	if k := len(t.free); k > 0 {
		s.sid = t.free[k-1]
		t.free = t.free[:k-1]
		t.owner[s.sid] = s
	} else {
		s.sid = uint32(len(t.owner))
		t.owner = append(t.owner, s)
		if old := *t.chunks.Load(); int(s.sid) >= len(old)*sidChunk {
			next := append(append([]*[sidChunk]sidState{}, old...), new([sidChunk]sidState))
			t.chunks.Store(&next)
		}
	}
	st := t.state(s.sid)
	st.instance.Store(uint32(s.of.instance))
	if st.version.Load()&1 == 1 {
		st.version.Add(1)
	}
}

// kill makes readers ignore the source from now on.
func (t *sidTable) kill(s *source) {
	if st := t.state(s.sid); st.version.Load()&1 == 0 {
		st.version.Add(1)
	}
}

// release takes back a killed number that no node names any more.
func (t *sidTable) release(s *source) {
	t.owner[s.sid] = nil
	t.free = append(t.free, s.sid)
}

// lost must come after a source's loss has become visible, and before anything
// that the source gains. Then a reader that finds the version as it was has seen
// one moment: what it read before a loss that is not told of yet was true just
// before that loss, and nothing has been gained since. (Told of before, a reader
// could note the new version, read the old slot, and add a later gain to it.)
func (t *tree) lost(sid uint32) {
	t.change()
	if st := t.sids.state(sid); st.version.Load()&1 == 0 {
		st.version.Add(2)
	}
}

// source is one KV cache: its hashes, and what counts above one.
type source struct {
	of          *contents
	rank, group uint16
	sid         uint32

	table   table
	touched uint32 // keeps the compiler from dropping touch's loads
	// copies has, for a hash stored n > 1 times, n-1.
	copies map[Hash]int
	// twins has, for a key that n > 1 of the source's hashes stand for, n-1:
	// blocks with equal tokens but, say, other images.
	twins map[Key]int
}

// bytes is about what the source's own memory is.
func (s *source) bytes() int64 {
	return int64(len(s.table.slots))*entryBytes + int64(len(s.table.meta)) + int64(len(s.copies)+len(s.twins))*mapBytes
}

// account notes that a source's memory has changed since it had these bytes.
func (x *Index) account(s *source, before int64) { x.bytes.Add(s.bytes() - before) }

// contents is what one instance holds and is predicted to hold between two
// clearings. It is guarded by its instance's lock; a cleared one by the tree's.
type contents struct {
	instance Instance
	life     uint32
	sources  []*source // the first is rank 0, group 0, and carries predictions of blind instances
	tickets  ticketQueue
	// predicted counts the blocks with a guess.
	predicted int
}

func (c *contents) source(rank, group uint16) *source {
	for _, s := range c.sources {
		if s.rank == rank && s.group == group {
			return s
		}
	}
	return nil
}

func (c *contents) entries() int {
	n := 0
	for _, s := range c.sources {
		n += s.table.used
	}
	return n
}

// addSource makes a new cache known; the caller holds the tree's lock.
func (t *tree) addSource(c *contents, rank, group uint16) *source {
	s := &source{of: c, rank: rank, group: group}
	c.sources = append(c.sources, s)
	t.sids.add(s)
	if len(c.sources) > 1 {
		for _, o := range c.sources {
			t.sids.state(o.sid).instance.Store(uint32(c.instance) | manyRanks)
		}
		// Predictions count for every rank.
		for i := range c.tickets.live() {
			for _, p := range c.tickets.at(i).pieces {
				for _, sp := range t.spansOf(p, nil) {
					t.refresh(sp.n, c)
				}
			}
		}
	}
	return s
}

// removeSource makes a single cache unknown; its slots are swept later.
func (t *tree) removeSource(c *contents, s *source) {
	for i, o := range c.sources {
		if o == s {
			c.sources = append(c.sources[:i], c.sources[i+1:]...)
			t.sids.kill(s)
			return
		}
	}
}
