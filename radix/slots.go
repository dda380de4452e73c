package radix

import "sync/atomic"

// A slot says, in one word that readers load at once, how much of a node one
// source holds: source number (24 bits), leading blocks confirmed (20), leading
// blocks confirmed or predicted (20). 0 is a free slot, tombstone a freed one.
type slot uint64

const (
	countBits = 20
	// maxRun bounds the blocks of one node so that counts fit a slot; longer
	// runs become chains of nodes.
	maxRun         = 1 << (countBits - 1)
	maxSID         = 1 << 24
	tombstone slot = 1
)

func makeSlot(sid uint32, confirmed, all int) slot {
	return slot(sid)<<(2*countBits) | slot(confirmed)<<countBits | slot(all)
}

func (s slot) sid() uint32    { return uint32(s >> (2 * countBits)) } // 0: no source
func (s slot) confirmed() int { return int(s >> countBits & (1<<countBits - 1)) }
func (s slot) all() int       { return int(s & (1<<countBits - 1)) }

// slots is a hash table of slots, open to readers while its one writer works.
// Source numbers are dense and hash to themselves, so a node held by everybody
// is a plain array in order.
type slots struct {
	word []atomic.Uint64 // a power of two
	live int32           // writer's: slots with a source
	used int32           // writer's: and tombstones
}

func newSlots(size int) *slots { return &slots{word: make([]atomic.Uint64, size)} }

// find returns the index of sid's slot and the slot; -1 without one.
func (s *slots) find(sid uint32) (int, slot) {
	mask := len(s.word) - 1
	for p := range s.word {
		i := (int(sid) + p) & mask
		v := slot(s.word[i].Load())
		if v.sid() == sid {
			return i, v
		}
		if v == 0 {
			break
		}
	}
	return -1, 0
}

// roomy reports whether one more source fits. Small tables may fill up, since a
// miss costs at most eight steps there.
func (s *slots) roomy() bool {
	n := int32(len(s.word))
	return s.used < n && (n <= 8 || s.used*8 < n*7)
}

// add puts v, whose source must not be there, into a table with room.
func (s *slots) add(v slot) {
	mask := len(s.word) - 1
	for i := int(v.sid()) & mask; ; i = (i + 1) & mask {
		if old := slot(s.word[i].Load()); old.sid() == 0 {
			if old == 0 {
				s.used++
			}
			s.live++
			s.word[i].Store(uint64(v))
			return
		}
	}
}

// sized returns the number of words for n sources.
func sized(n int) int {
	size := 4
	for size < n || size > 8 && n*8 >= size*7 {
		size *= 2
	}
	return size
}
