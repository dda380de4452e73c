package radix

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// checkTable holds a table against what it should have, and its notes on each
// bucket against its slots.
func checkTable(t interface{ Fatalf(string, ...any) }, tb *table, want map[Hash]place) {
	if tb.used != len(want) {
		t.Fatalf("%d entries, want %d", tb.used, len(want))
	}
	for h, at := range want {
		i, ok := tb.find(h)
		if !ok || tb.slots[i] != (entry{h, at}) {
			t.Fatalf("hash %x: found %v, want %v", h, ok, at)
		}
	}
	passed := make([]int, len(tb.meta))
	for b, m := range tb.meta {
		for j, e := range tb.bucket(b) {
			if used := e.at.run != 0; used != (j < m.used()) {
				t.Fatalf("bucket %d: slot %d is used: %v, but the count is %d", b, j, used, m.used())
			}
			if e.at.run == 0 {
				continue
			}
			for c := tb.home(e.hash); c != b; c = tb.after(c) {
				passed[c]++
			}
		}
	}
	for b, m := range tb.meta {
		if n := m.passed(); n < manyPassed && int(n) != passed[b] {
			t.Fatalf("bucket %d: %d have passed it, but the count is %d", b, passed[b], n)
		}
		if n := m.passed(); n > 0 && n < manyPassed && m.used() < bucketSize {
			t.Fatalf("bucket %d: %d have passed it, and it has room", b, n)
		}
	}
}

func TestTableIsAMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// Few hashes, or many: also such that all have one home, more of them than
		// a bucket counts.
		spread := rapid.SampledFrom([]Hash{1, 3, 1 << 20, 1 << 63}).Draw(t, "spread")
		hashes := rapid.Custom(func(t *rapid.T) Hash { return spread * Hash(rapid.IntRange(0, 300).Draw(t, "h")) })
		if rapid.Bool().Draw(t, "one home") {
			// The inverse of home's factor turns small steps into one home.
			inverse := Hash(0x9E3779B97F4A7C15)
			for range 6 {
				inverse *= 2 - 0x9E3779B97F4A7C15*inverse
			}
			hashes = rapid.Custom(func(t *rapid.T) Hash { return inverse * Hash(rapid.IntRange(0, 60).Draw(t, "h")) })
		}
		var tb table
		want := map[Hash]place{}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			batch := rapid.SliceOfN(hashes, 1, 30).Draw(t, "batch")
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0, 1:
				tb.reserve(len(batch))
				for _, h := range batch {
					i, fresh := tb.claim(h)
					if _, known := want[h]; fresh == known {
						t.Fatalf("claim of %x: fresh %v, known %v", h, fresh, known)
					}
					if fresh {
						want[h] = place{uint32(len(want) + 1), uint32(h)}
						tb.slots[i].at = want[h]
					}
				}
			case 2:
				for _, h := range batch {
					i, ok := tb.find(h)
					if _, known := want[h]; ok != known {
						t.Fatalf("find of %x: %v, known %v", h, ok, known)
					}
					if ok {
						tb.deleteAt(i)
						delete(want, h)
					}
				}
				tb.shrink()
			case 3:
				// In order, as a prune goes through it: none may be missed.
				for i := range tb.slots {
					for tb.slots[i].at.run%2 == 1 {
						delete(want, tb.slots[i].hash)
						tb.deleteAt(i)
					}
				}
				for h, at := range want {
					if at.run%2 == 1 {
						t.Fatalf("going through it missed %x", h)
					}
				}
			}
			checkTable(t, &tb, want)
		}
	})
}

// looks is how many buckets a search for a hash that the table lacks looks at,
// on average.
func (t *table) looks(r *rand.Rand) float64 {
	const n = 20_000
	total := 0
	for range n {
		for b := t.home(r.Uint64()); ; b = t.after(b) {
			total++
			if t.meta[b].passed() == 0 {
				break
			}
		}
	}
	return float64(total) / n
}

// A table that is as full as it gets, and whose entries have been replaced many
// times, is as good as one that was just built.
func TestTableStaysFresh(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	var tb table
	const size = 30_000
	tb.rebuild(size * 100 / maxLoad)
	hashes := make([]Hash, size)
	fill := func(i int) {
		hashes[i] = r.Uint64()
		k, _ := tb.claim(hashes[i])
		tb.slots[k].at.run = 1
	}
	for i := range hashes {
		fill(i)
	}
	built := tb.looks(r)
	for range 20 * size {
		i := r.IntN(size)
		k, _ := tb.find(hashes[i])
		tb.deleteAt(k)
		fill(i)
	}
	if aged := tb.looks(r); aged > 1.1*built {
		t.Errorf("a search for nothing looks at %.2f buckets after many replacements, %.2f before", aged, built)
	}
}
