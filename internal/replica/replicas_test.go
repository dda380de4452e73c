package replica

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/warmroute/warmroute/internal/blockkey"
	"github.com/warmroute/warmroute/scheduler"
)

const limit = time.Minute

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.After(limit)
	for !ok() {
		select {
		case <-end:
			t.Fatalf("it did not come about that %s", what)
		case <-tick.C:
		}
	}
}

// cluster starts n NATS servers that are one.
func cluster(t testing.TB, n int) []*server.Server {
	t.Helper()
	var all []*server.Server
	var seed []*url.URL
	for i := range n {
		ns, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, Routes: seed,
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: -1},
		})
		if err != nil {
			t.Fatal(err)
		}
		ns.Start()
		t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
		if !ns.ReadyForConnections(limit) {
			t.Fatal("a NATS server is not ready")
		}
		if seed == nil {
			seed = []*url.URL{{Scheme: "nats", Host: ns.ClusterAddr().String()}}
		}
		all = append(all, ns)
	}
	eventually(t, "the NATS servers know each other", func() bool {
		for _, ns := range all {
			if n > 1 && ns.NumRoutes() < n-1 {
				return false
			}
		}
		return true
	})
	return all
}

// router is one router's part: a scheduler that shares.
type router struct {
	t testing.TB
	*scheduler.Scheduler
	replicas *Replicas
	conn     *nats.Conn
	stop     func()
}

// fast are options that make a test wait little.
func fast() Options { return Options{Beat: 10 * time.Millisecond, Expire: 300 * time.Millisecond} }

func startRouter(t testing.TB, o Options, instances, threshold int, urls ...string) *router {
	t.Helper()
	out := NewOutbox()
	r := &router{t: t, Scheduler: newScheduler(t, instances, threshold, out.Hooks())}
	options := nats.Options{
		Url: urls[0], Servers: urls, NoRandomize: true, AllowReconnect: true, MaxReconnect: -1,
		ReconnectWait: 5 * time.Millisecond, RetryOnFailedConnect: true,
	}
	conn, err := options.Connect()
	if err != nil {
		t.Fatal(err)
	}
	r.conn = conn
	o.Conn, o.Scheduler, o.Outbox, o.Logger, o.Registerer, o.Now = conn, r.Scheduler, out, slog.New(slog.DiscardHandler), prometheus.NewRegistry(), time.Now
	if r.replicas, err = New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.replicas.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	r.stop = func() { cancel(); running.Wait(); conn.Close() }
	t.Cleanup(func() { r.stop() })
	return r
}

// acquire takes a place for a prompt that begins alike for the same seed.
func (r *router) acquire(seed, tokens int) *scheduler.Lease {
	r.t.Helper()
	e, _ := r.Endpoint(endpoint)
	prompt := make([]blockkey.Token, tokens)
	for i := range prompt {
		prompt[i] = blockkey.Token(seed*7919 + i)
	}
	keys := blockkey.Append(nil, blockkey.Root(blockkey.Namespace{Model: "m", BlockSize: 16}), prompt, 16)
	l, err := r.Acquire(&scheduler.Request{Endpoint: e, PromptTokens: tokens, Chains: []blockkey.Chain{{BlockSize: 16, Keys: keys}}}, time.Now())
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

func (r *router) elsewhere() int {
	total := 0
	e, _ := r.Endpoint(endpoint)
	for _, i := range e.Variants()[0].Instances() {
		total += i.Elsewhere()
	}
	return total
}

func startThree(t *testing.T, instances, threshold int) (rs []*router, ns []*server.Server) {
	t.Helper()
	ns = cluster(t, 3)
	for i := range 3 {
		// Each at another server of the cluster, and knowing them all.
		var urls []string
		for k := range ns {
			urls = append(urls, ns[(i+k)%3].ClientURL())
		}
		rs = append(rs, startRouter(t, fast(), instances, threshold, urls...))
	}
	for _, r := range rs {
		eventually(t, "the routers know each other", func() bool { return gauge(t, r.replicas.metrics.peers) == 2 })
	}
	return rs, ns
}

func TestThreeRoutersHoldOneThreshold(t *testing.T) {
	rs, _ := startThree(t, 8, 4)
	var leases []*scheduler.Lease
	for n := range 4 {
		leases = append(leases, rs[n%3].acquire(1, 320))
		for i, r := range rs {
			own := 0
			for k := 0; k <= n; k++ {
				if k%3 == i {
					own++
				}
			}
			eventually(t, "the others have heard of it", func() bool { return r.elsewhere() == n+1-own })
		}
	}
	home := leases[0].Instance.Name()
	for i, l := range leases {
		if l.Instance.Name() != home {
			t.Errorf("request %d went to %s, the first to %s", i, l.Instance.Name(), home)
		}
	}
	for i, r := range rs {
		if l := r.acquire(1, 320); l.Instance.Name() == home {
			t.Errorf("router %d sent a fifth to %s, whose threshold is 4", i, home)
		}
		eventually(t, "it is heard of", func() bool { return rs[(i+1)%3].elsewhere() > 0 })
	}
}

func TestAllCountsComeBackToZero(t *testing.T) {
	rs, _ := startThree(t, 4, 64)
	var running sync.WaitGroup
	for i, r := range rs {
		running.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			var open []*scheduler.Lease
			for range 2000 {
				open = append(open, r.acquire(random.IntN(50), 160))
				if len(open) > 20 {
					open[0].Done(scheduler.Outcome(random.IntN(3)))
					open = open[1:]
				}
			}
			for _, l := range open {
				l.Done(scheduler.Served)
			}
		})
	}
	running.Wait()
	for _, r := range rs {
		eventually(t, "nothing is in flight elsewhere", func() bool { return r.elsewhere() == 0 })
	}
}

