package scheduler

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
)

func TestLongestMatchWins(t *testing.T) {
	f := newFleet(t, 4, prefixAware(16))
	p := tokens(1, 400)
	f.hold(1, p, 160)
	f.hold(2, p, 320)
	l := f.acquire(f.request(p))
	if l.Instance.Name() != "i2" || l.Rule != RulePrefixHit || l.MatchedTokens != 320 {
		t.Errorf("got %s by %s with %d tokens, want i2 by prefix_hit with 320", l.Instance.Name(), l.Rule, l.MatchedTokens)
	}
}

func TestA01_LoadOnTheHolderSendsElsewhereAndStays(t *testing.T) {
	f := newFleet(t, 2, prefixAware(16))
	p := tokens(1, 400)
	f.hold(0, p, 400)
	var leases []*Lease
	for range 16 {
		leases = append(leases, f.acquire(f.request(p)))
	}
	for range 12 { // rounds of health checks touch no counter
		f.instance(0).SetReady(false)
		f.instance(0).SetReady(true)
		f.instance(0).SetTrust(Live, "checked")
	}
	if n := f.instance(0).InFlight(); n != 16 {
		t.Errorf("%d in flight on the holder, want 16", n)
	}
	if l := f.acquire(f.request(p)); l.Instance.Name() != "i1" {
		t.Errorf("the seventeenth went to %s, want i1", l.Instance.Name())
	}
	for _, l := range leases {
		l.Done(Served)
	}
	if n := f.instance(0).InFlight(); n != 0 {
		t.Errorf("%d in flight after all ended", n)
	}
}

func TestA02_TheThresholdIsTheChosenInstancesAlone(t *testing.T) {
	f := newFleet(t, 4, prefixAware(8))
	p := tokens(1, 400)
	f.hold(0, p, 400)
	f.load(3, 100)
	if l := f.acquire(f.request(p)); l.Instance.Name() != "i0" || l.Rule != RulePrefixHit {
		t.Errorf("got %s by %s, want i0 by prefix_hit", l.Instance.Name(), l.Rule)
	}
}

