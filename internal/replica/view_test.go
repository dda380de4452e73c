package replica

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmroute/warmroute/internal/blockkey"
	"github.com/warmroute/warmroute/radix"
	"github.com/warmroute/warmroute/scheduler"
)

const endpoint = "llama"

// newScheduler has n instances w0… of one endpoint.
func newScheduler(t testing.TB, n, threshold int, hooks scheduler.Hooks) *scheduler.Scheduler {
	t.Helper()
	s := scheduler.New(scheduler.Options{
		Held: radix.New(radix.Options{PredictionTTL: time.Minute}), Placed: radix.New(radix.Options{}),
		Rand: rand.New(rand.NewPCG(1, 2)), Hooks: hooks,
	})
	v := scheduler.VariantConfig{Name: "v", Weight: 1, Routing: scheduler.Routing{
		Strategy: scheduler.PrefixAware, PrefixLength: 65536, ConcurrencyThreshold: threshold, MinMatchTokens: 16,
	}}
	for i := range n {
		v.Instances = append(v.Instances, scheduler.InstanceConfig{Name: fmt.Sprintf("w%d", i), URL: fmt.Sprintf("http://w%d", i), BlockSize: 16})
	}
	if err := s.Apply([]scheduler.EndpointConfig{{Name: endpoint, Model: "m", Variants: []scheduler.VariantConfig{v}}}); err != nil {
		t.Fatal(err)
	}
	return s
}

func elsewhere(t testing.TB, s *scheduler.Scheduler, instance string) int {
	t.Helper()
	i, ok := s.Instance(endpoint, instance)
	if !ok {
		t.Fatalf("no instance %s", instance)
	}
	return i.Elsewhere()
}

// say is a message of a router's with one load.
func say(flags byte, sender, seq uint64, instance string, inFlight uint64) []byte {
	b := appendCount(appendHead(nil, head{flags: flags, sender: sender, seq: seq}), 1)
	return appendLoad(b, name{endpoint, instance}, load{inFlight, inFlight * 10})
}

