package radix

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"testing"
)

func randomHistory(seed uint64, steps int, t testing.TB) *history {
	rnd := rand.New(rand.NewPCG(seed, 3))
	h := newHistory(func(_ string, most int) int { return rnd.IntN(most + 1) })
	for range steps {
		if err := h.step(h.draw("op", historyOps-1)); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func TestARestoredIndexAnswersAndRemovesLikeTheOldOne(t *testing.T) {
	for seed := range uint64(50) {
		h := randomHistory(seed, 60, t)
		for _, in := range h.m.insts {
			in.tickets = nil // predictions are not kept
		}
		var b bytes.Buffer
		if err := h.x.Snapshot(&b); err != nil {
			t.Fatal(err)
		}
		y := New(Options{})
		for range h.x.instances {
			y.AddInstance()
		}
		if err := y.Restore(&b, func(i Instance) (Instance, bool) { return i, true }); err != nil {
			t.Fatal(err)
		}
		if err := y.check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for range 20 {
			keys := h.prompt(0)
			got := map[Instance]Match{}
			for _, m := range y.Match(nil, keys) {
				got[m.Instance] = m
			}
			if want := h.m.match(keys); !maps.Equal(got, want) {
				t.Fatalf("seed %d: got %v, want %v", seed, got, want)
			}
		}
		for _, i := range h.insts { // copies came along: each must be removed as often
			for s, src := range h.m.insts[i].sources {
				for hash, b := range src.blocks {
					for range b.copies {
						if y.Remove(s, []Hash{hash}) != 0 {
							t.Fatalf("seed %d: a restored block is unknown", seed)
						}
					}
				}
			}
		}
		if st := y.Stats(); st.Entries != 0 || st.Nodes != 0 {
			t.Fatalf("seed %d: left after all was removed: %+v", seed, st)
		}
	}
}

// FuzzRestore: whatever comes, the index stays whole.
func FuzzRestore(f *testing.F) {
	var b bytes.Buffer
	if err := randomHistory(1, 40, f).x.Snapshot(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:b.Len()/2])
	f.Fuzz(func(t *testing.T, data []byte) {
		x := New(Options{})
		i := x.AddInstance()
		_ = x.Restore(bytes.NewReader(data), func(Instance) (Instance, bool) { return i, true })
		x.Match(nil, []Key{1, 2, 3})
		x.Clear(i)
		x.Expire(at(0))
	})
}

// Prompts that part all along a long one: what leads to them is written once.
func TestASnapshotGrowsWithWhatIsHeld(t *testing.T) {
	x := New(Options{})
	s := Source{Instance: x.AddInstance()}
	long := seq(1<<20, 4000)
	mustStore(t, x, s, long)
	for n := 10; n < len(long); n += 10 {
		branch := seq(n*100, 2)
		if err := x.Store(s, long[n-1], branch, branch); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := x.Snapshot(&b); err != nil {
		t.Fatal(err)
	}
	st := x.Stats()
	if words := b.Len() / 8; words > 5*st.Entries+4*st.Nodes+10 {
		t.Errorf("%d words for %d blocks in %d nodes", words, st.Entries, st.Nodes)
	}
	y := New(Options{})
	y.AddInstance()
	if err := y.Restore(&b, func(i Instance) (Instance, bool) { return i, true }); err != nil {
		t.Fatal(err)
	}
	if got := y.Stats(); got.Entries != st.Entries || got.Nodes != st.Nodes || matchOf(y, s.Instance, long).Blocks != len(long) {
		t.Errorf("restored %+v of %+v", got, st)
	}
}
