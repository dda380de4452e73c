package feedback

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/warmroute/warmroute/radix"
	"github.com/warmroute/warmroute/scheduler"
)

// freePort is a port that was free a moment ago, for servers that must come
// back where they were.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func shutdown(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

func TestE14_NATSMayComeLater(t *testing.T) {
	port := freePort(t)
	url := fmt.Sprintf("nats://127.0.0.1:%d", port)
	r := startRouter(t, connect(t, url), []string{"a"})
	p, w := publisher(t, connect(t, url), "a", 0, "one"), newFakeWorker(1)
	publish(t, p, w, 20)
	if got := r.metric("nats_connected"); got != 0 {
		t.Errorf("nats_connected is %v without a server", got)
	}
	if !r.trusts("a", scheduler.Blind)() {
		t.Error("an instance that was never heard of is not blind")
	}
	startServer(t, port)
	r.eventually("connected", func() bool { return r.metric("nats_connected") == 1 })
	r.eventually("live and equal", func() bool { return r.trusts("a", scheduler.Live)() && r.equals("a", w)() })
}

// E13: NATS goes away and comes back as another process. What was published
// meanwhile is partly lost, since the publisher's connection buffers little.
func TestE13_AnOutageOfNATSIsRepaired(t *testing.T) {
	port := freePort(t)
	first := startServer(t, port)
	url := first.ClientURL()
	r := startRouter(t, connect(t, url), []string{"a"})
	workers := connect(t, url, nats.ReconnectBufSize(2000))
	p, w := publisher(t, workers, "a", 0, "one"), newFakeWorker(1)
	publish(t, p, w, 50)
	r.eventually("live", r.trusts("a", scheduler.Live))
	for round := range 3 {
		shutdown(first)
		r.eventually("the metric says so", func() bool { return r.metric("nats_connected") == 0 })
		publish(t, p, w, 100)
		first = startServer(t, port)
		r.eventually("connected again", func() bool { return r.metric("nats_connected") == 1 })
		r.eventually(fmt.Sprintf("live and equal after outage %d", round+1), func() bool {
			return r.trusts("a", scheduler.Live)() && r.equals("a", w)()
		})
	}
	if p.Dropped() == 0 {
		t.Error("nothing was lost: the test tests nothing")
	}
	if got := r.metric("gaps_total"); got == 0 {
		t.Error("no gap was counted")
	}
}

// E15: a burst that overflows the client's buffer while the router is busy.
func TestE15_ASlowRouterNoticesWhatItLost(t *testing.T) {
	url := startServer(t, -1).ClientURL()
	r := prepareRouter(t, connect(t, url), []string{"a", "quiet"}, func(o *SubscriberOptions) { o.Pending = 64 })
	begun, goOn := make(chan struct{}), make(chan struct{})
	held := false
	r.sub.observe = func(f *feed) {
		if !held && f.member.name == "a" {
			held = true
			close(begun)
			<-goOn
		}
	}
	r.start()
	nc := connect(t, url)
	quiet, wq := publisher(t, nc, "quiet", 0, "one"), newFakeWorker(9)
	r.eventually("quiet is live", r.trusts("quiet", scheduler.Live))
	p, w := publisher(t, nc, "a", 0, "one"), newFakeWorker(1)
	publish(t, p, w, 1)
	<-begun
	for range 50_000 {
		// Pace: what the publisher drops is another matter.
		for len(p.queue) > publishQueue/2 {
			time.Sleep(time.Millisecond)
		}
		if err := p.Publish(Batch{Events: []Event{removed(0)}}); err != nil {
			t.Fatal(err)
		}
	}
	// The last word of an instance is lost in the burst, and no other follows.
	publish(t, quiet, wq, 5)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	flush(t, nc)
	p2 := publisher(t, nc, "a", 0, "two") // somebody must answer for a
	w2 := newFakeWorker(2)
	publish(t, p2, w2, 10)
	flush(t, nc)
	close(goOn)
	r.eventually("the drop is counted", func() bool { return r.metric("slow_consumer_dropped_total") > 0 })
	r.eventually("a is live and equal", func() bool { return r.trusts("a", scheduler.Live)() && r.equals("a", w2)() })
	r.eventually("quiet too", func() bool { return r.trusts("quiet", scheduler.Live)() && r.equals("quiet", wq)() })
	if !strings.Contains(r.log.String(), "too slow") {
		t.Error("the log does not tell of it")
	}
}

