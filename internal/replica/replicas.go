package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmroute/warmroute/scheduler"
)

// Options configure [Replicas]. The first six are required; the zero value of
// each other is its default.
type Options struct {
	Conn       *nats.Conn // may be down, at the start too
	Scheduler  *scheduler.Scheduler
	Outbox     *Outbox // whose hooks the scheduler has
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time

	// Group keeps fleets on one NATS apart. Letters, digits, - and _. Default
	// "default".
	Group string
	// ID is this router's, another for each process. Default: at random.
	ID uint64
	// Every is the shortest time between two messages while there is one other
	// router; it grows with their number, so that the whole traffic grows less
	// than their square. Default 2 ms.
	Every time.Duration
	// Beat is how often a router says something even if nothing has changed.
	// Default 500 ms.
	Beat time.Duration
	// Expire is how long a silent router's load counts. Default 3 s.
	Expire time.Duration
	// FullEvery is how often the full state is told unasked. Default 5 s.
	FullEvery time.Duration
	// Keep is how long another's prediction can be taken back. Default 1 min.
	Keep time.Duration
}

func (o *Options) defaults() error {
	if o.Conn == nil || o.Scheduler == nil || o.Outbox == nil || o.Logger == nil || o.Registerer == nil || o.Now == nil {
		return errors.New("replica: a required option is missing")
	}
	if o.Group == "" {
		o.Group = "default"
	}
	for o.ID == 0 {
		o.ID = rand.Uint64()
	}
	for _, d := range []struct {
		v        *time.Duration
		fallback time.Duration
	}{{&o.Every, 2 * time.Millisecond}, {&o.Beat, 500 * time.Millisecond}, {&o.Expire, 3 * time.Second}, {&o.FullEvery, 5 * time.Second}, {&o.Keep, time.Minute}} {
		if *d.v <= 0 {
			*d.v = d.fallback
		}
	}
	return nil
}

// Subject is what the routers of a group speak on.
func Subject(group string) string { return "warmroute.replicas." + group }

// backlog is how many messages of others may wait.
const backlog = 1 << 14

// askAgain is how long to wait for a full state before it is asked for again.
const askAgain = 250 * time.Millisecond

// Replicas shares this router's counts and predictions with the others of its
// group, and gives theirs to the scheduler.
type Replicas struct {
	o       Options
	metrics *metrics

	// All below belongs to Run's goroutine.

	view  *view
	seq   uint64
	told  map[*scheduler.Instance]told // what the others were last told
	round uint64
	items waiting // being sent
	spare waiting

	sentAt   time.Time // of the last message
	fullAt   time.Time // of the last full state
	fullSoon bool      // somebody asked for it
	probe    uint64    // seq of the message whose own echo is timed
	probeAt  time.Time
	live     bool // connected, as last seen
	buf      []byte
}

// told is an instance's load as the others know it.
type told struct {
	name  name
	load  load
	round uint64 // of the flush that last saw it
}

// New prepares it; [Replicas.Run] starts it.
func New(o Options) (*Replicas, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	return &Replicas{o: o, metrics: m, view: newView(o.Scheduler, o.Keep), told: map[*scheduler.Instance]told{}}, nil
}

// Run shares until ctx ends, tells the others so, and returns nil. Without a
// connection it goes on alone, and joins when there is one.
func (r *Replicas) Run(ctx context.Context) error {
	messages := make(chan *nats.Msg, backlog)
	sub, err := r.o.Conn.ChanSubscribe(Subject(r.o.Group), messages)
	if err != nil {
		return fmt.Errorf("replica: subscribe: %w", err)
	}
	defer func() {
		r.leave()
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			r.o.Logger.Debug("can't end the subscription to the other routers", "error", err)
		}
	}()
	beat := time.NewTicker(r.o.Beat)
	defer beat.Stop()
	soon := time.NewTimer(0) // the first message says that this router is here
	defer soon.Stop()
	r.fullSoon = true
	for {
		select {
		case <-ctx.Done():
			return nil
		case msg := <-messages:
			r.receive(msg)
			if r.fullSoon {
				soon.Reset(r.wait())
			}
		case <-r.o.Outbox.changed:
			soon.Reset(r.wait())
		case <-soon.C:
			r.flush(r.fullSoon)
		case <-beat.C:
			r.tick()
		}
	}
}

// wait is how long the next message must wait.
func (r *Replicas) wait() time.Duration {
	every := r.o.Every * time.Duration(4+len(r.view.peers)) / 4
	return max(0, r.sentAt.Add(every).Sub(r.o.Now()))
}

func (r *Replicas) tick() {
	now := r.o.Now()
	if n := r.view.expire(now.Add(-r.o.Expire), now); n > 0 {
		r.metrics.expired.Add(float64(n))
		r.o.Logger.Warn("routers are heard no more; their requests in flight no longer count", "routers", n, "left", len(r.view.peers))
	}
	r.peersChanged()
	r.view.tellAll()
	r.ask(now)
	live := r.o.Conn.IsConnected()
	r.flush(live && !r.live || now.Sub(r.fullAt) >= r.o.FullEvery)
	r.live = live
}

func (r *Replicas) peersChanged() {
	n := len(r.view.peers)
	r.metrics.peers.Set(float64(n))
	r.o.Outbox.setOpen(n > 0)
}

