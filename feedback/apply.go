package feedback

import (
	"errors"
	"fmt"

	"github.com/warmroute/warmroute/internal/blockkey"
	"github.com/warmroute/warmroute/radix"
)

// applied counts what became of events.
type applied struct {
	stored, removed, cleared int // events that changed the tree
	blocks                   int // blocks stored
	unknownParents           int // runs left out: the block before them is not known
	unknownRemoved           int // blocks removed that were not known
	refused                  [badLength + 1]int
	unknownKinds             int
	blockSize                int // learnt from the events, 0 if none was
}

// incompatible says that the worker's events can't be understood, rather than
// that some of them are of no concern.
func (a *applied) incompatible() bool { return a.refused[noBlockSize]+a.refused[badLength] > 0 }

// applier brings one rank's batches into the tree. It belongs to one
// goroutine, like all that is written under one [radix.Source].
type applier struct {
	index    *radix.Index
	instance radix.Instance
	rank     uint16
	model    string

	filter filter
	keys   []blockkey.Key // reused
}

// clear forgets the rank's blocks, and what was learnt of its groups.
func (a *applier) clear() {
	a.index.ClearRank(a.instance, a.rank)
	a.filter.reset()
}

// apply applies one batch. An error means that the instance is not in the tree
// any more.
func (a *applier) apply(b Batch, sum *applied) error {
	sum.unknownKinds += b.Unknown
	for i := range b.Events {
		e := &b.Events[i]
		if e.Kind == AllBlocksCleared {
			a.index.ClearRank(a.instance, a.rank)
			sum.cleared++
			continue
		}
		if v := a.filter.check(e); v != use {
			sum.refused[v]++
			continue
		}
		source := radix.Source{Instance: a.instance, Rank: a.rank, Group: uint16(e.Group)}
		if e.Kind == BlockRemoved {
			sum.unknownRemoved += a.index.Remove(source, e.Hashes)
			sum.removed++
			continue
		}
		err := a.store(source, e)
		switch {
		case err == nil:
			sum.stored++
			sum.blocks += len(e.Hashes)
			sum.blockSize = e.BlockSize
		case errors.Is(err, radix.ErrUnknownParent):
			sum.unknownParents++
		default:
			return fmt.Errorf("store %d blocks: %w", len(e.Hashes), err)
		}
	}
	return nil
}

func (a *applier) store(source radix.Source, e *Event) error {
	if !e.HasParent {
		a.keys = appendKeys(a.keys[:0], blockkey.Root(Namespace(a.model, *e)), e)
		return a.index.StoreRoot(source, a.keys, e.Hashes)
	}
	parent, ok := a.index.Lookup(source, e.Parent)
	if !ok {
		return radix.ErrUnknownParent
	}
	a.keys = appendKeys(a.keys[:0], parent, e)
	return a.index.Store(source, e.Parent, a.keys, e.Hashes)
}
