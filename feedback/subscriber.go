package feedback

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmroute/warmroute/radix"
	"github.com/warmroute/warmroute/scheduler"
)

// SubscriberOptions configure a [Subscriber]. The first six are required; the
// zero value of each other is its default.
type SubscriberOptions struct {
	// Conn may be down, at the start too; it should reconnect without end.
	Conn       *nats.Conn
	Scheduler  *scheduler.Scheduler
	Index      *radix.Index
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time

	// Rand spreads retries; by default seeded at random.
	Rand *rand.Rand
	// StaleAfter is how long an instance with requests in flight may say
	// nothing before its blocks are no longer credited. Default 30 s.
	StaleAfter time.Duration
	// ProbeEvery is how often each instance is asked how far it is: the longest
	// that a lost last message stays unnoticed is twice that. Default 5 s.
	ProbeEvery time.Duration
	// AnswerTimeout is how long to wait for a chunk of a snapshot. Default 2 s.
	AnswerTimeout time.Duration
	// RetryAfter is the pause after a resync that did not end well; it doubles
	// up to RetryMax. Defaults 250 ms and 30 s.
	RetryAfter, RetryMax time.Duration
	// Attempts is how often one chunk is asked for before the stream goes on
	// without what was lost. Default 5.
	Attempts int
	// Pending is how many messages may wait for the tree. Default 65536.
	Pending int
	// Tick is how often waiting work is looked at. Default 100 ms.
	Tick time.Duration
}

