package radix

import "math/bits"

// place is where a block stands: its run's number and its offset there. Runs
// are cut and joined without renumbering (see [run]), so a place is good for as
// long as the block is held.
type place struct {
	run, off uint32
}

// claimedRun stands in the place of a block that is about to get one.
const claimedRun = ^uint32(0)

type entry struct {
	hash Hash
	at   place // at.run == 0: a free slot
}

// table maps a worker's hashes to places: 16 bytes a slot, linear probing, no
// tombstones. It grows in steps and shrinks again. It has no pointers: the collector skips it.
type table struct {
	slots []entry
	used  int
}

const entryBytes = 16

// The table is rebuilt before more than maxLoad % of its slots are in use.
// Longer clusters cost more than the memory is worth: at 85 % a search for an
// unknown hash looks at 22 slots, at 75 % at 8. A rebuild goes down to 40 %:
// growing in smaller steps leaves more fresh memory behind than it saves.
const maxLoad = 75

// home is the slot where h would like to be. Multiplying by the golden ratio
// spreads workers' hashes that are small integers; the high product maps the
// result onto any number of slots, not only onto powers of two, which is what
// lets the table grow by less than double.
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

// claim returns the slot of h, and gives it one if it has none. Reserve has
// made room. A fresh slot has claimedRun until the caller sets its place; slots
// stay where they are while others are claimed.
func (t *table) claim(h Hash) (i int, fresh bool) {
	for i = t.home(h); ; {
		e := &t.slots[i]
		if e.at.run == 0 {
			*e = entry{h, place{run: claimedRun}}
			t.used++
			return i, true
		}
		if e.hash == h {
			return i, false
		}
		if i++; i == len(t.slots) {
			i = 0
		}
	}
}

// touch loads the home slots of hashes into the cache. There is no branch that
// depends on what is loaded, so the misses overlap; in find each would wait for
// the one before, which makes a store four times as slow.
func (t *table) touch(hashes []Hash) (seen uint32) {
	if len(t.slots) == 0 {
		return 0
	}
	for _, h := range hashes {
		seen |= t.slots[t.home(h)].at.run
	}
	return seen
}

// touchAhead is how many hashes are touched before they are looked up: few
// enough that the lines stay in the first cache.
const touchAhead = 128

// reserve makes room for n more.
func (t *table) reserve(n int) {
	if need := t.used + n; need*100 > len(t.slots)*maxLoad {
		t.rebuild(max(8, need*5/2))
	}
}

func (t *table) rebuild(size int) {
	old := t.slots
	t.slots = make([]entry, size)
	for _, e := range old {
		if e.at.run == 0 {
			continue
		}
		i := t.home(e.hash)
		for t.slots[i].at.run != 0 {
			if i++; i == size {
				i = 0
			}
		}
		t.slots[i] = e
	}
}

// shrink gives memory back once four fifths of the slots are free.
func (t *table) shrink() {
	if len(t.slots) > 64 && t.used*5 < len(t.slots) {
		t.rebuild(max(8, t.used*2))
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
		h := t.home(e.hash)
		if stays := i < h && h <= j || j < i && (i < h || h <= j); !stays {
			t.slots[i] = e
			i = j
		}
	}
	t.slots[i] = entry{}
}
