package feedback

import "slices"

// table is the blocks that one rank holds, with all that a reader needs to
// index them: what a snapshot is made of. Its invariants:
//
//   - a block is in it if the worker holds a copy, or a block after it is;
//   - each block is linked below its parent, and first blocks below root.
//
// The zero table is empty and ready.
type table struct {
	filter filter
	blocks map[blockID]*block
	root   block
}

// blockID is what a hash is unique in.
type blockID struct {
	group int
	hash  uint64
}

type block struct {
	id     blockID
	copies int    // 0: the worker dropped it, blocks after it live on
	event  *Event // the event it came with; never written
	at     int    // its place in the event

	parent, firstChild, prev, next *block
}

// apply follows one batch. The batch's slices stay in use.
func (t *table) apply(b Batch) {
	for i := range b.Events {
		e := &b.Events[i]
		switch {
		case e.Kind == AllBlocksCleared:
			t.blocks = nil
			t.root = block{}
		case t.filter.check(e) != use:
		case e.Kind == BlockStored:
			t.store(e)
		case e.Kind == BlockRemoved:
			for _, h := range e.Hashes {
				t.remove(blockID{e.Group, h})
			}
		}
	}
}

func (t *table) store(e *Event) {
	parent := &t.root
	if e.HasParent {
		if parent = t.blocks[blockID{e.Group, e.Parent}]; parent == nil || parent.copies == 0 {
			return // a reader would not index it either
		}
	}
	if t.blocks == nil {
		t.blocks = make(map[blockID]*block)
	}
	for i, h := range e.Hashes {
		id := blockID{e.Group, h}
		b := t.blocks[id]
		if b == nil {
			b = &block{id: id, event: e, at: i}
			t.blocks[id] = b
			parent.adopt(b)
		}
		b.copies++
		parent = b
	}
}

func (t *table) remove(id blockID) {
	b := t.blocks[id]
	if b == nil || b.copies == 0 {
		return
	}
	b.copies--
	for b != &t.root && b.copies == 0 && b.firstChild == nil {
		parent := b.parent
		b.leave()
		delete(t.blocks, b.id)
		b = parent
	}
}

func (b *block) adopt(child *block) {
	child.parent, child.next = b, b.firstChild
	if b.firstChild != nil {
		b.firstChild.prev = child
	}
	b.firstChild = child
}

func (b *block) leave() {
	if b.prev != nil {
		b.prev.next = b.next
	} else {
		b.parent.firstChild = b.next
	}
	if b.next != nil {
		b.next.prev = b.prev
	}
}

// Tokens in one event of a snapshot: few enough that a chunk of a few events
// stays far below the 1 MiB that NATS servers allow a message by default.
const snapshotRun = 4096

// snapshot is events that make the table's state out of an empty one: parents
// first, once for each copy, and at the end the removal of what only links
// blocks to their beginning.
func (t *table) snapshot() []Event {
	var events []Event
	gone := map[int][]uint64{}
	var heads []*block // runs to begin
	push := func(from *block) {
		for c := from; c != nil; c = c.next {
			heads = append(heads, c)
		}
	}
	push(t.root.firstChild)
	for len(heads) > 0 {
		b := heads[len(heads)-1]
		heads = heads[:len(heads)-1]
		run := []*block{b}
		for tokens := b.event.BlockSize; b.firstChild != nil; tokens += b.event.BlockSize {
			if tokens+b.event.BlockSize > snapshotRun {
				push(b.firstChild)
				break
			}
			push(b.firstChild.next)
			b = b.firstChild
			run = append(run, b)
		}
		events = append(events, runEvent(run))
		for _, b := range run {
			for range b.copies - 1 {
				events = append(events, runEvent([]*block{b}))
			}
			if b.copies == 0 {
				gone[b.id.group] = append(gone[b.id.group], b.id.hash)
			}
		}
	}
	for group, hashes := range gone {
		for some := range slices.Chunk(hashes, snapshotRun) {
			events = append(events, Event{Kind: BlockRemoved, Hashes: some, Group: group})
		}
	}
	return events
}

// runEvent is the event that stores consecutive blocks.
func runEvent(run []*block) Event {
	first := run[0]
	e := *first.event
	e.HasParent = first.parent.event != nil // the root has none
	e.Parent = first.parent.id.hash
	e.Hashes = make([]uint64, len(run))
	e.Tokens = make([]uint32, 0, len(run)*e.BlockSize)
	e.ExtraKeys = nil
	for i, b := range run {
		e.Hashes[i] = b.id.hash
		e.Tokens = append(e.Tokens, b.event.Tokens[b.at*e.BlockSize:(b.at+1)*e.BlockSize]...)
		if keys := b.event.extra(b.at); keys != nil {
			if e.ExtraKeys == nil {
				e.ExtraKeys = make([][]ExtraKey, len(run))
			}
			e.ExtraKeys[i] = keys
		}
	}
	return e
}

// extra is the extra keys of one of the event's blocks.
func (e *Event) extra(block int) []ExtraKey {
	if block < len(e.ExtraKeys) {
		return e.ExtraKeys[block]
	}
	return nil
}
