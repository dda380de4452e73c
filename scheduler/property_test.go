package scheduler

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// A long random history keeps what the package promises, under every strategy.
func TestPropertyOfRandomHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(rt, "instances")
		strategy := rapid.SampledFrom([]Strategy{Random, LeastOutstanding, PrefixAware, KVAware}).Draw(rt, "strategy")
		routing := Routing{Strategy: strategy, PrefixLength: 65536, ConcurrencyThreshold: rapid.IntRange(1, 4).Draw(rt, "threshold"), MinMatchTokens: 16}
		f := newFleet(t, n, routing)
		open := map[*Lease]bool{}
		counts := map[*Instance]int{}
		var order []*Lease
		rt.Repeat(map[string]func(*rapid.T){
			"acquire": func(rt *rapid.T) {
				r := f.request(tokens(rapid.IntRange(0, 3).Draw(rt, "prompt"), rapid.IntRange(1, 80).Draw(rt, "length")))
				r.PrefixID = rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "id")
				l, err := f.Acquire(r, f.now)
				if errors.Is(err, ErrNoInstance) {
					for i := range n {
						if f.instance(i).Ready() {
							rt.Fatalf("%v, though i%d is ready", err, i)
						}
					}
					return
				}
				if err != nil {
					rt.Fatal(err)
				}
				if !l.Instance.Ready() {
					rt.Fatalf("chose %s, which is not ready", l.Instance.Name())
				}
				if strategy == PrefixAware && counts[l.Instance] >= routing.ConcurrencyThreshold {
					for i := range n {
						if inst := f.instance(i); inst.Ready() && counts[inst] < routing.ConcurrencyThreshold {
							rt.Fatalf("chose %s with %d in flight by %s, though i%d has room", l.Instance.Name(), counts[l.Instance], l.Rule, i)
						}
					}
				}
				counts[l.Instance]++
				open[l] = true
				order = append(order, l)
			},
			"done": func(rt *rapid.T) {
				if len(order) == 0 {
					rt.Skip("nothing is in flight")
				}
				l := order[rapid.IntRange(0, len(order)-1).Draw(rt, "lease")]
				if open[l] {
					counts[l.Instance]--
					delete(open, l)
				}
				l.Done(rapid.SampledFrom([]Outcome{Served, Failed, Cancelled}).Draw(rt, "outcome"))
			},
			"ready": func(rt *rapid.T) {
				f.instance(rapid.IntRange(0, n-1).Draw(rt, "instance")).SetReady(rapid.Bool().Draw(rt, "ready"))
			},
			"apply": func(*rapid.T) { f.apply() },
			"": func(rt *rapid.T) {
				for i := range n {
					if got, want := f.instance(i).InFlight(), counts[f.instance(i)]; got != want {
						rt.Fatalf("i%d has %d in flight, want %d", i, got, want)
					}
				}
			},
		})
		for l := range open {
			l.Done(Served)
		}
		for i := range n {
			if inst := f.instance(i); inst.InFlight() != 0 || inst.QueuedPrefill() != 0 {
				rt.Fatalf("i%d ends with %d in flight and %d queued", i, inst.InFlight(), inst.QueuedPrefill())
			}
		}
	})
}

func TestG08_TheThresholdHoldsUnderAnyConcurrency(t *testing.T) {
	const threshold, instances = 3, 5
	f := newFleet(t, instances, prefixAware(threshold))
	f.hold(0, tokens(1, 400), 400)
	var over atomic.Int64
	var wg sync.WaitGroup
	for w := range threshold * instances { // so many at most are ever in flight
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for range 300 {
				l, err := f.Acquire(f.request(tokens(r.IntN(3), 100)), f.now)
				if err != nil {
					t.Error(err)
					return
				}
				if l.Instance.InFlight() > threshold {
					over.Add(1)
				}
				l.Done(Served)
			}
		})
	}
	wg.Wait()
	if over.Load() > 0 {
		t.Errorf("the threshold was exceeded %d times while others had room", over.Load())
	}
}

