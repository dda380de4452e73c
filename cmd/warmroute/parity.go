package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/warmroute/warmroute/tokenize"
)

// maxTokenizeAnswer bounds what is read of a worker's /tokenize.
const maxTokenizeAnswer = 64 << 20

// parity is how our tokens of one prompt compare with a worker's.
type parity struct {
	Equal        bool
	At           int // position of the first token that differs, where not equal
	Ours, Theirs int // how many tokens each has
}

func (p parity) String() string {
	if p.Equal {
		return "equal"
	}
	return fmt.Sprintf("differ at token %d (ours %d, the worker's %d)", p.At, p.Ours, p.Theirs)
}

// probes are chat bodies that show a difference in the tokenizer or the chat
// template: none is a user's.
func probes() []string {
	return []string{
		`{"messages":[{"role":"user","content":"Hello, how are you?"}],"add_generation_prompt":true}`,
		`{"messages":[{"role":"system","content":"You are terse.\n"},{"role":"user","content":" 12345 déjà vu — 東京 🧀‍🐈  "},{"role":"assistant","content":"Yes."},{"role":"user","content":"def f(x):\n\treturn x**2 # it's"}],"add_generation_prompt":true}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two\r\n\r\n"}]}],"add_generation_prompt":true}`,
	}
}

// compareTokens asks the worker at url for its tokens of a request's body and
// compares ours. The error says that there is no verdict: the worker can't be
// reached, or doesn't answer /tokenize.
func compareTokens(ctx context.Context, client *http.Client, url string, model *tokenize.Model, served string, kind tokenize.Kind, body []byte) (parity, error) {
	theirs, err := workerTokens(ctx, client, url, served, body)
	if err != nil {
		return parity{}, err
	}
	ours, _, err := model.Tokens(kind, body)
	if err != nil {
		return parity{}, fmt.Errorf("our own tokens: %w", err)
	}
	return compareIDs(ours, theirs), nil
}

// workerTokens are the worker's own tokens of a request's body.
func workerTokens(ctx context.Context, client *http.Client, url, served string, body []byte) ([]tokenize.Token, error) {
	var request map[string]json.RawMessage
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, fmt.Errorf("read the probe: %w", err)
	}
	name, err := json.Marshal(served)
	if err != nil {
		return nil, fmt.Errorf("write the model's name: %w", err)
	}
	request["model"] = name
	data, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("write the probe: %w", err)
	}
	var answer struct {
		Tokens []tokenize.Token `json:"tokens"`
	}
	if err := postJSON(ctx, client, url+"/tokenize", data, &answer); err != nil {
		return nil, err
	}
	return answer.Tokens, nil
}

func compareIDs(ours, theirs []tokenize.Token) parity {
	p := parity{Ours: len(ours), Theirs: len(theirs)}
	for p.At < min(len(ours), len(theirs)) && ours[p.At] == theirs[p.At] {
		p.At++
	}
	p.Equal = p.At == len(ours) && p.At == len(theirs)
	return p
}

// postJSON posts a body and decodes a 200's answer into out.
func postJSON(ctx context.Context, client *http.Client, url string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask the worker: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	return doJSON(client, req, out)
}

// getJSON gets a JSON document.
func getJSON(ctx context.Context, client *http.Client, url string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask the worker: %w", err)
	}
	return doJSON(client, req, out)
}

func doJSON(client *http.Client, req *http.Request, out any) error {
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask the worker: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", req.URL.Path, resp.Status)
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxTokenizeAnswer)).Decode(out); err != nil {
		return fmt.Errorf("read the answer of %s: %w", req.URL.Path, err)
	}
	return nil
}
