package scheduler

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmroute/warmroute/internal/blockkey"
)

func TestA05_ASystemPromptOfAllDoesNotPinAllToOneInstance(t *testing.T) {
	const threshold = 8
	system := tokens(0, 1024)
	for _, minMatch := range []int{16, 2048} { // the common part decides; it does not
		routing := prefixAware(threshold)
		routing.MinMatchTokens = minMatch
		f := newFleet(t, 4, routing)
		used := map[string]int{}
		var open []*Lease
		for s := range 1000 {
			if len(open) == 3*threshold { // there is always room somewhere
				open[0].Done(Served)
				open = open[1:]
			}
			l := f.acquire(f.request(append(system[:1024:1024], tokens(s+1, 512)...)))
			if n := l.Instance.InFlight(); n > threshold {
				t.Fatalf("min match %d, session %d: %d in flight on %s by %s", minMatch, s, n, l.Instance.Name(), l.Rule)
			}
			used[l.Instance.Name()]++
			open = append(open, l)
		}
		if len(used) < 3 {
			t.Errorf("min match %d: 1000 sessions went to %v", minMatch, used)
		}
	}
}

func TestA10_OneBlockOfALongPromptDoesNotDecide(t *testing.T) {
	routing := prefixAware(64)
	routing.MinMatchTokens = 0 // the default
	f := newFleet(t, 2, routing)
	for s, n := range map[int]int{1: 20, 2: 4096} {
		p := tokens(s, n)
		f.hold(0, p, 16)
		f.load(0, 20)
		l := f.acquire(f.request(p))
		if l.Instance.Name() != "i1" || l.Rule != RuleRendezvous {
			t.Errorf("16 cached of %d tokens: got %s by %s, want i1 by rendezvous", n, l.Instance.Name(), l.Rule)
		}
		f.load(0, -20)
	}
}

func TestA15_LoadBoundsRendezvous(t *testing.T) {
	f := newFleet(t, 4, prefixAware(1024))
	p := tokens(1, 48)
	first := f.acquire(f.request(p))
	first.Done(Failed)
	first.Instance.inFlight.Add(40) // of 40 in all; a fair share is 10
	l := f.acquire(f.request(p))
	if l.Instance == first.Instance || l.Rule != RuleRendezvous {
		t.Errorf("got %s by %s, want another than the overloaded %s", l.Instance.Name(), l.Rule, first.Instance.Name())
	}
	l.Done(Failed)
	first.Instance.inFlight.Add(-40 + loadFloor - 1) // a small fleet does not spill for a few requests
	if l := f.acquire(f.request(p)); l.Instance != first.Instance {
		t.Errorf("got %s, want %s, which has %d in flight", l.Instance.Name(), first.Instance.Name(), loadFloor-1)
	}
}

func TestReplicasAgreeOnColdPrompts(t *testing.T) {
	a, b := newFleet(t, 7, prefixAware(64)), newFleet(t, 7, prefixAware(64))
	list := b.config.Variants[0].Instances
	for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 { // the order of the file is no matter
		list[i], list[j] = list[j], list[i]
	}
	b.apply()
	b.rand.Uint64() // nor is chance
	for s := range 200 {
		for _, id := range []string{"", "tenant"} {
			ra, rb := a.request(tokens(s+1, 100)), b.request(tokens(s+1, 100))
			ra.PrefixID, rb.PrefixID = id, id
			la, lb := a.acquire(ra), b.acquire(rb)
			if la.Instance.Name() != lb.Instance.Name() {
				t.Fatalf("prompt %d, id %q: %s and %s", s, id, la.Instance.Name(), lb.Instance.Name())
			}
			la.Done(Failed)
			lb.Done(Failed)
		}
	}
}

