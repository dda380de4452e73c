package radix

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Index is the tree with its instances. It is safe for concurrent use; events
// of one [Source] must come from one goroutine at a time, since their order
// matters.
//
// Locks are taken in the order of the fields. Match takes none of them.
type Index struct {
	o       Options
	matcher matcher

	pruning sync.Mutex // one prune at a time

	// gate is held for reading by every change, for writing by what needs all
	// instances to stand still (a snapshot).
	gate sync.RWMutex

	instancesMu sync.RWMutex
	instances   []*instance // by handle; nil: removed

	treeMu sync.Mutex
	tree   tree
	grave  grave
	buried int // entries of cleared sources not swept yet

	life   atomic.Uint32
	bytes  atomic.Int64 // of the instances' tables
	pruned atomic.Uint64
}

// instance is one worker; mu guards the rest.
type instance struct {
	mu       sync.Mutex
	now      *contents
	capacity int

	// Scratch for one change.
	spans    []span
	places   []stretch
	slots    []uint32 // of the blocks to be stored
	slot     int      // of the last block that was known
	removals []stretch
}

// New returns an empty index.
func New(o Options) *Index {
	if o.DefaultCapacity <= 0 {
		o.DefaultCapacity = DefaultCapacity
	}
	x := &Index{o: o}
	x.tree.init()
	x.matcher.tree = &x.tree
	return x
}

// AddInstance returns the handle of a new instance. Handles are not used again.
func (x *Index) AddInstance() Instance {
	x.instancesMu.Lock()
	defer x.instancesMu.Unlock()
	i := Instance(len(x.instances))
	in := &instance{capacity: x.o.DefaultCapacity}
	x.treeMu.Lock()
	in.now = x.newContents(i)
	x.treeMu.Unlock()
	x.instances = append(x.instances, in)
	return i
}

// newContents is an instance's fresh start; the caller holds treeMu.
func (x *Index) newContents(i Instance) *contents {
	c := &contents{instance: i, life: x.life.Add(1)}
	x.tree.addSource(c, 0, 0)
	return c
}

// enter returns i, locked; leave undoes it.
func (x *Index) enter(i Instance) *instance {
	x.gate.RLock()
	x.instancesMu.RLock()
	var in *instance
	if int(i) < len(x.instances) {
		in = x.instances[i]
	}
	x.instancesMu.RUnlock()
	if in == nil {
		x.gate.RUnlock()
		return nil
	}
	in.mu.Lock()
	if in.now == nil { // removed meanwhile
		in.mu.Unlock()
		x.gate.RUnlock()
		return nil
	}
	return in
}

func (x *Index) leave(in *instance) {
	in.mu.Unlock()
	x.gate.RUnlock()
}

// RemoveInstance forgets i and everything it held, at once for readers; its
// memory comes back with the next changes or [Index.Expire].
func (x *Index) RemoveInstance(i Instance) {
	in := x.enter(i)
	if in == nil {
		return
	}
	x.treeMu.Lock()
	x.bury(in.now, in.now.sources)
	x.treeMu.Unlock()
	in.now = nil
	x.leave(in)
	x.instancesMu.Lock()
	x.instances[i] = nil
	x.instancesMu.Unlock()
}

// Clear forgets everything that i held or was predicted to hold, on all ranks.
// It costs the same however much that was.
func (x *Index) Clear(i Instance) {
	in := x.enter(i)
	if in == nil {
		return
	}
	defer x.leave(in)
	x.treeMu.Lock()
	defer x.treeMu.Unlock()
	x.bury(in.now, in.now.sources)
	in.now = x.newContents(i)
}

// ClearRank forgets what one rank of i held, and all of i's predictions.
func (x *Index) ClearRank(i Instance, rank uint16) {
	in := x.enter(i)
	if in == nil {
		return
	}
	defer x.leave(in)
	x.treeMu.Lock()
	defer x.treeMu.Unlock()
	c := in.now
	for c.tickets.live() > 0 {
		x.tree.dropOldest(c)
	}
	c.life = x.life.Add(1)
	var gone []*source
	for k := 0; k < len(c.sources); {
		if s := c.sources[k]; s.rank == rank {
			x.tree.removeSource(c, s)
			gone = append(gone, s)
			continue
		}
		k++
	}
	grave := &contents{instance: i}
	for _, s := range gone {
		s.of = grave // or a later forecast of c would give it slots that nothing sweeps
	}
	x.bury(grave, gone)
	if c.source(0, 0) == nil {
		x.tree.addSource(c, 0, 0)
	}
}

