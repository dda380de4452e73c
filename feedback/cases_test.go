package feedback

import (
	"testing"

	"github.com/warmroute/warmroute/internal/blockkey"
	"github.com/warmroute/warmroute/radix"
)

// rig is an index with instances whose events are applied directly.
type rig struct {
	t     *testing.T
	index *radix.Index
}

func newRig(t *testing.T) *rig { return &rig{t, radix.New(radix.Options{})} }

func (r *rig) instance() *applier {
	return &applier{index: r.index, instance: r.index.AddInstance(), model: "m"}
}

// apply applies the events as they come over the wire.
func (r *rig) apply(a *applier, events ...Event) applied {
	r.t.Helper()
	b, err := Decode(Encode(Batch{Events: events}))
	if err != nil {
		r.t.Fatal(err)
	}
	var sum applied
	if err := a.apply(b, &sum); err != nil {
		r.t.Fatal(err)
	}
	return sum
}

// want checks how many blocks of tokens the instance is credited with.
func (r *rig) want(a *applier, ns blockkey.Namespace, tokens []uint32, blocks int) {
	r.t.Helper()
	ns.Model = "m"
	if got := matched(r.index, a.instance, ns, tokens); got != blocks {
		r.t.Errorf("%+v: %d blocks, want %d", ns, got, blocks)
	}
}

// stored is an event for the tokens' full blocks of size, under hashes from
// first on.
func stored(size int, first uint64, tokens []uint32) Event {
	e := Event{Kind: BlockStored, Medium: "GPU", BlockSize: size, GroupKind: "full_attention", Tokens: tokens[:len(tokens)/size*size]}
	for i := range len(tokens) / size {
		e.Hashes = append(e.Hashes, first+uint64(i))
	}
	return e
}

func removed(hashes ...uint64) Event { return Event{Kind: BlockRemoved, Medium: "GPU", Hashes: hashes} }

func after(parent uint64, e Event) Event {
	e.HasParent, e.Parent = true, parent
	return e
}

// count returns n tokens from first on.
func count(first, n uint32) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = first + uint32(i)
	}
	return out
}

func TestF04_AdaptersHaveTheirOwnRoots(t *testing.T) {
	r := newRig(t)
	a := r.instance()
	prompt := count(0, 48)
	with := func(first uint64, adapter string) Event {
		e := stored(16, first, prompt)
		e.LoRAName = adapter
		if adapter != "" {
			e.ExtraKeys = [][]ExtraKey{{{Text: adapter}}, {{Text: adapter}}, {{Text: adapter}}}
		}
		return e
	}
	ns := func(adapter string) blockkey.Namespace { return blockkey.Namespace{Adapter: adapter, BlockSize: 16} }
	r.apply(a, with(100, "one"))
	r.want(a, ns(""), prompt, 0)
	r.want(a, ns("one"), prompt, 3)
	r.want(a, ns("two"), prompt, 0)
	r.apply(a, with(200, ""), with(300, "two"), removed(102))
	r.want(a, ns(""), prompt, 3)
	r.want(a, ns("one"), prompt, 2)
	r.want(a, ns("two"), prompt, 3)

	// A number alone says nothing: it is given anew in each process.
	b := r.instance()
	numbered := stored(16, 1, prompt)
	numbered.HasLoRAID, numbered.LoRAID = true, 1
	r.apply(b, numbered)
	for _, adapter := range []string{"", "one", "1"} {
		r.want(b, ns(adapter), prompt, 0)
	}
	// Its blocks are known all the same, so that what follows them is no gap.
	if sum := r.apply(b, after(3, stored(16, 4, count(48, 16)))); sum.unknownParents != 0 {
		t.Errorf("%d unknown parents behind an adapter without a name", sum.unknownParents)
	}
}