func TestA03_ABurstOfEqualsIsSpread(t *testing.T) {
	f := newFleet(t, 8, prefixAware(1024))
	p := tokens(1, 400)
	for i := range 8 {
		f.hold(i, p, 400)
	}
	start := make(chan struct{})
	var wg sync.WaitGroup
	for range 64 {
		r := f.request(p)
		wg.Go(func() {
			<-start
			if _, err := f.Acquire(r, f.now); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	low, high := math.MaxInt, 0
	for i := range 8 {
		low, high = min(low, f.instance(i).InFlight()), max(high, f.instance(i).InFlight())
	}
	if high-low > 2 {
		t.Errorf("from %d to %d in flight, want a spread of at most 2", low, high)
	}
}

func TestA05_A10_AMatchBelowTheMinimumDoesNotDecide(t *testing.T) {
	routing := prefixAware(64)
	routing.MinMatchTokens = 64
	f := newFleet(t, 4, routing)
	f.hold(0, tokens(1, 32), 32)
	f.load(0, 20)
	short := tokens(1, 40)
	if l := f.acquire(f.request(short)); l.Instance.Name() == "i0" || l.Rule != RuleRendezvous {
		t.Errorf("a match of 32 tokens sent to %s by %s, want another by rendezvous", l.Instance.Name(), l.Rule)
	}
}

func TestA06_OverflowGoesToTheNextMatchThenToTheColdOne(t *testing.T) {
	f := newFleet(t, 3, prefixAware(4))
	p := tokens(1, 400)
	f.hold(0, p, 400)
	f.hold(1, p, 160)
	f.load(0, 4)
	l := f.acquire(f.request(p))
	if l.Instance.Name() != "i1" || l.Rule != RuleOverflowNextMatch || l.MatchedTokens != 160 {
		t.Errorf("got %s by %s with %d, want i1 by overflow_next_match with 160", l.Instance.Name(), l.Rule, l.MatchedTokens)
	}
	f.load(1, 3)
	if l := f.acquire(f.request(p)); l.Instance.Name() != "i2" || l.Rule != RuleOverflowLeastLoaded {
		t.Errorf("got %s by %s, want i2 by overflow_least_loaded", l.Instance.Name(), l.Rule)
	}
	f.load(2, 9)
	f.load(1, 1)
	if l := f.acquire(f.request(p)); l.Instance.Name() != "i0" {
		t.Errorf("with all at the threshold got %s, want the least loaded i0", l.Instance.Name())
	}
}

func TestA07_TreeSizeIsNoLoad(t *testing.T) {
	f := newFleet(t, 2, Routing{Strategy: LeastOutstanding})
	for s := range 20 {
		f.hold(1, tokens(s+10, 400), 400)
	}
	f.load(0, 30)
	if l := f.acquire(f.request(tokens(1, 400))); l.Instance.Name() != "i1" {
		t.Errorf("got %s, want i1 with nothing in flight", l.Instance.Name())
	}
}

func TestA15_RendezvousSpreadsEvenlyAndMovesLittle(t *testing.T) {
	const prompts = 10_000
	place := func(n int) []string {
		f := newFleet(t, n, prefixAware(1024))
		out := make([]string, prompts)
		for i := range out {
			l := f.acquire(f.request(tokens(i+1, 48)))
			out[i] = l.Instance.Name()
			l.Done(Failed) // nothing stays predicted
		}
		return out
	}
	ten, eleven := place(10), place(11)
	counts, moved := map[string]int{}, 0
	for i := range ten {
		counts[ten[i]]++
		if ten[i] != eleven[i] {
			moved++
			if eleven[i] != "i10" {
				t.Fatalf("prompt %d moved from %s to %s, which is not the new instance", i, ten[i], eleven[i])
			}
		}
	}
	var squares float64
	for _, n := range counts {
		d := float64(n)/(prompts/10) - 1
		squares += d * d
	}
	if cv := math.Sqrt(squares / 10); cv >= 0.15 {
		t.Errorf("the coefficient of variation is %.3f, want below 0.15: %v", cv, counts)
	}
	if moved >= prompts*15/100 {
		t.Errorf("an eleventh instance moved %d of %d prompts", moved, prompts)
	}
}

func TestF13_MatchesCompareInTokens(t *testing.T) {
	f := newFleet(t, 3, prefixAware(16))
	f.instance(1).SetBlockSize(32)
	f.instance(2).SetBlockSize(64)
	p := tokens(1, 400)
	f.hold(0, p, 80) // 5 blocks of 16
	f.hold(1, p, 96) // 3 blocks of 32
	f.hold(2, p, 64) // 1 block of 64
	l := f.acquire(f.request(p, 32, 64))
	if l.Instance.Name() != "i1" || l.MatchedTokens != 96 {
		t.Errorf("got %s with %d tokens, want i1 with 96", l.Instance.Name(), l.MatchedTokens)
	}
}

func TestF16_AFullyCachedPromptCountsOneBlockLess(t *testing.T) {
	f := newFleet(t, 2, prefixAware(16))
	p := tokens(1, 160)
	f.hold(0, p, 160)
	if l := f.acquire(f.request(p)); l.MatchedTokens != 144 {
		t.Errorf("got %d matched tokens of a cached prompt of 160, want 144: the last token is always computed", l.MatchedTokens)
	}
}

func TestABurstOfANewPrefixStaysTogether(t *testing.T) {
	f := newFleet(t, 5, prefixAware(16))
	p := tokens(1, 400)
	first := f.acquire(f.request(p))
	for i := range 3 {
		l := f.acquire(f.request(append(p[:320:320], tokens(9+i, 80)...)))
		if l.Instance != first.Instance || l.Rule != RulePrefixHit || l.MatchedTokens != 320 {
			t.Errorf("got %s by %s with %d, want %s by prefix_hit with 320", l.Instance.Name(), l.Rule, l.MatchedTokens, first.Instance.Name())
		}
	}
}

func TestAFailedRequestLeavesNoPrediction(t *testing.T) {
	f := newFleet(t, 3, prefixAware(16))
	p := tokens(1, 400)
	for _, id := range []string{"", "tenant"} {
		r := f.request(p)
		r.PrefixID = id
		f.acquire(r).Done(Failed)
		if l := f.acquire(r); l.MatchedTokens != 0 {
			t.Errorf("id %q: matched %d tokens of a request that failed", id, l.MatchedTokens)
		} else {
			l.Done(Failed)
		}
	}
}

func TestPrefixIDsShareNoMatchAndSpread(t *testing.T) {
	f := newFleet(t, 5, prefixAware(64))
	p := tokens(1, 400)
	on := map[string]int{}
	for i := range 50 {
		r := f.request(p)
		r.PrefixID = strings.Repeat("x", i+1)
		l := f.acquire(r)
		if l.MatchedTokens != 0 {
			t.Fatalf("id %d matched %d tokens of other ids", i, l.MatchedTokens)
		}
		on[l.Instance.Name()]++
		again := f.acquire(r)
		if again.Instance != l.Instance || again.MatchedTokens == 0 {
			t.Errorf("id %d went to %s, then to %s with %d tokens", i, l.Instance.Name(), again.Instance.Name(), again.MatchedTokens)
		}
		again.Done(Served)
		l.Done(Served)
		if want := min(i+1, 5); len(on) != want {
			t.Fatalf("%d ids are on %d instances, want %d", i+1, len(on), want)
		}
	}
	for name, n := range on {
		if n != 10 {
			t.Errorf("%d of 50 ids on %s, want 10", n, name)
		}
	}
}

func TestOneEvictionIsTrueForEveryID(t *testing.T) {
	f := newFleet(t, 1, prefixAware(64))
	f.config.Variants[0].Instances = append(f.config.Variants[0].Instances, instanceConfig(1))
	p := tokens(1, 400)
	for _, id := range []string{"a", "b"} {
		r := f.request(p)
		r.PrefixID = id
		f.acquire(r).Done(Served)
	}
	f.held.Clear(f.instance(0).Handle())
	for _, id := range []string{"a", "b", ""} {
		r := f.request(p)
		r.PrefixID = id
		l := f.acquire(r)
		if l.MatchedTokens != 0 {
			t.Errorf("id %q matched %d tokens of a cache that was cleared", id, l.MatchedTokens)
		}
		l.Done(Failed)
	}
}

func TestRecoveringAndStaleInstancesGetNoCredit(t *testing.T) {
	for _, trust := range []Trust{Recovering, Stale} {
		f := newFleet(t, 2, prefixAware(16))
		p := tokens(1, 400)
		f.hold(0, p, 400)
		f.instance(0).SetTrust(trust, "test")
		if l := f.acquire(f.request(p)); l.Rule != RuleRendezvous || l.MatchedTokens != 0 {
			t.Errorf("%s: got %s with %d tokens, want rendezvous with none", trust, l.Rule, l.MatchedTokens)
		}
	}
}

func TestAPromptWithoutKeysGoesToTheLeastLoaded(t *testing.T) {
	f := newFleet(t, 3, prefixAware(16))
	f.load(0, 2)
	f.load(1, 1)
	r := f.request(tokens(1, 400))
	r.Chains = nil
	if l := f.acquire(r); l.Instance.Name() != "i2" || l.Rule != RuleLeastOutstanding {
		t.Errorf("got %s by %s, want i2 by least_outstanding", l.Instance.Name(), l.Rule)
	}
}

func TestNoInstanceSaysWhy(t *testing.T) {
	f := newFleet(t, 2, prefixAware(16))
	f.instance(0).SetReady(false)
	r := f.request(tokens(1, 40))
	r.Exclude = []*Instance{f.instance(1)}
	_, err := f.Acquire(r, f.now)
	if !errors.Is(err, ErrNoInstance) || !strings.Contains(err.Error(), "1 not ready") || !strings.Contains(err.Error(), "1 excluded") {
		t.Errorf("got %v", err)
	}
	r.Variant = "other"
	if _, err := f.Acquire(r, f.now); !errors.Is(err, ErrNoInstance) || !strings.Contains(err.Error(), "no variant") {
		t.Errorf("got %v", err)
	}
}

func TestKVAwareWeighsCacheAgainstQueue(t *testing.T) {
	f := newFleet(t, 2, Routing{Strategy: KVAware})
	p := tokens(1, 4000)
	f.hold(0, p, 4000)
	if l := f.acquire(f.request(p)); l.Instance.Name() != "i0" || l.Rule != RuleKVCost {
		t.Errorf("got %s by %s, want the holder i0 by kv_cost", l.Instance.Name(), l.Rule)
	}
	f.instance(0).prefill.Add(20_000)
	if l := f.acquire(f.request(p)); l.Instance.Name() != "i1" {
		t.Errorf("with 20,000 tokens queued on the holder got %s, want i1", l.Instance.Name())
	}
}

func TestFirstTokenEndsTheQueuedPrefill(t *testing.T) {
	f := newFleet(t, 2, Routing{Strategy: KVAware})
	l := f.acquire(f.request(tokens(1, 400)))
	if n := l.Instance.QueuedPrefill(); n != 400 {
		t.Errorf("%d tokens queued, want 400", n)
	}
	l.FirstToken()
	l.FirstToken()
	if n := l.Instance.QueuedPrefill(); n != 0 {
		t.Errorf("%d tokens queued after the first token", n)
	}
	l.Done(Served)
	l.Done(Failed)
	if n, q := l.Instance.InFlight(), l.Instance.QueuedPrefill(); n != 0 || q != 0 {
		t.Errorf("%d in flight and %d queued after Done twice", n, q)
	}
}

func TestAdaptersChooseAmongTheirInstances(t *testing.T) {
	f := newFleet(t, 4, prefixAware(16))
	f.config.Variants[0].Instances[2].Adapters = []string{"sql"}
	f.apply()
	e, adapter, ok := f.ByModel("sql")
	if !ok || e.Name() != "e" || adapter != "sql" {
		t.Fatalf("ByModel(sql) is %v, %q, %v", e, adapter, ok)
	}
	r := f.request(tokens(1, 400))
	r.Adapter = "sql"
	if l := f.acquire(r); l.Instance.Name() != "i2" || l.Rule != RuleSingle {
		t.Errorf("got %s by %s, want i2 by single", l.Instance.Name(), l.Rule)
	}
	r.Adapter = "none"
	if _, err := f.Acquire(r, f.now); !errors.Is(err, ErrNoInstance) {
		t.Errorf("got %v", err)
	}
}

func TestExplainIsWhatAcquireDoes(t *testing.T) {
	f := newFleet(t, 3, prefixAware(16))
	p := tokens(1, 400)
	f.hold(1, p, 320)
	got, err := f.Explain(f.request(p))
	if err != nil {
		t.Fatal(err)
	}
	if got.Instance != "i1" || got.Rule != RulePrefixHit || got.Instances[1].MatchedTokens != 320 || got.Instances[1].ConfirmedTokens != 320 {
		t.Errorf("got %+v", got)
	}
	if n := f.instance(1).InFlight(); n != 0 {
		t.Errorf("explaining reserved %d places", n)
	}
	if l := f.acquire(f.request(p)); l.Instance.Name() != got.Instance {
		t.Errorf("explained %s, acquired %s", got.Instance, l.Instance.Name())
	}
}
