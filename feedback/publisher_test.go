package feedback

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// startServer runs a NATS server on a free port, or on the given one.
func startServer(tb testing.TB, port int) *server.Server {
	tb.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true, DontListen: false})
	if err != nil {
		tb.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		tb.Fatal("the NATS server does not start")
	}
	tb.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

func connect(tb testing.TB, url string, options ...nats.Option) *nats.Conn {
	tb.Helper()
	nc, err := nats.Connect(url, append([]nats.Option{
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(10 * time.Millisecond),
	}, options...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	return nc
}

func publisher(tb testing.TB, nc *nats.Conn, instance string, rank int, epoch string) *Publisher {
	tb.Helper()
	p, err := NewPublisher(nc, "ep", instance, rank, epoch)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.Close(); err != nil && !errors.Is(err, ErrClosed) {
			tb.Error(err)
		}
	})
	return p
}

// fakeWorker makes events that a worker with a small cache may send.
type fakeWorker struct {
	rand   *rand.Rand
	next   uint64
	model  naive
	chains [][]uint32 // prompts that it was given
}

func newFakeWorker(seed uint64) *fakeWorker {
	return &fakeWorker{rand: rand.New(rand.NewPCG(seed, 7)), model: naive{}}
}

const fakeBlock = 4

// step is one engine step: an event or two.
func (w *fakeWorker) step() Batch {
	var b Batch
	for range 1 + w.rand.IntN(2) {
		b.Events = append(b.Events, w.event())
	}
	return b
}

func (w *fakeWorker) event() Event {
	e := w.draw()
	w.model.apply(Batch{Events: []Event{e}}, func(int) bool { return true })
	return e
}

func (w *fakeWorker) draw() Event {
	if len(w.model) > 0 {
		switch n := w.rand.IntN(100); {
		case n == 0:
			return Event{Kind: AllBlocksCleared}
		case n < 40 || len(w.model) > 200:
			e := Event{Kind: BlockRemoved, Medium: "GPU"}
			for id := range w.some(1 + w.rand.IntN(3)) {
				e.Hashes = append(e.Hashes, id.hash)
			}
			return e
		case n < 55: // another copy of what is there
			for id, b := range w.some(1) {
				if e, ok := w.again(id, b); ok {
					return e
				}
			}
		}
	}
	e := Event{Kind: BlockStored, Medium: "GPU", BlockSize: fakeBlock, GroupKind: "full_attention"}
	var prompt []uint32
	if len(w.model) > 0 && w.rand.IntN(3) > 0 {
		for id, b := range w.some(1) {
			e.HasParent, e.Parent = true, id.hash
			prompt = tokensOf(b.path)
		}
	}
	for range 1 + w.rand.IntN(6) {
		w.next++
		e.Hashes = append(e.Hashes, w.next)
		for range fakeBlock {
			e.Tokens = append(e.Tokens, w.rand.Uint32N(50))
		}
	}
	w.chains = append(w.chains, append(prompt[:len(prompt):len(prompt)], e.Tokens...))
	return e
}

// again stores a block once more, as a second copy.
func (w *fakeWorker) again(id blockID, b naiveBlock) (Event, bool) {
	tokens := tokensOf(b.path)
	e := Event{
		Kind: BlockStored, Medium: "GPU", BlockSize: fakeBlock, GroupKind: "full_attention", Hashes: []uint64{id.hash},
		Tokens: tokens[len(tokens)-fakeBlock:],
	}
	if len(tokens) == fakeBlock {
		return e, true
	}
	for parent, p := range w.model {
		if p.path == b.path[:len(b.path)-4*fakeBlock] {
			e.HasParent, e.Parent = true, parent.hash
			return e, true
		}
	}
	return Event{}, false // the block before it is gone: no worker would
}

