package radix

import "testing"

// fork has two prompts of eight blocks that part after four; a holds the first
// half, b the prompt p.
func fork(t *testing.T) (x *Index, a, b Source, p, q []Key) {
	t.Helper()
	w := newWorld()
	p, q = w.chain(0, []int{0, 0, 0, 0, 1, 1, 1, 1}), w.chain(0, []int{0, 0, 0, 0, 2, 2, 2, 2})
	x = New(Options{})
	a, b = Source{Instance: x.AddInstance()}, Source{Instance: x.AddInstance()}
	for _, s := range []struct {
		at   Source
		keys []Key
	}{{b, p}, {a, p[:4]}} {
		if err := x.StoreRoot(s.at, s.keys, s.keys); err != nil {
			t.Fatal(err)
		}
	}
	return x, a, b, p, q
}

func (x *Index) blocksOf(s Source, keys []Key) int {
	for _, m := range x.Match(nil, keys) {
		if m.Instance == s.Instance {
			return m.Blocks
		}
	}
	return 0
}

// A ticket's blocks were confirmed and evicted; another request then predicted
// them anew. The first request's failure takes nothing of that.
func TestAnEndedTicketTakesNothingOfALaterOne(t *testing.T) {
	x, a, _, p, _ := fork(t)
	first := x.Predict(a.Instance, p, at(0))
	if err := x.Store(a, p[3], p[4:], p[4:]); err != nil {
		t.Fatal(err)
	}
	x.Remove(a, p[4:])
	x.Predict(a.Instance, p, at(0))
	x.Withdraw(first)
	if n := x.blocksOf(a, p); n != 8 {
		t.Errorf("of the second prediction %d blocks are left, want 8", n)
	}
	if err := x.check(); err != nil {
		t.Error(err)
	}
}

// A ticket names blocks by their place in a run. They are gone, and others now
// stand in that place, which an older ticket predicted.
func TestAnEndedTicketTakesNothingOfBlocksInItsPlace(t *testing.T) {
	x, a, b, p, q := fork(t)
	x.Predict(a.Instance, q, at(0))
	later := x.Predict(a.Instance, p, at(0))
	if err := x.Store(a, p[3], p[4:], p[4:]); err != nil {
		t.Fatal(err)
	}
	x.Remove(a, p[4:])
	x.Remove(b, p) // the end of p leaves the tree, and q's joins the beginning
	if st := x.Stats(); st.Nodes != 1 {
		t.Fatalf("%d nodes: the test shows nothing", st.Nodes)
	}
	x.Withdraw(later)
	if n := x.blocksOf(a, q); n != 8 {
		t.Errorf("of the other prompt's prediction %d blocks are left, want 8", n)
	}
	if err := x.check(); err != nil {
		t.Error(err)
	}
}
