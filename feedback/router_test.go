package feedback

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmroute/warmroute/internal/blockkey"
	"github.com/warmroute/warmroute/radix"
	"github.com/warmroute/warmroute/scheduler"
)

// router is a subscriber with all that it needs, running.
type router struct {
	t         testing.TB
	index     *radix.Index
	scheduler *scheduler.Scheduler
	registry  *prometheus.Registry
	sub       *Subscriber
	log       *logBuffer
	stop      func()
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// fast are options with which faults are noticed and repaired quickly.
func fast(o *SubscriberOptions) {
	o.ProbeEvery, o.Tick, o.RetryAfter, o.RetryMax = 30*time.Millisecond, 5*time.Millisecond, 2*time.Millisecond, 50*time.Millisecond
	o.AnswerTimeout = 300 * time.Millisecond
	o.Rand = rand.New(rand.NewPCG(1, 2))
}

// config is an endpoint "ep" with the named instances.
func config(instances ...string) []scheduler.EndpointConfig {
	v := scheduler.VariantConfig{Name: "v", Weight: 1}
	for i, name := range instances {
		v.Instances = append(v.Instances, scheduler.InstanceConfig{Name: name, URL: fmt.Sprintf("http://127.0.0.1:%d", 8000+i)})
	}
	return []scheduler.EndpointConfig{{Name: "ep", Model: "m", Variants: []scheduler.VariantConfig{v}}}
}

func startRouter(t testing.TB, nc *nats.Conn, instances []string, change ...func(*SubscriberOptions)) *router {
	t.Helper()
	r := prepareRouter(t, nc, instances, change...)
	r.start()
	return r
}

func prepareRouter(t testing.TB, nc *nats.Conn, instances []string, change ...func(*SubscriberOptions)) *router {
	t.Helper()
	r := &router{t: t, index: radix.New(radix.Options{}), log: &logBuffer{}}
	r.registry = prometheus.NewRegistry()
	registry := r.registry
	r.scheduler = scheduler.New(scheduler.Options{
		Held: r.index, Placed: radix.New(radix.Options{}), Rand: rand.New(rand.NewPCG(1, 1)), Registerer: registry,
	})
	if err := r.scheduler.Apply(config(instances...)); err != nil {
		t.Fatal(err)
	}
	o := SubscriberOptions{
		Conn: nc, Scheduler: r.scheduler, Index: r.index, Logger: slog.New(slog.NewTextHandler(r.log, nil)), Registerer: registry, Now: time.Now,
	}
	fast(&o)
	for _, f := range change {
		f(&o)
	}
	var err error
	if r.sub, err = NewSubscriber(o); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *router) start() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.sub.Run(ctx) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				r.t.Error(err)
			}
		})
	}
	r.t.Cleanup(r.stop)
}

// ready waits until the router hears what is published. Publishers need not wait
// for it; messages made by hand, which nobody answers for, do.
func (r *router) ready(nc *nats.Conn) {
	r.t.Helper()
	r.eventually("the router hears", func() bool {
		if err := nc.Publish("kv.nobody.x.0", nil); err != nil {
			r.t.Fatal(err)
		}
		flush(r.t, nc)
		return r.metric("unknown_instances_total") > 0
	})
	before := -1.0
	r.eventually("all of that has come", func() bool {
		now := r.metric("unknown_instances_total")
		same := now == before
		before = now
		return same
	})
}

func (r *router) instance(name string) *scheduler.Instance {
	r.t.Helper()
	i, ok := r.scheduler.Instance("ep", name)
	if !ok {
		r.t.Fatalf("no instance %s", name)
	}
	return i
}

// matched is what the instance is credited with, of a prompt without adapter
// or salt.
func (r *router) matched(name string, prompt []uint32, size int) int {
	return matched(r.index, r.instance(name).Handle(), blockkey.Namespace{Model: "m", BlockSize: size}, prompt)
}