func TestF15_AnAdapterIsServedWhereItIsLoadedAndNoLonger(t *testing.T) {
	f := newFleet(t, 4, prefixAware(16))
	f.instance(1).SetAdapters([]string{"sql", "chat"})
	f.instance(2).SetAdapters([]string{"sql"})
	r := f.request(tokens(1, 400))
	r.Adapter = "sql"
	for range 20 {
		if l := f.acquire(r); l.Instance.Name() != "i1" && l.Instance.Name() != "i2" {
			t.Fatalf("got %s, which has not loaded the adapter", l.Instance.Name())
		}
	}
	f.instance(1).SetAdapters(nil)
	f.instance(2).SetAdapters(nil)
	if _, _, ok := f.ByModel("sql"); ok {
		t.Error("an adapter that was unloaded everywhere is still a model")
	}
	if _, err := f.Acquire(r, f.now); err == nil || !strings.Contains(err.Error(), "4 adapter not loaded") {
		t.Errorf("got %v", err)
	}
}

func TestG08_ABurstFillsEachInstanceToItsThresholdExactly(t *testing.T) {
	for _, c := range []struct{ threshold, instances int }{{1, 8}, {8, 4}, {64, 2}, {1024, 2}} {
		f := newFleet(t, c.instances, prefixAware(c.threshold))
		p := tokens(1, 400)
		f.hold(0, p, 400)
		f.hold(1, p, 160)
		var wg sync.WaitGroup
		start := make(chan struct{})
		var next atomic.Int64
		all := int64(c.threshold * c.instances)
		for range 64 {
			r := f.request(p)
			wg.Go(func() {
				<-start
				for next.Add(1) <= all {
					if _, err := f.Acquire(r, f.now); err != nil {
						t.Error(err)
					}
				}
			})
		}
		close(start)
		wg.Wait()
		for i := range c.instances {
			if n := f.instance(i).InFlight(); n != c.threshold {
				t.Errorf("threshold %d: i%d has %d in flight", c.threshold, i, n)
			}
		}
	}
}

func TestH10_SeriesEndWithTheirInstanceAndEndpoint(t *testing.T) {
	f := newFleet(t, 2, prefixAware(16))
	registry := prometheus.NewRegistry()
	f.metrics = newMetrics(f.Scheduler, registry)
	series := func() (n int, text string) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			n += len(family.GetMetric())
			text += family.String()
		}
		return n, text
	}
	f.acquire(f.request(tokens(1, 100)))
	before, text := series()
	if !strings.Contains(text, "warmroute_decisions_total") || !strings.Contains(text, `"i1"`) {
		t.Fatalf("no series of the decision or of i1 in %s", text)
	}
	whole := f.config.Variants[0].Instances
	for i := range 500 {
		f.config.Variants[0].Instances = []InstanceConfig{whole[0], whole[1], instanceConfig(100 + i)}
		f.apply()
	}
	f.config.Variants[0].Instances = whole
	f.apply()
	if after, text := series(); after != before {
		t.Errorf("%d series, then %d after 500 instances came and went: %s", before, after, text)
	}
	if err := f.Apply(nil); err != nil {
		t.Fatal(err)
	}
	if n, text := series(); n != 0 {
		t.Errorf("%d series of an endpoint that was removed: %s", n, text)
	}
}

func TestARetryLeavesOutWhatFailed(t *testing.T) {
	for _, s := range []Strategy{Random, LeastOutstanding, PrefixAware, KVAware} {
		routing := prefixAware(16)
		routing.Strategy = s
		f := newFleet(t, 3, routing)
		r := f.request(tokens(1, 400))
		for range 3 {
			l := f.acquire(r)
			for _, i := range r.Exclude {
				if l.Instance == i {
					t.Errorf("%s chose %s again", s, i.Name())
				}
			}
			l.Done(Failed)
			r.Exclude = append(r.Exclude, l.Instance)
		}
		if _, err := f.Acquire(r, f.now); err == nil {
			t.Errorf("%s: a fourth choice among three", s)
		}
	}
}

