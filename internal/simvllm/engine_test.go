package simvllm

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func newEngine(t testing.TB, cfg Config) *Engine {
	t.Helper()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// ids returns n tokens: from, from+1 and so on.
func ids(from, n int) []Token {
	out := make([]Token, n)
	for i := range out {
		out[i] = Token(from + i)
	}
	return out
}

// serve runs the engine until it has nothing to do.
func serve(e *Engine) (events []Event, last map[ID]Output) {
	last = map[ID]Output{}
	for _, ok := e.Begin(); ok; _, ok = e.Begin() {
		r := e.Finish()
		events = append(events, r.Events...)
		for _, o := range r.Outputs {
			last[o.ID] = o
		}
	}
	return events, last
}

func mustAdd(t testing.TB, e *Engine, r Request) ID {
	t.Helper()
	id, err := e.Add(r)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// ledger is the cache as a reader of the events knows it.
type ledger map[Hash]int

func (l ledger) apply(events []Event) error {
	for _, ev := range events {
		switch ev.Kind {
		case BlocksStored:
			if !ev.Root && l[ev.Parent] == 0 {
				return fmt.Errorf("stored after %x, which is not there", ev.Parent)
			}
			for _, h := range ev.Hashes {
				l[h]++
			}
		case BlockRemoved:
			for _, h := range ev.Hashes {
				if l[h]--; l[h] < 0 {
					return fmt.Errorf("removed %x, which is not there", h)
				}
				if l[h] == 0 {
					delete(l, h)
				}
			}
		case AllBlocksCleared:
			clear(l)
		}
	}
	return nil
}

// check compares the engine with its documented invariants and with what its
// events said.
func check(e *Engine, told ledger) error {
	now := maps.Clone(told)
	if err := now.apply(e.events); err != nil {
		return err
	}
	content := ledger{}
	for h, b := range e.pool.cached {
		for ; b != 0; b = e.pool.free.blocks[b].copies {
			content[h]++
		}
	}
	if !maps.Equal(now, content) {
		return fmt.Errorf("the events give %d hashes, the cache has %d", len(now), len(content))
	}
	refs := make([]int32, e.cfg.Blocks)
	for _, s := range e.running {
		for _, b := range s.blocks {
			refs[b]++
		}
		if want := blocksFor(s.computed+s.scheduled, e.cfg.BlockSize); len(s.blocks) != want {
			return fmt.Errorf("sequence %d has %d blocks, want %d", s.id, len(s.blocks), want)
		}
	}
	for _, s := range e.waiting {
		if len(s.blocks) > 0 {
			return fmt.Errorf("waiting sequence %d has blocks", s.id)
		}
	}
	free := 0
	for b, want := range refs {
		if got := e.pool.free.blocks[b].refs; got != want {
			return fmt.Errorf("block %d has %d references, %d sequences hold it", b, got, want)
		}
		if b > 0 && want == 0 {
			free++
		}
	}
	if listed := len(e.pool.free.order()); listed != free || e.pool.free.size != free {
		return fmt.Errorf("%d blocks are free, %d are listed", free, listed)
	}
	return nil
}

func drawRequest(t *rapid.T, capacity int) Request {
	n := rapid.IntRange(1, capacity).Draw(t, "prompt tokens")
	prompt := make([]Token, n)
	// Few different beginnings, so that much is shared.
	family := Token(rapid.IntRange(0, 2).Draw(t, "family"))
	for i := range prompt {
		prompt[i] = family
	}
	answer := make([]Token, rapid.IntRange(1, capacity-n+1).Draw(t, "answer tokens"))
	return Request{Prompt: prompt, Answer: answer, Scope: Scope{
		Adapter: rapid.SampledFrom([]string{"", "a"}).Draw(t, "adapter"),
		Salt:    rapid.SampledFrom([]string{"", "s"}).Draw(t, "salt"),
	}}
}

func TestEventsAndReferencesAlwaysTellTheCache(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, err := New(Config{
			BlockSize:        rapid.IntRange(1, 4).Draw(t, "block size"),
			Blocks:           rapid.IntRange(2, 12).Draw(t, "blocks"),
			MaxBatchedTokens: rapid.IntRange(1, 12).Draw(t, "batched tokens"),
			MaxSeqs:          rapid.IntRange(1, 4).Draw(t, "sequences"),
		})
		if err != nil {
			t.Fatal(err)
		}
		told := ledger{}
		want := map[ID]int{} // tokens still to come
		finish := func(t *rapid.T) {
			r := e.Finish()
			if err := told.apply(r.Events); err != nil {
				t.Fatal(err)
			}
			for _, o := range r.Outputs {
				if want[o.ID]--; (want[o.ID] == 0) != o.Done || want[o.ID] < 0 {
					t.Fatalf("request %d: %d tokens to come, done %v", o.ID, want[o.ID], o.Done)
				}
				if o.Done {
					delete(want, o.ID)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				r := drawRequest(t, e.cfg.Capacity())
				id, err := e.Add(r)
				if err != nil {
					t.Fatal(err)
				}
				want[id] = len(r.Answer)
			},
			"abort": func(t *rapid.T) {
				id := ID(rapid.Uint64Range(0, uint64(e.nextID)).Draw(t, "id"))
				_, here := want[id]
				if e.Abort(id) != here {
					t.Fatalf("request %d: aborted is not %v", id, here)
				}
				delete(want, id)
			},
			"clear": func(*rapid.T) { e.ClearCache() },
			"step": func(t *rapid.T) {
				if e.inStep {
					finish(t)
				} else if _, ok := e.Begin(); ok != (len(want) > 0) {
					t.Fatalf("a step began: %v, with %d requests", ok, len(want))
				}
			},
			"": func(t *rapid.T) {
				if err := check(e, told); err != nil {
					t.Fatal(err)
				}
			},
		})
		// Everything asked for comes in the end.
		if e.inStep {
			finish(t)
		}
		for _, ok := e.Begin(); ok; _, ok = e.Begin() {
			finish(t)
		}
		if len(want) > 0 {
			t.Fatalf("requests left without their tokens: %v", want)
		}
		if e.pool.used() != 0 {
			t.Fatalf("%d blocks in use at rest", e.pool.used())
		}
	})
}