func (o *SubscriberOptions) defaults() error {
	if o.Conn == nil || o.Scheduler == nil || o.Index == nil || o.Logger == nil || o.Registerer == nil || o.Now == nil {
		return errors.New("feedback: a required option of the subscriber is missing")
	}
	if o.Rand == nil {
		o.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	orDefault(&o.StaleAfter, 30*time.Second)
	orDefault(&o.ProbeEvery, 5*time.Second)
	orDefault(&o.AnswerTimeout, 2*time.Second)
	orDefault(&o.RetryAfter, 250*time.Millisecond)
	orDefault(&o.RetryMax, 30*time.Second)
	orDefault(&o.Attempts, 5)
	orDefault(&o.Pending, 1<<16)
	orDefault(&o.Tick, 100*time.Millisecond)
	return nil
}

func orDefault[T ~int | ~int64](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// fetches is how many snapshots are fetched at a time.
const fetches = 8

// Subscriber keeps the tree in step with the workers' events, and each
// instance's trust with how far it is.
type Subscriber struct {
	o       SubscriberOptions
	metrics *metrics
	inbox   string // heads are answered below it

	// All below belongs to Run's goroutine.

	members map[memberKey]*member
	feeds   map[feedKey]*feed
	running int  // fetches under way
	due     bool // a fetch may be due
	results chan fetched

	doubts chan doubt // from any goroutine

	unheard atomic.Pointer[unheard] // read by any goroutine; nil before the first tick

	dropped   int // by the NATS client, as last seen
	probeAt   time.Time
	probeSoon int    // rounds to probe at the next ticks
	probes    uint64 // sent

	observe func(*feed) // called after each step, if set

	strangers     int // messages since they were last told of
	lastStranger  string
	strangersTold time.Time
}

// NewSubscriber prepares a subscriber; [Subscriber.Run] starts it.
func NewSubscriber(o SubscriberOptions) (*Subscriber, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	return &Subscriber{
		o: o, metrics: m, inbox: o.Conn.NewInbox(),
		members: make(map[memberKey]*member), feeds: make(map[feedKey]*feed), results: make(chan fetched, fetches),
		doubts: make(chan doubt),
	}, nil
}

// Run follows the events until ctx ends, and then returns nil. Without a
// connection it waits for one.
func (s *Subscriber) Run(ctx context.Context) error {
	messages := make(chan *nats.Msg, s.o.Pending)
	// One channel for both: NATS keeps the order of one connection's messages,
	// and so a head comes after the batches before it.
	events, err := s.o.Conn.ChanSubscribe(eventPrefix+".>", messages)
	if err != nil {
		return fmt.Errorf("feedback: subscribe to events: %w", err)
	}
	heads, err := s.o.Conn.ChanSubscribe(s.inbox+".*.*.*", messages)
	if err != nil {
		return errors.Join(fmt.Errorf("feedback: subscribe to heads: %w", err), events.Unsubscribe())
	}
	slow, unwatch := s.watchErrors(events, heads)
	status := s.o.Conn.StatusChanged()
	var fetchers sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		fetchers.Wait()
		s.o.Conn.RemoveStatusListener(status)
		s.unsubscribe(events, heads)
		unwatch()
	}()
	tick := time.NewTicker(s.o.Tick)
	defer tick.Stop()
	s.setConnected(s.o.Conn.IsConnected())
	s.refresh()
	for {
		select {
		case <-ctx.Done():
			return nil
		case msg := <-messages:
			s.receive(msg)
		case r := <-s.results:
			s.finish(r)
		case d := <-s.doubts:
			s.doubt(d.instance)
			close(d.done)
		case now := <-status:
			s.setConnected(now == nats.CONNECTED)
		case <-slow:
			s.probeSoon = 2
		case <-tick.C:
			s.tick(events)
		}
		s.startFetches(ctx, &fetchers)
	}
}

// doubt is an instance that was found unreachable.
type doubt struct {
	instance *scheduler.Instance
	done     chan struct{}
}

// Doubt says that an instance could not be reached: its process may be another
// by now. When Doubt returns, what the instance held counts for nothing until
// it has said how far it is, which it is asked at once. Run must be running;
// Doubt returns when ctx ends at the latest.
func (s *Subscriber) Doubt(ctx context.Context, i *scheduler.Instance) {
	d := doubt{i, make(chan struct{})}
	select {
	case s.doubts <- d:
	case <-ctx.Done():
		return
	}
	select {
	case <-d.done:
	case <-ctx.Done():
	}
}

func (s *Subscriber) doubt(i *scheduler.Instance) {
	m := s.member(memberKey{i.Endpoint(), i.Name()})
	if m == nil || m.instance != i {
		return
	}
	if len(m.feeds) == 0 {
		s.o.Index.Clear(i.Handle()) // predictions alone: nobody could confirm them
		return
	}
	now := s.o.Now()
	m.doubted = now
	s.trust(m, now)
	s.probe(m)
}

func (s *Subscriber) unsubscribe(subs ...*nats.Subscription) {
	for _, sub := range subs {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			s.o.Logger.Debug("unsubscribe", "subject", sub.Subject, "error", err)
		}
	}
}

// watchErrors takes the connection's errors that concern our subscriptions:
// the client drops messages when we are too slow, and would not tell otherwise.
// All other errors go on to the handler that was there, which unwatch puts back.
func (s *Subscriber) watchErrors(ours ...*nats.Subscription) (dropped <-chan struct{}, unwatch func()) {
	slow := make(chan struct{}, 1)
	before := s.o.Conn.ErrorHandler()
	s.o.Conn.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		for _, o := range ours {
			if sub == o && errors.Is(err, nats.ErrSlowConsumer) {
				select {
				case slow <- struct{}{}:
				default:
				}
				return
			}
		}
		if before != nil {
			before(nc, sub, err)
		}
	})
	return slow, func() { s.o.Conn.SetErrorHandler(before) }
}

func (s *Subscriber) setConnected(up bool) {
	if up {
		s.metrics.connected.Set(1)
		// Messages may have been lost while it was down; the second round is
		// what makes a loss certain.
		s.probeSoon = 2
	} else {
		s.metrics.connected.Set(0)
	}
	s.o.Logger.Info("NATS connection", "connected", up)
}

