package tokenize

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmroute/warmroute/internal/blockkey"
)

// chatBody is a request with messages in turn from the user and the assistant.
func chatBody(t testing.TB, texts ...string) []byte {
	t.Helper()
	type msg struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	var messages []msg
	for i, text := range texts {
		messages = append(messages, msg{[]string{"user", "assistant"}[i%2], text})
	}
	body, err := json.Marshal(map[string]any{"model": "m", "messages": messages})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func completionBody(t testing.TB, text string) []byte {
	t.Helper()
	body, err := json.Marshal(map[string]any{"prompt": text})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// drawTexts draws texts that often share beginnings, as prompts do.
func drawTexts(t *rapid.T) []string {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 7))
	var texts []string
	for range rapid.IntRange(1, 4).Draw(t, "texts") {
		text := longText(r, r.IntN(9_000))
		if len(texts) > 0 && r.IntN(4) > 0 {
			before := texts[r.IntN(len(texts))]
			text = strings.ToValidUTF8(before[:r.IntN(len(before)+1)], "") + text[:min(len(text), r.IntN(3000))]
		}
		texts = append(texts, strings.ToValidUTF8(text, ""))
	}
	return texts
}

func TestCachesChangeNoKey(t *testing.T) {
	plain := openTest(t, ModelOptions{CacheBytes: -1})
	cached := openTest(t, ModelOptions{CacheBytes: 16 << 20})
	tiny := openTest(t, ModelOptions{CacheBytes: 1 << 20})
	roots := []Root{{16, 1}, {32, 2}, {16, 3}}
	rapid.Check(t, func(rt *rapid.T) {
		texts := drawTexts(rt)
		for i := range 3 * len(texts) { // each comes thrice: first seen, learnt, known
			text := texts[i%len(texts)]
			body := completionBody(t, text)
			kind := Completion
			if i%2 == 0 {
				body, kind = chatBody(t, text, "ok", text[:len(text)/2]), Chat
			}
			limit := rapid.SampledFrom([]int{0, 1024, 5000, len(text)}).Draw(rt, "limit")
			var want Prompt
			if err := plain.Prompt(&want, kind, body, limit, roots); err != nil {
				rt.Fatal(err)
			}
			for _, m := range []*Model{cached, tiny} {
				var got Prompt
				if err := m.Prompt(&got, kind, body, limit, roots); err != nil {
					rt.Fatal(err)
				}
				if !samePrompt(got, want) {
					rt.Fatalf("with caches %d tokens, without %d, or other keys (limit %d)", got.Tokens, want.Tokens, limit)
				}
			}
		}
	})
	if hits := cached.prefixes.hits.Load(); hits == 0 {
		t.Error("no prompt met the prefix cache")
	}
	if hits := cached.native.chunks.hits.Load(); hits == 0 {
		t.Error("no prompt met the chunk cache")
	}
}

func samePrompt(a, b Prompt) bool {
	return a.Tokens == b.Tokens && a.Whole == b.Whole && slices.EqualFunc(a.Chains, b.Chains, func(x, y blockkey.Chain) bool {
		return x.BlockSize == y.BlockSize && slices.Equal(x.Keys, y.Keys)
	})
}

// TestKeysOfAPartAreABeginning cuts prompts at every kind of place: the keys
// of the part are the first of the whole prompt's keys.
func TestKeysOfAPartAreABeginning(t *testing.T) {
	m := openTest(t, ModelOptions{CacheBytes: 16 << 20})
	roots := []Root{{1, 5}} // a block per token: every token counts
	rapid.Check(t, func(rt *rapid.T) {
		texts := drawTexts(rt)
		body, kind := chatBody(t, texts...), Chat
		if rapid.Bool().Draw(rt, "completion") {
			body, kind = completionBody(t, texts[0]), Completion
		}
		var whole, part Prompt
		if err := m.Prompt(&whole, kind, body, 0, roots); err != nil {
			rt.Fatal(err)
		}
		total := 0
		for _, s := range texts {
			total += len(s)
		}
		limit := 1 + rapid.IntRange(0, total+1).Draw(rt, "limit")
		if err := m.Prompt(&part, kind, body, limit, roots); err != nil {
			rt.Fatal(err)
		}
		got, all := part.Chains[0].Keys, whole.Chains[0].Keys
		if len(got) > len(all) || !slices.Equal(got, all[:len(got)]) {
			rt.Fatalf("limit %d: %d keys, which are not the first of %d", limit, len(got), len(all))
		}
		if part.Whole && len(got) != len(all) {
			rt.Fatalf("limit %d: whole, but %d of %d keys", limit, len(got), len(all))
		}
	})
}

// TestEveryCutIsExact encodes short texts in two parts, at each place that
// the rules call a cut, and long ones at those where chunks end.
func TestEveryCutIsExact(t *testing.T) {
	e := openTest(t, ModelOptions{CacheBytes: -1}).native
	r := rand.New(rand.NewPCG(11, 12))
	cuts := 0
	for range 8_000 {
		text := []byte(randomText(r))
		want, err := e.Encode(nil, text)
		if err != nil {
			t.Fatal(err)
		}
		for i := e.classes.firstCut(text, 0, len(text)); i < len(text); i = e.classes.firstCut(text, i+1, len(text)) {
			cuts++
			a, _ := e.Encode(nil, text[:i])
			got, _ := e.Encode(a, text[i:])
			if !slices.Equal(got, want) {
				t.Fatalf("%q cut at %d: got %v, want %v", text, i, got, want)
			}
		}
	}
	if cuts < 8_000 {
		t.Errorf("only %d cuts tried", cuts)
	}
}

