package radix

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func seq(from, n int) []Key {
	keys := make([]Key, n)
	for i := range keys {
		keys[i] = splitmix(uint64(from + i))
	}
	return keys
}

func mustStore(t testing.TB, x *Index, s Source, keys []Key) {
	t.Helper()
	if err := x.StoreRoot(s, keys, keys); err != nil {
		t.Fatal(err)
	}
}

func TestA11_RemovingUnknownBlocksLeavesNothingBehind(t *testing.T) {
	x := New(Options{})
	s := Source{Instance: x.AddInstance()}
	h := seq(0, 10)
	mustStore(t, x, s, h)
	unknown := x.Remove(s, h[4:5]) + x.Remove(s, h[5:]) + x.Remove(s, h[5:6]) + x.Remove(s, []Hash{99}) + x.Remove(s, h[:4])
	if unknown != 2 {
		t.Errorf("unknown removals: %d, want 2", unknown)
	}
	if st := x.Stats(); st.Entries != 0 || st.Nodes != 0 || st.Blocks != 0 {
		t.Errorf("left: %+v", st)
	}
	if err := x.check(); err != nil {
		t.Error(err)
	}
}

func TestA14_HoleEndsTheMatch(t *testing.T) {
	x := New(Options{})
	a, b := Source{Instance: x.AddInstance()}, Source{Instance: x.AddInstance()}
	keys := seq(0, 5)
	mustStore(t, x, a, keys)
	x.Remove(a, keys[2:3])
	mustStore(t, x, b, keys[:3])
	if got := matchOf(x, a.Instance, keys); got.Blocks != 2 {
		t.Errorf("with a hole after two: %+v", got)
	}
	if got := matchOf(x, b.Instance, keys); got.Blocks != 3 {
		t.Errorf("three of five: %+v", got)
	}
	if err := x.Store(a, keys[1], keys[2:3], keys[2:3]); err != nil {
		t.Fatal(err)
	}
	if got := matchOf(x, a.Instance, keys); got.Blocks != 5 {
		t.Errorf("after the hole is filled: %+v", got)
	}
}

// TestF13_BlockSizesShareOneTree: keys are rooted by block size, so a prompt's
// keys for one size find only workers of that size.
func TestF13_BlockSizesShareOneTree(t *testing.T) {
	x := New(Options{})
	w := newWorld()
	chains := map[int][]Key{}
	for _, size := range []int{16, 32, 64} {
		chains[size] = w.chain(w.key(0, uint64(size)), make([]int, 1024/size))
		mustStore(t, x, Source{Instance: x.AddInstance()}, chains[size])
	}
	i := Instance(0)
	for _, size := range []int{16, 32, 64} {
		got := x.Match(nil, chains[size])
		if want := []Match{{i, 1024 / size, 1024 / size}}; !slices.Equal(got, want) {
			t.Errorf("size %d: got %v, want %v", size, got, want)
		}
		i++
	}
}

func TestNamespacesNeverMix(t *testing.T) {
	x := New(Options{})
	w := newWorld()
	a, b := x.AddInstance(), x.AddInstance()
	mustStore(t, x, Source{Instance: a}, w.chain(w.key(0, 100), make([]int, 9)))
	mustStore(t, x, Source{Instance: b}, w.chain(w.key(0, 200), make([]int, 9)))
	if got := x.Match(nil, w.chain(w.key(0, 100), make([]int, 9))); len(got) != 1 || got[0].Instance != a {
		t.Errorf("got %v, want instance %d alone", got, a)
	}
}

// TestJ01_J02_AMatchCompletesWhileWritersAreBlocked: with every lock of the
// writers held, a reader still answers.
func TestJ01_J02_AMatchCompletesWhileWritersAreBlocked(t *testing.T) {
	x := New(Options{})
	s := Source{Instance: x.AddInstance()}
	mustStore(t, x, s, seq(0, 100))
	x.gate.Lock()
	x.instancesMu.Lock()
	x.treeMu.Lock()
	got := x.Match(nil, seq(0, 100)) // would never return if it took one of them
	x.treeMu.Unlock()
	x.instancesMu.Unlock()
	x.gate.Unlock()
	if len(got) != 1 || got[0].Blocks != 100 {
		t.Errorf("got %v", got)
	}
}