func TestWhatWasSentInDoubtCountsUntilTheNextDoubt(t *testing.T) {
	for _, id := range []string{"", "tenant"} {
		f := newFleet(t, 2, Routing{Strategy: KVAware})
		old, fresh := tokens(1, 400), tokens(2, 400)
		match := func(p []blockkey.Token) int {
			r := f.request(p)
			r.PrefixID = id
			l := f.acquire(r)
			l.Done(Failed)
			return l.MatchedTokens
		}
		r := f.request(old)
		r.PrefixID = id
		f.acquire(r).Done(Served)
		for i := range 2 {
			f.instance(i).SetTrust(Recovering, "gap")
		}
		if n := match(old); n != 0 {
			t.Errorf("id %q: %d tokens from before the doubt", id, n)
		}
		r = f.request(fresh)
		r.PrefixID = id
		l := f.acquire(r)
		l.Done(Served)
		f.instance(0).SetTrust(Stale, "silent") // still in doubt
		f.instance(1).SetTrust(Stale, "silent")
		if n := match(fresh); n != 384 {
			t.Errorf("id %q: matched %d tokens of what was sent since, want 384", id, n)
		}
		l.Instance.SetTrust(Live, "snapshot")
		f.held.Clear(l.Instance.Handle())
		l.Instance.SetTrust(Recovering, "gap")
		if n := match(fresh); n != 0 {
			t.Errorf("id %q: %d tokens from an earlier doubt", id, n)
		}
	}
}

func TestAnIDReturnsToItsPlaceThoughItWasEvicted(t *testing.T) {
	f := newFleet(t, 4, prefixAware(64))
	p := tokens(1, 400)
	at := map[string]*Instance{}
	for round := range 3 {
		for i := range 4 {
			r := f.request(p)
			r.PrefixID = fmt.Sprint("id", i)
			l := f.acquire(r)
			if was := at[r.PrefixID]; was != nil && was != l.Instance {
				t.Errorf("round %d: %s moved from %s to %s", round, r.PrefixID, was.Name(), l.Instance.Name())
			}
			at[r.PrefixID] = l.Instance
			l.Done(Served)
		}
		for i := range 4 {
			f.held.Clear(f.instance(i).Handle())
		}
	}
}

func TestKVAwareKeepsIDsOfOnePrefixApart(t *testing.T) {
	f := newFleet(t, 4, Routing{Strategy: KVAware})
	on := map[string]bool{}
	for i := range 4 {
		r := f.request(tokens(1, 400))
		r.PrefixID = fmt.Sprint("id", i)
		l := f.acquire(r)
		on[l.Instance.Name()] = true
		l.Done(Served)
	}
	if len(on) != 4 {
		t.Errorf("4 ids are on %v, want 4 instances", on)
	}
}

func TestSpreadIsBoundedAndExpires(t *testing.T) {
	var s spread
	now := time.Unix(1_700_000_000, 0)
	i := &Instance{}
	for n := range spreadPlacements + 1000 {
		s.add(newPlacement(blockkey.Key(n), "id", i), now)
	}
	if len(s.last) != spreadPlacements || len(s.ids) != spreadPlacements {
		t.Errorf("%d placements of %d beginnings, want %d", len(s.last), len(s.ids), spreadPlacements)
	}
	for n := range 3 * spreadPlacements { // failures must not fill the queue
		p := newPlacement(blockkey.Key(n), "other", i)
		s.add(p, now)
		s.remove(p)
	}
	if len(s.queue) > 2*spreadPlacements+1 {
		t.Errorf("the queue has %d entries", len(s.queue))
	}
	s.add(newPlacement(7, "last", i), now.Add(spreadTTL+time.Second))
	if len(s.last) != 1 || len(s.ids) != 1 || len(s.queue) != 1 {
		t.Errorf("after the time to live %d placements, %d beginnings, %d queued are left, want 1 each", len(s.last), len(s.ids), len(s.queue))
	}
}

