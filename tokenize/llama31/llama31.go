// Package llama31 derives the tokenizer.json of Llama 3.1 from that of Llama 3.
//
// The vocabulary of both is the same and is not ours to give away (Llama
// Materials licence), but the Go module github.com/daulet/tokenizers ships the
// Llama 3 file among its test data. Llama 3.1 renamed some of the 256 added
// tokens and changed nothing else, so the official file is one renaming away.
package llama31

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
)

// Sums of the file that Derive reads and of the one that it returns.
const (
	Llama3SHA256 = "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7"
	SHA256       = "79e3e522635f3171300913bb421464a87de6222182a0570b9b2ccba2a964b2b4"
)

// FirstAddedToken is the id of <|begin_of_text|>, the first of the 256 added
// tokens.
const FirstAddedToken = 128000

// AddedTokens returns the names of Llama 3.1's added tokens in the order of
// their ids, from [FirstAddedToken] on.
func AddedTokens() []string {
	names := []string{
		"begin_of_text", "end_of_text", "reserved_special_token_0", "reserved_special_token_1",
		"finetune_right_pad_id", "reserved_special_token_2", "start_header_id", "end_header_id",
		"eom_id", "eot_id", "python_tag",
	}
	for i := 3; len(names) < 256; i++ {
		names = append(names, "reserved_special_token_"+strconv.Itoa(i))
	}
	for i, n := range names {
		names[i] = "<|" + n + "|>"
	}
	return names
}

// Derive returns the official tokenizer.json of Llama 3.1, byte for byte, made
// of llama3JSON, that of Llama 3. It fails on any other input, and never
// returns a file with another sum than [SHA256].
func Derive(llama3JSON []byte) ([]byte, error) {
	if got := sum(llama3JSON); got != Llama3SHA256 {
		return nil, fmt.Errorf("llama31: the input is not Llama 3's tokenizer.json: sha256 %s, want %s", got, Llama3SHA256)
	}
	// The added tokens come first in the file, each once, in the order of ids.
	field := []byte(`"content": "`)
	out := make([]byte, 0, len(llama3JSON))
	rest := llama3JSON
	for _, name := range AddedTokens() {
		start := bytes.Index(rest, field) + len(field)
		end := start + bytes.IndexByte(rest[start:], '"')
		out = append(out, rest[:start]...)
		out = append(out, name...)
		rest = rest[end:]
	}
	out = append(out, rest...)
	if got := sum(out); got != SHA256 {
		return nil, fmt.Errorf("llama31: the derived file has sha256 %s, want %s", got, SHA256)
	}
	return out, nil
}

func sum(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}
