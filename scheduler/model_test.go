package scheduler

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/warmroute/warmroute/internal/blockkey"
)

// naive is the fleet as a list of requests: what each instance holds, for whom,
// and its load follow from them by the definitions, without a tree.
type naive struct {
	routing  Routing
	requests []*naiveRequest
}

type naiveRequest struct {
	lease  *Lease
	on     *Instance
	id     string
	prompt []blockkey.Token
	queued int
	open   bool
	failed bool
}

// matched is the tokens of a prompt that an instance has cached for an id.
func (m *naive) matched(i *Instance, id string, prompt []blockkey.Token) int {
	best := 0
	for _, r := range m.requests {
		if r.on != i || r.failed || id != "" && r.id != id {
			continue
		}
		n := 0
		for n < min(len(prompt), len(r.prompt)) && prompt[n] == r.prompt[n] {
			n++
		}
		best = max(best, min(n/16, len(r.prompt)/16))
	}
	return min(best, (len(prompt)-1)/16) * 16
}

func (m *naive) load(i *Instance) (inFlight, queued int) {
	for _, r := range m.requests {
		if r.on == i && r.open {
			inFlight++
			queued += r.queued
		}
	}
	return inFlight, queued
}

// cost is what the strategy minimises, in order of importance.
func (m *naive) cost(i *Instance, id string, prompt []blockkey.Token) [3]int {
	inFlight, queued := m.load(i)
	matched := m.matched(i, id, prompt)
	switch m.routing.Strategy {
	case LeastOutstanding:
		return [3]int{inFlight}
	case KVAware:
		return [3]int{queued + uncachedWeight*(len(prompt)-matched) + requestCost*inFlight}
	case PrefixAware:
		full := inFlight >= m.routing.ConcurrencyThreshold
		switch {
		case full:
			return [3]int{1, inFlight} // only if all are: the least loaded
		case matched >= m.routing.MinMatchTokens:
			return [3]int{0, -matched, inFlight}
		}
		return [3]int{0, 0, inFlight}
	case Random:
	}
	return [3]int{}
}

func less(a, b [3]int) bool {
	for k := range a {
		if a[k] != b[k] {
			return a[k] < b[k]
		}
	}
	return false
}

// Every decision is one that the definitions allow, and says the truth about the
// match, so that no two ids share one.
func TestPropertyDecisionsFollowTheDefinitions(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(rt, "instances")
		m := &naive{routing: Routing{
			Strategy:     rapid.SampledFrom([]Strategy{Random, LeastOutstanding, PrefixAware, KVAware}).Draw(rt, "strategy"),
			PrefixLength: 65536, ConcurrencyThreshold: rapid.IntRange(1, 4).Draw(rt, "threshold"),
			MinMatchTokens: rapid.SampledFrom([]int{16, 48}).Draw(rt, "min match"),
		}}
		f := newFleet(t, n, m.routing)
		rt.Repeat(map[string]func(*rapid.T){
			"acquire": func(rt *rapid.T) {
				prompt := tokens(rapid.IntRange(0, 1).Draw(rt, "system"), rapid.IntRange(1, 64).Draw(rt, "system length"))
				prompt = append(prompt, tokens(rapid.IntRange(2, 4).Draw(rt, "own"), rapid.IntRange(0, 64).Draw(rt, "own length"))...)
				r := f.request(prompt)
				r.PrefixID = rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "id")
				l := f.acquire(r)
				m.check(rt, f, r, l, prompt)
				m.requests = append(m.requests, &naiveRequest{
					lease: l, on: l.Instance, id: r.PrefixID, prompt: prompt, queued: len(prompt) - l.MatchedTokens, open: true,
				})
			},
			"first token": func(rt *rapid.T) {
				if r := m.draw(rt); r.open {
					r.lease.FirstToken()
					r.queued = 0
				}
			},
			"done": func(rt *rapid.T) {
				r, outcome := m.draw(rt), rapid.SampledFrom([]Outcome{Served, Failed, Cancelled}).Draw(rt, "outcome")
				r.lease.Done(outcome)
				r.failed = r.failed || r.open && outcome == Failed
				r.open = false
			},
			"": func(rt *rapid.T) {
				for i := range n {
					inst := f.instance(i)
					if inFlight, queued := m.load(inst); inst.InFlight() != inFlight || inst.QueuedPrefill() != queued {
						rt.Fatalf("i%d has %d in flight and %d queued, want %d and %d", i, inst.InFlight(), inst.QueuedPrefill(), inFlight, queued)
					}
				}
			},
		})
	})
}

func (m *naive) draw(rt *rapid.T) *naiveRequest {
	if len(m.requests) == 0 {
		rt.Skip("there was no request yet")
	}
	return rapid.SampledFrom(m.requests).Draw(rt, "request")
}

// check compares one decision with the definitions.
func (m *naive) check(rt *rapid.T, f *testFleet, r *Request, l *Lease, prompt []blockkey.Token) {
	if want := m.matched(l.Instance, r.PrefixID, prompt); l.MatchedTokens != want {
		rt.Fatalf("%s matched %d tokens for id %q, want %d", l.Instance.Name(), l.MatchedTokens, r.PrefixID, want)
	}
	got := m.cost(l.Instance, r.PrefixID, prompt)
	for _, v := range r.Endpoint.Variants() {
		for _, i := range v.Instances() {
			other := m.cost(i, r.PrefixID, prompt)
			if l.Rule == RuleRendezvous { // its order is hashing's; that nothing matched is not
				got[2], other[2] = 0, 0
			}
			if less(other, got) {
				rt.Fatalf("%s chose %s with %v by %s, though %s has %v", m.routing.Strategy, l.Instance.Name(), got, l.Rule, i.Name(), other)
			}
		}
	}
}