func TestALeaseOutlivesItsInstance(t *testing.T) {
	f := newFleet(t, 3, prefixAware(16))
	r := f.request(tokens(1, 400))
	r.PrefixID = "tenant"
	l := f.acquire(r)
	kept, _ := f.Instance("e", "i1")
	whole := f.config.Variants[0].Instances
	f.config.Variants[0].Instances = nil
	for _, c := range whole {
		if c.Name != l.Instance.Name() {
			f.config.Variants[0].Instances = append(f.config.Variants[0].Instances, c)
		}
	}
	f.apply()
	if again := f.acquire(r); again.Instance == l.Instance {
		t.Error("chose an instance that was removed")
	}
	l.FirstToken()
	l.Done(Failed)
	if n, q := l.Instance.InFlight(), l.Instance.QueuedPrefill(); n != 0 || q != 0 {
		t.Errorf("%d in flight and %d queued on the removed instance", n, q)
	}
	if l.Instance != kept {
		if now, _ := f.Instance("e", "i1"); now != kept {
			t.Error("an instance whose name and address stayed is another one")
		}
	}
	f.config.Variants[0].Instances = append([]InstanceConfig(nil), whole...)
	f.config.Variants[0].Instances[1].URL = "http://elsewhere"
	f.apply()
	if now, _ := f.Instance("e", "i1"); now == kept {
		t.Error("an instance at another address is the same one")
	}
}

func TestPickAllocatesTheLeaseOnly(t *testing.T) {
	f := newFleet(t, 100, prefixAware(1024))
	p := tokens(1, 8000)
	f.hold(0, p, 8000)
	r := f.request(p)
	f.acquire(r).Done(Served)
	if n := testing.AllocsPerRun(200, func() { f.acquire(r).Done(Served) }); math.Round(n) > 1 && !raceEnabled {
		t.Errorf("%v allocations a request, want 1", n)
	}
}

func TestAFailureInDoubtLeavesNothing(t *testing.T) {
	f := newFleet(t, 1, Routing{Strategy: KVAware})
	f.instance(0).SetTrust(Recovering, "gap")
	r := f.request(tokens(1, 400))
	f.acquire(r).Done(Failed)
	if l := f.acquire(r); l.MatchedTokens != 0 {
		t.Errorf("matched %d tokens of a request that failed", l.MatchedTokens)
	}
}

func TestAFailedIDTakesNoPlace(t *testing.T) {
	f := newFleet(t, 4, prefixAware(64))
	p := tokens(1, 400)
	for i := range 20 {
		r := f.request(p)
		r.PrefixID = fmt.Sprint("id", i)
		l := f.acquire(r)
		fresh := newFleet(t, 4, prefixAware(64))
		if want := fresh.acquire(r).Instance.Name(); l.Instance.Name() != want {
			t.Errorf("%s went to %s, want %s as if no other had failed before", r.PrefixID, l.Instance.Name(), want)
		}
		l.Done(Failed)
	}
}

func TestAnInstanceThatGoesWhileARequestMatchesIsNotTaken(t *testing.T) {
	for name, leave := range map[string]func(*testFleet){
		"removed":   func(f *testFleet) { f.config.Variants[0].Instances = f.config.Variants[0].Instances[1:]; f.apply() },
		"not ready": func(f *testFleet) { f.instance(0).SetReady(false) },
	} {
		f := newFleet(t, 2, prefixAware(16))
		p := tokens(1, 400)
		f.hold(0, p, 400)
		r := f.request(p)
		c := new(scratch)
		v, err := f.variant(c, r.Endpoint, r)
		if err != nil {
			t.Fatal(err)
		}
		f.match(c, r)
		gone := f.instance(0)
		leave(f)
		if l, _ := f.reserve(c, r.Endpoint, v, r, f.now); l != nil || gone.InFlight() != 0 {
			t.Errorf("%s: took a place on %s", name, l.Instance.Name())
		}
		if l := f.acquire(r); l.Instance.Name() != "i1" {
			t.Errorf("%s: got %s, want i1", name, l.Instance.Name())
		}
	}
}