// One request at a time, so that what must be cached follows from the events
// alone: the longest run of leading blocks that they leave, the last token
// excepted.
func TestCachedTokensAreWhatTheEventsPromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, err := New(Config{BlockSize: rapid.IntRange(1, 4).Draw(t, "block size"), Blocks: rapid.IntRange(2, 16).Draw(t, "blocks"), MaxBatchedTokens: 5, MaxSeqs: 2})
		if err != nil {
			t.Fatal(err)
		}
		told := ledger{}
		for range rapid.IntRange(1, 20).Draw(t, "requests") {
			r := drawRequest(t, e.cfg.Capacity())
			s := sequence{tokens: r.Prompt, root: e.root(r.Scope)}
			want := 0
			for _, h := range s.hashTo((len(r.Prompt)-1)/e.cfg.BlockSize, e.cfg.BlockSize) {
				if told[h] == 0 {
					break
				}
				want += e.cfg.BlockSize
			}
			id, err := e.Add(r)
			if err != nil {
				t.Fatal(err)
			}
			events, last := serve(e)
			if err := told.apply(events); err != nil {
				t.Fatal(err)
			}
			if got := last[id].Cached; got != want {
				t.Fatalf("%d tokens cached, want %d", got, want)
			}
		}
	})
}

func TestSameCallsGiveTheSameSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var requests []Request
		for range rapid.IntRange(1, 12).Draw(t, "requests") {
			requests = append(requests, drawRequest(t, 40))
		}
		run := func(seed uint64) (all []any) {
			e, err := New(Config{BlockSize: 4, Blocks: 14, MaxBatchedTokens: 16, MaxSeqs: 3, HashSeed: seed, Timing: H100Timing()})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range requests {
				if _, err := e.Add(r); err != nil {
					t.Fatal(err)
				}
			}
			for step, ok := e.Begin(); ok; step, ok = e.Begin() {
				r := e.Finish()
				step.Admitted = slices.Clone(step.Admitted)
				all = append(all, step, append([]Output(nil), r.Outputs...), r.Events)
			}
			return all
		}
		if !reflect.DeepEqual(run(1), run(1)) {
			t.Fatal("two runs differ")
		}
	})
}

