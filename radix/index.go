// Package radix says which instance holds which block of a prompt.
package radix

import (
	"fmt"
	"io"
	"sync"
	"time"
)

type simpleTicket struct {
	seq  uint64
	at   time.Time
	keys map[Key]bool
}

type simpleBlock struct {
	key    Key
	copies int
}

type simpleSource struct {
	blocks map[Hash]simpleBlock
	held   map[Key]int
}

type simpleInstance struct {
	life     uint32
	capacity int
	seq      uint64
	sources  map[Source]*simpleSource
	tickets  []*simpleTicket // oldest first
}

// Index is the tree. It is safe for concurrent use.
type Index struct {
	mu        sync.Mutex
	o         Options
	next      Instance
	instances map[Instance]*simpleInstance
}

// New returns an empty index.
func New(o Options) *Index {
	if o.DefaultCapacity <= 0 {
		o.DefaultCapacity = DefaultCapacity
	}
	return &Index{o: o, instances: map[Instance]*simpleInstance{}}
}

// AddInstance returns a new handle.
func (x *Index) AddInstance() Instance {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := x.next
	x.next++
	x.instances[i] = &simpleInstance{capacity: x.o.DefaultCapacity, sources: map[Source]*simpleSource{}}
	return i
}

// RemoveInstance forgets i and everything it held.
func (x *Index) RemoveInstance(i Instance) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.instances, i)
}

// SetCapacity sets the most blocks predicted on i at a time.
func (x *Index) SetCapacity(i Instance, blocks int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if in := x.instances[i]; in != nil {
		in.capacity = blocks
		if blocks <= 0 {
			in.capacity = x.o.DefaultCapacity
		}
		in.trim()
	}
}

func (in *simpleInstance) source(s Source) *simpleSource {
	src := in.sources[s]
	if src == nil {
		src = &simpleSource{blocks: map[Hash]simpleBlock{}, held: map[Key]int{}}
		in.sources[s] = src
	}
	return src
}

func (in *simpleInstance) confirmed(k Key) bool {
	for _, s := range in.sources {
		if s.held[k] > 0 {
			return true
		}
	}
	return false
}

func (in *simpleInstance) predicted(k Key) bool {
	for _, t := range in.tickets {
		if t.keys[k] {
			return true
		}
	}
	return false
}

// unpredict ends the prediction of k.
func (in *simpleInstance) unpredict(k Key) {
	for _, t := range in.tickets {
		delete(t.keys, k)
	}
}

func (in *simpleInstance) predictedBlocks() int {
	all := map[Key]bool{}
	for _, t := range in.tickets {
		for k := range t.keys {
			all[k] = true
		}
	}
	return len(all)
}

// trim ends the oldest tickets until the rest is within the capacity.
func (in *simpleInstance) trim() {
	for len(in.tickets) > 0 && (len(in.tickets) > in.capacity || in.predictedBlocks() > in.capacity) {
		in.tickets = in.tickets[1:]
	}
}

// Lookup returns the key of the block that s knows as h.
func (x *Index) Lookup(s Source, h Hash) (Key, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	in := x.instances[s.Instance]
	if in == nil || in.sources[s] == nil {
		return 0, false
	}
	b, ok := in.sources[s].blocks[h]
	return b.key, ok
}

// StoreRoot records a run of blocks from a namespace's root.
func (x *Index) StoreRoot(s Source, keys []Key, hashes []Hash) error {
	return x.store(s, nil, keys, hashes)
}

// Store records a run of blocks after parent.
func (x *Index) Store(s Source, parent Hash, keys []Key, hashes []Hash) error {
	return x.store(s, &parent, keys, hashes)
}

func (x *Index) store(s Source, parent *Hash, keys []Key, hashes []Hash) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(keys) != len(hashes) {
		return fmt.Errorf("%w: %d and %d", ErrLengths, len(keys), len(hashes))
	}
	in := x.instances[s.Instance]
	if in == nil {
		return ErrUnknownInstance
	}
	src := in.source(s)
	if parent != nil {
		if _, ok := src.blocks[*parent]; !ok {
			return ErrUnknownParent
		}
	}
	for i, h := range hashes {
		b, ok := src.blocks[h]
		if !ok {
			b.key = keys[i]
			src.held[b.key]++
			in.unpredict(b.key)
		}
		b.copies++
		src.blocks[h] = b
	}
	return nil
}

