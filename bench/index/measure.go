package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/warmroute/warmroute/internal/blockkey"
	"github.com/warmroute/warmroute/radix"
)

// figures are one run's measurements by column.
type figures map[string]float64

// columns, in the order of the report. Those of the peers have the same names.
func columns() []string {
	return []string{
		"store_blocks_per_s", "bytes_per_entry", "heap_bytes_per_entry",
		"storehot_blocks_per_s",
		"shared_per_s", "shared_p50_us", "shared_p99_us",
		"full_per_s", "full_p50_us", "full_p99_us",
		"miss_per_s", "miss_p50_us", "miss_p99_us",
		"hot128_per_s", "hot128_p50_us", "hot128_p99_us",
		"churn_blocks_per_s", "hash8k_us",
	}
}

// smallerIsBetter tells times and bytes from rates.
func smallerIsBetter(column string) bool {
	return strings.HasSuffix(column, "_us") || strings.Contains(column, "bytes_per_entry")
}

// tree is an index with the workload's instances.
type tree struct {
	x   *radix.Index
	src [instances]radix.Source
}

func newTree() *tree {
	t := &tree{x: radix.New(radix.Options{})}
	for i := range t.src {
		t.src[i].Instance = t.x.AddInstance()
	}
	return t
}

func must(err error) {
	if err != nil {
		panic(err) // the workload is fixed: an error is a fault of the tree
	}
}

// store applies the workload's events and returns how many blocks they stored.
func (t *tree) store(w *workload, only func(instance int) bool) int {
	var seen [prefixes][instances]bool
	blocks := 0
	for i := range requests {
		p, in := request(i)
		if !only(in) {
			continue
		}
		if !seen[p][in] {
			seen[p][in] = true
			e := w.prefix[p].event()
			must(t.x.StoreRoot(t.src[in], e.keys, e.hashes))
			blocks += prefixBlocks
		}
		e := w.suffix[i].event()
		must(t.x.Store(t.src[in], w.prefix[p].hashes[prefixBlocks-1], e.keys, e.hashes))
		blocks += suffixBlocks
	}
	return blocks
}

func all(int) bool { return true }

func measure(w *workload, repeats int) figures {
	f := figures{}
	// Once for the time, in a process that has just prepared its hashes, like the
	// peers' one; and again, from clean memory, for the bytes.
	t := newTree()
	start := time.Now()
	blocks := t.store(w, all)
	f["store_blocks_per_s"] = float64(blocks) / time.Since(start).Seconds()
	t = nil
	debug.FreeOSMemory()
	rss0, heap0 := rss(), heap()
	t = newTree()
	t.store(w, all)
	heap1 := heap()
	debug.FreeOSMemory()
	f["heap_bytes_per_entry"] = float64(heap1-heap0) / float64(blocks)
	f["bytes_per_entry"] = float64(rss()-rss0) / float64(blocks)

	start = time.Now()
	for _, h := range w.hot {
		for in := range instances {
			e := h.event()
			must(t.x.StoreRoot(t.src[in], e.keys, e.hashes))
		}
	}
	f["storehot_blocks_per_s"] = hotChains * instances * hotBlocks / time.Since(start).Seconds()

	runtime.GC()
	t.find(f, w, "shared", repeats, 4, 400)
	t.find(f, w, "full", repeats, 4, 500)
	t.find(f, w, "miss", repeats, 0, 0)
	t.find(f, w, "hot128", repeats, instances, 500)

	start = time.Now()
	churned := t.churn(w)
	f["churn_blocks_per_s"] = float64(churned) / time.Since(start).Seconds()

	prompt := tokens(9_000_000, 500)
	var keys []radix.Key
	const times = 2000
	start = time.Now()
	for range times {
		keys = blockkey.Append(keys[:0], 1, prompt, blockSize)
	}
	f["hash8k_us"] = time.Since(start).Seconds() / times * 1e6
	runtime.KeepAlive(t)
	return f
}

// churn replaces suffixes by fresh ones and returns how many blocks went and came.
func (t *tree) churn(w *workload) int { return t.replace(w, w.suffix, w.fresh) }

// churnBack undoes churn.
func (t *tree) churnBack(w *workload) int { return t.replace(w, w.fresh, w.suffix) }

func (t *tree) replace(w *workload, old, fresh []blocks) int {
	for i := range churns {
		p, in := request(i)
		gone := append([]radix.Hash(nil), old[i].hashes...)
		if t.x.Remove(t.src[in], gone) != 0 {
			panic("a stored block is unknown")
		}
		e := fresh[i].event()
		must(t.x.Store(t.src[in], w.prefix[p].hashes[prefixBlocks-1], e.keys, e.hashes))
	}
	return 2 * churns * suffixBlocks
}

// find asks every question repeats times and checks each answer. Each call gets
// a fresh copy of its keys, made before the clock starts; the rate includes
// reading the clock twice a call, as for the peers.
func (t *tree) find(f figures, w *workload, kind string, repeats, holders, best int) {
	var lat []float64
	fastest := 0.0
	dst := make([]radix.Match, 0, instances)
	for range repeats {
		qs := make([][]radix.Key, queries)
		for i, q := range w.question[kind] {
			qs[i] = slices.Clone(q)
		}
		start := time.Now()
		for _, q := range qs {
			a := time.Now()
			dst = t.x.Match(dst[:0], q)
			lat = append(lat, float64(time.Since(a).Nanoseconds())/1e3)
			top := 0
			for _, m := range dst {
				top = max(top, m.Blocks)
			}
			if len(dst) != holders || top != best {
				panic(fmt.Sprintf("%s: %d instances, best %d", kind, len(dst), top))
			}
		}
		fastest = max(fastest, queries/time.Since(start).Seconds())
	}
	slices.Sort(lat)
	f[kind+"_per_s"] = fastest
	f[kind+"_p50_us"] = lat[len(lat)/2]
	f[kind+"_p99_us"] = lat[len(lat)*99/100]
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// rss is the process's resident memory in bytes; 0 where the kernel does not say.
func rss() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
