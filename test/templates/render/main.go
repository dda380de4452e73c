// Command render answers check.py: it reads requests as JSON lines and writes
// what Warmroute takes for their prompts.
//
//	render TOKENIZER_JSON TEMPLATE < requests > prompts
//
// A line of input is the body of a chat completion request. A line of output is
// {"text":…,"ids":[…]} or {"reason":…}.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/warmroute/warmroute/tokenize"
)

type answer struct {
	Text   string           `json:"text,omitempty"`
	IDs    []tokenize.Token `json:"ids,omitempty"`
	Reason string           `json:"reason,omitempty"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: render TOKENIZER_JSON TEMPLATE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(tokenizer, template string) error {
	m, err := tokenize.OpenModel(tokenize.ModelOptions{TokenizerPath: tokenizer, Template: template})
	if err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<26)
	out := bufio.NewWriter(os.Stdout)
	enc := json.NewEncoder(out)
	for in.Scan() {
		ids, text, err := m.Tokens(tokenize.Chat, in.Bytes())
		a := answer{Text: text, IDs: ids}
		if err != nil {
			a = answer{Reason: tokenize.Reason(err)}
		}
		if err := enc.Encode(a); err != nil {
			return fmt.Errorf("write an answer: %w", err)
		}
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("read the requests: %w", err)
	}
	return out.Flush()
}