// TestHeadsAreABeginningWhateverFollows changes what follows the cut.
func TestHeadsAreABeginningWhateverFollows(t *testing.T) {
	e := openTest(t, ModelOptions{CacheBytes: -1}).native
	r := rand.New(rand.NewPCG(13, 14))
	for range 10_000 {
		head, tail := randomText(r), randomText(r)
		all := []byte(head + tail)
		whole, err := e.Encode(nil, all)
		if err != nil {
			t.Fatal(err)
		}
		n := r.IntN(len(head) + 1)
		got, err := e.EncodeHead(nil, []byte(head), n)
		if err != nil || len(got) > len(whole) || !slices.Equal(got, whole[:len(got)]) {
			t.Fatalf("%q to %d: got %v, %v: not a beginning of %v", all, n, got, err, whole)
		}
	}
}

func TestCachesAreSafeUnderConcurrency(t *testing.T) {
	plain := openTest(t, ModelOptions{CacheBytes: -1})
	m := openTest(t, ModelOptions{CacheBytes: 2 << 20})
	roots := []Root{{16, 1}}
	r := rand.New(rand.NewPCG(1, 1))
	bodies := make([][]byte, 40)
	want := make([]Prompt, len(bodies))
	system := longText(r, 6000)
	for i := range bodies {
		bodies[i] = chatBody(t, system+longText(r, 200*i), "x", fmt.Sprint(i))
		if err := plain.Prompt(&want[i], Chat, bodies[i], 0, roots); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(2, uint64(g)))
			var p Prompt
			for range 100 {
				i := r.IntN(len(bodies))
				if err := m.Prompt(&p, Chat, bodies[i], 0, roots); err != nil || !samePrompt(p, want[i]) {
					t.Errorf("prompt %d: %v, or other keys than alone", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestAPrefixEndsOnlyWhereTheNextTextHasACut learns texts, then asks for others
// that part from them exactly at a remembered cut.
func TestAPrefixEndsOnlyWhereTheNextTextHasACut(t *testing.T) {
	plain := openTest(t, ModelOptions{CacheBytes: -1})
	r := rand.New(rand.NewPCG(21, 22))
	roots := []Root{{1, 1}}
	tried := 0
	for range 8 {
		m := openTest(t, ModelOptions{CacheBytes: 32 << 20})
		text := longText(r, 14_000)
		var got, want Prompt
		for range 3 {
			if err := m.Prompt(&got, Completion, completionBody(t, text), 0, roots); err != nil {
				t.Fatal(err)
			}
		}
		for _, at := range rememberedCuts(m.prefixes) {
			for _, next := range []string{"zebra", "\u0301x", " q", "\n", "'s", "7", ".", "<|eot_id|>", "<|", "漢", "“"} {
				tried++
				body := completionBody(t, text[:at]+next)
				if err := m.Prompt(&got, Completion, body, 0, roots); err != nil {
					t.Fatal(err)
				}
				if err := plain.Prompt(&want, Completion, body, 0, roots); err != nil {
					t.Fatal(err)
				}
				if !samePrompt(got, want) {
					t.Fatalf("%q and then %q: other keys with caches than without", text[at-20:at], next)
				}
			}
		}
	}
	if tried < 100 {
		t.Errorf("only %d texts tried", tried)
	}
}

func rememberedCuts(c *prefixCache) []int {
	var cuts []int
	for i := range c.shards {
		for _, tree := range c.shards[i].young {
			tree.Walk(func(_ string, v any) bool {
				if p, ok := v.(*prefix); ok {
					cuts = append(cuts, p.at)
				}
				return false
			})
		}
	}
	return cuts
}

// TestAHashCollisionIsAMiss asks for a text under the hash of another.
func TestAHashCollisionIsAMiss(t *testing.T) {
	c := newChunkCache(1 << 20)
	mine, theirs := []byte(strings.Repeat("mine ", 100)), []byte(strings.Repeat("them ", 100))
	h := c.hash(mine)
	c.learn(theirs, h, []Token{1, 2, 3})
	if got := c.get(mine, h); got != nil {
		t.Fatalf("got the ids %v of another text", got.ids)
	}
	c.learn(mine, h, []Token{4})
	if got := c.get(mine, h); got == nil || !slices.Equal(got.ids, []Token{4}) {
		t.Errorf("got %v, want the text's own ids", got)
	}
	if got := c.get(theirs, h); got != nil {
		t.Error("the other text is still there under the same hash")
	}
}

// TestWhatIsAskedForStays fills a cache many times over while one text is asked
// for now and then.
func TestWhatIsAskedForStays(t *testing.T) {
	m := openTest(t, ModelOptions{CacheBytes: 1 << 20})
	r := rand.New(rand.NewPCG(41, 42))
	hot := chatBody(t, prose(r, 8000))
	roots := []Root{{16, 1}}
	var p Prompt
	send := func(body []byte) {
		t.Helper()
		if err := m.Prompt(&p, Chat, body, 0, roots); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		send(hot)
	}
	for i := range 600 {
		send(chatBody(t, prose(r, 4000)))
		if i%10 == 0 {
			misses := m.native.chunks.misses.Load()
			send(hot)
			if now := m.native.chunks.misses.Load(); now != misses {
				t.Fatalf("after %d other prompts %d chunks of the hot one are forgotten", i, now-misses)
			}
		}
	}
}
