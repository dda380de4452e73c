package scheduler

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/warmroute/warmroute/internal/blockkey"
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
	held, placed radix.Ticket
}

// Acquire matches, picks and reserves. It never waits. The caller ends the
// lease with Done, whatever happens. The error is [ErrNoInstance], and says
// why.
func (s *Scheduler) Acquire(r *Request, now time.Time) (*Lease, error) {
	e, ok := s.Endpoint(r.Endpoint.name)
	if !ok {
		return nil, fmt.Errorf("%w: endpoint %s was removed", ErrNoInstance, r.Endpoint.name)
	}
	c := s.scratch.Get().(*scratch) // the pool holds nothing else
	defer s.release(c)
	v, err := s.variant(c, e, r)
	if err != nil {
		return nil, err
	}
	s.match(c, r)
	cold, seed := r.coldKey(v.routing.MinMatchTokens), s.seed()

	e.shared.mu.Lock()
	j, rule := c.pick(v, r, cold, seed, &e.shared.spread)
	k := &c.candidates[j]
	l := &Lease{Instance: k.Instance, Variant: v, Rule: rule, MatchedTokens: k.matched, scheduler: s, prefill: int64(max(0, r.PromptTokens-k.matched))}
	k.inFlight.Add(1)
	k.prefill.Add(l.prefill)
	if r.PrefixID != "" && cold != 0 && k.blocks == 0 {
		e.shared.spread.add(cold, k.Instance)
	}
	e.shared.mu.Unlock()

	s.predict(c, l, r, k.size, now)
	s.metrics.decisions.WithLabelValues(e.name, string(rule)).Inc()
	return l, nil
}

// predict says that the instance is about to hold the prompt's blocks.
func (s *Scheduler) predict(c *scratch, l *Lease, r *Request, blockSize int, now time.Time) {
	keys := r.chain(blockSize)
	if len(keys) == 0 {
		return
	}
	l.held = s.held.Predict(l.Instance.handle, keys, now)
	if r.PrefixID == "" {
		return
	}
	c.keys = c.keys[:0]
	for _, key := range keys {
		c.keys = append(c.keys, blockkey.WithID(key, r.PrefixID))
	}
	l.placed = s.placed.Predict(l.Instance.placedHandle, c.keys, now)
}

// variant chooses the variant, by name or by weight among those that have an
// eligible instance, and fills in its candidates.
func (s *Scheduler) variant(c *scratch, e *Endpoint, r *Request) (*Variant, error) {
	var chosen *Variant
	total := 0.0
	for _, v := range e.variants {
		if r.Variant != "" && v.name != r.Variant {
			continue
		}
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
	c.eligible(chosen, r)
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

func (s *Scheduler) release(c *scratch) {
	clear(c.candidates) // keep no instance alive
	s.scratch.Put(c)
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
	}
	l.Instance.inFlight.Add(-1)
}
