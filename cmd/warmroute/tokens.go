package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/warmroute/warmroute/tokenize"
	"github.com/warmroute/warmroute/tokenize/llama31"
)

// maxLine bounds one line of input.
const maxLine = 64 << 20

// newTokenizeCommand prints the tokens that the router would route by.
func newTokenizeCommand() *cobra.Command {
	var o tokenize.ModelOptions
	cmd := &cobra.Command{
		Use:   "tokenize --tokenizer tokenizer.json < requests.jsonl",
		Short: "Print the token ids of prompts, one JSON line for each",
		Long: `Reads JSON lines: {"text":"…"}, or the body of a chat request with "messages".
Writes JSON lines: {"ids":[…],"text":"the rendered prompt"}, or {"error":"…"}.
A text is encoded as it is, without the token that begins a completion.`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&o.TokenizerPath, "tokenizer", "", "the model's tokenizer.json")
	cmd.Flags().StringVar(&o.Template, "template", "", "chat template: llama3.1, or a file")
	cmd.Flags().StringVar(&o.Encoder, "encoder", "", "native or hf (in a binary built with the tag hf)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.TokenizerPath == "" {
			return errors.New("--tokenizer is missing: give the path of the model's tokenizer.json")
		}
		o.CacheBytes = 1 << 20
		model, err := tokenize.OpenModel(o)
		if err != nil {
			return fmt.Errorf("open the tokenizer: %w", err)
		}
		return tokenizeLines(model, cmd.InOrStdin(), cmd.OutOrStdout())
	}
	return cmd
}

// tokenized is one line of output.
type tokenized struct {
	IDs   []tokenize.Token `json:"ids,omitempty"`
	Text  string           `json:"text,omitempty"`
	Error string           `json:"error,omitempty"`
}

func tokenizeLines(model *tokenize.Model, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	w := bufio.NewWriter(out)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		if err := enc.Encode(tokenizeLine(model, line)); err != nil {
			return fmt.Errorf("write the tokens: %w", err)
		}
		if err := w.Flush(); err != nil {
			return fmt.Errorf("write the tokens: %w", err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the input: %w", err)
	}
	return nil
}

func tokenizeLine(model *tokenize.Model, line []byte) tokenized {
	var in struct {
		Text     *string         `json:"text"`
		Messages json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(line, &in); err != nil {
		return tokenized{Error: "not a JSON object: " + err.Error()}
	}
	switch {
	case in.Text != nil:
		ids, err := model.Encode([]tokenize.Token{}, []byte(*in.Text))
		if err != nil {
			return tokenized{Error: err.Error()}
		}
		return tokenized{IDs: ids, Text: *in.Text}
	case in.Messages != nil:
		ids, text, err := model.Tokens(tokenize.Chat, line)
		if err != nil {
			return tokenized{Error: err.Error()}
		}
		return tokenized{IDs: ids, Text: text}
	}
	return tokenized{Error: `neither "text" nor "messages"`}
}

// newTokenizerCommand derives the demo's tokenizer file.
func newTokenizerCommand() *cobra.Command {
	var from, to string
	cmd := &cobra.Command{
		Use:    "derive-llama31 --from llama-3-tokenizer.json --to tokenizer.json",
		Short:  "Write the Llama 3.1 tokenizer.json from the Llama 3 one, and check its sha256",
		Args:   cobra.NoArgs,
		Hidden: true, // `make run` and the tests use it; an operator has their model's own file
	}
	cmd.Flags().StringVar(&from, "from", "", "the Llama 3 tokenizer.json")
	cmd.Flags().StringVar(&to, "to", "", "where to write the Llama 3.1 tokenizer.json")
	cmd.RunE = func(*cobra.Command, []string) error {
		data, err := os.ReadFile(from)
		if err != nil {
			return fmt.Errorf("read the Llama 3 tokenizer: %w", err)
		}
		derived, err := llama31.Derive(data)
		if err != nil {
			return fmt.Errorf("derive the Llama 3.1 tokenizer from %s: %w", from, err)
		}
		return writeFileAtomic(to, derived)
	}
	return cmd
}

// writeFileAtomic makes the folder, and the file appear whole or not at all.
func writeFileAtomic(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}
