package scheduler

// Explanation is what Acquire would do, and why.
type Explanation struct {
	Variant   string      `json:"variant"`
	Strategy  Strategy    `json:"strategy"`
	Rule      Rule        `json:"rule"`
	Instance  string      `json:"instance"` // the choice
	Instances []Candidacy `json:"instances"`
}

// Candidacy is one instance's part in a decision.
type Candidacy struct {
	Instance        string `json:"instance"`
	Eligible        bool   `json:"eligible"`
	Why             string `json:"why,omitempty"` // why it is not eligible
	MatchedTokens   int    `json:"matched_tokens"`
	ConfirmedTokens int    `json:"confirmed_tokens"`
	InFlight        int    `json:"in_flight"`
	Elsewhere       int    `json:"in_flight_elsewhere,omitempty"` // by way of other routers
	QueuedPrefill   int    `json:"queued_prefill_tokens"`
	Trust           string `json:"trust"`
	TrustReason     string `json:"trust_reason"`
	Cost            int    `json:"cost,omitempty"` // KV_AWARE
}

// Explain is a dry run: the same matching and picking, nothing reserved. The
// error is [ErrNoInstance].
func (s *Scheduler) Explain(r *Request) (*Explanation, error) {
	c := s.scratch.Get().(*scratch) // the pool holds nothing else
	defer s.scratch.Put(c)
	v, err := s.variant(c, r.Endpoint, r)
	if err != nil {
		return nil, err
	}
	s.match(c, r)
	cold, seed := r.coldKey(v.routing.MinMatchTokens), s.seed()
	shared := r.Endpoint.shared
	shared.mu.Lock()
	j, rule := c.pick(v, r, cold, seed, &shared.spread)
	shared.mu.Unlock()

	out := &Explanation{Variant: v.name, Strategy: v.routing.Strategy, Rule: rule, Instance: c.candidates[j].name}
	for _, i := range v.instances {
		trust, reason := i.Trust()
		entry := Candidacy{
			Instance: i.name, InFlight: i.InFlight(), Elsewhere: i.Elsewhere(), QueuedPrefill: i.QueuedPrefill(), Trust: trust.String(), TrustReason: reason,
			Why: i.ineligible(r),
		}
		for _, k := range c.candidates {
			if k.Instance == i {
				entry.Eligible, entry.MatchedTokens, entry.Cost = true, k.matched, k.cost
				entry.ConfirmedTokens = cachedTokens(k.confirmed, k.size, r.PromptTokens)
			}
		}
		out.Instances = append(out.Instances, entry)
	}
	return out, nil
}
