package simvllm

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// capture is one line of a capture of a real worker.
type capture struct {
	Kind         string
	Cause        string
	Path         string
	BlockSize    int `json:"block_size"`
	NumGPUBlocks int `json:"num_gpu_blocks"`
	Status       int
	Body         struct {
		Model     string
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

// realEvent is an event in a capture.
type realEvent struct {
	Type   string            `json:"type"`
	Hashes []json.RawMessage `json:"block_hashes"` // numbers, or bytes in base 64
	Parent json.RawMessage   `json:"parent_block_hash"`
	Tokens []Token           `json:"token_ids"`
}

func readCapture(t *testing.T, path string) (lines []capture) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
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
		if e.Parent != nil && string(e.Parent) != "null" {
			line += fmt.Sprint(" after ", n.of(string(e.Parent)))
		}
		for _, h := range e.Hashes {
			line += fmt.Sprint(" ", n.of(string(h)))
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

// replay gives an engine the requests that a real worker served, one after the
// other, with the tokens that it generated as far as the capture has them. It
// returns the batches of events of both, and compares the cached tokens.
func replay(t *testing.T, lines []capture) (got, want [][]string) {
	t.Helper()
	e := newEngine(t, Config{BlockSize: lines[0].BlockSize, Blocks: lines[0].NumGPUBlocks, MaxBatchedTokens: 8192, MaxSeqs: 256})
	realNames, ourNames := names{}, names{}
	for i, c := range lines {
		switch {
		case c.Kind == "frames":
			// The only events without a change of the cache: a client
			// asked for them.
			if lines[i-1].Body.XArgs == nil {
				want = append(want, realNames.real(t, c))
			}
			continue
		case c.Cause == "reset_prefix_cache" && !e.ClearCache():
			t.Fatal("the cache is in use between two requests")
		}
		if len(c.PromptTokenIDs) == 0 {
			continue // refused, or not for the engine
		}
		addCaptured(t, e, c)
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
	return got, want
}

func addCaptured(t *testing.T, e *Engine, c capture) {
	t.Helper()
	answer := make([]Token, c.Body.MaxTokens)
	copies := 1
	if c.Cause == "concurrent_identical_x3" {
		copies = 3
	} else {
		answer = answer[:c.Response.Usage.CompletionTokens]
		copy(answer, c.Response.Choices[0].TokenIDs)
	}
	scope := Scope{Salt: c.Body.CacheSalt}
	if c.Body.Model != "toy" && copies == 1 {
		scope.Adapter = c.Body.Model
	}
	for range copies {
		mustAdd(t, e, Request{Prompt: c.PromptTokenIDs, Answer: answer, Scope: scope})
	}
}

// The cached tokens of each request, and each batch of events to the last
// eviction, are the real worker's (vLLM 0.32).
func TestReplayOfARealWorkerGivesItsEvents(t *testing.T) {
	for _, tt := range []struct {
		file    string
		batches int  // at least
		tokens  bool // the capture has the generated tokens
	}{
		{"vllm-0.32.0_bs32_sha256.jsonl.gz", 480, true},
		{"vllm-0.32.0_bs32_sha256_cbor_byteshash_lora.jsonl.gz", 125, false}, // adapters and salts
	} {
		t.Run(tt.file, func(t *testing.T) {
			got, want := replay(t, readCapture(t, "../../feedback/testdata/"+tt.file))
			if len(want) < tt.batches || len(got) != len(want) {
				t.Errorf("%d batches, the real worker %d, at least %d in the capture", len(got), len(want), tt.batches)
			}
			for i := range min(len(got), len(want)) {
				if !tt.tokens {
					got[i], want[i] = withoutTokens(got[i]), withoutTokens(want[i])
				}
				if !slices.Equal(got[i], want[i]) {
					t.Fatalf("batch %d:\n got %.300v\nwant %.300v", i, got[i], want[i])
				}
			}
		})
	}
}

func withoutTokens(batch []string) []string {
	for i, line := range batch {
		batch[i], _, _ = strings.Cut(line, "[")
	}
	return batch
}