// E18: the connection is there, and nothing comes from a worker that has work.
func TestE18_AWorkerWithWorkThatSaysNothingIsStale(t *testing.T) {
	url := startServer(t, -1).ClientURL()
	r := startRouter(t, connect(t, url), []string{"a", "idle"}, func(o *SubscriberOptions) { o.StaleAfter = 100 * time.Millisecond })
	nc := connect(t, url)
	p, w := publisher(t, nc, "a", 0, "one"), newFakeWorker(1)
	idle := publisher(t, nc, "idle", 0, "one")
	publish(t, p, w, 10)
	publish(t, idle, newFakeWorker(2), 10)
	r.eventually("both are live", func() bool { return r.trusts("a", scheduler.Live)() && r.trusts("idle", scheduler.Live)() })

	e, _ := r.scheduler.Endpoint("ep")
	var leases []*scheduler.Lease
	for { // until a request is on a
		l, err := r.scheduler.Acquire(&scheduler.Request{Endpoint: e}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, l)
		if l.Instance == r.instance("a") {
			break
		}
	}
	for _, l := range leases[:len(leases)-1] {
		l.Done(scheduler.Served)
	}
	// Silent for longer than that, yet it answers when asked.
	enough := float64(time.Now().Add(150*time.Millisecond).UnixNano()) / 1e9
	r.eventually("its head was heard", func() bool { return r.metric("last_heard_timestamp_seconds", "ep", "a", "0") > enough })
	if !r.trusts("a", scheduler.Live)() {
		t.Error("an instance that answers is not live")
	}
	for _, p := range []*Publisher{p, idle} {
		if err := p.Close(); err != nil { // nobody answers any more
			t.Fatal(err)
		}
	}
	r.eventually("a is stale", r.trusts("a", scheduler.Stale))
	if !r.trusts("idle", scheduler.Live)() {
		t.Error("an instance without work became stale")
	}
	// The worker comes back.
	w2 := newFakeWorker(3)
	publish(t, publisher(t, nc, "a", 0, "two"), w2, 10)
	r.eventually("a is live again", func() bool { return r.trusts("a", scheduler.Live)() && r.equals("a", w2)() })
	leases[len(leases)-1].Done(scheduler.Served)
}

// A worker comes back with fewer ranks: nothing tells that one is gone but that
// the others speak.
func TestARankThatIsGoneIsForgotten(t *testing.T) {
	url := startServer(t, -1).ClientURL()
	r := startRouter(t, connect(t, url), []string{"a"}, func(o *SubscriberOptions) { o.StaleAfter = 40 * time.Millisecond })
	nc := connect(t, url)
	zero, one := publisher(t, nc, "a", 0, "z"), publisher(t, nc, "a", 1, "o")
	prompt, other := count(0, 48), count(500, 48)
	for p, e := range map[*Publisher]Event{zero: stored(16, 1, prompt), one: stored(16, 1, other)} {
		if err := p.Publish(Batch{Events: []Event{e}}); err != nil {
			t.Fatal(err)
		}
	}
	r.eventually("both ranks' blocks count", func() bool { return r.matched("a", prompt, 16) == 3 && r.matched("a", other, 16) == 3 })
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	r.eventually("rank 1's blocks do not", func() bool { return r.matched("a", other, 16) == 0 })
	r.eventually("rank 0's do, and are trusted", func() bool { return r.matched("a", prompt, 16) == 3 && r.trusts("a", scheduler.Live)() })
	// It was only away.
	back := publisher(t, nc, "a", 1, "o2")
	if err := back.Publish(Batch{Events: []Event{stored(16, 1, other)}}); err != nil {
		t.Fatal(err)
	}
	r.eventually("it is followed again", func() bool { return r.matched("a", other, 16) == 3 })
}

func TestTheConfigurationMayChange(t *testing.T) {
	url := startServer(t, -1).ClientURL()
	r := startRouter(t, connect(t, url), []string{"a"})
	nc := connect(t, url)
	a, wa := publisher(t, nc, "a", 0, "one"), newFakeWorker(1)
	b, wb := publisher(t, nc, "b", 0, "one"), newFakeWorker(2)
	publish(t, a, wa, 50)
	publish(t, b, wb, 50)
	r.eventually("a is live", r.trusts("a", scheduler.Live))
	apply := func(names ...string) {
		if err := r.scheduler.Apply(config(names...)); err != nil {
			t.Fatal(err)
		}
	}
	apply("a", "b") // b comes
	r.eventually("b is live and equal", func() bool { return r.trusts("b", scheduler.Live)() && r.equals("b", wb)() })
	apply("b") // a goes, while it talks
	publish(t, a, wa, 50)
	r.eventually("a's series go", func() bool { return r.series("last_heard_timestamp_seconds") == 1 })
	apply("b", "a") // and comes again, at another address
	publish(t, a, wa, 1)
	for name, w := range map[string]*fakeWorker{"a": wa, "b": wb} {
		r.eventually(name+" is live and equal", func() bool { return r.trusts(name, scheduler.Live)() && r.equals(name, w)() })
	}
}