// metric is the value of a counter or gauge that has the given label values.
func (r *router) metric(name string, labels ...string) float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "warmroute_feedback_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if slices.Equal(values, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// series is how many series a metric has.
func (r *router) series(name string) int {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "warmroute_feedback_"+name {
			return len(f.GetMetric())
		}
	}
	return 0
}

// eventually waits until the condition holds.
func (r *router) eventually(what string, holds func() bool) {
	r.t.Helper()
	if !within(30*time.Second, holds) {
		r.t.Fatalf("after 30 s not yet: %s\n%s", what, tail(r.log.String()))
	}
}

func within(limit time.Duration, holds func() bool) bool {
	deadline := time.Now().Add(limit)
	for !holds() {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(2 * time.Millisecond)
	}
	return true
}

func tail(s string) string {
	lines := strings.Split(s, "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

func (r *router) trusts(name string, want scheduler.Trust) func() bool {
	return func() bool {
		got, _ := r.instance(name).Trust()
		return got == want
	}
}

// equals says whether the instance is credited with just what the model holds.
func (r *router) equals(name string, w *fakeWorker) func() bool {
	return func() bool { return compare(r.index, r.instance(name).Handle(), w.model, w.chains, false) == "" }
}

// compare says how the index differs from the model on the prompts, or "". An
// index that may hold less need only not hold more.
func compare(x *radix.Index, i radix.Instance, model naive, prompts [][]uint32, less bool) string {
	held := map[string]bool{}
	for id, b := range model {
		held[b.path] = true
		if _, ok := x.Lookup(radix.Source{Instance: i}, id.hash); !ok && !less {
			return fmt.Sprintf("block %d is not in the index", id.hash)
		}
	}
	for _, prompt := range prompts {
		want, path := 0, []byte("|")
		for want < len(prompt)/fakeBlock {
			for _, tok := range prompt[want*fakeBlock : (want+1)*fakeBlock] {
				path = append(path, byte(tok>>24), byte(tok>>16), byte(tok>>8), byte(tok))
			}
			if !held[string(path)] {
				break
			}
			want++
		}
		got := matched(x, i, blockkey.Namespace{Model: "m", BlockSize: fakeBlock}, prompt)
		if got > want || got < want && !less {
			return fmt.Sprintf("a prompt of %d blocks: %d in the index, %d in the model", len(prompt)/fakeBlock, got, want)
		}
	}
	return ""
}

// publish publishes n steps of the worker.
func publish(t *testing.T, p *Publisher, w *fakeWorker, n int) {
	t.Helper()
	for range n {
		if err := p.Publish(w.step()); err != nil {
			t.Fatal(err)
		}
	}
}

func flush(t testing.TB, conns ...*nats.Conn) {
	t.Helper()
	for _, nc := range conns {
		if err := nc.FlushTimeout(20 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheTreeFollowsAWorker(t *testing.T) {
	url := startServer(t, -1).ClientURL()
	r := startRouter(t, connect(t, url), []string{"a", "b"})
	nc := connect(t, url)
	p, w := publisher(t, nc, "a", 0, "one"), newFakeWorker(1)
	publish(t, p, w, 500)
	r.eventually("a is live and equal", func() bool { return r.trusts("a", scheduler.Live)() && r.equals("a", w)() })
	if !r.trusts("b", scheduler.Blind)() {
		t.Error("b is not blind, though nothing was heard of it")
	}
	if got := r.instance("a").BlockSize(); got != fakeBlock {
		t.Errorf("block size %d, want %d from the events", got, fakeBlock)
	}
}

// A18: two routers, one of them started late, with no events after its start.
func TestA18_ALateRouterAsksForTheState(t *testing.T) {
	url := startServer(t, -1).ClientURL()
	nc := connect(t, url)
	workers := map[string]*fakeWorker{"a": newFakeWorker(1), "b": newFakeWorker(2), "c": newFakeWorker(3)}
	names := []string{"a", "b", "c"}
	early := startRouter(t, connect(t, url), names)
	for name, w := range workers {
		publish(t, publisher(t, nc, name, 0, "one"), w, 700)
	}
	flush(t, nc)
	late := startRouter(t, connect(t, url), names)
	for name, w := range workers {
		early.eventually("the early router equals "+name, early.equals(name, w))
		late.eventually("the late router trusts "+name, late.trusts(name, scheduler.Live))
		late.eventually("the late router equals "+name, late.equals(name, w))
	}
	synced := func() bool { return late.metric("streams", "live") == 3 }
	late.eventually("the metric says that three are in step", synced)
}

func TestA09_UnknownInstancesAreCountedAndNeverIndexed(t *testing.T) {
	url := startServer(t, -1).ClientURL()
	r := startRouter(t, connect(t, url), []string{"10.0.0.5:8000"})
	nc := connect(t, url)
	event := Encode(Batch{Events: []Event{stored(16, 1, count(0, 48))}})
	header := func(seq string) nats.Header { return nats.Header{headerEpoch: {"one"}, headerSeq: {seq}} }
	r.ready(nc)
	sent := r.metric("unknown_instances_total")
	for _, name := range []string{"10.0.0.5", "http://10.0.0.5:8000/", "[::1]:8000", "worker-5", "10.0.0.5:8000/"} {
		if err := nc.PublishMsg(&nats.Msg{Subject: EventSubject("ep", name, 0), Header: header("0"), Data: event}); err != nil {
			t.Fatal(err)
		}
		sent++
	}
	for _, subject := range []string{"kv.ep.10.0.0.5:8000.0", "kv.other.x.0", "kv.ep"} {
		if err := nc.PublishMsg(&nats.Msg{Subject: subject, Header: header("0"), Data: event}); err != nil {
			t.Fatal(err)
		}
		sent++
	}
	// One who speaks on the right subject under another name.
	liar := header("0")
	liar.Set(headerInstance, "worker-6")
	if err := nc.PublishMsg(&nats.Msg{Subject: EventSubject("ep", "10.0.0.5:8000", 0), Header: liar, Data: event}); err != nil {
		t.Fatal(err)
	}
	sent++
	r.eventually("all are counted", func() bool { return r.metric("unknown_instances_total") == sent })
	if got := r.matched("10.0.0.5:8000", count(0, 48), 16); got != 0 {
		t.Errorf("%d blocks of unknown instances are credited", got)
	}
	if n := strings.Count(r.log.String(), "not configured"); n != 1 {
		t.Errorf("%d log lines, want 1 in a minute", n)
	}
	// The one canonical name.
	publish(t, publisher(t, nc, "10.0.0.5:8000", 0, "one"), newFakeWorker(1), 1)
	r.eventually("the right name is followed", r.trusts("10.0.0.5:8000", scheduler.Live))
}

func TestE05_ARestartEndsTheOldBlocks(t *testing.T) {
	url := startServer(t, -1).ClientURL()
	r := startRouter(t, connect(t, url), []string{"a"})
	nc := connect(t, url)
	p := publisher(t, nc, "a", 0, "one")
	old, fresh := count(0, 48), count(500, 32)
	send := func(p *Publisher, e Event) {
		if err := p.Publish(Batch{Events: []Event{e}}); err != nil {
			t.Fatal(err)
		}
	}
	send(p, stored(16, 1, old))
	r.eventually("the first process's blocks are known", func() bool { return r.matched("a", old, 16) == 3 })
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	send(publisher(t, nc, "a", 0, "two"), stored(16, 1, fresh))
	r.eventually("the second process's are", func() bool { return r.matched("a", fresh, 16) == 2 })
	if got := r.matched("a", old, 16); got != 0 {
		t.Errorf("%d blocks of the dead process are credited", got)
	}
}

func TestE11_RanksAreFollowedApart(t *testing.T) {
	url := startServer(t, -1).ClientURL()
	r := startRouter(t, connect(t, url), []string{"a"})
	nc := connect(t, url)
	zero, one := publisher(t, nc, "a", 0, "z"), publisher(t, nc, "a", 1, "o")
	prompt, other := count(0, 48), count(500, 48)
	for p, e := range map[*Publisher]Event{zero: stored(16, 1, prompt), one: stored(16, 1, other)} {
		if err := p.Publish(Batch{Events: []Event{e}}); err != nil {
			t.Fatal(err)
		}
	}
	r.eventually("both ranks' blocks count", func() bool { return r.matched("a", prompt, 16) == 3 && r.matched("a", other, 16) == 3 })
	if err := one.Publish(Batch{Events: []Event{removed(1, 2, 3)}}); err != nil {
		t.Fatal(err)
	}
	r.eventually("rank 1 dropped its own", func() bool { return r.matched("a", other, 16) == 0 })
	if got := r.matched("a", prompt, 16); got != 3 {
		t.Errorf("rank 0 has %d blocks, want 3", got)
	}
	// Rank 1 starts again.
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if err := publisher(t, nc, "a", 1, "o2").Publish(Batch{Events: []Event{stored(16, 9, other[:16])}}); err != nil {
		t.Fatal(err)
	}
	r.eventually("rank 1's second life counts", func() bool { return r.matched("a", other, 16) == 1 })
	if got := r.matched("a", prompt, 16); got != 3 {
		t.Errorf("rank 0 has %d blocks after rank 1 restarted, want 3", got)
	}
	if n := r.series("last_heard_timestamp_seconds"); n != 2 {
		t.Errorf("%d series of when a rank was last heard, want 2", n)
	}
}

// E11: two ranks that publish on one subject.
func TestE11_RanksOnOneSubjectAreToldApart(t *testing.T) {
	url := startServer(t, -1).ClientURL()
	r := startRouter(t, connect(t, url), []string{"a"})
	nc := connect(t, url)
	r.ready(nc)
	send := func(rank int, epoch, seq string, e Event) {
		m := &nats.Msg{Subject: EventSubject("ep", "a", 0), Data: Encode(Batch{Rank: rank, Events: []Event{e}})}
		m.Header = nats.Header{headerEpoch: {epoch}, headerSeq: {seq}}
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	prompt, other := count(0, 48), count(500, 48)
	send(0, "z", "0", stored(16, 1, prompt))
	send(1, "o", "0", stored(16, 1, other))
	send(1, "o", "1", removed(1))
	r.eventually("rank 1's block is gone", func() bool { return r.matched("a", other, 16) == 0 && r.matched("a", prompt, 16) == 3 })
}

func TestE19_AWorkerWithoutBlockSizeIsNotTrusted(t *testing.T) {
	url := startServer(t, -1).ClientURL()
	r := startRouter(t, connect(t, url), []string{"a"})
	nc := connect(t, url)
	r.ready(nc)
	p := publisher(t, nc, "a", 0, "one")
	bad := stored(16, 1, count(0, 48))
	bad.BlockSize = 0
	if err := p.Publish(Batch{Events: []Event{bad}}); err != nil {
		t.Fatal(err)
	}
	r.eventually("it is stale", r.trusts("a", scheduler.Stale))
	if _, reason := r.instance("a").Trust(); !strings.Contains(reason, "block size") {
		t.Errorf("reason %q", reason)
	}
	if got := r.metric("events_refused_total", "no_block_size"); got != 1 {
		t.Errorf("%v events counted as refused, want 1", got)
	}
}

// E01: holes, unreadable messages and repeats, each counted.
func TestE01_AHoleIsCountedAndRepaired(t *testing.T) {
	url := startServer(t, -1).ClientURL()
	r := startRouter(t, connect(t, url), []string{"a"})
	nc := connect(t, url)
	r.ready(nc)
	p, w := publisher(t, nc, "a", 0, "one"), newFakeWorker(1)
	publish(t, p, w, 20)
	r.eventually("live", r.trusts("a", scheduler.Live))
	p.mu.Lock()
	p.seq += 2 // two batches that never were sent
	p.mu.Unlock()
	publish(t, p, w, 20)
	r.eventually("equal again", r.equals("a", w))
	r.eventually("live again", r.trusts("a", scheduler.Live))
	r.eventually("one gap is counted", func() bool { return r.metric("gaps_total") == 1 })
	if got := r.metric("resyncs_total", "loaded"); got != 1 {
		t.Errorf("%v snapshots loaded, want 1", got)
	}
	log := r.log.String()
	if !strings.Contains(log, "trust=RECOVERING") || !strings.Contains(log, "reason=gap") {
		t.Errorf("the log does not tell of it:\n%s", log)
	}
}

// E03: a worker that answers no questions.
func TestE03_WithoutSnapshotsAStreamGoesOnWithWhatIsTrue(t *testing.T) {
	url := startServer(t, -1).ClientURL()
	r := startRouter(t, connect(t, url), []string{"a"}, func(o *SubscriberOptions) { o.AnswerTimeout = 20 * time.Millisecond })
	nc := connect(t, url)
	r.ready(nc)
	send := func(seq string, e Event) {
		m := &nats.Msg{Subject: EventSubject("ep", "a", 0), Data: Encode(Batch{Events: []Event{e}})}
		m.Header = nats.Header{headerEpoch: {"one"}, headerSeq: {seq}}
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	prompt, other := count(0, 48), count(500, 48)
	send("0", stored(16, 1, prompt))
	r.eventually("live", r.trusts("a", scheduler.Live))
	send("2", stored(16, 11, other)) // 1 removed something, perhaps
	r.eventually("what came after the hole counts", func() bool { return r.matched("a", other, 16) == 3 })
	if got := r.matched("a", prompt, 16); got != 0 {
		t.Errorf("%d blocks from before the hole are credited", got)
	}
	r.eventually("live, and the reason says that something is missing", func() bool {
		trust, reason := r.instance("a").Trust()
		return trust == scheduler.Live && strings.Contains(reason, "no snapshot")
	})
	// Its parents are unknown for good, which must not be asked for over and over.
	send("3", after(3, stored(16, 4, count(48, 16))))
	send("4", stored(16, 21, count(900, 16)))
	r.eventually("the stream goes on", func() bool { return r.matched("a", count(900, 16), 16) == 1 })
}

// An unknown parent is a loss that no number shows. The snapshot that is asked
// for does not help here, and must not be asked for over and over.
func TestUnknownParentsAskForASnapshotEverMoreSeldom(t *testing.T) {
	url := startServer(t, -1).ClientURL()
	r := startRouter(t, connect(t, url), []string{"a"}, func(o *SubscriberOptions) { o.RetryAfter, o.RetryMax = time.Minute, time.Hour })
	nc := connect(t, url)
	r.ready(nc)
	p := publisher(t, nc, "a", 0, "one")
	prompt := count(0, 48)
	if err := p.Publish(Batch{Events: []Event{stored(16, 1, prompt)}}); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := p.Publish(Batch{Events: []Event{after(99, stored(16, 100, prompt))}}); err != nil {
			t.Fatal(err)
		}
	}
	r.eventually("all are counted", func() bool { return r.metric("unknown_parents_total") == 20 })
	r.eventually("one snapshot came", func() bool { return r.metric("resyncs_total", "loaded") == 1 })
	r.eventually("it is live", r.trusts("a", scheduler.Live))
	if got := r.matched("a", prompt, 16); got != 3 {
		t.Errorf("%d blocks, want the 3 that are known", got)
	}
}
