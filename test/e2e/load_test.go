package e2e

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

func TestThresholdHoldsWhileOthersHaveRoom(t *testing.T) {
	f := startFleet(t, fleetOptions{workers: 5, threshold: 2, dev: true})
	prefix := document(tongues()[0], 3, 8_000)
	warm := f.post(f.api+"/v1/chat/completions", chat([]message{{"system", prefix}, {"user", "First."}}, 4, nil)).ok(t)
	preferred := warm.receipt(t).instance
	f.settle()

	// The workers stand still, so that all ten are in flight at once.
	for _, url := range f.workers {
		f.post(url+"/dev/hold", "{}").ok(t)
	}
	replies := make([]reply, 10)
	var wg sync.WaitGroup
	for i := range replies {
		wg.Go(func() {
			replies[i] = f.post(f.api+"/v1/chat/completions", chat([]message{{"system", prefix}, {"user", "Go on."}}, 4, nil))
		})
	}
	eventually(t, "ten requests are in flight", func() bool { return f.inFlightTotal() == 10 })
	for name, n := range f.inFlight() {
		if n > 2 {
			t.Errorf("%d requests in flight on %s, over the threshold of 2 while others had room", n, name)
		}
	}
	if n := f.inFlight()[preferred]; n != 2 {
		t.Errorf("%d requests in flight on the warm instance %s, want 2", n, preferred)
	}
	for _, url := range f.workers {
		f.post(url+"/dev/release", "{}").ok(t)
	}
	wg.Wait()
	for _, r := range replies {
		r.ok(t)
	}
	eventually(t, "the counts are zero", func() bool { return f.inFlightTotal() == 0 })
}

func TestStrategySwitchedUnderLoadFailsNoRequest(t *testing.T) {
	f := startFleet(t, fleetOptions{})
	stop := make(chan struct{})
	var served atomic.Int64
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				doc := document(tongues()[i], uint64(n%4), 2_000)
				extra := map[string]any{"stream": n%2 == 0}
				got := f.post(f.api+"/v1/chat/completions", chat([]message{{"user", doc}}, 6, extra))
				if got.Err != nil || got.StatusCode != http.StatusOK {
					t.Errorf("status %d, %v: %s", got.StatusCode, got.Err, tail(string(got.Body), 300))
					return
				}
				served.Add(1)
			}
		})
	}
	for _, strategy := range []string{"RANDOM", "LEAST_OUTSTANDING_REQUESTS", "KV_AWARE", "PREFIX_AWARE", "RANDOM"} {
		f.writeConfig(strategy)
		eventually(t, strategy+" is live", func() bool { return f.strategy() == strategy })
		n := served.Load()
		eventually(t, "requests go on under "+strategy, func() bool { return t.Failed() || served.Load() >= n+20 })
	}
	close(stop)
	wg.Wait()
	eventually(t, "the counts are zero", func() bool { return f.inFlightTotal() == 0 })
}

func TestBadConfigurationChangesNothing(t *testing.T) {
	f := startFleet(t, fleetOptions{workers: 1})
	f.writeConfig("NEAREST")
	f.router.line("the changed configuration is not applied")
	if got := f.strategy(); got != "PREFIX_AWARE" {
		t.Errorf("the strategy is %s, want PREFIX_AWARE as before", got)
	}
	f.post(f.api+"/v1/chat/completions", chat([]message{{"user", "Still there?"}}, 4, nil)).ok(t)
}
