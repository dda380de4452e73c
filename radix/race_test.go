package radix

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// raceLog is what one instance's writer did: for each state, how much of each
// prompt it holds. State k is true from some moment between started = k and
// done = k on. A reader may be told what was true between its beginning and its
// end: of states done-before-it … started-before-its-end, never more than the best.
type raceLog struct {
	started, done atomic.Int64
	states        [][]Match // by state, by prompt; written before started says so
}

func (l *raceLog) best(prompt int, from, to int64) (m Match) {
	for k := from; k <= to; k++ {
		m.Blocks = max(m.Blocks, l.states[k][prompt].Blocks)
		m.Confirmed = max(m.Confirmed, l.states[k][prompt].Confirmed)
	}
	return m
}

// over reports whether a reader was told more than was true. Where blocks are
// given up, the model has some as confirmed that the index predicts anew: then
// only confirmed blocks can be compared.
func (m Match) over(want Match, pruned bool) bool {
	return m.Confirmed > want.Confirmed || m.Blocks > want.Blocks && !pruned
}

// racer drives one instance and its share of the model.
type racer struct {
	x       *Index
	m       *model
	i       Instance
	rnd     *rand.Rand
	prompts [][]Key
	log     *raceLog
	given   []given
	now     time.Time
}

func (r *racer) snapshot() []Match {
	out := make([]Match, len(r.prompts))
	for p, keys := range r.prompts {
		out[p] = r.m.match(keys)[r.i]
	}
	return out
}

// do notes the state that op on the model leads to, then applies op to the index.
func (r *racer) do(onModel, onIndex func()) {
	onModel()
	k := r.log.started.Load() + 1
	r.log.states[k] = r.snapshot()
	r.log.started.Store(k)
	onIndex()
	r.log.done.Store(k)
}

func (r *racer) step() {
	keys := r.prompts[r.rnd.IntN(len(r.prompts))]
	keys = keys[:1+r.rnd.IntN(len(keys))]
	s := Source{Instance: r.i, Rank: uint16(r.rnd.IntN(2))}
	hs := make([]Hash, len(keys))
	for i, k := range keys {
		hs[i] = splitmix(k + uint64(s.Rank)<<8 + uint64(r.i))
	}
	switch op := r.rnd.IntN(15); op {
	case 0, 1, 2, 3:
		r.do(func() { r.m.store(s, keys, hs) }, func() { _ = r.x.StoreRoot(s, keys, hs) })
	case 4, 5, 6, 7: // a piece from the middle, forwards or backwards
		cut := hs[r.rnd.IntN(len(hs)):]
		if op&1 == 0 {
			slices.Reverse(cut)
		}
		r.do(func() { r.m.remove(s, cut) }, func() { r.x.Remove(s, cut) })
	case 8, 9:
		var g given
		r.do(func() { g.model = r.m.predict(r.i, keys, r.now) }, func() { g.real = r.x.Predict(r.i, keys, r.now) })
		r.given = append(r.given, g)
	case 10:
		if len(r.given) > 0 {
			g := r.given[r.rnd.IntN(len(r.given))]
			r.do(func() { r.m.withdraw(r.i, g.model) }, func() { r.x.Withdraw(g.real) })
		}
	case 11:
		if r.rnd.IntN(4) == 0 {
			r.do(func() { r.m.clear(r.i) }, func() { r.x.Clear(r.i) })
		}
	case 12, 13, 14: // what follows a block that it holds, though its beginning may be gone
		if len(keys) < 2 {
			return
		}
		at := 1 + r.rnd.IntN(len(keys)-1)
		if _, ok := r.m.source(s).blocks[hs[at-1]]; ok {
			r.do(func() { r.m.store(s, keys[at:], hs[at:]) }, func() { _ = r.x.Store(s, hs[at-1], keys[at:], hs[at:]) })
		}
	}
}

// known are the names of a prompt's blocks on one source.
func (r *racer) known(prompt int, s Source) (keys []Key, hs []Hash) {
	keys = r.prompts[prompt]
	for _, k := range keys {
		hs = append(hs, splitmix(k+uint64(s.Rank)<<8+uint64(r.i)))
	}
	return keys, hs
}

// begin lets a source hold the first n blocks of a prompt and nothing else.
func (r *racer) begin(prompt, n int, s Source) {
	keys, hs := r.known(prompt, s)
	r.do(func() { r.m.clear(r.i) }, func() { r.x.Clear(r.i) })
	r.do(func() { r.m.store(s, keys[:n], hs[:n]) }, func() { _ = r.x.StoreRoot(s, keys[:n], hs[:n]) })
}