// some draws up to n blocks of the cache.
func (w *fakeWorker) some(n int) naive {
	out := naive{}
	// The order of maps is random, but not by our seed.
	ids := sortedIDs(w.model)
	for range min(n, len(ids)) {
		id := ids[w.rand.IntN(len(ids))]
		out[id] = w.model[id]
	}
	return out
}

func sortedIDs(n naive) []blockID {
	ids := make([]blockID, 0, len(n))
	for id := range n {
		ids = append(ids, id)
	}
	slicesSortIDs(ids)
	return ids
}

// TestPublisherNumbersWithoutAGap and sends in order, and its snapshot at any
// moment is the state after the batches before its next.
func TestE22_SnapshotsAreCutBetweenTwoBatches(t *testing.T) {
	url := startServer(t, -1).ClientURL()
	nc, reader := connect(t, url), connect(t, url)
	p := publisher(t, nc, "w.1:8000", 3, "one")
	live, err := reader.SubscribeSync("kv.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil { // the publisher's subscriptions have come
		t.Fatal(err)
	}
	w := newFakeWorker(1)
	states := []naive{{}}
	done := make(chan struct{})
	const batches = 2000
	go func() {
		defer close(done)
		for range batches {
			b := w.step()
			states = append(states, maps.Clone(w.model))
			if err := p.Publish(b); err != nil {
				t.Error(err)
			}
		}
	}()
	from := &fetcher{
		conn: reader, subject: SnapshotSubject("ep", "w.1:8000", 3), rank: 3, timeout: 10 * time.Second, pause: time.Millisecond, attempts: 3,
		rand: rand.New(rand.NewPCG(1, 1)),
	}
	type cut struct {
		next  uint64
		state naive
	}
	var cuts []cut
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		h, got, err := from.fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var tab table
		for _, b := range got {
			tab.apply(b)
		}
		cuts = append(cuts, cut{h.next, tab.held()})
	}
	for _, c := range cuts {
		if !maps.Equal(c.state, states[c.next]) {
			t.Fatalf("the snapshot with next %d holds %d blocks, the model %d", c.next, len(c.state), len(states[c.next]))
		}
	}
	t.Logf("%d snapshots during %d batches", len(cuts), batches)
	tail := naive{}
	for seq := range batches {
		m, err := live.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Header.Get(headerSeq); got != strconv.Itoa(seq) || m.Header.Get(headerEpoch) != "one" || m.Header.Get(headerInstance) != "w.1:8000" {
			t.Fatalf("message %d: headers %v", seq, m.Header)
		}
		if m.Subject != "kv.ep.w%2E1%3A8000.3" {
			t.Fatalf("subject %s", m.Subject)
		}
		b, err := Decode(m.Data)
		if err != nil || b.Rank != 3 {
			t.Fatalf("message %d: %v, rank %d", seq, err, b.Rank)
		}
		tail.apply(b, func(int) bool { return true })
	}
	if !maps.Equal(tail, w.model) {
		t.Error("the messages together are not the worker's state")
	}
}