func TestF05_SaltsHaveTheirOwnRoots(t *testing.T) {
	r := newRig(t)
	a := r.instance()
	prompt := count(0, 48)
	with := func(first uint64, adapter string, extra ...[]ExtraKey) Event {
		e := stored(16, first, prompt)
		e.LoRAName, e.ExtraKeys = adapter, extra
		return e
	}
	text := func(s ...string) (keys []ExtraKey) {
		for _, x := range s {
			keys = append(keys, ExtraKey{Text: x})
		}
		return keys
	}
	ns := func(adapter, salt string) blockkey.Namespace {
		return blockkey.Namespace{Adapter: adapter, Salt: salt, BlockSize: 16}
	}
	r.apply(a, with(10, "", text("s1"), nil, nil))
	r.want(a, ns("", "s1"), prompt, 3)
	r.want(a, ns("", ""), prompt, 0)
	r.want(a, ns("", "s2"), prompt, 0)
	r.apply(a, with(20, "", nil, nil, nil))
	r.want(a, ns("", ""), prompt, 3)
	r.want(a, ns("", "s2"), prompt, 0)
	// With an adapter, its name comes first in every block.
	r.apply(a, with(30, "lora", text("lora", "s2"), text("lora"), text("lora")))
	r.want(a, ns("lora", "s2"), prompt, 3)
	r.want(a, ns("lora", ""), prompt, 0)
	r.want(a, ns("", "s2"), prompt, 0)
	// A salt that looks like the adapter's name.
	r.apply(a, with(40, "", text("lora"), nil, nil))
	r.want(a, ns("", "lora"), prompt, 3)
	r.want(a, ns("lora", ""), prompt, 0)
}

// An image stands as the same tokens whatever it shows.
func TestBlocksWithAnImageMatchNoText(t *testing.T) {
	r := newRig(t)
	a := r.instance()
	prompt := count(0, 64)
	image := func(id string) []ExtraKey { return []ExtraKey{{Raw: append(appendText([]byte{0x92}, id), 5)}} }
	first := stored(16, 1, prompt)
	first.ExtraKeys = [][]ExtraKey{nil, image("cat"), nil, nil}
	other := stored(16, 11, prompt)
	other.ExtraKeys = [][]ExtraKey{nil, image("dog"), nil, nil}
	r.apply(a, first, other)
	r.want(a, blockkey.Namespace{BlockSize: 16}, prompt, 1)
	cat, _ := r.index.Lookup(radix.Source{Instance: a.instance}, 4)
	dog, _ := r.index.Lookup(radix.Source{Instance: a.instance}, 14)
	if cat == dog {
		t.Error("two images share a key")
	}
	// In the first block, beside a salt.
	both := stored(16, 21, prompt)
	both.ExtraKeys = [][]ExtraKey{append(image("cat"), ExtraKey{Text: "s"}), nil, nil, nil}
	r.apply(a, both)
	r.want(a, blockkey.Namespace{Salt: "s", BlockSize: 16}, prompt, 0)
}

func TestA11_RemovingTheUnknownLeavesNothing(t *testing.T) {
	r := newRig(t)
	a := r.instance()
	prompt := count(0, 160)
	r.apply(a, stored(16, 1, prompt))
	unknown := 0
	for _, h := range []uint64{5, 6, 7, 8, 9, 10, 6, 99, 1, 2, 3, 4} {
		unknown += r.apply(a, removed(h)).unknownRemoved
	}
	if unknown != 2 {
		t.Errorf("%d unknown removes, want 2", unknown)
	}
	r.want(a, blockkey.Namespace{BlockSize: 16}, prompt, 0)
	for h := range uint64(12) {
		if _, ok := r.index.Lookup(radix.Source{Instance: a.instance}, h); ok {
			t.Errorf("hash %d is still known", h)
		}
	}
}

func TestA14_HoleEndsTheMatch(t *testing.T) {
	r := newRig(t)
	a, b := r.instance(), r.instance()
	prompt := count(0, 80)
	ns := blockkey.Namespace{BlockSize: 16}
	r.apply(a, stored(16, 1, prompt), removed(3))
	r.apply(b, stored(16, 1, prompt[:48]))
	r.want(a, ns, prompt, 2)
	r.want(b, ns, prompt, 3)
	// The inner block returns, and those behind it count again.
	r.apply(a, after(2, stored(16, 3, prompt[32:48])))
	r.want(a, ns, prompt, 5)
	// A part of a larger block is nothing.
	c := r.instance()
	r.apply(c, stored(64, 1, prompt[:64]))
	different := append(append([]uint32{}, prompt[:48]...), count(900, 32)...)
	r.want(c, blockkey.Namespace{BlockSize: 64}, different, 0)
	r.want(c, blockkey.Namespace{BlockSize: 64}, prompt, 1)
	r.want(c, ns, prompt, 0)
}