var longChurn = flag.Int("churn", 1_000_000, "blocks that TestJ08 stores and removes")

// TestJ08_MemoryIsFlatUnderChurn; the long form: go test ./radix -run J08 -churn 50000000 -timeout 1h.
func TestJ08_MemoryIsFlatUnderChurn(t *testing.T) {
	x := New(Options{})
	s := Source{Instance: x.AddInstance()}
	const run, resident = 100, 500 // blocks a run; runs held at a time
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	early := max(200_000, *longChurn/50)
	var first, last int64
	var firstStats Stats
	for n := 0; n*run < *longChurn; n++ {
		mustStore(t, x, s, seq(n*run, run))
		if n >= resident {
			if x.Remove(s, seq((n-resident)*run, run)) != 0 {
				t.Fatal("a held block is unknown")
			}
		}
		if n*run == early {
			first, firstStats = heap(), x.Stats()
		}
	}
	last = heap()
	st := x.Stats()
	t.Logf("after %d blocks: %d B of heap, after %d: %d B", early, first, *longChurn, last)
	if last > first+first/20+64<<10 {
		t.Errorf("heap grew from %d to %d B", first, last)
	}
	if st.Nodes != firstStats.Nodes || st.Entries != firstStats.Entries || st.Bytes > firstStats.Bytes+firstStats.Bytes/20 {
		t.Errorf("stats grew from %+v to %+v", firstStats, st)
	}
	if err := x.check(); err != nil {
		t.Error(err)
	}
}

func TestJ09_AMillionTokensAreOneNode(t *testing.T) {
	x := New(Options{})
	s := Source{Instance: x.AddInstance()}
	keys := seq(0, 1_000_000/16)
	mustStore(t, x, s, keys)
	if st := x.Stats(); st.Nodes != 1 {
		t.Errorf("%d nodes, want 1", st.Nodes)
	}
	if got := matchOf(x, s.Instance, keys); got.Blocks != len(keys) {
		t.Errorf("got %+v", got)
	}
	x.Remove(s, keys)
	if st := x.Stats(); st.Nodes != 0 || st.Blocks != 0 {
		t.Errorf("left: %+v", st)
	}
}

// TestNoHolderIsHidden: 10,000 instances hold one prompt, and all are named.
func TestNoHolderIsHidden(t *testing.T) {
	const n = 10_000
	x := New(Options{})
	keys := seq(0, 20)
	for range n {
		mustStore(t, x, Source{Instance: x.AddInstance()}, keys)
	}
	if got := x.Match(nil, keys); len(got) != n {
		t.Errorf("%d instances named, want %d", len(got), n)
	}
}

func TestRunsMergeWhenNothingPartsThem(t *testing.T) {
	x := New(Options{})
	w := newWorld()
	s := Source{Instance: x.AddInstance()}
	a := w.chain(0, []int{0, 0, 0, 0, 1, 1})
	b := w.chain(0, []int{0, 0, 0, 0, 2, 2})
	mustStore(t, x, s, a)
	if err := x.Store(s, b[3], b[4:], b[4:]); err != nil {
		t.Fatal(err)
	}
	if n := x.Stats().Nodes; n != 3 {
		t.Fatalf("%d nodes where two prompts part, want 3", n)
	}
	x.Remove(s, a[4:]) // what is left is of two runs
	if n := x.Stats().Nodes; n != 1 {
		t.Errorf("%d nodes of one prompt, want 1", n)
	}
	if got := matchOf(x, s.Instance, b).Blocks; got != 6 {
		t.Errorf("%d blocks, want 6", got)
	}
	if err := x.check(); err != nil {
		t.Error(err)
	}
}