func TestApplyUnderLoadDropsNothing(t *testing.T) {
	f := newFleet(t, 4, prefixAware(16))
	whole := f.config
	fewer := f.config
	fewer.Variants = []VariantConfig{whole.Variants[0]}
	fewer.Variants[0].Instances = whole.Variants[0].Instances[:2]
	fewer.Variants[0].Routing = Routing{Strategy: LeastOutstanding}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				l, err := f.Acquire(f.request(tokens(w, 100+i%50)), f.now)
				if err != nil {
					t.Error(err)
					return
				}
				l.FirstToken()
				l.Done(Outcome(i % 3))
			}
		})
	}
	for i := range 200 {
		f.config = whole
		if i%2 == 0 {
			f.config = fewer
		}
		f.apply()
	}
	close(stop)
	wg.Wait()
	f.config = whole
	f.apply()
	for i := range 4 {
		if n := f.instance(i).InFlight(); n != 0 {
			t.Errorf("i%d ends with %d in flight", i, n)
		}
	}
}

func TestVariantsShareByWeight(t *testing.T) {
	f := newFleet(t, 1, Routing{})
	f.config.Variants = append(f.config.Variants, VariantConfig{Name: "w", Weight: 3, Instances: []InstanceConfig{instanceConfig(7)}})
	f.apply()
	got := map[string]int{}
	for range 4000 {
		l := f.acquire(f.request(tokens(1, 20)))
		got[l.Variant.Name()]++
		l.Done(Served)
	}
	if got["v"] < 850 || got["v"] > 1150 { // 1000 expected, seeded
		t.Errorf("got %v of 4000, want about 1000 and 3000", got)
	}
	r := f.request(tokens(1, 20))
	r.Variant = "v"
	for range 20 {
		if l := f.acquire(r); l.Variant.Name() != "v" {
			t.Errorf("asked for v, got %s", l.Variant.Name())
		}
	}
}

func TestTiesAreBrokenByChance(t *testing.T) {
	for _, s := range []Strategy{Random, LeastOutstanding, KVAware} {
		f := newFleet(t, 4, Routing{Strategy: s})
		got := map[string]int{}
		for range 400 {
			l := f.acquire(f.request(tokens(1, 5)))
			got[l.Instance.Name()]++
			l.Done(Served)
		}
		for i := range 4 {
			if n := got[f.instance(i).Name()]; n < 60 {
				t.Errorf("%s: i%d got %d of 400 among equals: %v", s, i, n, got)
			}
		}
	}
}

func TestConfigurationErrorsNameTheField(t *testing.T) {
	f := newFleet(t, 1, Routing{})
	for _, c := range []struct {
		want   string
		change func(*EndpointConfig)
	}{
		{"endpoints[0].Name", func(e *EndpointConfig) { e.Name = "" }},
		{"endpoints[0].Model", func(e *EndpointConfig) { e.Model = "" }},
		{"endpoints[0].Variants", func(e *EndpointConfig) { e.Variants = nil }},
		{"Variants[0].Weight", func(e *EndpointConfig) { e.Variants[0].Weight = -1 }},
		{"RoutingStrategy", func(e *EndpointConfig) { e.Variants[0].Routing.Strategy = "BEST" }},
		{"PrefixLength", func(e *EndpointConfig) {
			e.Variants[0].Routing = Routing{Strategy: PrefixAware, PrefixLength: 7, ConcurrencyThreshold: 1}
		}},
		{"ConcurrencyThreshold", func(e *EndpointConfig) { e.Variants[0].Routing = Routing{Strategy: PrefixAware, PrefixLength: 2048} }},
	} {
		bad := f.config
		bad.Variants = append([]VariantConfig(nil), f.config.Variants...)
		c.change(&bad)
		if err := f.Apply([]EndpointConfig{bad}); err == nil || !containsText(err.Error(), c.want) {
			t.Errorf("got %v, want an error that names %s", err, c.want)
		}
	}
	if _, ok := f.Endpoint("e"); !ok {
		t.Error("a refused configuration changed the current one")
	}
}