func (v *view) hear(t testing.TB, message []byte, now time.Time) received {
	t.Helper()
	h, rest, err := readHead(message)
	if err != nil {
		t.Fatal(err)
	}
	got, err := v.receive(h, rest, now)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestLoadsOfTheOthersAddUp(t *testing.T) {
	s := newScheduler(t, 2, 4, scheduler.Hooks{})
	v, now := newView(s, time.Minute), time.Unix(1, 0)
	v.hear(t, say(flagReset, 1, 0, "w0", 3), now)
	v.hear(t, say(flagReset, 2, 0, "w0", 4), now)
	v.hear(t, say(0, 1, 1, "w0", 1), now)
	if got := elsewhere(t, s, "w0"); got != 5 {
		t.Errorf("1 and 4 make %d", got)
	}
	v.hear(t, say(0, 1, 0, "w0", 9), now) // once more, late
	if got := elsewhere(t, s, "w0"); got != 5 {
		t.Errorf("an old message changed it to %d", got)
	}
	v.hear(t, say(flagReset, 1, 2, "w1", 2), now)
	if a, b := elsewhere(t, s, "w0"), elsewhere(t, s, "w1"); a != 4 || b != 2 {
		t.Errorf("a full state without w0 leaves %d and %d, want 4 and 2", a, b)
	}
}

func TestAnEndedOrSilentRouterCountsNoMore(t *testing.T) {
	s := newScheduler(t, 1, 4, scheduler.Hooks{})
	v, now := newView(s, time.Minute), time.Unix(1, 0)
	v.hear(t, say(flagReset, 1, 0, "w0", 3), now)
	v.hear(t, say(flagReset, 2, 0, "w0", 4), now.Add(time.Second))
	if n := v.expire(now.Add(time.Millisecond), now.Add(2*time.Second)); n != 1 || elsewhere(t, s, "w0") != 4 {
		t.Errorf("%d expired, %d in flight elsewhere", n, elsewhere(t, s, "w0"))
	}
	got := v.hear(t, appendHead(nil, head{flags: flagLeave, sender: 2, seq: 1}), now)
	if !got.left || elsewhere(t, s, "w0") != 0 || len(v.totals) != 0 {
		t.Errorf("left %v, %d in flight elsewhere", got.left, elsewhere(t, s, "w0"))
	}
}

func TestAGapIsAskedForOnceInAWhile(t *testing.T) {
	s := newScheduler(t, 1, 4, scheduler.Hooks{})
	v, now := newView(s, time.Minute), time.Unix(100, 0)
	v.hear(t, say(flagReset, 1, 0, "w0", 3), now)
	if got := v.lacking(now.Add(-askAgain), now); got != nil {
		t.Fatalf("asks %v though all is known", got)
	}
	if got := v.hear(t, say(0, 1, 2, "w0", 4), now); !got.gap {
		t.Fatal("the gap was not noticed")
	}
	if got := v.lacking(now.Add(-askAgain), now); len(got) != 1 || got[0] != 1 {
		t.Fatalf("asks %v", got)
	}
	if got := v.lacking(now.Add(-askAgain), now); got != nil {
		t.Errorf("asks %v again at once", got)
	}
	later := now.Add(2 * askAgain)
	if got := v.lacking(later.Add(-askAgain), later); len(got) != 1 {
		t.Error("does not ask again")
	}
	v.hear(t, say(flagReset, 1, 3, "w0", 4), later)
	much := later.Add(time.Hour)
	if got := v.lacking(much.Add(-askAgain), much); got != nil {
		t.Errorf("asks %v though the full state came", got)
	}
}

func TestPredictionsOfOthersAreFollowedAndTakenBack(t *testing.T) {
	s := newScheduler(t, 4, 4, scheduler.Hooks{})
	v, now := newView(s, time.Minute), time.Unix(100, 0)
	keys := blockkey.Append(nil, blockkey.Root(blockkey.Namespace{Model: "m", BlockSize: 16}), make([]blockkey.Token, 64), 16)
	message := func(seq uint64, item func([]byte) []byte) []byte {
		return item(appendCount(appendHead(nil, head{sender: 1, seq: seq}), 0))
	}
	predict := func(b []byte) []byte {
		return appendPrediction(b, 5, scheduler.Prediction{Endpoint: endpoint, Instance: "w2", Keys: keys})
	}
	pick := func() scheduler.Rule {
		e, _ := s.Endpoint(endpoint)
		l, err := s.Acquire(&scheduler.Request{Endpoint: e, PromptTokens: 64, Chains: []blockkey.Chain{{BlockSize: 16, Keys: keys}}}, now)
		if err != nil {
			t.Fatal(err)
		}
		l.Done(scheduler.Failed)
		if l.Rule == scheduler.RulePrefixHit && l.Instance.Name() != "w2" {
			t.Errorf("hit on %s", l.Instance.Name())
		}
		return l.Rule
	}
	if got := v.hear(t, message(0, predict), now); got.predictions != 1 {
		t.Fatalf("%d predictions", got.predictions)
	}
	if got := pick(); got != scheduler.RulePrefixHit {
		t.Errorf("after it the rule is %s", got)
	}
	v.hear(t, message(1, func(b []byte) []byte { return appendWithdrawal(b, 5) }), now)
	if got := pick(); got != scheduler.RuleRendezvous {
		t.Errorf("taken back, the rule is %s", got)
	}
	v.hear(t, message(2, predict), now)
	v.expire(now, now.Add(2*time.Minute))
	if p := v.peers[1]; len(p.followed) != 0 || len(p.order) != 0 {
		t.Errorf("%d predictions are kept for ever", len(p.followed))
	}
}

// Whatever is lost, doubled or late: what is known of a router is what it once
// said, the totals are the sum over the routers, and the full states mend all.
func TestPropertyAnyNetworkEndsWithTheTruth(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newScheduler(t, 3, 4, scheduler.Hooks{})
		v, now := newView(s, time.Minute), time.Unix(100, 0)
		truth := [3]map[string]uint64{{}, {}, {}}
		seqs := [3]uint64{}
		var under [][]byte // way, any order
		full := func(i int) []byte {
			b := appendCount(appendHead(nil, head{flags: flagReset, sender: uint64(i + 1), seq: seqs[i]}), len(truth[i]))
			for w, n := range truth[i] {
				b = appendLoad(b, name{endpoint, w}, load{n, 0})
			}
			seqs[i]++
			return b
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			i := rapid.IntRange(0, 2).Draw(rt, "router")
			w, n := fmt.Sprintf("w%d", rapid.IntRange(0, 2).Draw(rt, "instance")), uint64(rapid.IntRange(0, 5).Draw(rt, "n"))
			truth[i][w] = n
			m := say(0, uint64(i+1), seqs[i], w, n)
			if rapid.Bool().Draw(rt, "full") {
				m = full(i)
			} else {
				seqs[i]++
			}
			for range rapid.IntRange(0, 2).Draw(rt, "copies") {
				under = append(under, m)
			}
			for len(under) > 0 && rapid.Bool().Draw(rt, "arrives") {
				k := rapid.IntRange(0, len(under)-1).Draw(rt, "which")
				v.hear(t, under[k], now)
				under = append(under[:k], under[k+1:]...)
			}
			sums := map[name]load{}
			for _, p := range v.peers {
				for of, l := range p.loads {
					sums[of] = load{sums[of].inFlight + l.inFlight, sums[of].prefill + l.prefill}
				}
			}
			for of, l := range sums {
				if v.totals[of] != l {
					rt.Fatalf("total of %v is %v, the parts make %v", of, v.totals[of], l)
				}
			}
			if len(sums) != len(v.totals) {
				rt.Fatalf("%d totals for %d instances", len(v.totals), len(sums))
			}
		}
		for i := range truth {
			v.hear(t, full(i), now)
		}
		for w := range 3 {
			of := fmt.Sprintf("w%d", w)
			want := truth[0][of] + truth[1][of] + truth[2][of]
			if got := elsewhere(t, s, of); uint64(got) != want {
				rt.Fatalf("%s has %d elsewhere, want %d", of, got, want)
			}
		}
		later := now.Add(time.Hour)
		if asked := v.lacking(later, later); asked != nil {
			rt.Fatalf("asks %v though all said everything", asked)
		}
	})
}
