package tokenize

import (
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/warmroute/warmroute/internal/blockkey"
	"github.com/warmroute/warmroute/tokenize/tokenizetest"
)

// nativeOnce parses the tokenizer once for all tests: the race detector makes
// that take a second.
var nativeOnce = sync.OnceValues(func() (*native, error) {
	data, err := os.ReadFile(nativePath)
	if err != nil {
		return nil, err
	}
	return newNative(data)
})

var nativePath string // set before nativeOnce runs

// openTest is a model as OpenModel makes it, with caches of its own.
func openTest(t testing.TB, o ModelOptions) *Model {
	t.Helper()
	o.TokenizerPath = tokenizetest.Path(t)
	pathOnce.Do(func() { nativePath = o.TokenizerPath })
	e, err := nativeOnce()
	if err != nil {
		t.Fatal(err)
	}
	n := &native{
		classes: e.classes, vocab: e.vocab, merges: e.merges, byteID: e.byteID,
		specials: e.specials, special: e.special, start: e.start, size: e.size,
	}
	m := &Model{name: o.Name, encoder: n, native: n, template: &llama31{bos: "<|begin_of_text|>"}}
	m.useCaches(o.CacheBytes)
	return m
}

var pathOnce sync.Once

func TestPromptGivesTheKeysOfItsTokens(t *testing.T) {
	m := openTest(t, ModelOptions{})
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"Tell me a story, please."}]}`)
	ids, text, err := m.Tokens(Chat, body)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Decode(ids); got != text {
		t.Errorf("decoded %q, want %q", got, text)
	}
	var p Prompt
	roots := []Root{{16, 7}, {4, 9}}
	for range 2 { // the second time p's memory is reused
		if err := m.Prompt(&p, Chat, body, 0, roots); err != nil {
			t.Fatal(err)
		}
		if p.Tokens != len(ids) || !p.Whole || len(p.Chains) != 2 {
			t.Fatalf("got %+v, want %d tokens and two chains", p, len(ids))
		}
		for i, r := range roots {
			want := blockkey.Append(nil, r.Key, ids, r.BlockSize)
			if c := p.Chains[i]; c.BlockSize != r.BlockSize || !slices.Equal(c.Keys, want) {
				t.Errorf("root %d: got %v, want %v", i, c, want)
			}
		}
	}
}

func TestC08_CompletionPrompts(t *testing.T) {
	m := openTest(t, ModelOptions{})
	hello, err := m.Encode([]Token{128000}, []byte("Hello"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, body string
		want       []Token
		reason     string
	}{
		{"text", `{"prompt":"Hello"}`, hello, ""},
		{"text without special tokens", `{"prompt":"Hello","add_special_tokens":false}`, hello[1:], ""},
		{"text that has its own start", `{"prompt":"<|begin_of_text|>Hello"}`, append([]Token{128000}, hello...), ""},
		{"list of texts", `{"prompt":["Hello","other"]}`, hello, ""},
		{"ids", `{"prompt":[1,2,3]}`, []Token{1, 2, 3}, ""},
		{"list of ids", `{"prompt":[[4,5],[6]]}`, []Token{4, 5}, ""},
		{"empty list", `{"prompt":[]}`, nil, "empty_prompt"},
		{"empty list of ids", `{"prompt":[[]]}`, nil, "empty_prompt"},
		{"none", `{}`, nil, "unknown_shape"},
		{"null", `{"prompt":null}`, nil, "unknown_shape"},
		{"mixed", `{"prompt":[1,"a"]}`, nil, "unknown_shape"},
		{"negative id", `{"prompt":[-1]}`, nil, "unknown_shape"},
		{"fraction", `{"prompt":[1.5]}`, nil, "unknown_shape"},
		{"id beyond the vocabulary", `{"prompt":[128256]}`, nil, "token_out_of_range"},
		{"truncated by the worker", `{"prompt":"a","truncate_prompt_tokens":5}`, nil, "truncate_prompt_tokens"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, _, err := m.Tokens(Completion, []byte(tc.body))
			if Reason(err) != tc.reason || !slices.Equal(got, tc.want) {
				t.Errorf("got %v, %v: want %v, %q", got, err, tc.want, tc.reason)
			}
		})
	}
}