// trick does what would fool a reader that mixes moments: blocks at the
// beginning go, and only then come those at the end; a prompt's end goes, and
// another's takes its place in the node.
func (r *racer) trick(prompt, n int, s Source) {
	keys, hs := r.known(prompt, s)
	switch r.rnd.IntN(6) {
	case 0:
		a := r.rnd.IntN(n - 1)
		gone := hs[a : a+1+r.rnd.IntN(n-1-a)]
		r.do(func() { r.m.remove(s, gone) }, func() { r.x.Remove(s, gone) })
	case 1:
		if _, ok := r.m.source(s).blocks[hs[n-1]]; ok && n < len(keys) {
			r.do(func() { r.m.store(s, keys[n:], hs[n:]) }, func() { _ = r.x.Store(s, hs[n-1], keys[n:], hs[n:]) })
		}
	case 2:
		gone := hs[r.rnd.IntN(n):]
		r.do(func() { r.m.remove(s, gone) }, func() { r.x.Remove(s, gone) })
	case 3:
		keys, hs := r.known(r.rnd.IntN(len(r.prompts)), s)
		r.do(func() { r.m.store(s, keys, hs) }, func() { _ = r.x.StoreRoot(s, keys, hs) })
	case 4:
		var g given
		r.do(func() { g.model = r.m.predict(r.i, keys[:n], r.now) }, func() { g.real = r.x.Predict(r.i, keys[:n], r.now) })
		r.given = append(r.given, g)
	case 5:
		if k := len(r.given); k > 0 {
			g := r.given[k-1]
			r.do(func() { r.m.withdraw(r.i, g.model) }, func() { r.x.Withdraw(g.real) })
		}
	}
}

func racePrompts(w *world) [][]Key {
	var prompts [][]Key
	for _, digits := range [][]int{
		{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		{0, 0, 0, 0, 1, 1, 1, 1, 1, 1},
		{0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2},
		{0, 0, 3, 3, 3, 3, 3, 3},
		{4, 4, 4, 4, 4, 4, 4},
	} {
		prompts = append(prompts, w.chain(0, digits))
	}
	return prompts
}

// TestA13_J04_ReadersAreNeverToldMoreThanWasTrue also stands for the crash of
// concurrent maps: it is meant for the race detector.
func TestA13_J04_ReadersAreNeverToldMoreThanWasTrue(t *testing.T) {
	t.Run("all is kept", func(t *testing.T) { race(t, 0) })
	t.Run("blocks are given up", func(t *testing.T) { race(t, 12<<10) })
}

func race(t *testing.T, budget int64) {
	t.Helper()
	const writers, readers = 3, 2
	steps := 4000
	if testing.Short() {
		steps = 500
	}
	o := Options{DefaultCapacity: 1000, MaxBytes: budget}
	x := New(o)
	prompts := racePrompts(newWorld())
	var racers [writers]*racer
	for i := range racers {
		w := newWorld() // each writer its own: the model is not concurrent
		r := &racer{x: x, m: newModel(o, w), i: x.AddInstance(), rnd: rand.New(rand.NewPCG(uint64(i), 7)), prompts: racePrompts(w), log: &raceLog{}, now: at(0)}
		r.m.add(r.i)
		r.log.states = make([][]Match, steps+1)
		r.log.states[0] = r.snapshot()
		racers[i] = r
	}
	var stop atomic.Bool
	var writing, reading sync.WaitGroup
	fault := make(chan error, readers)
	for k := range readers {
		reading.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(k), 99))
			var got []Match
			for !stop.Load() {
				p := rnd.IntN(len(prompts))
				var from [writers]int64
				for i, r := range racers {
					from[i] = r.log.done.Load()
				}
				got = x.Match(got[:0], prompts[p])
				for _, m := range got {
					l := racers[m.Instance].log
					want := l.best(p, from[m.Instance], l.started.Load())
					if m.over(want, budget > 0) {
						fault <- fmt.Errorf("prompt %d: told %+v, never more than %+v", p, m, want)
						return
					}
				}
			}
		})
	}
	for _, r := range racers {
		writing.Go(func() {
			for r.log.started.Load() < int64(steps) {
				r.step()
			}
		})
	}
	writing.Wait()
	stop.Store(true)
	reading.Wait()
	close(fault)
	for err := range fault {
		t.Error(err)
	}
	// Quiet again: exact, and whole.
	for p, keys := range prompts {
		if budget > 0 {
			break // the model keeps all
		}
		got := map[Instance]Match{}
		for _, m := range x.Match(nil, keys) {
			got[m.Instance] = m
		}
		want := map[Instance]Match{}
		for _, r := range racers {
			maps.Copy(want, r.m.match(r.prompts[p]))
		}
		if !maps.Equal(got, want) {
			t.Errorf("prompt %d: got %v, want %v", p, got, want)
		}
	}
	for x.sweep(100) {
	}
	if err := x.check(); err != nil {
		t.Error(err)
	}
	if pruned := x.Stats().Pruned; pruned > 0 != (budget > 0) {
		t.Errorf("%d entries were given up", pruned)
	}
}

// TestA13_ARemovedInstanceIsNeverNamedAgain: instances come and go while readers look.
func TestA13_ARemovedInstanceIsNeverNamedAgain(t *testing.T) {
	x := New(Options{})
	keys := newWorld().chain(0, make([]int, 40))
	var lowest atomic.Uint32 // all below are removed
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !stop.Load() {
				gone := Instance(lowest.Load())
				for _, m := range x.Match(nil, keys) {
					if m.Instance < gone {
						t.Errorf("instance %d is named, all below %d were removed", m.Instance, gone)
						return
					}
				}
			}
		})
	}
	for range 500 {
		i := x.AddInstance()
		if err := x.StoreRoot(Source{Instance: i}, keys, keys); err != nil {
			t.Fatal(err)
		}
		x.RemoveInstance(i)
		lowest.Store(uint32(i) + 1)
		x.sweep(7)
	}
	stop.Store(true)
	wg.Wait()
	x.Expire(at(0))
	if st := x.Stats(); st.Nodes != 0 || st.Instances != 0 {
		t.Errorf("left: %+v", st)
	}
}