func TestPruningKeepsTheBudgetAndWhatWasHit(t *testing.T) {
	const budget = 400 << 10
	x := New(Options{MaxBytes: budget})
	s := Source{Instance: x.AddInstance()}
	hot := seq(1<<30, 100)
	mustStore(t, x, s, hot)
	for n := range 400 {
		if got := matchOf(x, s.Instance, hot).Blocks; got != 100 {
			t.Fatalf("run %d: %d blocks of the prompt that is always asked for", n, got)
		}
		mustStore(t, x, s, seq(n*100, 100))
		if b := x.Stats().Bytes; b > budget+8<<10 {
			t.Fatalf("run %d: %d B, budget %d", n, b, budget)
		}
	}
	st := x.Stats()
	if st.Pruned == 0 || int(st.Pruned)+st.Entries != 100+400*100 {
		t.Errorf("%d pruned and %d left of %d", st.Pruned, st.Entries, 100+400*100)
	}
	if got := matchOf(x, s.Instance, seq(0, 100)).Blocks; got != 0 {
		t.Errorf("the oldest, never hit, is still held: %d blocks", got)
	}
	if got := x.Remove(s, seq(0, 100)); got != 100 {
		t.Errorf("%d of 100 pruned blocks are unknown", got)
	}
	if err := x.check(); err != nil {
		t.Error(err)
	}
}

func TestOfALongPromptTheEndIsGivenUpFirst(t *testing.T) {
	const budget = 400 << 10
	x := New(Options{MaxBytes: budget})
	s := Source{Instance: x.AddInstance()}
	long := seq(0, 1000)
	mustStore(t, x, s, long)
	for n := 1; x.Stats().Pruned == 0; n++ {
		more := seq(1000*n, 1000)
		if err := x.Store(s, long[len(long)-1], more, more); err != nil {
			t.Fatal(err)
		}
		long = append(long, more...)
	}
	if got := matchOf(x, s.Instance, long).Blocks; got < len(long)/2 || got == len(long) {
		t.Errorf("%d blocks of %d are left, want most of the beginning", got, len(long))
	}
	if st := x.Stats(); int(st.Pruned)+st.Entries != len(long) || st.Bytes > budget {
		t.Errorf("%d pruned and %d left of %d, in %d B", st.Pruned, st.Entries, len(long), st.Bytes)
	}
	if err := x.check(); err != nil {
		t.Error(err)
	}
}

func TestMatchAllocatesNothing(t *testing.T) {
	if underRace {
		t.Skip("sync.Pool drops things at random under the race detector")
	}
	x := New(Options{})
	keys := seq(0, 500)
	for range 64 {
		mustStore(t, x, Source{Instance: x.AddInstance()}, keys)
	}
	dst := make([]Match, 0, 64)
	if n := testing.AllocsPerRun(200, func() { dst = x.Match(dst[:0], keys) }); n > 0.5 {
		t.Errorf("%.1f allocations a match", n)
	}
}

// TestJ04_PruningAndRanksWhileReading is for the race detector.
func TestJ04_PruningAndRanksWhileReading(t *testing.T) {
	x := New(Options{MaxBytes: 128 << 10, PredictionTTL: time.Second})
	var insts []Instance
	for range 3 {
		insts = append(insts, x.AddInstance())
	}
	var stop atomic.Bool
	var readers, writers sync.WaitGroup
	readers.Go(func() {
		for n := 0; !stop.Load(); n++ {
			x.Match(nil, seq(n%50*100, 80))
			_ = x.Stats()
		}
	})
	for _, i := range insts {
		writers.Go(func() {
			for n := range 300 {
				s := Source{Instance: i, Rank: uint16(n % 2)}
				keys := seq(n%50*100, 80)
				_ = x.StoreRoot(s, keys, keys)
				tk := x.Predict(i, keys, at(n))
				switch n % 7 {
				case 0:
					x.Withdraw(tk)
				case 1:
					x.Remove(s, keys[40:])
				case 2:
					x.ClearRank(i, 1)
				case 3:
					x.Expire(at(n))
				}
			}
		})
	}
	writers.Wait()
	stop.Store(true)
	readers.Wait()
	for x.sweep(1000) {
	}
	if err := x.check(); err != nil {
		t.Error(err)
	}
}

func ExampleIndex_Match() {
	x := New(Options{})
	s := Source{Instance: x.AddInstance()}
	_ = x.StoreRoot(s, []Key{1, 2, 3}, []Hash{11, 12, 13})
	x.Predict(s.Instance, []Key{1, 2, 3, 4}, time.Unix(0, 0))
	fmt.Printf("%+v\n", x.Match(nil, []Key{1, 2, 3, 4, 5}))
	// Output: [{Instance:0 Blocks:4 Confirmed:3}]
}
