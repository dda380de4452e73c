package tokenize

import (
	"sync"
	"sync/atomic"
)

// generations bounds the memory of a cache that keeps a young and an old half:
// what is used moves to the young half; when that is full it becomes the old
// one, and the old one is forgotten whole. So eviction costs nothing per item,
// and what is asked for stays.
type generations struct {
	limit int64 // bytes of one half
	young atomic.Int64
	old   atomic.Int64

	turning sync.Mutex
	turn    func() // makes the young half of every shard the old one
}

// spend accounts for cost bytes that were added to the young half. The caller
// holds no lock of a shard.
func (g *generations) spend(cost int64) {
	if g.young.Add(cost) <= g.limit {
		return
	}
	g.turning.Lock()
	defer g.turning.Unlock()
	full := g.young.Load()
	if full <= g.limit {
		return // another goroutine has turned it meanwhile
	}
	g.turn()
	g.old.Store(full)
	g.young.Add(-full)
}

// bytes is what the cache holds.
func (g *generations) bytes() int64 { return g.young.Load() + g.old.Load() }
