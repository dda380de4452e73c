package feedback

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/warmroute/warmroute/scheduler"
)

var chaosSeeds = flag.Int("chaos", 6, "seeds of TestTheTreeSurvivesAnyNetwork")

// chaos stands between the workers' NATS server and the router's, and treats
// messages badly. Once calm is set it only passes them on.
type chaos struct {
	t                *testing.T
	workers, routers *nats.Conn

	mu    sync.Mutex
	calm  bool
	rand  *rand.Rand
	late  []*nats.Msg    // held back
	stats map[string]int // by fault
}

func startChaos(t *testing.T, workers, routers *nats.Conn, seed uint64) *chaos {
	t.Helper()
	c := &chaos{t: t, workers: workers, routers: routers, rand: rand.New(rand.NewPCG(seed, 1)), stats: map[string]int{}}
	if _, err := workers.Subscribe("kv.>", c.event); err != nil {
		t.Fatal(err)
	}
	if _, err := routers.Subscribe("kvsnap.>", c.question); err != nil {
		t.Fatal(err)
	}
	flush(t, workers, routers)
	return c
}

func (c *chaos) send(nc *nats.Conn, m *nats.Msg) {
	if err := nc.PublishMsg(m); err != nil {
		c.t.Error(err)
	}
}

// event treats one batch.
func (c *chaos) event(m *nats.Msg) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := &nats.Msg{Subject: m.Subject, Header: maps.Clone(m.Header), Data: m.Data}
	fault := c.rand.IntN(100)
	switch {
	case c.calm:
		c.send(c.routers, out)
	case fault < 4:
		c.stats["lost"]++
	case fault < 8:
		c.stats["twice"]++
		c.send(c.routers, out)
		c.send(c.routers, out)
	case fault < 14:
		c.stats["late"]++
		c.late = append(c.late, out)
	case fault < 16:
		c.stats["cut short"]++
		out.Data = out.Data[:c.rand.IntN(len(out.Data))]
		c.send(c.routers, out)
	case fault == 16:
		c.stats["seq unreadable"]++
		out.Header[headerSeq] = []string{"1e9"}
		c.send(c.routers, out)
	case fault == 17:
		c.stats["wrong seq"]++
		out.Header[headerSeq] = []string{"123456789"}
		c.send(c.routers, out)
	default:
		c.send(c.routers, out)
	}
	// What was held back comes in any order, up to long after.
	for len(c.late) > 0 && !c.calm && c.rand.IntN(6) == 0 {
		i := c.rand.IntN(len(c.late))
		c.send(c.routers, c.late[i])
		c.late = append(c.late[:i], c.late[i+1:]...)
	}
}

// question passes a question on, and all answers back.
func (c *chaos) question(m *nats.Msg) {
	inbox := c.workers.NewInbox()
	sub, err := c.workers.Subscribe(inbox, func(answer *nats.Msg) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.calm && c.rand.IntN(4) == 0 {
			c.stats["answer lost"]++
			return
		}
		c.send(c.routers, &nats.Msg{Subject: m.Reply, Header: answer.Header, Data: answer.Data})
	})
	if err != nil {
		c.t.Error(err)
		return
	}
	if err := sub.AutoUnsubscribe(16); err != nil {
		c.t.Error(err)
	}
	c.send(c.workers, &nats.Msg{Subject: m.Subject, Reply: inbox, Header: m.Header, Data: m.Data})
}

func (c *chaos) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calm = true
	c.late = nil
}

// history is what each process held after each of its batches.
type history struct {
	mu     sync.Mutex
	states map[string][]naive // by epoch
}

func (h *history) add(epoch string, state naive) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.states[epoch] = append(h.states[epoch], maps.Clone(state))
}

// at is what the process held before its batch next. There is none if a wrong
// seq passes for the worker's: for the time being only its head can tell.
func (h *history) at(epoch string, next uint64) (state naive, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if next >= uint64(len(h.states[epoch])) {
		return nil, false
	}
	return h.states[epoch][next], true
}

