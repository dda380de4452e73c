package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// long is about 8,000 tokens of English.
const long = 36_000

func TestSameBeginningGoesToTheInstanceThatIsWarm(t *testing.T) {
	f := startFleet(t, fleetOptions{})
	for i, lang := range tongues() {
		t.Run(lang.name, func(t *testing.T) {
			n := long
			if lang.name != "English" {
				n = 12_000 // other scripts need more tokens for as much text
			}
			doc := document(lang, uint64(i), n)
			ask := func(question string) reply {
				return f.post(f.api+"/v1/chat/completions", chat([]message{{"system", doc}, {"user", question}}, 8, nil)).ok(t)
			}
			first := ask("What was repaired?")
			second := ask("And what was forgotten?")
			a, b := first.receipt(t), second.receipt(t)
			if a.instance != b.instance {
				t.Errorf("the first went to %s, the second to %s (%s)", a.instance, b.instance, b.rule)
			}
			if b.rule != "prefix_hit" {
				t.Errorf("the second was sent by %s, want prefix_hit", b.rule)
			}
			if lang.name == "English" && a.prompt < 7000 {
				t.Errorf("the prompt has %d tokens; the test wants about 8,000", a.prompt)
			}
			cached := second.usage(t).PromptTokensDetails.CachedTokens
			if cached < b.prompt*9/10 {
				t.Errorf("%d of %d tokens were cached, want nearly all", cached, b.prompt)
			}
			if b.matched != cached {
				t.Errorf("the router matched %d tokens, the worker had %d", b.matched, cached)
			}
			if got := second.usage(t).PromptTokens; got != b.prompt {
				t.Errorf("the router counted %d prompt tokens, the worker %d", b.prompt, got)
			}
		})
	}
}

// The two numbers are equal, not only near each other: both count whole blocks
// and both leave the last token out, which a worker always computes.
func TestMatchedTokensEqualTheWorkersCachedTokens(t *testing.T) {
	for _, blockSize := range []int{16, 32} {
		t.Run(fmt.Sprintf("blocks of %d", blockSize), func(t *testing.T) {
			f := startFleet(t, fleetOptions{blockSize: blockSize, threshold: 1024, minMatch: blockSize})
			r := rand.New(rand.NewPCG(1, 2))
			langs := tongues()
			type conversation struct{ turns []message }
			var open []*conversation
			hits := 0
			for i := range 220 {
				var c *conversation
				if len(open) > 0 && r.IntN(3) > 0 {
					c = open[r.IntN(len(open))]
				} else {
					lang := langs[r.IntN(len(langs))]
					c = &conversation{turns: []message{{"system", document(lang, uint64(r.IntN(12)), 300+r.IntN(6000))}}}
					open = append(open, c)
				}
				c.turns = append(c.turns, message{"user", document(langs[r.IntN(len(langs))], uint64(i)+100, 20+r.IntN(800))})
				extra := map[string]any{}
				stream := r.IntN(3) == 0
				if stream {
					extra = map[string]any{"stream": true, "stream_options": map[string]any{"include_usage": true}}
				}
				got := f.post(f.api+"/v1/chat/completions", chat(c.turns, 1+r.IntN(40), extra)).ok(t)
				rec, use := got.receipt(t), got.usage(t)
				if rec.matched != use.PromptTokensDetails.CachedTokens || rec.prompt != use.PromptTokens {
					t.Fatalf("request %d: matched %d of %d tokens, the worker %s had %d of %d (%s)", i,
						rec.matched, rec.prompt, rec.instance, use.PromptTokensDetails.CachedTokens, use.PromptTokens, rec.rule)
				}
				if rec.matched > 0 {
					hits++
				}
				if stream {
					c.turns = c.turns[:len(c.turns)-1]
				} else {
					c.turns = append(c.turns, message{"assistant", got.answer(t)})
				}
				f.settle()
			}
			if hits < 100 {
				t.Errorf("only %d of 220 requests matched anything: the test shows little", hits)
			}
		})
	}
}

