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

// bucketSize is how many slots lie in one line of cache.
const bucketSize = 4

// table maps a worker's hashes to places: 16 bytes a slot, in buckets of a line
// of cache. An entry lies in its home bucket or, where that was full, in the
// first one after it that was not; each bucket counts the entries that passed
// it so, and where there are none a search ends. The used slots of a bucket come
// first. There are no tombstones, it grows in steps and shrinks again, and it
// has no pointers: the collector skips it.
type table struct {
	slots []entry // a whole number of buckets
	meta  []meta  // by bucket
	used  int
}

const entryBytes = 16

// meta is what a bucket's slots don't say: how many are used, in the lowest
// three bits, and how many entries have passed it, in the five above.
type meta uint8

const (
	onePassed  meta = 1 << 3
	manyPassed meta = 31 // so many and more are not counted, until the next rebuild
)

func (m meta) used() int    { return int(m & (onePassed - 1)) }
func (m meta) passed() meta { return m / onePassed }

// The table is rebuilt before more than maxLoad % of its slots are in use, and
// then goes down to 40 %: growing in smaller steps leaves more fresh memory
// behind than it saves.
const maxLoad = 75

// home is the bucket where h would like to be. Multiplying by the golden ratio
// spreads workers' hashes that are small integers; the high product maps the
// result onto any number of buckets, not only onto powers of two, which is what
// lets the table grow by less than double. It keeps the order of the homes, so
// that a rebuild reads and writes from one end to the other.
func (t *table) home(h Hash) int {
	hi, _ := bits.Mul64(h*0x9E3779B97F4A7C15, uint64(len(t.meta)))
	return int(hi)
}

// after is the bucket after b.
func (t *table) after(b int) int {
	if b++; b == len(t.meta) {
		return 0
	}
	return b
}

// bucket is the slots of bucket b.
func (t *table) bucket(b int) *[bucketSize]entry {
	return (*[bucketSize]entry)(t.slots[b*bucketSize:])
}

func (t *table) find(h Hash) (int, bool) {
	if t.used == 0 {
		return 0, false
	}
	return t.search(t.home(h), h)
}

// search looks for h in bucket b and those after it. It compares all of a
// bucket before it branches: which of its slots it would be is anybody's guess.
func (t *table) search(b int, h Hash) (int, bool) {
	for range t.meta {
		in, m := t.bucket(b), t.meta[b]
		j := bucketSize
		if in[3].hash == h {
			j = 3
		}
		if in[2].hash == h {
			j = 2
		}
		if in[1].hash == h {
			j = 1
		}
		if in[0].hash == h {
			j = 0
		}
		if j < m.used() {
			return b*bucketSize + j, true
		}
		if m.passed() == 0 {
			break
		}
		b = t.after(b)
	}
	return 0, false
}

// claim returns the slot of h, and gives it one if it has none. Reserve has
// made room. A fresh slot has claimedRun until the caller sets its place; slots
// stay where they are while others are claimed.
func (t *table) claim(h Hash) (i int, fresh bool) {
	b := t.home(h)
	if i, ok := t.search(b, h); ok {
		return i, false
	}
	t.used++
	return t.put(b, entry{h, place{run: claimedRun}}), true
}

// put writes an entry whose home is b to the first free slot.
func (t *table) put(b int, e entry) int {
	for {
		m := t.meta[b]
		if j := m.used(); j < bucketSize {
			t.slots[b*bucketSize+j] = e
			t.meta[b]++
			return b*bucketSize + j
		}
		if m.passed() < manyPassed {
			t.meta[b] += onePassed
		}
		b = t.after(b)
	}
}

// touch loads the home buckets of hashes into the cache. There is no branch that
// depends on what is loaded, so the misses overlap; in find each would wait for
// the one before, which makes a store four times as slow.
func (t *table) touch(hashes []Hash) (seen uint32) {
	if len(t.slots) == 0 {
		return 0
	}
	for _, h := range hashes {
		b := t.home(h)
		seen |= t.slots[b*bucketSize].at.run | uint32(t.meta[b])
	}
	return seen
}

// touchAhead is how many hashes are touched before they are looked up: few
// enough that the lines stay in the first cache.
const touchAhead = 128

// reserve makes room for n more.
func (t *table) reserve(n int) {
	if need := t.used + n; need*100 > len(t.slots)*maxLoad {
		t.rebuild(need * 5 / 2)
	}
}

// rebuild gives the table about size slots.
func (t *table) rebuild(size int) {
	old := t.slots
	buckets := max(2, (size+bucketSize-1)/bucketSize)
	t.slots, t.meta = make([]entry, buckets*bucketSize), make([]meta, buckets)
	for _, e := range old {
		if e.at.run != 0 {
			t.put(t.home(e.hash), e)
		}
	}
}

// shrink gives memory back once four fifths of the slots are free.
func (t *table) shrink() {
	if len(t.slots) > 64 && t.used*5 < len(t.slots) {
		t.rebuild(t.used * 2)
	}
}

// deleteAt frees slot i. An entry that had passed its bucket comes back to it,
// and so on, so that entries don't stray further from home as others come and go.
func (t *table) deleteAt(i int) {
	t.used--
	start := i / bucketSize
	for b := t.home(t.slots[i].hash); b != start; b = t.after(b) {
		t.unpass(b)
	}
	for b := start; ; {
		// The bucket's last entry fills the gap.
		last := b*bucketSize + t.meta[b].used() - 1
		t.slots[i] = t.slots[last]
		t.slots[last] = entry{}
		i = last
		from, ok := t.passer(b, start)
		if !ok {
			t.meta[b]--
			return
		}
		t.slots[i] = t.slots[from]
		i = from
		for next := from / bucketSize; b != next; b = t.after(b) {
			t.unpass(b)
		}
	}
}

// unpass notes that one entry less has passed b.
func (t *table) unpass(b int) {
	if t.meta[b].passed() < manyPassed {
		t.meta[b] -= onePassed
	}
}

// passer finds the next entry that has passed bucket b. It looks at no bucket
// from limit on: going through the slots in order and deleting some must not
// miss one that has moved behind.
func (t *table) passer(b, limit int) (slot int, ok bool) {
	for c := b; t.meta[c].passed() > 0; {
		if c = t.after(c); c == limit {
			break
		}
		for j := range t.meta[c].used() {
			i := c*bucketSize + j
			// It has passed b unless its home lies cyclically in (b, c].
			h := t.home(t.slots[i].hash)
			if stays := b < h && h <= c || c < b && (b < h || h <= c); !stays {
				return i, true
			}
		}
	}
	return 0, false
}
