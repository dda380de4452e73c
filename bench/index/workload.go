package main

import (
	"github.com/warmroute/warmroute/internal/blockkey"
	"github.com/warmroute/warmroute/radix"
)

// The workload: what the published trees of other routers were measured with.
const (
	instances    = 128
	blockSize    = 16
	prefixes     = 256
	prefixBlocks = 400
	suffixBlocks = 100
	requests     = 12288
	hotChains    = 8
	hotBlocks    = 500
	queries      = 2000
	churns       = 2048
)

func splitmix(x uint64) uint64 {
	z := x + 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

func tokens(stream uint64, blocks int) []blockkey.Token {
	base := splitmix(stream)
	out := make([]blockkey.Token, blocks*blockSize)
	for j := range out {
		out[j] = blockkey.Token(splitmix(base+uint64(j)) % 50000)
	}
	return out
}

// request tells the prefix of stored request i and the instance that holds it.
func request(i int) (prefix, instance int) {
	p, r := i%prefixes, i/prefixes%4
	return p, (37*p + 32*r) % instances
}

// blocks is a run of blocks with the worker's names for them.
type blocks struct {
	keys   []radix.Key
	hashes []radix.Hash
}

func newRun(parent radix.Key, stream uint64, n int) blocks {
	keys := blockkey.Append(nil, parent, tokens(stream, n), blockSize)
	hashes := make([]radix.Hash, len(keys))
	for i, k := range keys {
		hashes[i] = splitmix(k) // opaque to the tree, like a worker's
	}
	return blocks{keys, hashes}
}

// event copies r, as a decoder would make it.
func (r blocks) event() blocks {
	return blocks{append([]radix.Key(nil), r.keys...), append([]radix.Hash(nil), r.hashes...)}
}

// workload has everything that is computed before the clock starts.
type workload struct {
	prefix   []blocks
	suffix   []blocks // by request
	hot      []blocks
	fresh    []blocks // by churn
	question map[string][][]radix.Key
}

func newWorkload() *workload {
	root := blockkey.Root(blockkey.Namespace{Model: "bench", BlockSize: blockSize})
	w := &workload{question: map[string][][]radix.Key{}}
	for p := range prefixes {
		w.prefix = append(w.prefix, newRun(root, uint64(1_000_000+p), prefixBlocks))
	}
	after := func(p int, stream uint64) blocks {
		return newRun(w.prefix[p].keys[prefixBlocks-1], stream, suffixBlocks)
	}
	for i := range requests {
		p, _ := request(i)
		w.suffix = append(w.suffix, after(p, uint64(2_000_000+i)))
	}
	for i := range churns {
		p, _ := request(i)
		w.fresh = append(w.fresh, after(p, uint64(6_000_000+i)))
	}
	for h := range hotChains {
		w.hot = append(w.hot, newRun(root, uint64(5_000_000+h), hotBlocks))
	}
	join := func(a, b blocks) []radix.Key { return append(append([]radix.Key(nil), a.keys...), b.keys...) }
	for q := range uint64(queries) {
		p := int(splitmix(q) % prefixes)
		i := int(splitmix(q+7) % requests)
		own, _ := request(i)
		w.ask("shared", join(w.prefix[p], after(p, 3_000_000+q)))
		w.ask("full", join(w.prefix[own], w.suffix[i]))
		w.ask("miss", newRun(root, 4_000_000+q, 500).keys)
		w.ask("hot128", w.hot[q%hotChains].keys)
	}
	return w
}

func (w *workload) ask(kind string, keys []radix.Key) {
	w.question[kind] = append(w.question[kind], keys)
}