func TestHashesOfTwoSeedsDiffer(t *testing.T) {
	var hashes []Hash
	for seed := range uint64(2) {
		e := newEngine(t, Config{BlockSize: 4, Blocks: 10, MaxBatchedTokens: 100, MaxSeqs: 1, HashSeed: seed})
		mustAdd(t, e, Request{Prompt: ids(0, 4), Answer: ids(0, 1)})
		events, _ := serve(e)
		hashes = append(hashes, events[0].Hashes[0])
	}
	if hashes[0] == hashes[1] {
		t.Errorf("both engines name the block %x", hashes[0])
	}
}

func TestPromptOfExactlyKCachedBlocksFindsOneLess(t *testing.T) {
	e := newEngine(t, Config{BlockSize: 4, Blocks: 10, MaxBatchedTokens: 100, MaxSeqs: 1})
	for _, tt := range []struct{ tokens, want int }{{12, 0}, {12, 8}, {13, 12}, {11, 8}, {4, 0}, {5, 4}} {
		id := mustAdd(t, e, Request{Prompt: ids(0, tt.tokens), Answer: ids(0, 1)})
		if _, last := serve(e); last[id].Cached != tt.want {
			t.Errorf("%d tokens: %d cached, want %d", tt.tokens, last[id].Cached, tt.want)
		}
	}
}

func TestFullHitAnnouncesNothing(t *testing.T) {
	e := newEngine(t, Config{BlockSize: 4, Blocks: 10, MaxBatchedTokens: 100, MaxSeqs: 1})
	r := Request{Prompt: ids(0, 14), Answer: ids(0, 2)}
	mustAdd(t, e, r)
	if events, _ := serve(e); len(events) != 1 {
		t.Fatalf("%d events for a cold prompt, want 1", len(events))
	}
	mustAdd(t, e, r)
	if events, _ := serve(e); len(events) != 0 {
		t.Errorf("events for a cached prompt: %v", events)
	}
}

func TestSameAnswerTwiceAtOnceIsTwoCopiesOfItsBlocks(t *testing.T) {
	e := newEngine(t, Config{BlockSize: 4, Blocks: 20, MaxBatchedTokens: 100, MaxSeqs: 4})
	r := Request{Prompt: ids(0, 6), Answer: ids(100, 8)}
	mustAdd(t, e, r)
	mustAdd(t, e, r)
	events, _ := serve(e)
	told := ledger{}
	if err := told.apply(events); err != nil {
		t.Fatal(err)
	}
	counts := map[int]int{}
	for _, n := range told {
		counts[n]++
	}
	// The prompt's one full block is shared; tokens 4 to 11 are in two
	// blocks each; the last token is never computed.
	if want := (map[int]int{1: 1, 2: 2}); !maps.Equal(counts, want) {
		t.Errorf("hashes by number of copies: %v, want %v", counts, want)
	}
}

func TestClearIsRefusedInUseAndAnnouncedWithTheNextStep(t *testing.T) {
	e := newEngine(t, Config{BlockSize: 4, Blocks: 10, MaxBatchedTokens: 100, MaxSeqs: 1})
	r := Request{Prompt: ids(0, 9), Answer: ids(0, 2)}
	mustAdd(t, e, r)
	e.Begin()
	if e.ClearCache() {
		t.Error("cleared while a request holds blocks")
	}
	e.Finish()
	serve(e)
	if !e.ClearCache() {
		t.Error("not cleared at rest")
	}
	if _, ok := e.Begin(); ok {
		t.Error("clearing began a step")
	}
	id := mustAdd(t, e, r)
	events, last := serve(e)
	if last[id].Cached != 0 || len(events) != 2 || events[0].Kind != AllBlocksCleared || events[1].Kind != BlocksStored {
		t.Errorf("%d cached, events %v: want 0, AllBlocksCleared and BlockStored", last[id].Cached, events)
	}
}

func TestStepTimeIsTheSumOfItsParts(t *testing.T) {
	e := newEngine(t, Config{BlockSize: 16, Blocks: 1000, MaxBatchedTokens: 8192, MaxSeqs: 256, Timing: H100Timing()})
	mustAdd(t, e, Request{Prompt: ids(0, 10000), Answer: ids(0, 3)})
	var got []time.Duration
	for step, ok := e.Begin(); ok; step, ok = e.Begin() {
		got = append(got, step.Duration)
		e.Finish()
	}
	const base, token, seq = 14 * time.Millisecond, time.Second / 32000, 150 * time.Microsecond
	want := []time.Duration{base + 8192*token, base + (10000-8192)*token, base + seq, base + seq}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("steps take %v, want %v", got, want)
	}
}

