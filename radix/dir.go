package radix

import (
	"math/bits"
	"sync/atomic"
)

// directory finds a node by its first key. A key names its whole prefix, so one
// table serves the children of every node. Readers use it while its one writer
// works: slots change by single atomic stores, a bigger table replaces the old
// one whole, and a reader checks the node it got.
type directory struct {
	at atomic.Pointer[dirTable]
}

type dirTable struct {
	slots []dirSlot // a power of two
	shift int
	live  int // writer's
	used  int // writer's: live and tombstones
	gone  *node
}

type dirSlot struct {
	key  atomic.Uint64
	node atomic.Pointer[node]
}

const dirSlotBytes = 16

func newDirTable(size int, gone *node) *dirTable {
	return &dirTable{slots: make([]dirSlot, size), shift: 64 - bits.TrailingZeros(uint(size)), gone: gone}
}

func (d *directory) init() { d.at.Store(newDirTable(64, &node{})) }

func (t *dirTable) home(k Key) int { return int(k * 0x9E3779B97F4A7C15 >> t.shift) }

func (t *dirTable) find(k Key) *node {
	mask := len(t.slots) - 1
	for i := t.home(k); ; i = (i + 1) & mask {
		s := &t.slots[i]
		n := s.node.Load()
		if n == nil {
			return nil
		}
		// The slot may have changed hands between the two loads.
		if s.key.Load() == k && n != t.gone && n.first == k {
			return n
		}
	}
}

// put enters n. Two nodes with one first key (which chained keys never make)
// get a slot each.
func (d *directory) put(n *node) {
	t := d.at.Load()
	if (t.used+1)*4 > len(t.slots)*3 {
		size := 64
		for size < t.live*2+2 {
			size *= 2
		}
		next := newDirTable(size, t.gone)
		for i := range t.slots {
			if o := t.slots[i].node.Load(); o != nil && o != t.gone {
				next.add(o)
			}
		}
		next.add(n)
		d.at.Store(next)
		return
	}
	t.add(n)
}

func (t *dirTable) add(n *node) {
	mask := len(t.slots) - 1
	for i := t.home(n.first); ; i = (i + 1) & mask {
		s := &t.slots[i]
		o := s.node.Load()
		if o != nil && o != t.gone {
			continue
		}
		if o == nil {
			t.used++
		}
		t.live++
		s.key.Store(n.first)
		s.node.Store(n)
		return
	}
}

func (d *directory) remove(n *node) {
	t := d.at.Load()
	mask := len(t.slots) - 1
	for i := t.home(n.first); ; i = (i + 1) & mask {
		o := t.slots[i].node.Load()
		if o == nil {
			return
		}
		if o == n {
			t.slots[i].node.Store(t.gone)
			t.live--
			break
		}
	}
	// A table that is nearly empty is replaced, so churn leaves no trace.
	if len(t.slots) > 64 && t.live*8 < len(t.slots) {
		size := 64
		for size < t.live*3 {
			size *= 2
		}
		next := newDirTable(size, t.gone)
		for i := range t.slots {
			if o := t.slots[i].node.Load(); o != nil && o != t.gone {
				next.add(o)
			}
		}
		d.at.Store(next)
	}
}
