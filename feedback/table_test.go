package feedback

import (
	"cmp"
	"encoding/binary"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// naive is the simplest thing that a worker's events can mean: for each block
// the worker's hash, the whole path of tokens that it ends, and its copies.
type naive map[blockID]naiveBlock

type naiveBlock struct {
	path   string // tokens from the prompt's beginning, with what separates namespaces
	copies int
}

// apply follows events that a worker may send. Which groups to follow is the
// caller's to say: it knows its fixture.
func (n naive) apply(b Batch, groups func(int) bool) {
	for _, e := range b.Events {
		switch {
		case e.Kind == AllBlocksCleared:
			clear(n)
		case !groups(e.Group) || e.Medium != "GPU" && e.Medium != "":
		case e.Kind == BlockRemoved:
			for _, h := range e.Hashes {
				id := blockID{e.Group, h}
				x := n[id]
				if x.copies--; x.copies <= 0 {
					delete(n, id)
				} else {
					n[id] = x
				}
			}
		case e.Kind == BlockStored:
			path := e.LoRAName + "|"
			if e.HasParent {
				parent, ok := n[blockID{e.Group, e.Parent}]
				if !ok {
					continue
				}
				path = parent.path
			}
			for i, h := range e.Hashes {
				if extra := e.extra(i); extra != nil {
					path += canonical(extra)
				}
				for _, tok := range e.Tokens[i*e.BlockSize : (i+1)*e.BlockSize] {
					path = string(binary.BigEndian.AppendUint32([]byte(path), tok))
				}
				id := blockID{e.Group, h}
				n[id] = naiveBlock{path, n[id].copies + 1}
			}
		}
	}
}

// held is what the table says, in the naive form.
func (t *table) held() naive {
	n := naive{}
	var walk func(b *block, path string)
	walk = func(b *block, path string) {
		for c := b.firstChild; c != nil; c = c.next {
			p := path
			if b == &t.root {
				p = c.event.LoRAName + "|"
			}
			if extra := c.event.extra(c.at); extra != nil {
				p += canonical(extra)
			}
			for _, tok := range c.event.Tokens[c.at*c.event.BlockSize : (c.at+1)*c.event.BlockSize] {
				p = string(binary.BigEndian.AppendUint32([]byte(p), tok))
			}
			if c.copies > 0 {
				n[c.id] = naiveBlock{p, c.copies}
			}
			walk(c, p)
		}
	}
	walk(&t.root, "")
	return n
}

// reload sends a table's snapshot over the wire into an empty table.
func reload(tb testing.TB, t *table) *table {
	tb.Helper()
	var again table
	for _, events := range split(t.snapshot(), 2000) {
		b, err := Decode(Encode(Batch{Events: events}))
		if err != nil {
			tb.Fatal(err)
		}
		again.apply(b)
	}
	return &again
}

func TestSnapshotIsTheState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tab, model := &table{}, naive{}
		next := uint64(0)
		all := func(int) bool { return true }
		do := func(e Event) {
			b := Batch{Events: []Event{e}}
			tab.apply(b)
			model.apply(b, all)
		}
		live := func() []blockID {
			ids := slices.Collect(maps.Keys(model))
			slices.SortFunc(ids, func(a, b blockID) int { return int(a.hash) - int(b.hash) })
			return ids
		}
		do(Event{Kind: BlockStored, BlockSize: 2, GroupKind: "full_attention", Hashes: []uint64{}, Tokens: []uint32{}})
		rt.Repeat(map[string]func(*rapid.T){
			"store": func(rt *rapid.T) {
				e := Event{Kind: BlockStored, BlockSize: 2, Medium: "GPU"}
				if ids := live(); len(ids) > 0 && rapid.IntRange(0, 3).Draw(rt, "root") > 0 {
					e.HasParent, e.Parent = true, rapid.SampledFrom(ids).Draw(rt, "parent").hash
				} else if rapid.Bool().Draw(rt, "adapter") {
					e.LoRAName = "a"
				}
				for range rapid.IntRange(1, 5).Draw(rt, "blocks") {
					next++
					e.Hashes = append(e.Hashes, next)
					e.Tokens = append(e.Tokens, uint32(next), rapid.Uint32().Draw(rt, "token"))
				}
				if rapid.Bool().Draw(rt, "extra") {
					e.ExtraKeys = make([][]ExtraKey, len(e.Hashes))
					e.ExtraKeys[0] = []ExtraKey{{Text: "salt"}}
				}
				do(e)
				for range rapid.IntRange(0, 2).Draw(rt, "more copies") {
					do(e)
				}
			},
			"remove": func(rt *rapid.T) {
				if ids := live(); len(ids) > 0 {
					for range rapid.IntRange(1, 3).Draw(rt, "blocks") {
						do(Event{Kind: BlockRemoved, Hashes: []uint64{rapid.SampledFrom(ids).Draw(rt, "hash").hash}})
					}
				}
			},
			"clear": func(rt *rapid.T) {
				if rapid.IntRange(0, 9).Draw(rt, "really") == 0 {
					do(Event{Kind: AllBlocksCleared})
				}
			},
			"": func(rt *rapid.T) {
				if got := tab.held(); !maps.Equal(got, model) {
					rt.Fatalf("table:\n%v\nmodel:\n%v", got, model)
				}
				if got := reload(t, tab).held(); !maps.Equal(got, model) {
					rt.Fatalf("after a snapshot:\n%v\nmodel:\n%v", got, model)
				}
			},
		})
		// A11: removing all, in any order and too often, leaves nothing.
		for len(model) > 0 {
			for _, id := range live() {
				do(Event{Kind: BlockRemoved, Hashes: []uint64{id.hash, id.hash, next + 1}})
			}
		}
		if len(tab.blocks) != 0 || tab.root.firstChild != nil {
			rt.Fatalf("%d blocks stay in an emptied table", len(tab.blocks))
		}
	})
}