// TestPermissionsOfTheDocumentation: with the permissions that
// docs/kv-events.md gives, a worker can do its part and nothing else.
func TestPermissionsOfTheDocumentation(t *testing.T) {
	allow := func(subjects ...string) *server.SubjectPermission { return &server.SubjectPermission{Allow: subjects} }
	worker := func(name string) *server.User {
		return &server.User{Username: name, Password: "x", Permissions: &server.Permissions{
			Publish: allow("kv.ep." + name + ".*"), Subscribe: allow("kvsnap.ep." + name + ".*"),
			Response: &server.ResponsePermission{MaxMsgs: 1, Expires: time.Minute},
		}}
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, Users: []*server.User{
		{Username: "router", Password: "x", Permissions: &server.Permissions{Publish: allow("kvsnap.>"), Subscribe: allow("kv.>", "_INBOX.>")}},
		worker("a"), worker("b"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { shutdown(s) })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	refused := make(chan error, 100)
	as := func(name string) *nats.Conn {
		return connect(t, s.ClientURL(), nats.UserInfo(name, "x"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	}
	na := as("a")
	p, w := publisher(t, na, "a", 0, "one"), newFakeWorker(1)
	publish(t, p, w, 50)
	flush(t, na)
	r := startRouter(t, as("router"), []string{"a", "b"}) // late: it needs a snapshot
	r.eventually("a is live and equal", func() bool { return r.trusts("a", scheduler.Live)() && r.equals("a", w)() })
	select {
	case err := <-refused:
		t.Fatalf("something that is needed is refused: %v", err)
	default:
	}
	nb := as("b")
	for what, try := range map[string]func() error{
		"speak for another":           func() error { return nb.Publish("kv.ep.a.0", nil) },
		"ask another for its state":   func() error { return nb.Publish("kvsnap.ep.a.0", nil) },
		"read another's events":       func() error { _, err := nb.SubscribeSync("kv.ep.a.0"); return err },
		"read all answers":            func() error { _, err := nb.SubscribeSync("_INBOX.>"); return err },
		"answer what it is not asked": func() error { return nb.Publish("_INBOX.x", nil) },
	} {
		if err := try(); err != nil {
			t.Fatal(err)
		}
		flush(t, nb)
		select {
		case err := <-refused:
			if !strings.Contains(strings.ToLower(err.Error()), "permissions violation") {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("a worker may %s", what)
		}
	}
}

// An instance that was unreachable may be another process, or the same one.
func TestADoubtedInstanceCountsOnceItHasSaidHowFarItIs(t *testing.T) {
	s := startServer(t, -1)
	nc := connect(t, s.ClientURL())
	r := startRouter(t, nc, []string{"a", "b"})
	workers := connect(t, s.ClientURL())
	p, w := publisher(t, workers, "a", 0, "one"), newFakeWorker(1)
	publish(t, p, w, 30)
	r.eventually("live and equal", func() bool { return r.trusts("a", scheduler.Live)() && r.equals("a", w)() })

	// The same process: what it holds counts again.
	r.sub.Doubt(t.Context(), r.instance("a"))
	r.eventually("live and equal again", func() bool { return r.trusts("a", scheduler.Live)() && r.equals("a", w)() })

	// Gone: it is not believed.
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	r.sub.Doubt(t.Context(), r.instance("a"))
	if !r.trusts("a", scheduler.Recovering)() {
		t.Error("an instance that does not answer is believed")
	}
	// Another process, that has said nothing of itself yet.
	publisher(t, workers, "a", 0, "two")
	r.sub.Doubt(t.Context(), r.instance("a"))
	empty := newFakeWorker(2)
	r.eventually("live, and known to hold nothing", func() bool { return r.trusts("a", scheduler.Live)() && r.equals("a", empty)() })

	// Of one that has no events only predictions are known.
	keys := []radix.Key{1, 2, 3}
	r.index.Predict(r.instance("b").Handle(), keys, time.Now())
	r.sub.Doubt(t.Context(), r.instance("b"))
	if got := r.index.Match(nil, keys); len(got) != 0 {
		t.Errorf("predictions outlived the process: %v", got)
	}
}
