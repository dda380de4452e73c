package scheduler

import (
	"testing"
	"time"
)

// pair are two routers over the same instances. What a predicts, b follows.
func pair(t *testing.T, n int, routing Routing) (a, b *testFleet, followed map[uint64]*Followed, loads *int) {
	t.Helper()
	a, b = newFleet(t, n, routing), newFleet(t, n, routing)
	followed, loads = map[uint64]*Followed{}, new(int)
	a.hooks = Hooks{
		Loaded:    func() { *loads++ },
		Predicted: func(number uint64, p Prediction) { followed[number] = b.Follow(p, b.now) },
		Withdrawn: func(number uint64) { followed[number].Withdraw() },
	}
	return a, b, followed, loads
}

func TestAnotherRoutersPredictionCountsHere(t *testing.T) {
	a, b, followed, loads := pair(t, 8, prefixAware(4))
	prompt := tokens(1, 320)
	l := a.acquire(a.request(prompt))
	if len(followed) != 1 || *loads != 1 {
		t.Fatalf("told of %d predictions and %d changes of load", len(followed), *loads)
	}
	m := b.acquire(b.request(prompt))
	if m.Instance.Name() != l.Instance.Name() || m.Rule != RulePrefixHit || m.MatchedTokens != 304 {
		t.Errorf("the other router sends it to %s by %s, %d tokens matched; want %s", m.Instance.Name(), m.Rule, m.MatchedTokens, l.Instance.Name())
	}
	m.Done(Served)

	// What events have confirmed is known everywhere already.
	for i := range 8 {
		if a.instance(i).Name() == l.Instance.Name() {
			a.hold(i, prompt, 320)
		}
	}
	a.acquire(a.request(prompt)).Done(Served)
	if len(followed) != 1 {
		t.Error("told of a prediction that adds nothing")
	}
	l.Done(Served)
}

func TestAnotherRoutersFailureIsFollowed(t *testing.T) {
	a, b, _, _ := pair(t, 8, prefixAware(4))
	r := a.request(tokens(1, 320))
	r.PrefixID = "tenant"
	l := a.acquire(r)
	e, _ := b.Endpoint("e")
	if len(e.shared.spread.last) != 1 || b.held.Stats().Predicted == 0 {
		t.Fatalf("placements %d, predicted %d", len(e.shared.spread.last), b.held.Stats().Predicted)
	}
	l.Done(Failed)
	if len(e.shared.spread.last) != 0 || b.held.Stats().Predicted != 0 || b.placed.Stats().Predicted != 0 {
		t.Errorf("of a failed request stay %d placements, %d blocks", len(e.shared.spread.last), b.held.Stats().Predicted)
	}
}

func TestIDsAreSpreadOverTheInstancesByTwoRouters(t *testing.T) {
	a, b, _, _ := pair(t, 4, prefixAware(64))
	b.hooks.Predicted = func(_ uint64, p Prediction) { a.Follow(p, a.now) }
	b.hooks.Withdrawn = func(uint64) {}
	prompt, seen := tokens(1, 320), map[string]bool{}
	for i, f := range []*testFleet{a, b, a, b} {
		r := f.request(prompt)
		r.PrefixID = string(rune('a' + i))
		l := f.acquire(r)
		seen[l.Instance.Name()] = true
		l.Done(Served)
	}
	if len(seen) != 4 {
		t.Errorf("four ids met on %d instances", len(seen))
	}
}

func TestWhatIsInFlightElsewhereCountsToTheThreshold(t *testing.T) {
	f := newFleet(t, 2, prefixAware(4))
	prompt := tokens(1, 320)
	f.hold(0, prompt, 320)
	f.instance(0).SetElsewhere(3, 0)
	first := f.acquire(f.request(prompt))
	second := f.acquire(f.request(prompt))
	if first.Instance != f.instance(0) || second.Instance != f.instance(1) {
		t.Errorf("with 3 of 4 elsewhere they went to %s and %s", first.Instance.Name(), second.Instance.Name())
	}
	if got := f.instance(0).InFlight(); got != 1 {
		t.Errorf("this router's own count is %d", got)
	}

	kv := newFleet(t, 2, Routing{Strategy: KVAware})
	kv.instance(0).SetElsewhere(0, 100_000)
	if l := kv.acquire(kv.request(prompt)); l.Instance != kv.instance(1) {
		t.Error("prefill queued by another router does not count")
	}
}

func TestFollowingWhatIsNotKnownHere(t *testing.T) {
	f := newFleet(t, 1, prefixAware(4))
	for _, p := range []Prediction{{Endpoint: "x", Instance: "i0"}, {Endpoint: "e", Instance: "x"}} {
		if f.Follow(p, time.Now()) != nil {
			t.Errorf("followed %+v", p)
		}
	}
}
