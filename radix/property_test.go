package radix

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// history drives an index and the model with the same operations and compares
// them after each. Its choices come from draw, so that rapid and the fuzzer can
// both make them.
type history struct {
	x     *Index
	m     *model
	w     *world
	insts []Instance // alive
	now   time.Time
	given []given
	draw  func(label string, most int) int // 0…most
}

type given struct {
	i     Instance
	real  Ticket
	model *modelTicket
}

func newHistory(draw func(string, int) int) *history {
	o := Options{PredictionTTL: 30 * time.Second, DefaultCapacity: 12}
	h := &history{x: New(o), w: newWorld(), now: time.Unix(1000, 0), draw: draw}
	h.m = newModel(o, h.w)
	for range 3 {
		h.addInstance()
	}
	return h
}

func (h *history) addInstance() {
	i := h.x.AddInstance()
	h.m.add(i)
	h.insts = append(h.insts, i)
}

func (h *history) instance() Instance { return h.insts[h.draw("instance", len(h.insts)-1)] }

func (h *history) anySource() Source {
	s := Source{Instance: h.instance()}
	// Mostly rank 0: that is where most of the life is.
	switch h.draw("source", 5) {
	case 4:
		s.Rank = 1
	case 5:
		s.Rank, s.Group = 1, 1
	}
	return s
}

// prompt draws a chain after parent. Digits are mostly 0, so prompts share
// beginnings and part at odd places.
func (h *history) prompt(parent Key) []Key {
	var digits []int
	for range h.draw("stretches", 3) + 1 {
		d := max(0, h.draw("digit", 5)-3)
		for range h.draw("len", 4) + 1 {
			digits = append(digits, d)
		}
	}
	return h.w.chain(parent, digits)
}

// hashes names keys as s would; now and then a block has a second name.
func (h *history) hashes(s Source, keys []Key) []Hash {
	salt := splitmix(uint64(s.Instance)<<32 | uint64(s.Rank)<<16 | uint64(s.Group))
	variant := uint64(max(0, h.draw("variant", 9)-8))
	hs := make([]Hash, len(keys))
	for i, k := range keys {
		hs[i] = k ^ salt + variant
	}
	return hs
}

// known returns the hashes that the model's source holds, in a fixed order.
func (h *history) known(s Source) []Hash {
	if src := h.m.insts[s.Instance].sources[s]; src != nil {
		return slices.Sorted(maps.Keys(src.blocks))
	}
	return nil
}

const historyOps = 15

// step does operation op and returns what is wrong afterwards.
func (h *history) step(op int) error {
	switch op {
	case 0, 1, 2:
		s := h.anySource()
		keys := h.prompt(0)
		hs := h.hashes(s, keys)
		if err := h.x.StoreRoot(s, keys, hs); err != nil {
			return err
		}
		h.m.store(s, keys, hs)
	case 3, 4:
		return h.storeAfter()
	case 5, 6, 7:
		return h.remove()
	case 8, 9:
		i, keys := h.instance(), h.prompt(0)
		t := h.x.Predict(i, keys, h.now)
		mt := h.m.predict(i, keys, h.now)
		if (t == Ticket{}) != (mt == nil) {
			return errors.New("one predicted something, the other nothing")
		}
		h.given = append(h.given, given{i, t, mt})
	case 10:
		if len(h.given) > 0 {
			g := h.given[h.draw("ticket", len(h.given)-1)]
			h.x.Withdraw(g.real)
			h.m.withdraw(g.i, g.model)
		}
	case 11:
		h.now = h.now.Add(time.Duration(h.draw("seconds", 20)) * time.Second)
		h.x.Expire(h.now)
		h.m.expire(h.now)
	case 12:
		i, n := h.instance(), h.draw("capacity", 20)+1
		h.x.SetCapacity(i, n)
		h.m.insts[i].capacity = n
		h.m.insts[i].fit()
	case 13:
		h.clearSome()
	case 14:
		h.x.sweep(h.draw("sweep", 10))
	}
	return nil
}

func (h *history) storeAfter() error {
	s := h.anySource()
	known := h.known(s)
	if len(known) == 0 {
		if err := h.x.Store(s, 1, []Key{1}, []Hash{2}); !errors.Is(err, ErrUnknownParent) {
			return errors.New("stored after an unknown parent")
		}
		return nil
	}
	parent := known[h.draw("parent", len(known)-1)]
	k, ok := h.x.Lookup(s, parent)
	if want := h.m.source(s).blocks[parent].key; !ok || k != want {
		return errors.New("Lookup of a block that is held fails")
	}
	keys := h.prompt(k)
	hs := h.hashes(s, keys)
	if err := h.x.Store(s, parent, keys, hs); err != nil {
		return err
	}
	h.m.store(s, keys, hs)
	return nil
}

