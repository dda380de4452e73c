package e2e

import (
	"encoding/json"
	"net/http"
	"sync"
	"syscall"
	"testing"
)

// addRouter starts one more router on the same configuration and waits until it
// is ready. The view that is returned speaks to it.
func (f *fleet) addRouter() *fleet {
	f.t.Helper()
	other := *f
	other.router = start(f.t, "warmroute", "serve", "--config", f.config)
	var up struct{ API, Admin string }
	if err := json.Unmarshal([]byte(other.router.line("warmroute serves")), &up); err != nil {
		f.t.Fatal(err)
	}
	other.api, other.admin = "http://"+up.API, "http://"+up.Admin
	eventually(f.t, "the router is ready", func() bool { return other.get(other.admin+"/readyz").StatusCode == http.StatusOK })
	return &other
}

// others waits until a router hears n others.
func (f *fleet) others(n float64) {
	f.t.Helper()
	eventually(f.t, "the routers hear each other", func() bool { return f.metric("warmroute_replica_others") == n })
}

// Three routers, each with a third of the requests, are one: a prefix has one
// home, and the threshold is the fleet's.
func TestRoutersOfOneFleetAreOne(t *testing.T) {
	f := startFleet(t, fleetOptions{workers: 4, threshold: 6, dev: true})
	routers := []*fleet{f, f.addRouter(), f.addRouter()}
	for _, r := range routers {
		r.others(2)
	}
	ask := func(r *fleet, doc int) reply {
		return r.post(r.api+"/v1/chat/completions", chat([]message{{"system", document(tongues()[doc%3], uint64(doc), 3_000)}, {"user", "And?"}}, 2, nil))
	}

	// Cold bursts: the same new prompt at all three at the same moment.
	for doc := range 12 {
		replies := make([]reply, len(routers))
		var wg sync.WaitGroup
		for i, r := range routers {
			wg.Go(func() { replies[i] = ask(r, doc) })
		}
		wg.Wait()
		var homes []string
		for _, r := range replies {
			homes = append(homes, r.ok(t).receipt(t).instance)
		}
		if homes[0] != homes[1] || homes[1] != homes[2] {
			t.Errorf("prompt %d, at three routers at once, went to %v", doc, homes)
		}
	}

	// With the workers standing still, one after the other: six at its home, and
	// the rest elsewhere, whoever is asked.
	home := ask(f, 0).ok(t).receipt(t).instance
	f.settle()
	for _, url := range f.workers {
		f.post(url+"/dev/hold", "{}").ok(t)
	}
	var wg sync.WaitGroup
	for n := range 9 {
		wg.Go(func() { ask(routers[n%3], 0).ok(t) })
		for i, r := range routers {
			eventually(t, "every router knows of it", func() bool { return r.everywhere() == n+1 })
			if got := r.inFlight()[home] + r.elsewhere()[home]; got > 6 {
				t.Errorf("router %d counts %d at %s, over the threshold of 6", i, got, home)
			}
		}
	}
	if got := f.inFlight()[home] + f.elsewhere()[home]; got != 6 {
		t.Errorf("%d of nine requests are at the warm instance, want 6", got)
	}
	for _, url := range f.workers {
		f.post(url+"/dev/release", "{}").ok(t)
	}
	wg.Wait()
	for _, r := range routers {
		eventually(t, "the counts are zero", func() bool { return r.everywhere() == 0 })
	}
}

// A router is killed with requests in flight: only those are lost, the others
// forget its load, and a new one takes its place.
func TestARouterThatIsKilledHoldsNobodyUp(t *testing.T) {
	f := startFleet(t, fleetOptions{workers: 2, dev: true})
	victim := f.addRouter()
	f.others(1)
	for _, url := range f.workers {
		f.post(url+"/dev/hold", "{}").ok(t)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		got := victim.post(victim.api+"/v1/chat/completions", chat([]message{{"user", "Hello."}}, 2, nil))
		if got.Err == nil && got.StatusCode == http.StatusOK {
			t.Error("a request of a killed router was answered")
		}
	})
	eventually(t, "the other knows of its request", func() bool { return f.everywhere() == 1 })
	_ = victim.router.signal(syscall.SIGKILL)
	wg.Wait()
	for _, url := range f.workers {
		f.post(url+"/dev/release", "{}").ok(t)
	}
	eventually(t, "its load is forgotten", func() bool { return f.everywhere() == 0 })
	f.others(0)
	next := f.addRouter()
	f.others(1)
	next.post(next.api+"/v1/chat/completions", chat([]message{{"user", "Hello."}}, 2, nil)).ok(t)
}

// elsewhere is what the other routers have in flight, by instance.
func (f *fleet) elsewhere() map[string]int {
	f.t.Helper()
	out := map[string]int{}
	for _, i := range f.status().Endpoints[0].Variants[0].Instances {
		out[i.Name] = i.Elsewhere
	}
	return out
}

// everywhere is what all routers have in flight, by this router's word.
func (f *fleet) everywhere() int {
	f.t.Helper()
	n := f.inFlightTotal()
	for _, other := range f.elsewhere() {
		n += other
	}
	return n
}