// SetCapacity sets the most blocks predicted on i at a time: its cache's size.
// 0 means unknown.
func (x *Index) SetCapacity(i Instance, blocks int) {
	in := x.enter(i)
	if in == nil {
		return
	}
	defer x.leave(in)
	in.capacity = blocks
	if blocks <= 0 {
		in.capacity = x.o.DefaultCapacity
	}
	x.treeMu.Lock()
	defer x.treeMu.Unlock()
	x.tree.fit(in.now, in.capacity)
}

// Match appends, for each instance that holds a beginning of keys, how much. Of
// an instance with several ranks it tells the best one, for each has a cache of
// its own. It never waits for a change in progress, and allocates nothing if dst
// has room.
func (x *Index) Match(dst []Match, keys []Key) []Match { return x.matcher.match(dst, keys) }

// Predict records that a request with these blocks, from the prompt's root, was
// sent to i: what i is not known to hold it is now predicted to hold. Where that
// is more than i's capacity, the oldest requests' predictions end.
func (x *Index) Predict(i Instance, keys []Key, now time.Time) Ticket {
	in := x.enter(i)
	if in == nil {
		return Ticket{}
	}
	defer x.after()
	defer x.leave(in)
	x.treeMu.Lock()
	defer x.treeMu.Unlock()
	var seq uint64
	seq, in.spans = x.tree.predict(in.now, keys, in.capacity, now, in.spans[:0])
	if seq == 0 {
		return Ticket{}
	}
	x.tree.fit(in.now, in.capacity)
	return Ticket{instance: i, life: in.now.life, seq: seq}
}

// Withdraw ends the predictions of a request that failed, but for blocks that
// were confirmed or that another request predicted too. It may be called again.
func (x *Index) Withdraw(t Ticket) {
	if t.seq == 0 {
		return
	}
	in := x.enter(t.instance)
	if in == nil {
		return
	}
	defer x.leave(in)
	if in.now.life != t.life {
		return
	}
	x.treeMu.Lock()
	defer x.treeMu.Unlock()
	x.tree.withdraw(in.now, t.seq)
}

// Expire ends predictions that are past their time to live, and does what
// clearing left to be done. Call it about once a second.
func (x *Index) Expire(now time.Time) {
	x.instancesMu.RLock()
	n := len(x.instances)
	x.instancesMu.RUnlock()
	for i := range n {
		if x.o.PredictionTTL <= 0 {
			break
		}
		if in := x.enter(Instance(i)); in != nil {
			x.expire(in, now)
			x.leave(in)
		}
	}
	for x.sweep(sweepChunk) {
	}
	x.after()
}

func (x *Index) expire(in *instance, now time.Time) {
	q := &in.now.tickets
	for q.live() > 0 && (q.at(0).pieces == nil || now.Sub(q.at(0).at) >= x.o.PredictionTTL) {
		x.treeMu.Lock()
		x.tree.dropOldest(in.now)
		x.treeMu.Unlock()
	}
}

// Lookup returns the key of the block that s knows as h.
func (x *Index) Lookup(s Source, h Hash) (Key, bool) {
	in := x.enter(s.Instance)
	if in == nil {
		return 0, false
	}
	defer x.leave(in)
	src := in.now.source(s.Rank, s.Group)
	if src == nil {
		return 0, false
	}
	k, ok := src.table.find(h)
	if !ok {
		return 0, false
	}
	return x.keyAt(src.table.slots[k].at), true
}

func lengths(keys []Key, hashes []Hash) error {
	if len(keys) != len(hashes) {
		return fmt.Errorf("%w: %d and %d", ErrLengths, len(keys), len(hashes))
	}
	return nil
}