// receive takes a message: another's, or this router's own echo.
func (r *Replicas) receive(msg *nats.Msg) {
	h, rest, err := readHead(msg.Data)
	if err != nil {
		r.unreadable(err)
		return
	}
	now := r.o.Now()
	if h.sender == r.o.ID {
		if h.seq == r.probe && !r.probeAt.IsZero() {
			r.metrics.loop.Observe(now.Sub(r.probeAt).Seconds())
			r.probeAt = time.Time{}
		}
		return
	}
	r.metrics.received.Inc()
	r.metrics.receivedBytes.Add(float64(len(msg.Data)))
	if h.flags&flagAsk != 0 {
		r.fullSoon = r.fullSoon || h.target == r.o.ID
		return
	}
	got, err := r.view.receive(h, rest, now)
	if err != nil {
		r.unreadable(err)
	}
	r.metrics.followed.Add(float64(got.predictions))
	if got.gap {
		r.metrics.gaps.Inc()
	}
	if got.joined || got.left {
		r.o.Logger.Info("the routers of the group have changed", "others", len(r.view.peers), "joined", got.joined)
		r.peersChanged()
	}
	r.ask(now)
}

func (r *Replicas) unreadable(err error) {
	r.metrics.unreadable.Inc()
	r.o.Logger.Debug("a message of another router can't be read", "error", err)
}

// ask asks those whose full state is not known.
func (r *Replicas) ask(now time.Time) {
	for _, target := range r.view.lacking(now.Add(-askAgain), now) {
		r.publish(appendHead(nil, head{flags: flagAsk, sender: r.o.ID, target: target}))
	}
}

// flush tells what has changed, or all. What does not fit in one message goes
// on in the next.
func (r *Replicas) flush(full bool) {
	now := r.o.Now()
	var dropped int
	r.items, dropped = r.o.Outbox.take(r.spare)
	r.metrics.dropped.Add(float64(dropped))
	if !r.o.Conn.IsConnected() {
		r.spare = r.items // nobody hears it, and it will be old
		return
	}
	if full {
		r.fullAt, r.fullSoon = now, false
	}
	r.sentAt = now
	room := int(r.o.Conn.MaxPayload() / 2)
	sent := false
	var flags byte
	if full {
		flags = flagReset
	}
	changes, item := r.changes(full), 0
	for len(changes) > 0 || item < len(r.items.ends) || !sent {
		b := appendHead(r.buf[:0], head{flags: flags, sender: r.o.ID, seq: r.seq})
		flags = 0
		n := min(len(changes), max(1, room/maxLoadBytes))
		b = appendCount(b, n)
		for _, t := range changes[:n] {
			b = appendLoad(b, t.name, t.load)
		}
		if changes = changes[n:]; item < len(r.items.ends) && len(changes) == 0 {
			var part []byte
			part, item = r.items.next(item, room-len(b))
			b = append(b, part...)
		}
		if now.Sub(r.probeAt) > r.o.Expire { // there was none, or it was lost
			r.probe, r.probeAt = r.seq, now
		}
		r.seq++
		r.publish(b)
		r.buf, sent = b, true
	}
	r.metrics.predicted.Add(float64(len(r.items.ends)))
	r.spare = r.items
}

// maxLoadBytes is about what one load takes at most.
const maxLoadBytes = 160

// changes are the loads that the others do not know, or all that are not zero.
func (r *Replicas) changes(full bool) []told {
	var list []told
	r.round++
	for _, e := range r.o.Scheduler.Endpoints() {
		for _, v := range e.Variants() {
			for _, i := range v.Instances() {
				l := load{uint64(max(0, i.InFlight())), uint64(max(0, i.QueuedPrefill()))}
				t, known := r.told[i]
				if known && t.load == l && (!full || l == load{}) {
					t.round = r.round
					r.told[i] = t
					continue
				}
				if !known {
					t.name = name{e.Name(), i.Name()}
				}
				t.load, t.round = l, r.round
				r.told[i] = t
				list = append(list, t)
			}
		}
	}
	for i, t := range r.told {
		if t.round == r.round {
			continue
		}
		// It left the configuration. Its last requests still run, and no longer
		// matter to anybody.
		delete(r.told, i)
		if t.load != (load{}) {
			if now, ok := r.o.Scheduler.Instance(t.name.endpoint, t.name.instance); !ok || now == nil {
				list = append(list, told{name: t.name})
			}
		}
	}
	return list
}

func (r *Replicas) publish(b []byte) {
	if err := r.o.Conn.Publish(Subject(r.o.Group), b); err != nil {
		r.o.Logger.Debug("can't tell the other routers", "error", err)
		return
	}
	r.metrics.sent.Inc()
	r.metrics.sentBytes.Add(float64(len(b)))
}

// leave tells the others that this router's load is void.
func (r *Replicas) leave() {
	if !r.o.Conn.IsConnected() {
		return
	}
	r.publish(appendHead(nil, head{flags: flagLeave, sender: r.o.ID, seq: r.seq}))
	if err := r.o.Conn.FlushTimeout(r.o.Beat); err != nil {
		r.o.Logger.Debug("can't tell the other routers that this one ends", "error", err)
	}
}
