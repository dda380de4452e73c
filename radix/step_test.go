package radix

import (
	"iter"
	"math/rand/v2"
	"testing"
)

// TestA13_NoInterleavingCreditsMoreThanWasTrue stops a reader between any two
// of its loads and the writers before any of their stores, in orders drawn from
// a seed, all on one thread.
func TestA13_NoInterleavingCreditsMoreThanWasTrue(t *testing.T) {
	seeds := uint64(1500)
	if testing.Short() {
		seeds = 300
	}
	for seed := range seeds {
		if !interleave(t, seed) {
			t.Fatalf("seed %d", seed)
		}
	}
}

func interleave(t *testing.T, seed uint64) bool {
	t.Helper()
	const rounds, warm, most = 20, 12, 14
	rnd := rand.New(rand.NewPCG(seed, 5))
	o := Options{DefaultCapacity: 60}
	x := New(o)
	var racers []*racer
	for range 1 + rnd.IntN(3) {
		w := newWorld()
		r := &racer{x: x, m: newModel(o, w), i: x.AddInstance(), rnd: rnd, prompts: racePrompts(w), log: &raceLog{}, now: at(0)}
		r.m.add(r.i)
		r.log.states = make([][]Match, warm+rounds*(most+2)+1)
		r.log.states[0] = r.snapshot()
		racers = append(racers, r)
	}
	for range warm {
		racers[rnd.IntN(len(racers))].step()
	}
	if rnd.IntN(3) == 0 {
		x.o.MaxBytes = x.used() // from now on blocks are given up, too
	}
	prompts := racePrompts(newWorld())
	for range rounds {
		p := rnd.IntN(len(prompts))
		tricks := racers[rnd.IntN(len(racers))]
		s, n := Source{Instance: tricks.i, Rank: uint16(rnd.IntN(2))}, 2+rnd.IntN(len(prompts[p])-1)
		if rnd.IntN(2) == 0 {
			tricks.begin(p, n, s)
		}
		from := make([]int64, len(racers))
		for i, r := range racers {
			from[i] = r.log.done.Load()
		}
		var got []Match
		resume, stop := iter.Pull(func(yield func(struct{}) bool) {
			x.tree.readerStep = func() { yield(struct{}{}) }
			got = x.Match(nil, prompts[p])
		})
		reading, pace := true, []int{3, 9, 27}[rnd.IntN(3)] // stores for a load, about
		advance := func() {
			for reading && rnd.IntN(pace) == 0 {
				_, reading = resume()
			}
		}
		x.tree.writerStep = advance
		for range 1 + rnd.IntN(most) {
			advance()
			if rnd.IntN(4) > 0 {
				tricks.trick(p, n, s)
			} else {
				racers[rnd.IntN(len(racers))].step()
			}
		}
		x.tree.writerStep = nil
		for reading {
			_, reading = resume()
		}
		stop()
		x.tree.readerStep = nil
		for _, m := range got {
			l := racers[m.Instance].log
			want := l.best(p, from[m.Instance], l.started.Load())
			if m.over(want, x.o.MaxBytes > 0) {
				t.Errorf("prompt %d: told %+v, never more than %+v was true", p, m, want)
				return false
			}
		}
	}
	if err := x.check(); err != nil {
		t.Error(err)
		return false
	}
	return true
}

func FuzzInterleavings(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { interleave(t, seed) })
}

// moments are an index, a prompt, and what happens while it is matched.
type moments struct {
	x      *Index
	prompt []Key
	most   int // blocks that one instance ever held of the prompt's beginning
	then   [2]func()
}

// TestA13_NoPairOfMomentsIsMixed does two things at every pair of places of a
// match. Neither of the states before, between and after credits as much as the
// beginning of one with the end of the next.
func TestA13_NoPairOfMomentsIsMixed(t *testing.T) {
	w := newWorld()
	p := w.chain(0, []int{0, 0, 0, 0, 1, 1, 1, 1})
	other := w.chain(0, []int{0, 0, 0, 0, 2, 2})
	// a holds the first half of the prompt; b makes a parting there.
	begin := func() (*Index, Source) {
		x := New(Options{})
		a, b := Source{Instance: x.AddInstance()}, Source{Instance: x.AddInstance()}
		for _, keys := range [][]Key{p, other} {
			if err := x.StoreRoot(b, keys, keys); err != nil {
				t.Fatal(err)
			}
		}
		if err := x.StoreRoot(a, p[:4], p[:4]); err != nil {
			t.Fatal(err)
		}
		return x, a
	}
	tail := func(x *Index, s Source) func() {
		return func() {
			if err := x.Store(s, p[3], p[4:], p[4:]); err != nil {
				t.Error(err)
			}
		}
	}
	for name, start := range map[string]func() moments{
		"a beginning is evicted, an end stored": func() moments {
			x, a := begin()
			return moments{x, p, 4, [2]func(){func() { x.Remove(a, p[:2]) }, tail(x, a)}}
		},
		"a prediction is withdrawn, an end stored": func() moments {
			x, a := begin()
			x.Remove(a, p[:2])
			ticket := x.Predict(a.Instance, p[:4], at(0))
			return moments{x, p, 4, [2]func(){func() { x.Withdraw(ticket) }, tail(x, a)}}
		},
		"an eviction elsewhere, then both at once": func() moments {
			x, a := begin()
			if err := x.Store(a, p[3], other[4:], other[4:]); err != nil {
				t.Fatal(err)
			}
			end := tail(x, a)
			return moments{x, p, 4, [2]func(){func() { x.Remove(a, other[4:]) }, func() { x.Remove(a, p[:2]); end() }}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			first := 0
			for second, done := 0, false; !done; {
				m := start()
				got, over := m.match(first, second)
				for _, g := range got {
					if g.Instance == 0 && g.Blocks > m.most {
						t.Fatalf("at steps %d and %d: told %+v, never more than %d blocks was true", first, second, g, m.most)
					}
				}
				switch {
				case !over:
					second++
				case second == first:
					done = true
				default:
					first++
					second = first
				}
			}
			if first < 8 {
				t.Errorf("a match has %d steps only: the test shows little", first)
			}
		})
	}
}

// match stops at these two steps for what happens there; over says that it had
// ended before the second.
func (m *moments) match(first, second int) (got []Match, over bool) {
	resume, stop := iter.Pull(func(yield func(struct{}) bool) {
		m.x.tree.readerStep = func() { yield(struct{}{}) }
		got = m.x.Match(nil, m.prompt)
	})
	defer stop()
	reading := true
	over = true
	for n := 0; reading; n++ {
		if n == first {
			m.then[0]()
		}
		if n == second {
			m.then[1]()
			over = false
		}
		_, reading = resume()
	}
	return got, over
}
