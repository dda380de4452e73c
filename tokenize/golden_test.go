package tokenize

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tidwall/gjson"
)

// readLines decodes a file of JSON lines.
func readLines[T any](t testing.TB, path string) []T {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines []T
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<24)
	for sc.Scan() {
		var line T
		if err := json.Unmarshal(sc.Bytes(), &line); err != nil {
			t.Fatalf("%s, line %d: %v", path, len(lines)+1, err)
		}
		lines = append(lines, line)
	}
	if sc.Err() != nil || len(lines) == 0 {
		t.Fatalf("%s: %d lines, %v", path, len(lines), sc.Err())
	}
	return lines
}

// TestF12_IdsAreThoseOfHuggingFace checks texts of the tokenizer's border
// cases, special tokens inside of text among them.
func TestF12_IdsAreThoseOfHuggingFace(t *testing.T) {
	type golden struct {
		Text string
		IDs  []Token
	}
	m := openTest(t, ModelOptions{})
	for _, g := range readLines[golden](t, "testdata/encodings.jsonl") {
		got, err := m.Encode(nil, []byte(g.Text))
		if err != nil || !slices.Equal(got, g.IDs) {
			t.Errorf("%q: got %v, %v, want %v", g.Text, got, err, g.IDs)
		}
		if back := m.Decode(got); back != g.Text {
			t.Errorf("%q comes back as %q", g.Text, back)
		}
	}
}

// capturedTemplate is the chat template, in the words of this test, of the
// workers whose requests were captured.
const capturedTemplate = `{{ bos_token }}{% for message in messages %}` +
	`{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}` +
	`{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}`

// TestF01_PromptsAreThoseOfTheWorker checks captured requests against the ids
// of the prompt that vLLM reported for them.
func TestF01_PromptsAreThoseOfTheWorker(t *testing.T) {
	paths, err := filepath.Glob("../feedback/testdata/vllm-*.jsonl.gz")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	m := openTest(t, ModelOptions{})
	if m.template, err = newEngine(capturedTemplate, "<|begin_of_text|>", "<|eot_id|>"); err != nil {
		t.Fatal(err)
	}
	chats, texts := 0, 0
	for _, path := range paths {
		for _, g := range readCapture(t, path) {
			kind := Completion
			switch {
			case gjson.GetBytes(g.Body, "messages").Exists():
				kind = Chat
				chats++
			case gjson.GetBytes(g.Body, "prompt").Exists():
				texts++
			default:
				continue
			}
			got, _, err := m.Tokens(kind, g.Body)
			if err != nil || !slices.Equal(got, g.IDs) {
				t.Errorf("%s: got %d ids, %v, want %d ids", path, len(got), err, len(g.IDs))
			}
		}
	}
	if chats < 90 || texts < 300 {
		t.Errorf("only %d chats and %d completions were captured", chats, texts)
	}
}

type captured struct {
	Body json.RawMessage `json:"body"`
	IDs  []Token         `json:"prompt_token_ids"`
}

// readCapture returns the requests of a capture whose ids are known.
func readCapture(t *testing.T, path string) []captured {
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
	var requests []captured
	for d := json.NewDecoder(z); ; {
		var line captured
		switch err := d.Decode(&line); {
		case errors.Is(err, io.EOF):
			return requests
		case err != nil:
			t.Fatalf("%s: %v", path, err)
		case len(line.IDs) > 0:
			requests = append(requests, line)
		}
	}
}
