package simvllm

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// naivePool is the cache in its plainest form: a list of free blocks, front
// first, and a list of (hash, block) in the order in which they were stored.
type naivePool struct {
	free    []blockID
	refs    map[blockID]int
	stored  []naiveEntry
	evicted []Hash
}

type naiveEntry struct {
	hash  Hash
	block blockID
}

func newNaivePool(blocks int) *naivePool {
	n := &naivePool{refs: map[blockID]int{}}
	for b := 1; b < blocks; b++ {
		n.free = append(n.free, blockID(b))
	}
	return n
}

func (n *naivePool) find(h Hash) blockID {
	for _, e := range n.stored {
		if e.hash == h {
			return e.block
		}
	}
	return 0
}

func (n *naivePool) hold(b blockID) {
	n.refs[b]++
	n.free = slices.DeleteFunc(n.free, func(f blockID) bool { return f == b })
}

func (n *naivePool) take() blockID {
	b := n.free[0]
	n.stored = slices.DeleteFunc(n.stored, func(e naiveEntry) bool {
		if e.block == b {
			n.evicted = append(n.evicted, e.hash)
		}
		return e.block == b
	})
	n.hold(b)
	return b
}

func (n *naivePool) release(blocks []blockID) {
	for _, b := range slices.Backward(blocks) {
		if n.refs[b]--; n.refs[b] > 0 {
			continue
		}
		if slices.ContainsFunc(n.stored, func(e naiveEntry) bool { return e.block == b }) {
			n.free = append(n.free, b)
		} else {
			n.free = slices.Insert(n.free, 0, b)
		}
	}
}

func (l *freeList) order() (ids []blockID) {
	for b := l.front(); b != 0; b = l.blocks[b].next {
		ids = append(ids, b)
	}
	return ids
}

func TestPoolDoesWhatTheNaivePoolDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const hashes = 12
		blocks := rapid.IntRange(2, 20).Draw(t, "blocks")
		var evicted []Hash
		p, n := newPool(blocks, func(h Hash) { evicted = append(evicted, h) }), newNaivePool(blocks)
		var held [][]blockID // what each holder has
		grow := func(b blockID) {
			if len(held) == 0 || rapid.Bool().Draw(t, "new holder") {
				held = append(held, nil)
			}
			i := rapid.IntRange(0, len(held)-1).Draw(t, "holder")
			held[i] = append(held[i], b)
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				if p.free.size == 0 {
					t.Skip("none free")
				}
				got, want := p.take(), n.take()
				if got != want {
					t.Fatalf("took block %d, want %d", got, want)
				}
				if h := Hash(rapid.IntRange(0, hashes).Draw(t, "hash")); h > 0 {
					p.store(got, h)
					n.stored = append(n.stored, naiveEntry{h, got})
				}
				grow(got)
			},
			"hold a found block": func(t *rapid.T) {
				h := Hash(rapid.IntRange(1, hashes).Draw(t, "hash"))
				got, _ := p.find(h)
				if want := n.find(h); got != want {
					t.Fatalf("found block %d for hash %d, want %d", got, h, want)
				}
				if got == 0 {
					t.Skip("not cached")
				}
				p.hold(got)
				n.hold(got)
				grow(got)
			},
			"release": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nobody holds any")
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "holder")
				p.release(held[i])
				n.release(held[i])
				held = slices.Delete(held, i, i+1)
			},
			"clear": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "one in ten") > 0 {
					t.Skip("rarely")
				}
				inUse := len(n.free) < blocks-1
				if p.clear() == inUse {
					t.Fatalf("clear gave %v while in use is %v", !inUse, inUse)
				}
				if !inUse {
					n.stored = nil
				}
			},
			"": func(t *rapid.T) {
				if got := p.free.order(); !slices.Equal(got, n.free) || p.free.size != len(n.free) {
					t.Fatalf("free %v (size %d), want %v", got, p.free.size, n.free)
				}
				if !slices.Equal(evicted, n.evicted) {
					t.Fatalf("evicted %v, want %v", evicted, n.evicted)
				}
				if err := comparePools(p, n, hashes); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}

func comparePools(p *pool, n *naivePool, hashes Hash) error {
	for h := Hash(1); h <= hashes; h++ {
		var got, want []blockID
		for b := p.cached[h]; b != 0; b = p.free.blocks[b].copies {
			got = append(got, b)
		}
		for _, e := range n.stored {
			if e.hash == h {
				want = append(want, e.block)
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("hash %d is in blocks %v, want %v", h, got, want)
		}
	}
	for b := 1; b < len(p.free.blocks); b++ {
		if got, want := int(p.free.blocks[b].refs), n.refs[blockID(b)]; got != want {
			return fmt.Errorf("block %d has %d references, want %d", b, got, want)
		}
	}
	return nil
}

func TestTakePanicsRatherThanGiveOutABlockTwice(t *testing.T) {
	p := newPool(2, func(Hash) {})
	p.take()
	defer func() {
		if recover() == nil {
			t.Error("a second block was taken out of one")
		}
	}()
	p.take()
}