func (h *history) remove() error {
	s := h.anySource()
	known := h.known(s)
	var gone []Hash
	switch h.draw("how", 2) {
	case 0: // anything, unknown ones and repeats too
		for range h.draw("count", 6) {
			if len(known) > 0 {
				gone = append(gone, known[h.draw("which", len(known)-1)])
			}
		}
		gone = append(gone, 0xdead)
	case 1: // a path, head first
		gone = h.hashes(s, h.prompt(0))
	case 2: // a path, tail first
		gone = h.hashes(s, h.prompt(0))
		slices.Reverse(gone)
	}
	if got, want := h.x.Remove(s, gone), h.m.remove(s, gone); got != want {
		return errors.New("unknown blocks counted wrong")
	}
	return nil
}

func (h *history) clearSome() {
	switch i := h.instance(); h.draw("clear", 2) {
	case 0:
		h.x.Clear(i)
		h.m.clear(i)
	case 1:
		r := uint16(h.draw("rank", 1))
		h.x.ClearRank(i, r)
		h.m.clearRank(i, r)
	case 2:
		h.x.RemoveInstance(i)
		delete(h.m.insts, i)
		h.insts = slices.DeleteFunc(h.insts, func(o Instance) bool { return o == i })
		h.addInstance()
	}
}

// compare matches a few prompts on both and checks the invariants.
func (h *history) compare() error {
	for range 3 {
		keys := h.prompt(0)
		got := map[Instance]Match{}
		for _, m := range h.x.Match(nil, keys) {
			if _, twice := got[m.Instance]; twice {
				return errors.New("an instance is named twice")
			}
			got[m.Instance] = m
		}
		if want := h.m.match(keys); !maps.Equal(got, want) {
			return mismatch{got, want}
		}
	}
	st := h.x.Stats()
	entries, predicted := 0, 0
	for _, in := range h.m.insts {
		predicted += in.predictedBlocks()
		for _, s := range in.sources {
			entries += len(s.blocks)
		}
	}
	if st.Entries != entries || st.Predicted != predicted {
		return errors.New("Stats counts entries or predictions wrong")
	}
	return h.x.check()
}

type mismatch struct{ got, want map[Instance]Match }

func (m mismatch) Error() string { return fmt.Sprintf("matches: got %v, want %v", m.got, m.want) }

// end clears everything: nothing may be left.
func (h *history) end() error {
	for _, i := range h.insts {
		h.x.Clear(i)
	}
	h.x.Expire(h.now)
	if st := h.x.Stats(); st.Nodes != 0 || st.Entries != 0 || st.Blocks != 0 || st.Buried != 0 || h.x.tree.count.runs != 0 {
		return errors.New("something is left after all was cleared")
	}
	return h.x.check()
}

func TestHistoriesAgreeWithTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(func(label string, most int) int { return rapid.IntRange(0, most).Draw(t, label) })
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			op := rapid.IntRange(0, historyOps-1).Draw(t, "op")
			if err := h.step(op); err != nil {
				t.Fatalf("op %d: %v", op, err)
			}
			if err := h.compare(); err != nil {
				t.Fatalf("after op %d: %v\n%+v", op, err, err)
			}
		}
		if err := h.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzHistory lets the fuzzer choose: one byte for each choice.
func FuzzHistory(f *testing.F) {
	f.Add([]byte("store, predict, remove, and so on"))
	f.Add([]byte{0, 0, 0, 3, 0, 4, 1, 2, 5, 5, 0, 0, 8, 13, 0, 0, 9, 9, 9, 14})
	f.Fuzz(func(t *testing.T, choices []byte) {
		h := newHistory(func(_ string, most int) int {
			if len(choices) == 0 {
				return 0
			}
			c := int(choices[0]) % (most + 1)
			choices = choices[1:]
			return c
		})
		for steps := 0; len(choices) > 0 && steps < 200; steps++ {
			if err := h.step(h.draw("op", historyOps-1)); err != nil {
				t.Fatal(err)
			}
			if err := h.compare(); err != nil {
				t.Fatalf("%v\n%+v", err, err)
			}
		}
		if err := h.end(); err != nil {
			t.Fatal(err)
		}
	})
}
