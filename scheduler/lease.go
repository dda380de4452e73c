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
	told         uint64       // the number that other routers know its prediction by; 0: none
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
		s.loaded()
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
	l.held, l.placed, l.since = s.believe(c, k.Instance, k.unsure, r.PrefixID, keys, now)
	none := radix.Ticket{}
	if s.hooks.Predicted == nil || l.held == none && l.placed == none && l.since == none && l.placement.on == nil {
		return // all of it is known already, here and hence elsewhere
	}
	l.told = s.predictions.Add(1)
	s.hooks.Predicted(l.told, Prediction{
		Endpoint: k.endpoint, Instance: k.name, PrefixID: r.PrefixID, Keys: keys, Beginning: l.placement.beginning,
	})
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
		l.scheduler.loaded()
	}
}

// Done ends the lease. Only the first call counts.
func (l *Lease) Done(o Outcome) {
	if l.done.Swap(true) {
		return
	}
	l.FirstToken()
	s := l.scheduler
	if o == Failed {
		s.withdraw(l.shared, l.placement, l.held, l.placed, l.since)
		if l.told != 0 {
			s.hooks.Withdrawn(l.told)
		}
	}
	l.Instance.inFlight.Add(-1)
	s.loaded()
}

// loaded tells the other routers that a count has changed.
func (s *Scheduler) loaded() {
	if s.hooks.Loaded != nil {
		s.hooks.Loaded()
	}
}
