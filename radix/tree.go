package radix

// tree is the compressed trie. Its methods are for one writer at a time;
// readers use the directory and the nodes' atomic fields alone (match.go).
//
// A node without children that no one holds the end of is cut back to what is
// held; a node with a single child is joined with it. So every node but the
// root has two children or more, or ends in a block that someone holds (the
// exception: a run longer than maxRun is a chain of nodes).
type tree struct {
	root     node
	dir      directory
	runs     []*run // by number; 0 is none
	freeRuns []uint32
	clock    uint64
	sids     sidTable
	count    counts
	// predicted counts the blocks with a guess, of cleared instances too.
	predicted int
	tickets   int    // of all contents, ended ones that are still in a queue included
	spans     []span // scratch

	// Tests stop readers and the writer between their steps here.
	readerStep, writerStep func()
}

// step is between two loads of a reader.
func (t *tree) step() {
	if t.readerStep != nil {
		t.readerStep()
	}
}

// change comes before a store that readers see.
func (t *tree) change() {
	if t.writerStep != nil {
		t.writerStep()
	}
}

// counts are kept as things change, so that reading them costs nothing.
type counts struct {
	nodes, runs     int
	keyRoom         int // room for keys, in keys
	slotCap         int // room for holders, in words
	oddWords        int // words of the sets of holders with holes
	depths, holders [Buckets]int
}

func (t *tree) init() {
	t.dir.init()
	t.runs = []*run{nil}
	t.root.begin(nil, 0)
	t.sids.init()
}

// span is blocks lo…hi-1 of a node.
type span struct {
	n      *node
	lo, hi int
}

// common counts the leading keys that a and b share. Keys are chained, so one
// equal pair means that all before it are equal: the last is looked at first,
// and the parting point is found by halving.
func common(a, b []Key) int {
	hi := min(len(a), len(b))
	if hi == 0 || a[hi-1] == b[hi-1] {
		return hi
	}
	lo := 0 // all before lo are equal, hi-1 and all after differ
	for hi--; lo < hi; {
		if mid := int(uint(lo+hi) >> 1); a[mid] == b[mid] {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// place walks keys down from block off of n, makes what is missing, and
// appends the blocks' whereabouts to out. It stops early at keys that are not
// chained to their parents.
func (t *tree) place(n *node, off int, keys []Key, out []span) []span {
	t.clock++
	for len(keys) > 0 {
		own := n.blocks()
		if off < len(own) {
			if c := common(own[off:], keys); c > 0 {
				n.stamp = t.clock
				out = append(out, span{n, off, off + c})
				off, keys = off+c, keys[c:]
				continue
			}
			t.split(n, off)
		}
		next := t.dir.at.Load().find(keys[0])
		switch {
		case next != nil && next.parent == n:
			n, off = next, 0
		case next != nil:
			t.mergeDown(n)
			return out
		case n != &t.root && n.kid == nil && len(own) < maxRun:
			t.extend(n, keys[:min(len(keys), maxRun-len(own))])
		default:
			n, off = t.addLeaf(n, keys[:min(len(keys), maxRun)]), 0
		}
	}
	return out
}

// walk returns the part of keys, from the root, that has nodes.
func (t *tree) walk(keys []Key, out []span) []span {
	dir := t.dir.at.Load()
	for len(keys) > 0 {
		n := dir.find(keys[0])
		if n == nil {
			break
		}
		c := common(n.blocks(), keys)
		out = append(out, span{n, 0, c})
		if c < n.size() {
			break
		}
		keys = keys[c:]
	}
	return out
}

func (t *tree) newRun(keys []Key) *run {
	r := &run{keys: append(make([]Key, 0, len(keys)), keys...), room: len(keys)}
	t.count.runs++
	t.count.keyRoom += r.room
	if k := len(t.freeRuns); k > 0 {
		r.id = t.freeRuns[k-1]
		t.freeRuns = t.freeRuns[:k-1]
		t.runs[r.id] = r
	} else {
		r.id = uint32(len(t.runs))
		t.runs = append(t.runs, r)
	}
	return r
}

// unref gives back k names of r.
func (t *tree) unref(r *run, k int) {
	r.refs -= k
	t.freeIfUnused(r)
}

func (t *tree) freeIfUnused(r *run) {
	for r != nil && r.refs == 0 && len(r.segs) == 0 {
		t.setKeys(r, nil)
		t.runs[r.id] = nil
		t.freeRuns = append(t.freeRuns, r.id)
		t.count.runs--
		next := r.into
		r.into = nil
		if next != nil {
			next.refs--
		}
		r = next
	}
}

// setKeys gives r another array of keys and shows its nodes their parts of it.
func (t *tree) setKeys(r *run, keys []Key) {
	t.count.keyRoom += cap(keys) - r.room
	r.keys, r.room = keys, cap(keys)
	for i, n := range r.segs {
		end := len(keys)
		if i+1 < len(r.segs) {
			end = r.segs[i+1].start
		}
		t.show(n, keys[n.start:end:end])
	}
}

func (t *tree) show(n *node, keys []Key) {
	t.change()
	n.keys.Store(&keys)
}

// appendKeys adds keys to the end of r. Its last node grows by what fits.
func (t *tree) appendKeys(r *run, keys []Key) {
	if size := len(r.keys) + len(keys); size > cap(r.keys) {
		room := size
		if len(keys) < len(r.keys) {
			room += size / 8 // a sequence that grows block by block
		}
		t.setKeys(r, append(append(make([]Key, 0, room), r.keys...), keys...))
		return
	}
	r.keys = append(r.keys, keys...)
	last := r.segs[len(r.segs)-1]
	t.show(last, r.keys[last.start:len(r.keys):len(r.keys)])
}

// cutKeys shortens r. Readers may still be looking at what is cut off, so the
// room is given up: the next append copies.
func (t *tree) cutKeys(r *run, size int) {
	r.wasCut = true
	if size < r.room*3/4 {
		t.setKeys(r, append(make([]Key, 0, size), r.keys[:size]...))
		return
	}
	r.keys = r.keys[:size:size]
	if k := len(r.segs); k > 0 {
		t.show(r.segs[k-1], r.keys[r.segs[k-1].start:size:size])
	}
}

func (t *tree) addNode(n *node, parent *node) {
	parent.adopt(n)
	t.count.nodes++
	t.count.depths[bucket(n.depth)]++
	t.count.holders[bucket(n.slots.Load().live)]++
	t.count.slotCap += len(n.slots.Load().word)
	t.change()
	t.dir.put(n)
}

func (t *tree) dropNode(n *node) {
	t.change()
	t.dir.remove(n)
	t.change()
	n.keys.Store(nil)
	n.parent.disown(n)
	t.count.nodes--
	t.count.depths[bucket(n.depth)]--
	t.count.holders[bucket(n.slots.Load().live)]--
	t.count.slotCap -= len(n.slots.Load().word)
}

func (t *tree) addLeaf(parent *node, keys []Key) *node {
	r := t.newRun(keys)
	n := &node{first: keys[0], run: r, depth: parent.depth + parent.size(), stamp: t.clock}
	r.segs = append(r.segs, n)
	n.begin(r.keys, 0)
	t.addNode(n, parent)
	return n
}

func (t *tree) extend(n *node, keys []Key) { t.appendKeys(t.renew(n.run), keys) }
