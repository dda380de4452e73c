package tokenize

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"unicode/utf8"
)

// FuzzPrompt gives any bytes for a body: no panic, an error that is uncertain
// or the same keys with caches and without, and a part's keys that begin the
// whole's.
func FuzzPrompt(f *testing.F) {
	for _, seed := range []string{
		`{"messages":[{"role":"user","content":"Hello \ud83d\ude00 \u0000 <|eot_id|>"}]}`,
		`{"messages":[{"role":"system","content":[{"type":"text","text":"a"},{"type":"image_url"}]},{"role":"tool","content":"x"}]}`,
		`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"a\":1e400}"}}]}],"tools":[{"function":{"name":"f"}}]}`,
		`{"prompt":[[1,2,3]],"add_special_tokens":false}`, `{"prompt":["a",1]}`, `{"messages":{"a":[}`, `{"a":"\`, `{"prompt":"\ud800"}`, `[[[[`, ``,
		"{\"prompt\"\n:\t\"a\\u00e9\" , \"prompt\" : \"b\"}",
	} {
		f.Add([]byte(seed), 3)
	}
	plain := openTest(f, ModelOptions{CacheBytes: -1})
	cached := openTest(f, ModelOptions{CacheBytes: 8 << 20})
	roots := []Root{{2, 1}}
	f.Fuzz(func(t *testing.T, body []byte, limit int) {
		for _, kind := range []Kind{Chat, Completion} {
			var a, b, part Prompt
			errA, errB := plain.Prompt(&a, kind, body, 0, roots), cached.Prompt(&b, kind, body, 0, roots)
			if errA != nil && !errors.Is(errA, ErrUncertain) {
				t.Fatalf("%v", errA)
			}
			if Reason(errA) != Reason(errB) || !samePrompt(a, b) {
				t.Fatalf("without caches %v, %v; with %v, %v", a, errA, b, errB)
			}
			if errA != nil || limit <= 0 {
				continue
			}
			if err := cached.Prompt(&part, kind, body, limit, roots); err != nil {
				t.Fatal(err)
			}
			if n := len(part.Chains[0].Keys); n > len(a.Chains[0].Keys) || !slices.Equal(part.Chains[0].Keys, a.Chains[0].Keys[:n]) {
				t.Fatalf("limit %d: keys that do not begin the whole's", limit)
			}
		}
	})
}

// FuzzEncode: the ids of any text are its text again, and all in the vocabulary.
func FuzzEncode(f *testing.F) {
	for _, s := range append(atoms(), sampleTexts()...) {
		f.Add([]byte(s))
	}
	e := openTest(f, ModelOptions{CacheBytes: -1}).native
	f.Fuzz(func(t *testing.T, text []byte) {
		ids, err := e.Encode(nil, text)
		if err != nil {
			if utf8.Valid(text) && Reason(err) != "long_word" || Reason(err) == "" {
				t.Fatal(err)
			}
			return
		}
		if got := e.Decode(ids); got != string(text) {
			t.Fatalf("got %q back", got)
		}
		for _, id := range ids {
			if int(id) >= e.VocabSize() {
				t.Fatalf("the id %d", id)
			}
		}
	})
}

// FuzzJSON compares the walk over JSON with encoding/json.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,1e5,"x\ty\u00e9\ud83d\ude00",null,true,false,{}]}`, ` [ ] `, `"\""`, `{"a":{"b":[[]]},"a":1}`, `0`, `"\\"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if checkJSON(raw) != nil || bytes.Contains(raw, []byte("-0")) { // Python's ints have no -0
			return
		}
		v, ok := parseValue(bytes.TrimSpace(raw))
		var want any
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if err := d.Decode(&want); err != nil {
			t.Fatalf("encoding/json refuses it: %v", err)
		}
		if !ok {
			return // a lone surrogate or a number beyond float64
		}
		var got any
		d = json.NewDecoder(bytes.NewReader(v.appendJSON(nil, -1, 0)))
		if err := d.Decode(&got); err != nil {
			t.Fatalf("wrote no JSON: %v", err)
		}
		var again any
		if err := json.Unmarshal(raw, &again); err != nil {
			t.Fatal(err)
		}
		a, errA := json.Marshal(got)
		b, errB := json.Marshal(again)
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Fatalf("got %s, want %s", a, b)
		}
	})
}