func TestPromptOfOneTokenIsPrefilled(t *testing.T) {
	e := newEngine(t, Config{BlockSize: 4, Blocks: 6, MaxBatchedTokens: 100, MaxSeqs: 4})
	mustAdd(t, e, Request{Prompt: ids(0, 1), Answer: ids(0, 2)})
	first, _ := e.Begin()
	e.Finish()
	second, _ := e.Begin()
	if first.PrefillTokens != 1 || first.DecodeSeqs != 0 || second.PrefillTokens != 0 || second.DecodeSeqs != 1 {
		t.Errorf("steps %+v and %+v, want one token of a prompt, then one decoding sequence", first, second)
	}
}

func TestSequenceWithoutRoomPushesOutTheLastAdmitted(t *testing.T) {
	// Both fit at first; growing, the first needs what the second has. The
	// second starts over with blocks of its own cached, which is no hit.
	e := newEngine(t, Config{BlockSize: 4, Blocks: 6, MaxBatchedTokens: 100, MaxSeqs: 4})
	first := mustAdd(t, e, Request{Prompt: ids(0, 8), Answer: ids(50, 12)})
	second := mustAdd(t, e, Request{Prompt: ids(100, 8), Answer: ids(150, 8)})
	third := mustAdd(t, e, Request{Prompt: ids(200, 8), Answer: ids(250, 1)})
	var finished, admitted []ID
	for step, ok := e.Begin(); ok; step, ok = e.Begin() {
		admitted = append(admitted, step.Admitted...)
		for _, o := range e.Finish().Outputs {
			if o.Cached != 0 {
				t.Errorf("request %d: %d tokens cached, want what was there when it came: 0", o.ID, o.Cached)
			}
			if o.Done {
				finished = append(finished, o.ID)
			}
		}
	}
	if s := e.Stats(); s.Preemptions != 1 || s.Hits != 0 || s.Queries != 24 {
		t.Errorf("%d pushed out, %d of %d tokens hit: want 1, 0 of 24", s.Preemptions, s.Hits, s.Queries)
	}
	if len(finished) != 3 || finished[0] != first {
		t.Errorf("finished in the order %v, want %d first", finished, first)
	}
	if want := []ID{first, second, second, third}; !slices.Equal(admitted, want) {
		t.Errorf("admitted in the order %v, want %v", admitted, want)
	}
}

func TestAbortedRequestLeavesItsBlocksCached(t *testing.T) {
	e := newEngine(t, Config{BlockSize: 4, Blocks: 10, MaxBatchedTokens: 100, MaxSeqs: 1})
	r := Request{Prompt: ids(0, 13), Answer: ids(0, 9)}
	id := mustAdd(t, e, r)
	e.Begin()
	if !e.Abort(id) || e.Stats().Running != 0 {
		t.Error("the request still runs")
	}
	if got := e.Finish(); len(got.Outputs) != 0 {
		t.Errorf("an aborted request gave %v", got.Outputs)
	}
	id = mustAdd(t, e, r)
	if _, last := serve(e); last[id].Cached != 12 {
		t.Errorf("%d tokens cached, want 12", last[id].Cached)
	}
}

func TestRequestThatCannotFitIsRefused(t *testing.T) {
	e := newEngine(t, Config{BlockSize: 4, Blocks: 4, MaxBatchedTokens: 100, MaxSeqs: 1})
	if _, err := e.Add(Request{Prompt: ids(0, 12), Answer: ids(0, 2)}); !errors.Is(err, ErrTooLong) {
		t.Errorf("13 tokens to compute in 12: %v", err)
	}
	if _, err := e.Add(Request{Prompt: ids(0, 12), Answer: ids(0, 1)}); err != nil {
		t.Errorf("12 tokens to compute in 12: %v", err)
	}
	if _, err := e.Add(Request{Answer: ids(0, 1)}); !errors.Is(err, ErrEmpty) {
		t.Errorf("no prompt: %v", err)
	}
}

func TestConfigSaysAllThatIsWrong(t *testing.T) {
	_, err := New(Config{Timing: Timing{StepBase: -1}})
	if err == nil {
		t.Fatal("an empty configuration was taken")
	}
	if got := len(errorsIn(err)); got != 5 {
		t.Errorf("%d problems named, want 5: %v", got, err)
	}
}

func errorsIn(err error) []error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return joined.Unwrap()
	}
	return nil
}