// TestSnapshotOfARealWorker: after each batch that a real worker sent, the
// table is what the naive model says, and so is what a snapshot makes.
func TestSnapshotOfARealWorker(t *testing.T) {
	for _, file := range captures(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			tab, model := &table{}, naive{}
			last := -1
			for n, l := range capture(t, file) {
				if l.Kind != "frames" {
					continue
				}
				if int(l.Seq) < last { // the worker was killed and started again
					tab, model = &table{}, naive{}
				}
				last = int(l.Seq)
				b, err := Decode(l.FramesB64[2])
				if err != nil {
					t.Fatal(err)
				}
				tab.apply(b)
				model.apply(b, fullGroup(file))
				if n%5 > 0 {
					continue
				}
				if got := tab.held(); !maps.Equal(got, model) {
					t.Fatalf("seq %d: the table holds %d blocks, the model %d", l.Seq, len(got), len(model))
				}
				if n%40 == 0 {
					if got := reload(t, tab).held(); !maps.Equal(got, model) {
						t.Fatalf("seq %d: a snapshot holds %d blocks, the model %d", l.Seq, len(got), len(model))
					}
				}
			}
			if len(model) == 0 {
				t.Fatal("the capture ends with an empty cache: nothing was compared")
			}
			t.Logf("%d blocks at the end", len(model))
		})
	}
}

// fullGroup says which groups of a capture are of full attention.
func fullGroup(file string) func(int) bool {
	if filepath.Base(file) == "vllm-0.32.0_bs32_hybrid_sliding_window.jsonl.gz" {
		return func(g int) bool { return g == 1 }
	}
	return func(g int) bool { return g == 0 }
}

