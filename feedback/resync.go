package feedback

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// fetched is a whole snapshot, or why there is none.
type fetched struct {
	feed    *feed
	ticket  uint64
	head    head
	batches []Batch
	took    time.Duration
	err     error
}

// do does what a stream says. A snapshot's batches are given for its answer.
func (s *Subscriber) do(f *feed, step Step, snapshot []Batch) {
	if f.gone {
		return
	}
	if step.Clear {
		f.clear()
		f.incompatible = ""
	}
	if !step.Load {
		snapshot = nil
		if step.Clear { // another beginning
			f.suspicions, f.suspectAfter = 0, time.Time{}
		}
	}
	loaded, sum, err := s.applyAll(f, snapshot, step.Apply)
	if err != nil {
		s.o.Logger.Info("an instance left while its KV events came", "endpoint", f.member.endpoint, "instance", f.member.name, "error", err)
		s.forget(memberKey{f.member.endpoint, f.member.name})
		return
	}
	s.metrics.count(&loaded)
	s.metrics.count(&sum)
	if size := max(loaded.blockSize, sum.blockSize); size > 0 && size != f.member.instance.BlockSize() {
		s.o.Logger.Info("block size learnt from events", "endpoint", f.member.endpoint, "instance", f.member.name, "block_size", size)
		f.member.instance.SetBlockSize(size)
	}
	if sum.incompatible() && f.incompatible == "" {
		f.incompatible = "its events can't be indexed: block size missing, or not that of its tokens"
	}
	if step.Resync != "" {
		s.ask(f, step.Resync)
	} else if sum.unknownParents > 0 {
		s.suspect(f)
	}
	s.trust(f.member, s.o.Now())
	if s.observe != nil {
		s.observe(f)
	}
}

// suspect asks for a snapshot after an unknown parent: something was lost that
// the numbers do not show. If that does not help (the tree may have been
// pruned), asking again at once will not either; what the tree has is true all
// the same.
func (s *Subscriber) suspect(f *feed) {
	now := s.o.Now()
	if f.stream.Partial() || now.Before(f.suspectAfter) || now.Before(f.notBefore) {
		return
	}
	f.suspectAfter = now.Add(min(s.o.RetryAfter<<min(f.suspicions, 16), 20*s.o.RetryMax))
	f.suspicions++
	if step := f.stream.Suspect("unknown parent"); step.Resync != "" {
		s.ask(f, step.Resync)
	}
}

// applyAll applies a snapshot and then messages.
func (s *Subscriber) applyAll(f *feed, snapshot []Batch, messages []Message) (loaded, sum applied, err error) {
	for _, b := range snapshot {
		if err := f.apply(b, &loaded); err != nil {
			return loaded, sum, err
		}
	}
	for _, m := range messages {
		if err := f.apply(m.Batch, &sum); err != nil {
			return loaded, sum, err
		}
	}
	return loaded, sum, nil
}

func (s *Subscriber) ask(f *feed, reason string) {
	f.why = reason
	s.due = true
	s.o.Logger.Info("KV event stream recovers", "endpoint", f.member.endpoint, "instance", f.member.name, "rank", f.rank, "reason", reason)
}

// back makes the feed's next resync wait, longer each time.
func (s *Subscriber) back(f *feed) {
	pause := min(s.o.RetryAfter<<min(f.failures, 16), s.o.RetryMax)
	f.failures++
	f.notBefore = s.o.Now().Add(pause)
}

// startFetches begins the snapshots that are due.
func (s *Subscriber) startFetches(ctx context.Context, fetchers *sync.WaitGroup) {
	if !s.due || s.running >= fetches {
		return
	}
	s.due = false // until something asks, ends or a tick passes
	for _, m := range s.members {
		for _, f := range m.feeds {
			if s.running >= fetches {
				return
			}
			if f.stream.Phase() == Recovering && !f.fetching && !s.o.Now().Before(f.notBefore) {
				s.startFetch(ctx, f, fetchers)
			}
		}
	}
}

func (s *Subscriber) startFetch(ctx context.Context, f *feed, fetchers *sync.WaitGroup) {
	f.fetching = true
	s.running++
	ticket, began := f.stream.Ticket(), s.o.Now()
	from := &fetcher{
		conn: s.o.Conn, subject: SnapshotSubject(f.member.endpoint, f.member.name, f.rank), rank: f.rank, timeout: s.o.AnswerTimeout,
		pause: s.o.RetryAfter, attempts: s.o.Attempts, rand: rand.New(rand.NewPCG(s.o.Rand.Uint64(), s.o.Rand.Uint64())),
	}
	fetchers.Go(func() { // ends with ctx at the latest
		h, batches, err := from.fetch(ctx)
		r := fetched{feed: f, ticket: ticket, head: h, batches: batches, took: s.o.Now().Sub(began), err: err}
		select {
		case s.results <- r:
		case <-ctx.Done():
		}
	})
}

// finish takes a snapshot, or that there is none.
func (s *Subscriber) finish(r fetched) {
	f := r.feed
	f.fetching = false
	s.running--
	s.due = true
	if f.gone {
		return
	}
	log := s.o.Logger.With("endpoint", f.member.endpoint, "instance", f.member.name, "rank", f.rank)
	if r.err != nil {
		s.metrics.resyncs.WithLabelValues("failed").Inc()
		s.back(f)
		if !s.o.Conn.IsConnected() {
			return // nothing is lost by waiting for it
		}
		log.Warn("no snapshot: going on without the blocks from before", "error", r.err)
		s.do(f, f.stream.NoSnapshot(r.ticket), nil)
		return
	}
	f.heard = s.o.Now()
	step := f.stream.Snapshot(r.ticket, r.head.epoch, r.head.next)
	if !step.Load {
		s.metrics.resyncs.WithLabelValues("void").Inc()
		s.do(f, step, nil)
		if step.Resync != "" {
			s.back(f)
		}
		return
	}
	s.metrics.resyncs.WithLabelValues("loaded").Inc()
	s.metrics.resyncSeconds.Observe(r.took.Seconds())
	s.do(f, step, r.batches)
	if f.stream.Phase() == Live {
		log.Info("KV event stream is live again", "epoch", f.stream.Epoch(), "next", f.stream.Next(), "seconds", r.took.Seconds())
	} else {
		s.back(f)
	}
}

// trust tells the scheduler how far an instance's blocks can be credited.
func (s *Subscriber) trust(m *member, now time.Time) {
	trust, reason := m.judge(now, s.o.StaleAfter)
	if trust == m.trust && reason == m.reason {
		return
	}
	if trust != m.trust {
		s.o.Logger.Info("trust in an instance's blocks", "endpoint", m.endpoint, "instance", m.name,
			"trust", trust.String(), "before", m.trust.String(), "reason", reason)
	}
	m.trust, m.reason = trust, reason
	m.instance.SetTrust(trust, reason)
}
