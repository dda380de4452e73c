package scheduler

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/warmroute/warmroute/radix"
)

// Outcome is how a request ended.
type Outcome int

// The outcomes.
const (
	Served    Outcome = iota // the worker answered, whatever its status
	Failed                   // the worker did not take it: its cache has nothing of it
	Cancelled                // the client left; what was computed stays cached
)

// Lease is one request's place on an instance, in flight until Done.
type Lease struct {
	Instance *Instance
	Variant  *Variant
	Rule     Rule
	// MatchedTokens is how many of the prompt's tokens the worker is believed to
	// have cached, counted as it counts them: whole blocks, without the prompt's
	// last token.
	MatchedTokens int

	scheduler    *Scheduler
	prefill      int64 // tokens counted in the instance's queue
	prefilled    atomic.Bool
	done         atomic.Bool
	shared       *endpointState
	placement    placement // zero: none was remembered
	held, placed radix.Ticket
	since        radix.Ticket // in placed
}

// Acquire matches, picks and reserves. It never waits. The caller ends the
// lease with Done, whatever happens. The error is [ErrNoInstance], and says
// why.
func (s *Scheduler) Acquire(r *Request, now time.Time) (*Lease, error) {
	c := s.scratch.Get().(*scratch) // the pool holds nothing else
	defer s.scratch.Put(c)
	for {
		e, ok := s.Endpoint(r.Endpoint.name)
		if !ok {
			return nil, fmt.Errorf("%w: endpoint %s was removed", ErrNoInstance, r.Endpoint.name)
		}
		v, err := s.variant(c, e, r)
		if err != nil {
			s.metrics.refused.WithLabelValues(e.name).Inc()
			return nil, err
		}
		s.match(c, r)
		l, k := s.reserve(c, e, v, r, now)
		if l == nil {
			continue // the choice went away since it was found eligible
		}
		s.predict(c, l, r, k, now)
		s.metrics.decisions.WithLabelValues(e.name, string(l.Rule)).Inc()
		return l, nil
	}
}

// reserve picks and takes the place in one step. It returns nil if the choice
// may no longer serve.
func (s *Scheduler) reserve(c *scratch, e *Endpoint, v *Variant, r *Request, now time.Time) (*Lease, *candidate) {
	cold, seed := r.coldKey(v.routing.MinMatchTokens), s.seed()
	l := &Lease{Variant: v, scheduler: s, shared: e.shared}
	e.shared.mu.Lock()
	defer e.shared.mu.Unlock()
	j, rule := c.pick(v, r, cold, seed, &e.shared.spread)
	k := &c.candidates[j]
	if !k.Ready() {
		return nil, nil
	}
	l.Instance, l.Rule, l.MatchedTokens = k.Instance, rule, k.matched
	l.prefill = int64(max(0, r.PromptTokens-k.matched))
	k.inFlight.Add(1)
	k.prefill.Add(l.prefill)
	spreads := v.routing.Strategy == PrefixAware || v.routing.Strategy == KVAware
	if spreads && r.PrefixID != "" && cold != 0 && k.matched < v.routing.MinMatchTokens {
		l.placement = newPlacement(cold, r.PrefixID, k.Instance)
		e.shared.spread.add(l.placement, now)
	}
	return l, k
}

// predict says that the instance is about to hold the prompt's blocks.
func (s *Scheduler) predict(c *scratch, l *Lease, r *Request, k *candidate, now time.Time) {
	keys := r.chain(k.size)
	if len(keys) == 0 {
		return
	}
	l.held = s.held.Predict(k.handle, keys, now)
	if r.PrefixID == "" && !k.unsure {
		return
	}
	keys = c.withID(keys, r.PrefixID)
	if r.PrefixID != "" {
		l.placed = s.placed.Predict(k.placedHandle, keys, now)
	}
	if k.unsure {
		l.since = s.placed.Predict(k.sinceHandle, keys, now)
	}
}

// variant chooses the variant, by name or by weight among those that have an
// eligible instance, and fills in its candidates.
func (s *Scheduler) variant(c *scratch, e *Endpoint, r *Request) (*Variant, error) {
	var chosen, filled *Variant
	total := 0.0
	for _, v := range e.variants {
		if r.Variant != "" && v.name != r.Variant {
			continue
		}
		filled = v
		if c.eligible(v, r); len(c.candidates) == 0 {
			continue
		}
		weight := v.weight
		if r.Variant != "" {
			weight = 1
		}
		// Reservoir sampling: each is kept with its share of the weight so far.
		total += weight
		if weight > 0 && (chosen == nil || s.float()*total < weight) {
			chosen = v
		}
	}
	if chosen == nil {
		return nil, fmt.Errorf("%w: %s", ErrNoInstance, whyNone(e, r))
	}
	if filled != chosen {
		c.eligible(chosen, r)
	}
	if len(c.candidates) == 0 { // an instance went in between
		return nil, fmt.Errorf("%w: %s", ErrNoInstance, whyNone(e, r))
	}
	return chosen, nil
}

// whyNone sums up why no instance is eligible.
func whyNone(e *Endpoint, r *Request) string {
	counts := map[string]int{}
	known := r.Variant == ""
	for _, v := range e.variants {
		if r.Variant != "" && v.name != r.Variant {
			continue
		}
		known = true
		for _, i := range v.instances {
			counts[i.ineligible(r)]++
		}
	}
	switch {
	case !known:
		return fmt.Sprintf("endpoint %s has no variant of that name", e.name)
	case len(counts) == 0:
		return fmt.Sprintf("endpoint %s has no instances", e.name)
	}
	var parts []string
	for _, why := range []string{"not ready", "excluded", "adapter not loaded", "removed"} {
		if counts[why] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[why], why))
		}
	}
	if counts[""] > 0 {
		parts = append(parts, fmt.Sprintf("%d in a variant of weight 0", counts[""]))
	}
	return fmt.Sprintf("of endpoint %s's instances: %s", e.name, strings.Join(parts, ", "))
}

// FirstToken says that the worker has computed the prompt: it no longer counts
// as queued prefill.
func (l *Lease) FirstToken() {
	if !l.prefilled.Swap(true) {
		l.Instance.prefill.Add(-l.prefill)
	}
}

// Done ends the lease. Only the first call counts.
func (l *Lease) Done(o Outcome) {
	if l.done.Swap(true) {
		return
	}
	l.FirstToken()
	if o == Failed {
		l.scheduler.held.Withdraw(l.held)
		l.scheduler.placed.Withdraw(l.placed)
		l.scheduler.placed.Withdraw(l.since)
		if l.placement.on != nil {
			l.shared.mu.Lock()
			l.shared.spread.remove(l.placement)
			l.shared.mu.Unlock()
		}
	}
	l.Instance.inFlight.Add(-1)
}
