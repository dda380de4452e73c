package radix

import (
	"math/bits"
	"sync/atomic"
)

// node is a stretch of blocks with no parting inside: a segment of a run.
// Readers use first, keys, slots and hit; the rest is the writers', under the
// tree's lock.
type node struct {
	first Key
	keys  atomic.Pointer[[]Key] // nil: the node has left the tree
	slots atomic.Pointer[slots] // who holds how much of it
	hit   atomic.Bool           // matched since the last prune

	// What keys and slots point at to begin with: beside them, a reader finds
	// all of a node but its keys in two or three lines of cache.
	keys0  []Key
	slots0 slots
	words0 [firstSlots]atomic.Uint64

	run   *run
	start int    // its first block's offset in run
	depth int    // blocks before it
	stamp uint64 // the tree's clock when it was last stored to

	parent     *node
	kid        *node // first child
	prev, next *node // siblings

	odd       map[uint32]bitset // by source: what holders with holes hold
	forecasts []*forecast       // predictions, by instance
}

// run is an array of keys that one or more consecutive nodes are segments of.
// It gives blocks names (run, offset) that outlive splits and merges.
//
// A run that was joined to another's end is an alias: into and shift say where
// its first limit blocks went; what stood behind them was gone by then. It lives
// as long as a place names it.
type run struct {
	id   uint32
	keys []Key
	room int     // keys that its array has room for, cut off ones included
	segs []*node // in order
	refs int     // places, ticket pieces and aliases that name it

	pieces int  // tickets' pieces among refs
	wasCut bool // blocks left its end: pieces may name them still

	into         *run
	shift, limit int
}

// resolve follows aliases to where blocks off…off+n-1 are now: fewer than n of
// them if some are gone.
func (r *run) resolve(off, n int) (at *run, start, left int) {
	for r.into != nil {
		n = min(n, r.limit-off)
		r, off = r.into, off+r.shift
	}
	return r, off, max(0, min(n, len(r.keys)-off))
}

// find returns the node with block off and the block's index in it; nil if the
// block is gone.
func (r *run) find(off int) (*node, int) {
	r, off, n := r.resolve(off, 1)
	if n == 0 {
		return nil, 0
	}
	return r.nodeAt(off)
}

// nodeAt returns the node with block off of a run that is no alias and has such
// a block, and the block's index in it.
func (r *run) nodeAt(off int) (*node, int) {
	lo, hi := 0, len(r.segs)
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; r.segs[mid].start <= off {
			lo = mid
		} else {
			hi = mid
		}
	}
	return r.segs[lo], off - r.segs[lo].start
}

const firstSlots = 4

// begin gives a new node its keys and room for holders.
func (n *node) begin(keys []Key, holders int) {
	n.keys0 = keys
	n.keys.Store(&n.keys0)
	if size := sized(holders); size <= firstSlots {
		n.slots0.word = n.words0[:]
		n.slots.Store(&n.slots0)
	} else {
		n.slots.Store(newSlots(size))
	}
}

func (n *node) blocks() []Key { return *n.keys.Load() }
func (n *node) size() int     { return len(*n.keys.Load()) }

func (n *node) adopt(k *node) {
	k.parent, k.prev, k.next = n, nil, n.kid
	if n.kid != nil {
		n.kid.prev = k
	}
	n.kid = k
}

func (n *node) disown(k *node) {
	if k.prev != nil {
		k.prev.next = k.next
	} else {
		n.kid = k.next
	}
	if k.next != nil {
		k.next.prev = k.prev
	}
	k.parent, k.prev, k.next = nil, nil, nil
}

// takeKids moves o's children to n, which has none.
func (n *node) takeKids(o *node) {
	n.kid, o.kid = o.kid, nil
	for k := n.kid; k != nil; k = k.next {
		k.parent = n
	}
}

func (n *node) cover(sid uint32) cover {
	_, s := n.slots.Load().find(sid)
	c := cover{n: s.confirmed()}
	if n.odd != nil {
		c.odd = n.odd[sid]
	}
	return c
}

func (n *node) setOdd(sid uint32, b bitset) {
	if b == nil {
		if n.odd != nil {
			delete(n.odd, sid)
			if len(n.odd) == 0 {
				n.odd = nil
			}
		}
		return
	}
	if n.odd == nil {
		n.odd = map[uint32]bitset{}
	}
	n.odd[sid] = b
}

// forecast is what one instance is predicted to hold of a node.
type forecast struct {
	of     *contents
	blocks []guess // by block; short if the node grew since
}

// guess is the prediction of one block: how many living tickets predict it, and
// the first of them. A confirmation or removal ends it for all; a ticket older
// than first predicted the block before that and has no share in it any more.
type guess struct {
	first   uint64
	tickets uint32
}

func (f *forecast) has(i int) bool { return i < len(f.blocks) && f.blocks[i].tickets > 0 }

// trim drops what follows the last predicted block and reports whether any is left.
func (f *forecast) trim() bool {
	n := len(f.blocks)
	for n > 0 && f.blocks[n-1].tickets == 0 {
		n--
	}
	f.blocks = f.blocks[:n]
	return n > 0
}

func (n *node) forecast(c *contents) *forecast {
	for _, f := range n.forecasts {
		if f.of == c {
			return f
		}
	}
	return nil
}

func (n *node) dropForecast(c *contents) {
	for i, f := range n.forecasts {
		if f.of == c {
			last := len(n.forecasts) - 1
			n.forecasts[i] = n.forecasts[last]
			n.forecasts[last] = nil
			n.forecasts = n.forecasts[:last]
			if last == 0 {
				n.forecasts = nil
			}
			return
		}
	}
}

// reach counts the leading blocks that are confirmed or predicted.
func reach(c cover, f *forecast) int {
	if f == nil {
		return c.n
	}
	i := c.n
	for c.has(i) || f.has(i) {
		i++
	}
	return i
}

// bucket is the histogram bucket of n: 0, 1, 2–3, 4–7…
func bucket[T int | int32](n T) int { return min(bits.Len(uint(n)), Buckets-1) }