// tick does what no message starts.
func (s *Subscriber) tick(events *nats.Subscription) {
	now := s.o.Now()
	s.due = true
	s.refresh()
	if n, err := events.Dropped(); err == nil && n > s.dropped {
		s.metrics.dropped.Add(float64(n - s.dropped))
		s.o.Logger.Warn("the router was too slow for its KV events; some were dropped", "messages", n-s.dropped)
		s.dropped = n
		s.probeSoon = 2
	}
	if s.probeSoon > 0 || !now.Before(s.probeAt) {
		s.probeSoon = max(0, s.probeSoon-1)
		s.probeAt = now.Add(s.o.ProbeEvery)
		for _, m := range s.members {
			s.probe(m)
		}
	}
	phases := map[Phase]int{Silent: 0, Live: 0, Recovering: 0}
	for _, m := range s.members {
		for _, f := range m.feeds {
			phases[f.stream.Phase()]++
			s.metrics.countStream(f.stream.Counts, f.counted)
			f.counted = f.stream.Counts
			if f.stream.Phase() == Live && now.Sub(f.notBefore) > s.o.RetryMax {
				f.failures = 0
			}
		}
		if len(m.feeds) == 0 {
			phases[Silent]++
		}
		s.silence(m, now)
		s.trust(m, now)
	}
	for p, n := range phases {
		s.metrics.streams.WithLabelValues(p.String()).Set(float64(n))
	}
	s.countUnheard()
	s.tellStrangers(now)
}

// receive takes a message: a batch, or a head.
func (s *Subscriber) receive(msg *nats.Msg) {
	if rest, ok := strings.CutPrefix(msg.Subject, s.inbox+"."); ok {
		s.receiveHead(msg, rest)
		return
	}
	now := s.o.Now()
	batch, err := Decode(msg.Data)
	f := s.locate(msg, batch.Rank)
	if f == nil {
		return
	}
	f.heard = now
	f.seen.Set(float64(now.UnixNano()) / 1e9)
	epoch := msg.Header.Get(headerEpoch)
	seq, seqErr := parseSeq(msg.Header.Get(headerSeq))
	switch {
	case seqErr != nil:
		s.unreadable(f, seqErr) // the next message shows the hole
	case err != nil:
		s.unreadable(f, err)
		s.do(f, f.stream.Lost(epoch, seq), nil)
	default:
		if lag := float64(now.UnixNano())/1e9 - batch.Time; lag >= 0 {
			s.metrics.lag.Observe(lag)
		}
		s.do(f, f.stream.Receive(Message{Epoch: epoch, Seq: seq, Batch: batch, Payload: msg.Data}), nil)
	}
}

func (s *Subscriber) unreadable(f *feed, err error) {
	s.metrics.decodeErrors.Inc()
	s.o.Logger.Debug("a KV event message can't be read", "endpoint", f.member.endpoint, "instance", f.member.name, "rank", f.rank, "error", err)
}

func (s *Subscriber) receiveHead(msg *nats.Msg, rest string) {
	parts := strings.Split(rest, ".")
	if len(parts) != 3 {
		return
	}
	endpoint, err := untoken(parts[0])
	if err != nil {
		return
	}
	instance, err := untoken(parts[1])
	if err != nil || len(msg.Header) == 0 {
		return
	}
	m := s.members[memberKey{endpoint, instance}]
	if msg.Header.Get("Status") != "" { // nobody answers
		if m != nil {
			m.unanswered++
		}
		return
	}
	h, err := parseHead(msg)
	if m == nil || err != nil {
		s.metrics.decodeErrors.Inc()
		return
	}
	now := s.o.Now()
	f := s.feed(m, h.rank)
	f.heard = now
	f.seen.Set(float64(now.UnixNano()) / 1e9)
	s.do(f, f.stream.Head(h.epoch, h.next), nil)
	if f.stream.Partial() && f.stream.Phase() == Live && !now.Before(f.notBefore) {
		// It answers again: all can be known once more.
		s.do(f, f.stream.Suspect("partial"), nil)
	}
}