func TestE06_ClearEmptiesTheRank(t *testing.T) {
	r := newRig(t)
	a := r.instance()
	prompt := count(0, 48)
	r.apply(a, stored(16, 1, prompt))
	r.apply(a, Event{Kind: AllBlocksCleared}, stored(16, 7, prompt[:16]))
	r.want(a, blockkey.Namespace{BlockSize: 16}, prompt, 1)
}

// E07: a clear drops all tiers; repeated clears are counted.
func TestE07_ClearOfEveryTier(t *testing.T) {
	r := newRig(t)
	a := r.instance()
	prompt := count(0, 48)
	cpu := stored(16, 1, prompt)
	cpu.Medium = "CPU"
	sum := r.apply(a, stored(16, 1, prompt[:16]), cpu)
	r.want(a, blockkey.Namespace{BlockSize: 16}, prompt, 1) // what lies on the CPU is not credited
	if sum.refused[otherTier] != 1 {
		t.Errorf("%d events of another tier, want 1", sum.refused[otherTier])
	}
	gone := removed(1)
	gone.Medium = "CPU"
	r.apply(a, gone)
	r.want(a, blockkey.Namespace{BlockSize: 16}, prompt, 1) // nor is its removal ours
	cleared := 0
	for range 100 {
		cleared += r.apply(a, Event{Kind: AllBlocksCleared}).cleared
	}
	r.want(a, blockkey.Namespace{BlockSize: 16}, prompt, 0)
	if cleared != 100 {
		t.Errorf("%d clears counted, want 100", cleared)
	}
}

func TestE10_HashesMeanSomethingInOneWorkerOnly(t *testing.T) {
	r := newRig(t)
	a, b := r.instance(), r.instance()
	prompt := count(0, 48)
	ns := blockkey.Namespace{BlockSize: 16}
	r.apply(a, stored(16, 1, prompt))
	r.apply(b, stored(16, 70, prompt), stored(16, 1, count(500, 48)))
	keyA, _ := r.index.Lookup(radix.Source{Instance: a.instance}, 3)
	keyB, _ := r.index.Lookup(radix.Source{Instance: b.instance}, 72)
	if keyA != keyB {
		t.Error("the same tokens have two keys")
	}
	r.apply(a, removed(3))
	r.want(a, ns, prompt, 2)
	r.want(b, ns, prompt, 3)
}

func TestE11_RanksHaveTheirOwnBlocks(t *testing.T) {
	r := newRig(t)
	zero := r.instance()
	one := &applier{index: r.index, instance: zero.instance, model: "m", rank: 1}
	prompt, other := count(0, 48), count(500, 48)
	ns := blockkey.Namespace{BlockSize: 16}
	r.apply(zero, stored(16, 1, prompt))
	r.apply(one, stored(16, 1, prompt), stored(16, 5, other))
	r.apply(one, removed(1, 2, 3))
	r.want(zero, ns, prompt, 3) // rank 0 still has them
	one.clear()                 // rank 1 starts again
	r.want(zero, ns, prompt, 3)
	r.want(zero, ns, other, 0)
}

func TestE19_RefusedEventsLeaveTheTreeAsItWas(t *testing.T) {
	r := newRig(t)
	a := r.instance()
	prompt := count(0, 48)
	zero := stored(16, 1, prompt)
	zero.BlockSize = 0
	short := stored(16, 1, prompt)
	short.Tokens = short.Tokens[:40]
	sum := r.apply(a, zero, short)
	if !sum.incompatible() || sum.refused[noBlockSize] != 1 || sum.refused[badLength] != 1 || sum.stored != 0 {
		t.Errorf("refused %v, stored %d", sum.refused, sum.stored)
	}
	// Another worker with another size is as good as any.
	b := r.instance()
	r.apply(a, stored(16, 1, prompt))
	r.apply(b, stored(32, 1, prompt))
	r.want(a, blockkey.Namespace{BlockSize: 16}, prompt, 3)
	r.want(b, blockkey.Namespace{BlockSize: 32}, prompt, 1)
}
