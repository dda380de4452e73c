package radix

import "math/bits"

// place is where a block stands: its run's number and its offset there. Runs
// are cut and joined without renumbering (see [run]), so a place is good for as
// long as the block is held.
type place struct {
	run, off uint32
}

type entry struct {
	hash Hash
	at   place // at.run == 0: a free slot
}

// table maps a worker's hashes to places: 16 bytes a slot, linear probing, no
// tombstones. It grows by half and shrinks, so between 57 and 85 % of the slots
// are in use while it grows. It has no pointers: the collector skips it.
type table struct {
	slots []entry
	used  int
}

const entryBytes = 16

// home is the slot where h would like to be. Multiplying by the golden ratio
// spreads workers' hashes that are small integers; the high product maps the
// result onto any number of slots, not only onto powers of two, which is what
// lets the table grow by half.
func (t *table) home(h Hash) int {
	hi, _ := bits.Mul64(h*0x9E3779B97F4A7C15, uint64(len(t.slots)))
	return int(hi)
}

func (t *table) find(h Hash) (int, bool) {
	if t.used == 0 {
		return 0, false
	}
	for i := t.home(h); ; {
		e := &t.slots[i]
		if e.at.run == 0 {
			return 0, false
		}
		if e.hash == h {
			return i, true
		}
		if i++; i == len(t.slots) {
			i = 0
		}
	}
}

// insert adds h, which must not be there; reserve has made room.
func (t *table) insert(h Hash, at place) {
	i := t.home(h)
	for t.slots[i].at.run != 0 {
		if i++; i == len(t.slots) {
			i = 0
		}
	}
	t.slots[i] = entry{h, at}
	t.used++
}

// reserve makes room for n more.
func (t *table) reserve(n int) {
	if need := t.used + n; need*20 > len(t.slots)*17 {
		t.rebuild(max(8, need*3/2))
	}
}

func (t *table) rebuild(size int) {
	old := t.slots
	t.slots, t.used = make([]entry, size), 0
	for _, e := range old {
		if e.at.run != 0 {
			t.insert(e.hash, e.at)
		}
	}
}

// shrink gives memory back once three quarters of the slots are free.
func (t *table) shrink() {
	if len(t.slots) > 64 && t.used*4 < len(t.slots) {
		t.rebuild(max(8, t.used*3/2))
	}
}

// deleteAt frees slot i and moves later entries of its cluster up, so that no
// tombstone is needed.
func (t *table) deleteAt(i int) {
	n := len(t.slots)
	t.used--
	for j := i; ; {
		if j++; j == n {
			j = 0
		}
		e := t.slots[j]
		if e.at.run == 0 {
			break
		}
		// e may move to i unless its home lies cyclically in (i, j].
		if h := t.home(e.hash); (j-h+n)%n >= (j-i+n)%n {
			t.slots[i] = e
			i = j
		}
	}
	t.slots[i] = entry{}
}
