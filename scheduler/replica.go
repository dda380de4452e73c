package scheduler

import (
	"time"

	"github.com/warmroute/warmroute/internal/blockkey"
	"github.com/warmroute/warmroute/radix"
)

// Hooks tell other routers of the same fleet what this one does. They are
// called on the path of requests, from any goroutine: they must be quick, and
// must not call the scheduler. Nil ones are not called.
type Hooks struct {
	Loaded    func()                            // an instance's in-flight count or queued prefill has changed
	Predicted func(number uint64, p Prediction) // blocks were predicted; the number is this scheduler's
	Withdrawn func(number uint64)               // that prediction's request failed
}

// Prediction is that an instance is about to hold a prompt's blocks.
type Prediction struct {
	Endpoint, Instance string
	PrefixID           string         // "" for nobody's
	Keys               []blockkey.Key // from the prompt's root; whoever is told of it must not keep it
	// Beginning, where it is not 0, is what the id's placement is remembered by,
	// so that other ids' prompts with it go elsewhere.
	Beginning blockkey.Key
}

// Followed is another router's prediction, as it was taken here.
type Followed struct {
	scheduler          *Scheduler
	shared             *endpointState
	placement          placement
	held, placed, also radix.Ticket
}

// Follow takes another router's prediction. It returns nil where the instance
// is not known here.
func (s *Scheduler) Follow(p Prediction, now time.Time) *Followed {
	e, ok := s.Endpoint(p.Endpoint)
	if !ok {
		return nil
	}
	i := e.instance(p.Instance)
	if i == nil {
		return nil
	}
	f := &Followed{scheduler: s, shared: e.shared}
	c := s.scratch.Get().(*scratch) // the pool holds nothing else
	defer s.scratch.Put(c)
	f.held, f.placed, f.also = s.believe(c, i, i.unsure.Load(), p.PrefixID, p.Keys, now)
	if p.Beginning == 0 || p.PrefixID == "" {
		return f
	}
	e.shared.mu.Lock()
	defer e.shared.mu.Unlock()
	if !i.removed.Load() {
		f.placement = newPlacement(p.Beginning, p.PrefixID, i)
		e.shared.spread.add(f.placement, now)
	}
	return f
}

// Withdraw takes it back: the request failed.
func (f *Followed) Withdraw() {
	f.scheduler.withdraw(f.shared, f.placement, f.held, f.placed, f.also)
}

// believe predicts a prompt's blocks on an instance: as held, as placed there
// for the prefix id, and, while the instance's events are in doubt, as sent
// there since.
func (s *Scheduler) believe(c *scratch, i *Instance, unsure bool, id string, keys []blockkey.Key, now time.Time) (held, placed, since radix.Ticket) {
	if len(keys) == 0 {
		return held, placed, since
	}
	held = s.held.Predict(i.handle, keys, now)
	if id == "" && !unsure {
		return held, placed, since
	}
	keys = c.withID(keys, id)
	if id != "" {
		placed = s.placed.Predict(i.placedHandle, keys, now)
	}
	if unsure {
		since = s.placed.Predict(i.sinceHandle, keys, now)
	}
	return held, placed, since
}

// withdraw ends what believe began, and forgets the placement.
func (s *Scheduler) withdraw(shared *endpointState, p placement, held, placed, since radix.Ticket) {
	s.held.Withdraw(held)
	s.placed.Withdraw(placed)
	s.placed.Withdraw(since)
	if p.on != nil {
		shared.mu.Lock()
		shared.spread.remove(p)
		shared.mu.Unlock()
	}
}

// SetElsewhere says what other routers have in flight on the instance. It
// counts like this router's own.
func (i *Instance) SetElsewhere(inFlight, prefill int) {
	i.elsewhere.Store(int64(inFlight))
	i.elsewherePrefill.Store(int64(prefill))
}

// Elsewhere is what other routers were last said to have in flight on it.
func (i *Instance) Elsewhere() int { return int(i.elsewhere.Load()) }