func TestEvictedPrefixIsNoLongerCredited(t *testing.T) {
	// 400 blocks of 16: about 6,400 tokens, so that a few documents fill it.
	f := startFleet(t, fleetOptions{workers: 1, blocks: 400})
	doc := func(seed uint64) string { return document(tongues()[0], seed, 7_000) }
	ask := func(seed uint64) (receipt, usage) {
		got := f.post(f.api+"/v1/chat/completions", chat([]message{{"user", doc(seed)}}, 4, nil)).ok(t)
		f.settle()
		return got.receipt(t), got.usage(t)
	}
	ask(1)
	if rec, use := ask(1); rec.matched == 0 || rec.matched != use.PromptTokensDetails.CachedTokens {
		t.Fatalf("the second request matched %d tokens and had %d cached, want as many and some", rec.matched, use.PromptTokensDetails.CachedTokens)
	}
	for seed := range uint64(8) {
		ask(seed + 10)
	}
	rec, use := ask(1)
	if use.PromptTokensDetails.CachedTokens >= rec.prompt/2 {
		t.Fatalf("the worker still has %d of %d tokens: it evicted nothing", use.PromptTokensDetails.CachedTokens, rec.prompt)
	}
	if rec.matched != use.PromptTokensDetails.CachedTokens {
		t.Errorf("credited with %d tokens, the worker had %d", rec.matched, use.PromptTokensDetails.CachedTokens)
	}
}

func TestResetOfAWorkersCacheIsForgotten(t *testing.T) {
	f := startFleet(t, fleetOptions{workers: 1})
	body := chat([]message{{"user", document(tongues()[0], 1, 8_000)}}, 4, nil)
	f.post(f.api+"/v1/chat/completions", body).ok(t)
	f.settle()
	f.post(f.workers["w0"]+"/reset_prefix_cache", "{}").ok(t)
	// The worker announces the reset with its next step.
	other := chat([]message{{"user", document(tongues()[1], 2, 2_000)}}, 4, nil)
	f.post(f.api+"/v1/chat/completions", other).ok(t)
	f.settle()
	got := f.post(f.api+"/v1/chat/completions", body).ok(t)
	cached := got.usage(t).PromptTokensDetails.CachedTokens
	if cached >= 1000 {
		t.Fatalf("the worker still has %d tokens", cached)
	}
	if rec := got.receipt(t); rec.matched != cached {
		t.Errorf("credited with %d tokens, the worker had %d", rec.matched, cached)
	}
}

func TestPrefixIDsShareNothing(t *testing.T) {
	f := startFleet(t, fleetOptions{})
	ask := func(route, id string) receipt {
		// One prompt for both ids, and another on the next route: three
		// instances can keep two ids apart.
		body := chat([]message{{"system", document(tongues()[2], uint64(len(route)), 9_000)}, {"user", "Résume."}}, 4, nil)
		got := f.post(f.api+route, body, "X-Amzn-SageMaker-Prefix-Aware-Id", id).ok(t)
		f.settle()
		return got.receipt(t)
	}
	for _, route := range []string{"/v1/chat/completions", "/endpoints/llama/invocations"} {
		t.Run(route, func(t *testing.T) {
			x, y := strings.ReplaceAll(route, "/", "-")+"x", strings.ReplaceAll(route, "/", "-")+"y"
			first := ask(route, x)
			other := ask(route, y)
			if other.matched != 0 {
				t.Errorf("the second id matched %d tokens of the first one's prefix", other.matched)
			}
			if first.instance == other.instance {
				t.Errorf("both ids went to %s", first.instance)
			}
			again, otherAgain := ask(route, x), ask(route, y)
			if again.instance != first.instance || again.matched == 0 {
				t.Errorf("the first id went to %s, then to %s with %d tokens matched", first.instance, again.instance, again.matched)
			}
			if otherAgain.instance != other.instance || otherAgain.matched == 0 {
				t.Errorf("the second id went to %s, then to %s with %d tokens matched", other.instance, otherAgain.instance, otherAgain.matched)
			}
		})
	}
}