func TestE21_OnlyFullAttentionCounts(t *testing.T) {
	full := Event{Kind: BlockStored, Hashes: []uint64{1}, Tokens: []uint32{1, 2}, BlockSize: 2, Group: 1, GroupKind: "full_attention"}
	with := func(change func(*Event)) *Event {
		e := full
		change(&e)
		return &e
	}
	rows := []struct {
		name string
		e    *Event
		want verdict
	}{
		{"removal before any store", &Event{Kind: BlockRemoved, Group: 1}, otherGroup},
		{"full attention", &full, use},
		{"its removal, which names no kind", &Event{Kind: BlockRemoved, Group: 1}, use},
		{"sliding window", with(func(e *Event) { e.Group, e.GroupKind = 0, "sliding_window" }), otherGroup},
		{"its removal", &Event{Kind: BlockRemoved}, otherGroup},
		{"mla", with(func(e *Event) { e.Group, e.GroupKind = 2, "mla_attention" }), use},
		{"sink", with(func(e *Event) { e.Group, e.GroupKind = 3, "sink_full_attention" }), use},
		{"mamba, shorter than its tokens", with(func(e *Event) { e.Group, e.GroupKind, e.Hashes = 4, "mamba", nil }), otherGroup},
		{"a kind from the future", with(func(e *Event) { e.Group, e.GroupKind = 5, "holographic" }), otherGroup},
		{"no kind: an older worker", with(func(e *Event) { e.Group, e.GroupKind = 6, "" }), use},
		{"no kind in a group known to slide", with(func(e *Event) { e.Group, e.GroupKind = 0, "" }), otherGroup},
		{"another tier", with(func(e *Event) { e.Medium = "CPU" }), otherTier},
		{"its removal", &Event{Kind: BlockRemoved, Group: 1, Medium: "STORAGE"}, otherTier},
	}
	var f filter
	for _, row := range rows {
		if got := f.check(row.e); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
}

func TestE19_BlockSizesThatCantBeAreRefused(t *testing.T) {
	stored := func(hashes, tokens, size int) *Event {
		return &Event{Kind: BlockStored, Hashes: make([]uint64, hashes), Tokens: make([]uint32, tokens), BlockSize: size}
	}
	rows := []struct {
		name string
		e    *Event
		want verdict
	}{
		{"0, null or missing", stored(1, 16, 0), noBlockSize},
		{"fewer tokens than hashes need", stored(2, 16, 16), badLength},
		{"no tokens", stored(1, 0, 16), badLength},
		{"more tokens", stored(1, 32, 16), badLength},
		{"a part of a block", stored(1, 17, 16), badLength},
		{"16", stored(2, 32, 16), use},
		{"32 in the same group", stored(1, 32, 32), badBlockSize},
		{"16 again", stored(1, 16, 16), use},
	}
	var f filter
	for _, row := range rows {
		if got := f.check(row.e); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
	f.reset()
	if got := f.check(stored(1, 32, 32)); got != use {
		t.Errorf("another process with blocks of 32: %s", got)
	}
}

func TestSplitKeepsEveryEventWithinTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := make([]Event, rapid.IntRange(0, 30).Draw(t, "events"))
		for i := range events {
			events[i] = Event{Kind: BlockStored, Hashes: []uint64{uint64(i)}, Tokens: make([]uint32, rapid.IntRange(0, 300).Draw(t, "tokens"))}
			for j := range events[i].Tokens {
				events[i].Tokens[j] = ^uint32(0)
			}
		}
		var all []Event
		chunks := split(events, 1000)
		for _, c := range chunks {
			if n := len(Encode(Batch{Events: c})); n > 1000 && len(c) > 1 {
				t.Fatalf("%d events in a chunk of %d bytes", len(c), n)
			}
			all = append(all, c...)
		}
		if len(chunks) == 0 || len(all) != len(events) || len(events) > 0 && !reflect.DeepEqual(all, events) {
			t.Fatalf("%d chunks hold %d of %d events", len(chunks), len(all), len(events))
		}
	})
}

func slicesSortIDs(ids []blockID) {
	slices.SortFunc(ids, func(a, b blockID) int { return cmp.Compare(a.hash, b.hash) })
}

// tokensOf is the tokens of a naive block's path without adapter or salt.
func tokensOf(path string) []uint32 {
	_, path, _ = strings.Cut(path, "|")
	tokens := make([]uint32, len(path)/4)
	for i := range tokens {
		tokens[i] = binary.BigEndian.Uint32([]byte(path[4*i:]))
	}
	return tokens
}