// Remove records that s dropped one copy of each block.
func (x *Index) Remove(s Source, hashes []Hash) (unknown int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	in := x.instances[s.Instance]
	if in == nil {
		return len(hashes)
	}
	src := in.source(s)
	for _, h := range hashes {
		b, ok := src.blocks[h]
		if !ok {
			unknown++
			continue
		}
		in.unpredict(b.key)
		b.copies--
		src.blocks[h] = b
		if b.copies > 0 {
			continue
		}
		delete(src.blocks, h)
		src.held[b.key]--
		if src.held[b.key] == 0 {
			delete(src.held, b.key)
		}
	}
	return unknown
}

// Clear forgets everything that i held or was predicted to hold.
func (x *Index) Clear(i Instance) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if in := x.instances[i]; in != nil {
		in.life++
		in.sources, in.tickets = map[Source]*simpleSource{}, nil
	}
}

// ClearRank forgets what one rank of i held, and i's predictions.
func (x *Index) ClearRank(i Instance, rank uint16) {
	x.mu.Lock()
	defer x.mu.Unlock()
	in := x.instances[i]
	if in == nil {
		return
	}
	in.life++
	in.tickets = nil
	for s := range in.sources {
		if s.Rank == rank {
			delete(in.sources, s)
		}
	}
}

// Predict records that a request with these blocks was sent to i.
func (x *Index) Predict(i Instance, keys []Key, now time.Time) Ticket {
	x.mu.Lock()
	defer x.mu.Unlock()
	in := x.instances[i]
	if in == nil {
		return Ticket{}
	}
	t := &simpleTicket{at: now, keys: map[Key]bool{}}
	for _, k := range keys {
		if len(t.keys) == in.capacity {
			break
		}
		if !in.confirmed(k) {
			t.keys[k] = true
		}
	}
	if len(t.keys) == 0 {
		return Ticket{}
	}
	in.seq++
	t.seq = in.seq
	in.tickets = append(in.tickets, t)
	in.trim()
	return Ticket{instance: i, life: in.life, seq: t.seq}
}

// Withdraw ends the predictions of a request that failed.
func (x *Index) Withdraw(t Ticket) {
	x.mu.Lock()
	defer x.mu.Unlock()
	in := x.instances[t.instance]
	if in == nil || t.seq == 0 || t.life != in.life {
		return
	}
	for j, o := range in.tickets {
		if o.seq == t.seq {
			in.tickets = append(in.tickets[:j:j], in.tickets[j+1:]...)
			return
		}
	}
}

// Expire drops predictions past their time to live.
func (x *Index) Expire(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.o.PredictionTTL == 0 {
		return
	}
	for _, in := range x.instances {
		for len(in.tickets) > 0 && now.Sub(in.tickets[0].at) >= x.o.PredictionTTL {
			in.tickets = in.tickets[1:]
		}
	}
}

// Match appends one entry for each instance that holds a beginning of keys.
func (x *Index) Match(dst []Match, keys []Key) []Match {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, in := range x.instances {
		m := Match{Instance: i, Blocks: in.leading(keys, func(k Key) bool { return in.predicted(k) })}
		for _, s := range in.sources {
			m.Confirmed = max(m.Confirmed, in.leading(keys, func(k Key) bool { return s.held[k] > 0 }))
			m.Blocks = max(m.Blocks, in.leading(keys, func(k Key) bool { return s.held[k] > 0 || in.predicted(k) }))
		}
		if m.Blocks > 0 {
			dst = append(dst, m)
		}
	}
	return dst
}

func (in *simpleInstance) leading(keys []Key, has func(Key) bool) int {
	for n, k := range keys {
		if !has(k) {
			return n
		}
	}
	return len(keys)
}

// Stats counts what the index holds.
type Stats struct {
	Instances int
	Entries   int // confirmed (source, block) pairs
	Predicted int // predicted (instance, block) pairs
	Nodes     int
	Bytes     int64
	Pruned    uint64 // entries dropped for MaxBytes since the start
}

// Stats returns counts, cheap enough for every scrape.
func (x *Index) Stats() Stats {
	x.mu.Lock()
	defer x.mu.Unlock()
	st := Stats{Instances: len(x.instances)}
	for _, in := range x.instances {
		st.Predicted += in.predictedBlocks()
		for _, s := range in.sources {
			st.Entries += len(s.blocks)
		}
	}
	return st
}

// Dump writes a readable form of the index.
func (x *Index) Dump(w io.Writer) {
	_, _ = fmt.Fprintf(w, "%+v\n", x.Stats())
}
