package blockkey

import (
	"testing"

	"pgregory.net/rapid"
)

func tokens(t *rapid.T, label string) []Token {
	return rapid.SliceOfN(rapid.Uint32Range(0, 128255), 0, 200).Draw(t, label)
}

func TestKeysAgreeExactlyOnTheCommonBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{1, 3, 16, 32}).Draw(t, "size")
		common := tokens(t, "common")
		a := append(append([]Token{}, common...), tokens(t, "a")...)
		b := append(append([]Token{}, common...), tokens(t, "b")...)
		shared := 0
		for shared < min(len(a), len(b)) && a[shared] == b[shared] {
			shared++
		}
		root := Root(Namespace{Model: "m", BlockSize: size})
		ka, kb := Append(nil, root, a, size), Append(nil, root, b, size)
		if len(ka) != len(a)/size {
			t.Fatalf("%d tokens of block size %d: got %d keys, want %d", len(a), size, len(ka), len(a)/size)
		}
		for i := range min(len(ka), len(kb)) {
			if got, want := ka[i] == kb[i], i < shared/size; got != want {
				t.Fatalf("block %d equal = %v, want %v (%d tokens shared)", i, got, want, shared)
			}
		}
	})
}

func TestAppendContinuesAChain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Uint32(), 64, 64).Draw(t, "tokens")
		cut := rapid.IntRange(1, 3).Draw(t, "cut") * 16
		root := Root(Namespace{BlockSize: 16})
		whole := Append(nil, root, all, 16)
		parts := Append(nil, root, all[:cut], 16)
		parts = Append(parts, parts[len(parts)-1], all[cut:], 16)
		for i := range whole {
			if whole[i] != parts[i] {
				t.Fatalf("key %d differs after a cut at %d", i, cut)
			}
		}
	})
}

func TestNamespacesHaveTheirOwnRoots(t *testing.T) {
	spaces := []Namespace{
		{},
		{BlockSize: 16},
		{BlockSize: 16, Raw: true},
		{Model: "a", BlockSize: 16},
		{Adapter: "a", BlockSize: 16},
		{Salt: "a", BlockSize: 16},
		{Extra: "a", BlockSize: 16},
		{Model: "ab", Adapter: "c", BlockSize: 16},
		{Model: "a", Adapter: "bc", BlockSize: 16},
		{Model: "a", BlockSize: 32},
	}
	seen := map[Key]Namespace{}
	for _, ns := range spaces {
		k := Root(ns)
		if other, ok := seen[k]; ok {
			t.Errorf("%+v and %+v share a root", ns, other)
		}
		seen[k] = ns
	}
}

func TestSmallTokensDoNotCollide(t *testing.T) {
	// Blocks that differ in one token only, over a small vocabulary: where a
	// weak hash would show.
	seen := map[Key]bool{}
	root := Root(Namespace{BlockSize: 16})
	block := make([]Token, 16)
	for pos := range block {
		for v := range Token(2000) {
			block[pos] = v + 1
			k := Append(nil, root, block, 16)[0]
			if seen[k] {
				t.Fatalf("a collision at position %d, token %d", pos, v+1)
			}
			seen[k] = true
		}
		block[pos] = 0
	}
}

func TestWithIDSeparatesIDs(t *testing.T) {
	k := Key(42)
	if WithID(k, "") != k {
		t.Error("the empty id must leave the key as it is")
	}
	if WithID(k, "a") == WithID(k, "b") || WithID(k, "a") == k {
		t.Error("two ids share a key")
	}
}

func TestAppendBytes(t *testing.T) {
	root := Root(Namespace{BlockSize: 4, Raw: true})
	a := AppendBytes(nil, root, []byte("abcdefgh-x"), 4)
	b := AppendBytes(nil, root, []byte("abcdXfgh"), 4)
	if len(a) != 2 || len(b) != 2 || a[0] != b[0] || a[1] == b[1] {
		t.Errorf("got %x and %x: want the first of two keys equal", a, b)
	}
}

func BenchmarkAppend(b *testing.B) {
	toks := make([]Token, 8000)
	for i := range toks {
		toks[i] = Token(i * 7 % 128256)
	}
	keys := make([]Key, 0, 500)
	b.ReportAllocs()
	for b.Loop() {
		keys = Append(keys[:0], 1, toks, 16)
	}
}
