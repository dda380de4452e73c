package e2e

import (
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// trust is the state of one instance's events.
func (f *fleet) trust(name string) string {
	f.t.Helper()
	for _, i := range f.status().Endpoints[0].Variants[0].Instances {
		if i.Name == name {
			return i.Trust
		}
	}
	return ""
}

// matchesCache sends a body and fails unless the router matched what the worker
// had.
func (f *fleet) matchesCache(body string) (matched int) {
	f.t.Helper()
	got := f.post(f.api+"/v1/chat/completions", body).ok(f.t)
	rec, cached := got.receipt(f.t), got.usage(f.t).PromptTokensDetails.CachedTokens
	if rec.matched != cached {
		f.t.Errorf("%s was credited with %d tokens and had %d", rec.instance, rec.matched, cached)
	}
	return rec.matched
}

func TestA18_ALateRouterLearnsWhatTheWorkersHold(t *testing.T) {
	f := startFleet(t, fleetOptions{workers: 2})
	body := chat([]message{{"system", document(tongues()[1], 4, 8_000)}, {"user", "Und?"}}, 4, nil)
	f.post(f.api+"/v1/chat/completions", body).ok(t)
	f.settle()

	late := start(t, "warmroute", "serve", "--config", f.config)
	var up struct{ API, Admin string }
	if err := json.Unmarshal([]byte(late.line("warmroute serves")), &up); err != nil {
		t.Fatal(err)
	}
	f.api, f.admin = "http://"+up.API, "http://"+up.Admin
	eventually(t, "the late router has both instances' state", func() bool { return f.trust("w0") == "LIVE" && f.trust("w1") == "LIVE" })
	if matched := f.matchesCache(body); matched < 1000 {
		t.Errorf("the late router matched %d tokens", matched)
	}
}

func TestE14_NATSOutagesCostNoRequest(t *testing.T) {
	f := startFleet(t, fleetOptions{workers: 2})
	warm := chat([]message{{"system", document(tongues()[0], 4, 8_000)}, {"user", "One?"}}, 4, nil)
	f.post(f.api+"/v1/chat/completions", warm).ok(t)
	f.settle()

	addr := f.nats.Addr().(*net.TCPAddr)
	f.nats.Shutdown()
	f.nats.WaitForShutdown()
	eventually(t, "the router has noticed", func() bool { return strings.Contains(string(f.get(f.admin+"/readyz").Body), "not connected") })
	for i := range 6 {
		f.post(f.api+"/v1/chat/completions", chat([]message{{"user", document(tongues()[i], uint64(i), 3_000)}}, 4, nil)).ok(t)
	}
	f.post(f.workers["w0"]+"/reset_prefix_cache", "{}").ok(t)
	f.post(f.workers["w1"]+"/reset_prefix_cache", "{}").ok(t)

	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: addr.Port, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	eventually(t, "NATS is back", func() bool { return strings.Contains(string(f.get(f.admin+"/readyz").Body), "is connected") })
	// The worker announces its reset with its next step.
	for i, url := range []string{f.workers["w0"], f.workers["w1"]} {
		f.post(url+"/v1/chat/completions", chat([]message{{"user", document(tongues()[2], uint64(50+i), 2_000)}}, 4, nil)).ok(t)
	}
	eventually(t, "both instances are trusted again, and known to hold little", func() bool {
		return f.trust("w0") == "LIVE" && f.trust("w1") == "LIVE" && f.metric("warmroute_tree_entries") < 500
	})
	f.matchesCache(warm)
}

func TestAWorkersDeathAndReturn(t *testing.T) {
	f := startFleet(t, fleetOptions{workers: 2})
	body := chat([]message{{"system", document(tongues()[0], 4, 8_000)}, {"user", "One?"}}, 4, nil)
	first := f.post(f.api+"/v1/chat/completions", body).ok(t).receipt(t)
	f.settle()
	if again := f.post(f.api+"/v1/chat/completions", body).ok(t).receipt(t); again.instance != first.instance || again.rule != "prefix_hit" {
		t.Fatalf("first %+v, again %+v", first, again)
	}

	_ = f.processes[first.instance].signal(syscall.SIGKILL)
	// Its blocks are still in the tree: the request is tried there, and goes on.
	for range 3 {
		if rec := f.post(f.api+"/v1/chat/completions", body).ok(t).receipt(t); rec.instance == first.instance {
			t.Fatalf("answered by %s, which is dead", rec.instance)
		}
	}
	eventually(t, "it is out of service", func() bool { return !f.readyInstance(first.instance) })

	// A new process in its place has an empty cache, and another epoch.
	f.startWorkerAt(first.instance, strings.TrimPrefix(f.workers[first.instance], "http://"))
	eventually(t, "it is back in service", func() bool { return f.readyInstance(first.instance) && f.trust(first.instance) == "LIVE" })
	for _, lang := range tongues() {
		f.matchesCache(chat([]message{{"system", document(lang, 4, 8_000)}, {"user", strconv.Itoa(len(lang.name))}}, 4, nil))
	}
}

func (f *fleet) readyInstance(name string) bool {
	f.t.Helper()
	for _, i := range f.status().Endpoints[0].Variants[0].Instances {
		if i.Name == name {
			return i.Ready
		}
	}
	return false
}

func TestG07_StreamsEndBeforeTheRouterDoes(t *testing.T) {
	f := startFleet(t, fleetOptions{workers: 1, dev: true})
	f.post(f.workers["w0"]+"/dev/hold", "{}").ok(t)
	answer := make(chan reply, 1)
	go func() {
		answer <- f.post(f.api+"/v1/chat/completions", chat([]message{{"user", "Go on."}}, 20, map[string]any{"stream": true}))
	}()
	eventually(t, "the request is in flight", func() bool { return f.inFlightTotal() == 1 })
	if err := f.router.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the router says that it is draining", func() bool { return f.get(f.admin+"/readyz").StatusCode == http.StatusServiceUnavailable })
	if got := f.get(f.admin + "/livez"); got.StatusCode != http.StatusOK {
		t.Errorf("alive: %d, %v", got.StatusCode, got.Err)
	}
	f.post(f.workers["w0"]+"/dev/release", "{}").ok(t)
	if got := (<-answer).ok(t); !strings.HasSuffix(string(got.Body), "data: [DONE]\n\n") {
		t.Errorf("the stream was cut: %s", tail(string(got.Body), 200))
	}
	if err := f.router.wait(); err != nil {
		t.Errorf("the router ended with %v", err)
	}
}