func TestARouterThatEndsCountsNoMore(t *testing.T) {
	rs, _ := startThree(t, 4, 64)
	rs[0].acquire(1, 160)
	eventually(t, "it is heard of", func() bool { return rs[1].elsewhere() == 1 })
	rs[0].stop()
	eventually(t, "it counts no more", func() bool { return rs[1].elsewhere() == 0 && rs[2].elsewhere() == 0 })
}

func TestARouterThatStartsLateKnowsAll(t *testing.T) {
	ns := cluster(t, 1)[0]
	// Without regular full states only the question brings it.
	o := fast()
	o.FullEvery = time.Hour
	a := startRouter(t, o, 4, 64, ns.ClientURL())
	for seed := range 10 {
		a.acquire(seed, 160)
	}
	b := startRouter(t, o, 4, 64, ns.ClientURL())
	eventually(t, "it knows all", func() bool { return b.elsewhere() == 10 })
}

func TestAServerOfTheClusterGoes(t *testing.T) {
	rs, ns := startThree(t, 4, 64)
	rs[0].acquire(1, 160)
	eventually(t, "it is heard of", func() bool { return rs[1].elsewhere() == 1 })

	// One server goes; its router reaches another.
	ns[0].Shutdown()
	rs[0].acquire(2, 160)
	eventually(t, "the next is heard of", func() bool { return rs[1].elsewhere() == 2 && rs[2].elsewhere() == 2 })
}

func TestAPartitionIsMendedOnBothSides(t *testing.T) {
	ns := cluster(t, 1)[0]
	wire := newLink(t, ns.Addr().String())
	a := startRouter(t, fast(), 4, 64, "nats://"+wire.addr())
	b := startRouter(t, fast(), 4, 64, ns.ClientURL())
	a.acquire(1, 160)
	b.acquire(2, 160)
	eventually(t, "they hear each other", func() bool { return a.elsewhere() == 1 && b.elsewhere() == 1 })

	wire.cut()
	a.acquire(3, 160)
	first := b.acquire(4, 160)
	eventually(t, "what is not heard counts no more", func() bool { return a.elsewhere() == 0 && b.elsewhere() == 0 })
	first.Done(scheduler.Served)

	wire.mend()
	eventually(t, "they hear each other again", func() bool { return a.elsewhere() == 1 && b.elsewhere() == 2 })
}

// link carries TCP to an address until it is cut.
type link struct {
	t        testing.TB
	to       string
	listener net.Listener

	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

func newLink(t testing.TB, to string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &link{t: t, to: to, listener: l}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { w.carry(c) })
		}
	})
	t.Cleanup(func() { l.Close(); w.cut(); running.Wait() })
	return w
}

func (w *link) addr() string { return w.listener.Addr().String() }

func (w *link) carry(in net.Conn) {
	out, err := net.Dial("tcp", w.to)
	if err != nil {
		in.Close()
		return
	}
	w.mu.Lock()
	w.conns = append(w.conns, in, out)
	down := w.down
	w.mu.Unlock()
	if down {
		in.Close()
		out.Close()
	}
	var both sync.WaitGroup
	for _, d := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			_, _ = io.Copy(d[0], d[1]) // ends when either is closed
			d[0].Close()
			d[1].Close()
		})
	}
	both.Wait()
}

func (w *link) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

func (w *link) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
}

func gauge(t testing.TB, g prometheus.Gauge) int {
	t.Helper()
	var m dto.Metric
	if err := g.Write(&m); err != nil {
		t.Fatal(err)
	}
	return int(m.GetGauge().GetValue())
}