// life is one worker with its processes.
type life struct {
	t       *testing.T
	nc      *nats.Conn
	name    string
	history *history
	rand    *rand.Rand
	process int
	worker  *fakeWorker
	out     *Publisher
	epoch   string

	mu     sync.Mutex
	chains [][]uint32 // some prompts of all processes
}

func (l *life) restart() {
	if l.out != nil {
		if err := l.out.Close(); err != nil {
			l.t.Error(err)
		}
	}
	l.process++
	l.epoch = fmt.Sprintf("%s-%d", l.name, l.process)
	l.worker = newFakeWorker(l.rand.Uint64())
	l.history.add(l.epoch, naive{})
	l.out = publisher(l.t, l.nc, l.name, 0, l.epoch)
}

func (l *life) step() {
	b := l.worker.step()
	l.history.add(l.epoch, l.worker.model)
	if err := l.out.Publish(b); err != nil {
		l.t.Error(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.worker.chains); n > 0 {
		l.chains = append(l.chains, l.worker.chains[n-1])
	}
}

func (l *life) prompts(r *rand.Rand, n int) [][]uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out [][]uint32
	for range min(n, len(l.chains)) {
		// Recent ones above all: they change.
		i := len(l.chains) - 1 - r.IntN(min(len(l.chains), 40))
		out = append(out, l.chains[i])
	}
	return out
}

// TestTheTreeSurvivesAnyNetwork: batches and answers are lost, repeated,
// delayed, reordered and damaged, workers restart, the router restarts. Whenever
// a stream is live, the tree credits its instance with what the worker held
// after just those batches, and never more; and once the faults end, with what
// it holds now.
func TestTheTreeSurvivesAnyNetwork(t *testing.T) {
	for seed := range *chaosSeeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { runChaos(t, uint64(seed)) })
	}
}

func runChaos(t *testing.T, seed uint64) {
	left, right := startServer(t, -1).ClientURL(), startServer(t, -1).ClientURL()
	c := startChaos(t, connect(t, left), connect(t, right), seed)
	random := rand.New(rand.NewPCG(seed, 2))
	past := &history{states: map[string][]naive{}}
	lives := map[string]*life{}
	var names []string
	for _, name := range []string{"a", "b"} {
		names = append(names, name)
		lives[name] = &life{t: t, nc: connect(t, left), name: name, history: past, rand: rand.New(rand.NewPCG(random.Uint64(), 3))}
		lives[name].restart()
	}
	checked := 0
	start := func() *router {
		r := prepareRouter(t, connect(t, right), names, func(o *SubscriberOptions) { o.AnswerTimeout = 30 * time.Millisecond })
		checks := rand.New(rand.NewPCG(seed, 4))
		r.sub.observe = func(f *feed) {
			if f.stream.Phase() != Live {
				return
			}
			model, ok := past.at(f.stream.Epoch(), f.stream.Next())
			if !ok {
				return
			}
			checked++
			if diff := compare(r.index, f.instance, model, lives[f.member.name].prompts(checks, 8), f.stream.Partial()); diff != "" {
				t.Errorf("live at %s %d: %s", f.stream.Epoch(), f.stream.Next(), diff)
			}
		}
		r.start()
		return r
	}
	r := start()
	for range 600 {
		for _, name := range names {
			lives[name].step()
		}
		switch random.IntN(150) {
		case 0:
			lives[names[random.IntN(len(names))]].restart()
		case 1:
			r.stop()
			r = start()
		}
		if random.IntN(10) == 0 { // let the router keep up, so that much is checked
			for _, l := range lives {
				flush(t, l.nc)
			}
			flush(t, c.workers, c.routers)
		}
	}
	for _, l := range lives {
		flush(t, l.nc)
	}
	flush(t, c.workers)
	c.end()
	for _, name := range names {
		r.eventually(name+" is live and equal", func() bool {
			return r.trusts(name, scheduler.Live)() && r.equals(name, lives[name].worker)()
		})
	}
	r.stop()
	if checked < 50 {
		t.Errorf("only %d live states were checked", checked)
	}
	t.Logf("%d live states checked; faults %v", checked, c.stats)
}