// E03: the answers of a snapshot are lost, or it is forgotten halfway: it is
// had all the same, once.
func TestE03_SnapshotsSurviveLostAnswers(t *testing.T) {
	url := startServer(t, -1).ClientURL()
	nc, reader := connect(t, url), connect(t, url)
	p := publisher(t, nc, "w", 0, "one")
	// Enough for several chunks.
	prompt := make([]uint32, 16*fakeBlock)
	want := naive{}
	for i := range 3000 {
		for j := range prompt {
			prompt[j] = uint32(i*len(prompt) + j)
		}
		b := Batch{Events: []Event{stored(fakeBlock, uint64(i)*100, append([]uint32{}, prompt...))}}
		want.apply(b, func(int) bool { return true })
		if err := p.Publish(b); err != nil && !errors.Is(err, ErrDropped) {
			t.Fatal(err)
		}
	}
	// Between them a relay loses answers, and the publisher forgets.
	middle := connect(t, url)
	asked, lost := 0, 0
	random := rand.New(rand.NewPCG(3, 3))
	_, err := middle.Subscribe("lossy", func(m *nats.Msg) {
		asked++
		if random.IntN(3) == 0 {
			lost++
			return
		}
		if asked == 12 {
			p.mu.Lock()
			p.kept = nil
			p.mu.Unlock()
		}
		answer, err := middle.RequestMsg(&nats.Msg{Subject: SnapshotSubject("ep", "w", 0), Header: m.Header}, 10*time.Second)
		if err != nil {
			t.Error(err)
			return
		}
		answer.Subject = m.Reply
		if err := middle.PublishMsg(&nats.Msg{Subject: m.Reply, Header: answer.Header, Data: answer.Data}); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*nats.Conn{nc, middle} {
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	from := &fetcher{
		conn: reader, subject: "lossy", timeout: 200 * time.Millisecond, pause: time.Millisecond, attempts: 20, rand: rand.New(rand.NewPCG(1, 1)),
	}
	h, batches, err := from.fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var tab table
	for _, b := range batches {
		tab.apply(b)
	}
	if h.next != 3000 || !maps.Equal(tab.held(), want) {
		t.Errorf("next %d with %d blocks, want 3000 with %d", h.next, len(tab.held()), len(want))
	}
	if len(batches) < 5 || lost == 0 {
		t.Errorf("%d chunks, %d answers lost: the test tests nothing", len(batches), lost)
	}
	t.Logf("%d chunks in %d requests, %d lost", len(batches), asked, lost)
}

func TestFetchGivesUp(t *testing.T) {
	nc := connect(t, startServer(t, -1).ClientURL())
	from := &fetcher{conn: nc, subject: "nobody", timeout: time.Second, pause: time.Millisecond, attempts: 3, rand: rand.New(rand.NewPCG(1, 1))}
	if _, _, err := from.fetch(t.Context()); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("got %v, want no responders", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := from.fetch(ctx); err == nil {
		t.Error("no error after the context ended")
	}
}

// A publisher whose connection is down neither waits nor loses count.
func TestE17_PublishNeverWaits(t *testing.T) {
	nc, err := nats.Connect("nats://127.0.0.1:1", nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectBufSize(1024))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	p := publisher(t, nc, "w", 0, "one")
	w := newFakeWorker(1)
	for range 3 * publishQueue {
		if err := p.Publish(w.step()); err != nil && !errors.Is(err, ErrDropped) {
			t.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if p.seq != 3*publishQueue || p.Dropped() == 0 {
		t.Errorf("seq %d after %d batches, %d dropped", p.seq, 3*publishQueue, p.Dropped())
	}
	if got := p.table.held(); !maps.Equal(got, w.model) {
		t.Error("what was dropped is missing from the snapshot")
	}
	if err := p.Publish(Batch{}); !errors.Is(err, ErrClosed) {
		t.Errorf("publish after close: %v", err)
	}
}

func TestSubjectsNameEveryInstance(t *testing.T) {
	for _, name := range []string{"a", "10.0.0.5:8000", "http://[::1]:8000/", "ü*>. ", "%41", "a-b_c", "A"} {
		endpoint, instance, rank, err := parseSubject(EventSubject("e."+name, name, 7))
		if err != nil || endpoint != "e."+name || instance != name || rank != 7 {
			t.Errorf("%q: got %q %q %d, %v", name, endpoint, instance, rank, err)
		}
	}
	// A09: one name has one form.
	for _, subject := range []string{
		"kv.e.w", "kv.e.w.0.1", "kv.e.w.00", "kv.e.w.+1", "kv.e.w.x", "kv.e.%77.0", "kv.e.w%2e1.0", "kv.e.w%2", "kv.e.w%.0", "kv..w.0", "kx.e.w.0", "kv.e.w.65536",
	} {
		if _, _, _, err := parseSubject(subject); err == nil {
			t.Errorf("%s was accepted", subject)
		}
	}
}
