package worker

import (
	"net/http"
	"testing"

	"github.com/warmroute/warmroute/tokenize"
)

// Whatever the body, it is refused with a client's error, or it is a job that
// the engine can take.
func FuzzRequest(f *testing.F) {
	for _, body := range []string{
		"", "{}", "null", "[]", `{"prompt":null}`, `{"prompt":3}`, `{"prompt":[[]]}`, `{"prompt":[1,"a"]}`, `{"prompt":[-1]}`,
		completion(`"Hello"`, ""), completion(`["a",""]`, `,"n":3`), completion(`[1,2,3]`, `,"max_tokens":7,"stream":true`),
		completion(`"a"`, `,"n":9223372036854775807`), completion(`"a"`, `,"max_tokens":9223372036854775807`),
		chat("Hello", `,"max_completion_tokens":5`), chat("Hello", `,"cache_salt":"x","stream_options":{}`), chat("Hello", `,"tools":[{}]`),
		`{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, `{"messages":"x"}`, "\xff{",
	} {
		f.Add([]byte(body), true)
		f.Add([]byte(body), false)
	}
	o := defaults(f)
	o.Engine.Blocks = 64
	w, err := New(o)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte, isChat bool) {
		kind := tokenize.Completion
		if isChat {
			kind = tokenize.Chat
		}
		r, fail := parse(body)
		var j *job
		if fail == nil {
			j, fail = w.newJob(kind, r, body)
		}
		if fail != nil {
			if fail.Code != http.StatusBadRequest && fail.Code != http.StatusNotFound {
				t.Errorf("%q is refused with %+v", body, fail)
			}
			return
		}
		if len(j.answers) != j.choices*len(j.prompts) || len(j.answers) == 0 {
			t.Errorf("%q has %d answers to %d prompts, %d each", body, len(j.answers), len(j.prompts), j.choices)
		}
		for _, a := range j.answers {
			if n := len(a.Prompt) + len(a.Answer); len(a.Prompt) == 0 || len(a.Answer) == 0 || n > w.maxLen {
				t.Errorf("%q: a prompt of %d and an answer of %d tokens", body, len(a.Prompt), len(a.Answer))
			}
		}
	})
}
