package simvllm

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
)

// capture is one line of a capture of a real worker.
type capture struct {
	Kind         string
	Cause        string
	Path         string
	BlockSize    int `json:"block_size"`
	NumGPUBlocks int `json:"num_gpu_blocks"`
	Body         struct {
		MaxTokens int    `json:"max_tokens"`
		CacheSalt string `json:"cache_salt"`
		XArgs     any    `json:"vllm_xargs"`
	}
	PromptTokenIDs []Token `json:"prompt_token_ids"`
	Response       struct {
		Usage *struct {
			CompletionTokens int `json:"completion_tokens"`
			Details          *struct {
				CachedTokens int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
		Choices []struct {
			TokenIDs []Token `json:"token_ids"`
		}
	}
	Decoded []json.RawMessage
}

// realEvent is an event in a capture, of either wire form.
type realEvent struct {
	Type   string        `json:"type"`
	Hashes []json.Number `json:"block_hashes"`
	Parent *json.Number  `json:"parent_block_hash"`
	Tokens []Token       `json:"token_ids"`
}

func (e *realEvent) UnmarshalJSON(data []byte) error {
	if data[0] != '[' {
		type plain realEvent
		return json.Unmarshal(data, (*plain)(e))
	}
	var fields []json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	for i, to := range []any{&e.Type, &e.Hashes, &e.Parent, &e.Tokens} {
		if i == 2 && e.Type != "BlockStored" || i >= len(fields) {
			break
		}
		if err := json.Unmarshal(fields[i], to); err != nil {
			return err
		}
	}
	return nil
}

func readCapture(t *testing.T, path string) (lines []capture) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // read only
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	sc := bufio.NewScanner(z)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var c capture
		if err := json.Unmarshal(sc.Bytes(), &c); err != nil {
			t.Fatalf("line %d: %v", len(lines)+1, err)
		}
		lines = append(lines, c)
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// names numbers hashes in the order of their first appearance, so that the
// streams of two engines can be compared.
type names map[string]int

func (n names) of(h string) int {
	if _, ok := n[h]; !ok {
		n[h] = len(n)
	}
	return n[h]
}

func (n names) real(t *testing.T, c capture) (batch []string) {
	t.Helper()
	var events []realEvent
	if err := json.Unmarshal(c.Decoded[1], &events); err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		line := e.Type
		if e.Parent != nil {
			line += fmt.Sprint(" after ", n.of(e.Parent.String()))
		}
		for _, h := range e.Hashes {
			line += fmt.Sprint(" ", n.of(h.String()))
		}
		batch = append(batch, line+fmt.Sprint(e.Tokens))
	}
	return batch
}

func (n names) ours(events []Event) (batch []string) {
	for _, e := range events {
		line := e.Kind.String()
		if e.Kind == BlocksStored && !e.Root {
			line += fmt.Sprint(" after ", n.of(fmt.Sprint(e.Parent)))
		}
		for _, h := range e.Hashes {
			line += fmt.Sprint(" ", n.of(fmt.Sprint(h)))
		}
		batch = append(batch, line+fmt.Sprint(e.Tokens))
	}
	return batch
}

// The engine is given the requests that a real worker of vLLM 0.32 served, one
// after the other, with the tokens that it generated. The cached tokens of
// each request, and each batch of events to the last eviction, must be the
// real worker's.
func TestReplayOfARealWorkerGivesItsEvents(t *testing.T) {
	lines := readCapture(t, "testdata/vllm-0.32.0_bs32_sha256.jsonl.gz")
	e, err := New(Config{BlockSize: lines[0].BlockSize, Blocks: lines[0].NumGPUBlocks, MaxBatchedTokens: 8192, MaxSeqs: 256})
	if err != nil {
		t.Fatal(err)
	}
	realNames, ourNames := names{}, names{}
	var want, got [][]string
	requests := 0
	for i, c := range lines {
		if c.Kind == "frames" {
			// The only events without a change of the cache: a client
			// asked for them.
			if c.Decoded != nil && lines[i-1].Body.XArgs == nil {
				want = append(want, realNames.real(t, c))
			}
			continue
		}
		if c.Cause == "reset_prefix_cache" && !e.ClearCache() {
			t.Fatal("the cache is in use between two requests")
		}
		if c.Path == "" {
			continue
		}
		requests++
		answer := make([]Token, c.Body.MaxTokens)
		copies := 1
		if c.Cause == "concurrent_identical_x3" {
			copies = 3
		} else {
			answer = answer[:c.Response.Usage.CompletionTokens]
			copy(answer, c.Response.Choices[0].TokenIDs)
		}
		for range copies {
			if _, err := e.Add(Request{Prompt: c.PromptTokenIDs, Answer: answer, Scope: Scope{Salt: c.Body.CacheSalt}}); err != nil {
				t.Fatalf("%s: %v", c.Cause, err)
			}
		}
		cached := -1
		for _, ok := e.Begin(); ok; _, ok = e.Begin() {
			r := e.Finish()
			if len(r.Events) > 0 {
				got = append(got, ourNames.ours(r.Events))
			}
			cached = r.Outputs[0].Cached
		}
		if u := c.Response.Usage; u != nil && cached != u.Details.CachedTokens {
			t.Errorf("%s: %d tokens cached, the real worker %d", c.Cause, cached, u.Details.CachedTokens)
		}
	}
	if requests < 270 || len(want) < 480 {
		t.Fatalf("the capture has only %d requests and %d batches", requests, len(want))
	}
	for i := range min(len(got), len(want)) {
		if !slices.Equal(got[i], want[i]) {
			t.Fatalf("batch %d:\n got %.300v\nwant %.300v", i, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d batches, the real worker %d", len(got), len(want))
	}
}
