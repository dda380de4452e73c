package scheduler

import (
	"cmp"

	"github.com/warmroute/warmroute/internal/blockkey"
)

// Rule is which rule decided.
type Rule string

// The rules.
const (
	RulePrefixHit           Rule = "prefix_hit"            // PREFIX_AWARE: the longest match
	RuleOverflowNextMatch   Rule = "overflow_next_match"   // PREFIX_AWARE: the longest match was at its threshold, this is the next
	RuleOverflowLeastLoaded Rule = "overflow_least_loaded" // PREFIX_AWARE: every match was at its threshold, or everything was
	RuleRendezvous          Rule = "rendezvous"            // PREFIX_AWARE: no match; the instance that this beginning belongs to
	RuleLeastOutstanding    Rule = "least_outstanding"     // fewest in flight
	RuleRandom              Rule = "random"
	RuleKVCost              Rule = "kv_cost" // KV_AWARE: least expected cost
	RuleSingle              Rule = "single"  // one instance alone may serve it
)

// Constants of KV_AWARE's cost, in prefill tokens.
const (
	// uncachedWeight is above 1 since a second copy of a prefix evicts somebody
	// else's: in simulation 1 lost six points of hit rate where the working set
	// is about the fleet's cache, 1.5 and above lost none.
	uncachedWeight = 2
	// requestCost stands for what a request in flight adds to a step beside its
	// prefill: it decides between instances that are otherwise equal.
	requestCost = 16
)

// Constants of rendezvous with bounded load.
const (
	// loadFactor, in quarters: an instance takes cold prompts up to 5/4 of the
	// mean load.
	loadFactorQuarters = 5
	// loadFloor keeps a small or idle fleet from spreading a prefix because of
	// one or two requests.
	loadFloor = 4
)

// pick chooses among the candidates, of which there is at least one, and
// returns its position. It is called under the endpoint's lock.
func (c *scratch) pick(v *Variant, r *Request, cold blockkey.Key, seed uint64, sp *spread) (int, Rule) {
	for j := range c.candidates {
		k := &c.candidates[j]
		k.load = k.inFlight.Load() + k.elsewhere.Load()
	}
	if len(c.candidates) == 1 {
		return 0, RuleSingle
	}
	switch v.routing.Strategy {
	case LeastOutstanding:
		return c.leastLoaded(seed), RuleLeastOutstanding
	case PrefixAware:
		if len(r.Chains) == 0 || cold == 0 {
			return c.leastLoaded(seed), RuleLeastOutstanding
		}
		return c.prefixAware(v.routing, r, cold, seed, sp)
	case KVAware:
		return c.kvAware(r, cold, seed, sp), RuleKVCost
	case Random:
	}
	return int(mix(seed, 0) % uint64(len(c.candidates))), RuleRandom
}

// luckier breaks a tie by chance: seed is another for each pick.
func luckier(a, b *candidate, seed uint64) bool { return mix(seed, a.rank) < mix(seed, b.rank) }

// leastLoaded is the one with the fewest in flight, at random among equals.
func (c *scratch) leastLoaded(seed uint64) int {
	least := 0
	for j := 1; j < len(c.candidates); j++ {
		a, b := &c.candidates[j], &c.candidates[least]
		if a.load < b.load || a.load == b.load && luckier(a, b, seed) {
			least = j
		}
	}
	return least
}

// prefixAware is the longest match under the threshold, else the place of a
// cold prompt, else the least loaded.
func (c *scratch) prefixAware(routing Routing, r *Request, cold blockkey.Key, seed uint64, sp *spread) (int, Rule) {
	threshold := int64(routing.ConcurrencyThreshold)
	longest, chosen := 0, -1
	for j := range c.candidates {
		k := &c.candidates[j]
		if k.matched < routing.MinMatchTokens {
			continue
		}
		longest = max(longest, k.matched)
		if k.load < threshold && (chosen < 0 || betterMatch(k, &c.candidates[chosen], seed)) {
			chosen = j
		}
	}
	switch {
	case longest == 0:
		return c.coldPlace(threshold, r, cold, seed, sp)
	case chosen < 0:
		return c.leastLoaded(seed), RuleOverflowLeastLoaded
	case c.candidates[chosen].matched < longest:
		return chosen, RuleOverflowNextMatch
	}
	return chosen, RulePrefixHit
}

// betterMatch prefers the longer match, then the fewer in flight, then chance.
func betterMatch(a, b *candidate, seed uint64) bool {
	switch {
	case a.matched != b.matched:
		return a.matched > b.matched
	case a.load != b.load:
		return a.load < b.load
	}
	return luckier(a, b, seed)
}

// coldPlace is where a prompt without a match goes: rendezvous hashing with
// bounded load. Replicas agree without talking, and an instance more or less
// moves only its own share. A prefix id first avoids instances that have this
// beginning for another id.
func (c *scratch) coldPlace(threshold int64, r *Request, cold blockkey.Key, seed uint64, sp *spread) (int, Rule) {
	total := int64(1)
	name := blockkey.WithID(cold, r.PrefixID)
	for j := range c.candidates {
		k := &c.candidates[j]
		total += k.load
		k.score = mix(name, k.rank)
		k.ids = 0
	}
	if r.PrefixID != "" {
		sp.count(cold, r.PrefixID, c.candidates)
	}
	n := int64(len(c.candidates))
	bound := max(loadFloor, (total*loadFactorQuarters+4*n-1)/(4*n))
	bound = min(bound, threshold)
	chosen := -1
	for j := range c.candidates {
		k := &c.candidates[j]
		if k.load >= bound {
			continue
		}
		if chosen < 0 || cmp.Or(cmp.Compare(k.ids, c.candidates[chosen].ids), cmp.Compare(c.candidates[chosen].score, k.score)) < 0 {
			chosen = j
		}
	}
	if chosen < 0 {
		return c.leastLoaded(seed), RuleOverflowLeastLoaded
	}
	return chosen, RuleRendezvous
}

// kvAware is the least expected cost, in prefill tokens: what is queued there,
// what of this prompt is not cached, and the load. A prefix id breaks ties by
// the other ids that have this beginning there.
func (c *scratch) kvAware(r *Request, cold blockkey.Key, seed uint64, sp *spread) int {
	if r.PrefixID != "" && cold != 0 {
		sp.count(cold, r.PrefixID, c.candidates)
	}
	least := 0
	for j := range c.candidates {
		k, b := &c.candidates[j], &c.candidates[least]
		k.cost = int(k.prefill.Load()+k.elsewherePrefill.Load()) + uncachedWeight*(r.PromptTokens-k.matched) + requestCost*int(k.load)
		if k.cost < b.cost || k.cost == b.cost && (k.ids < b.ids || k.ids == b.ids && luckier(k, b, seed)) {
			least = j
		}
	}
	return least
}

// mix is a 64-bit hash of two numbers (the finalizer of SplitMix64).
func mix(a, b uint64) uint64 {
	z := a ^ (b + 0x9E3779B97F4A7C15)
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}
