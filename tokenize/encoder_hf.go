//go:build hf

package tokenize

import (
	"bytes"
	"fmt"
	"runtime"
	"unicode/utf8"

	"github.com/daulet/tokenizers"
)

// hf is the encoder of Hugging Face's own library.
type hf struct {
	tokenizer *tokenizers.Tokenizer
	start     []Token
}

// newHF reads a tokenizer.json of any family.
func newHF(data []byte) (Encoder, error) {
	t, err := tokenizers.FromBytes(data)
	if err != nil {
		return nil, fmt.Errorf("tokenize: Hugging Face's encoder: %w", err)
	}
	e := &hf{tokenizer: t}
	e.start, _ = t.Encode("", true)
	runtime.AddCleanup(e, func(t *tokenizers.Tokenizer) { _ = t.Close() }, t)
	return e, nil
}

func (e *hf) Name() string   { return "hf" }
func (e *hf) Start() []Token { return e.start }
func (e *hf) VocabSize() int { return int(e.tokenizer.VocabSize()) }

// Encode implements [Encoder]. It fails on what the library cannot be given:
// text that is not UTF-8 or holds a NUL, since it passes C strings; and when
// the library fails, which it tells by an empty answer.
func (e *hf) Encode(dst []Token, text []byte) ([]Token, error) {
	if err := checkForC(text); err != nil || len(text) == 0 {
		return dst, err
	}
	ids, _ := e.tokenizer.Encode(string(text), false)
	runtime.KeepAlive(e)
	if len(ids) == 0 {
		return dst, errEncoder
	}
	return append(dst, ids...), nil
}

// EncodeHead implements [Encoder]. Where cuts lie is not known for every
// family, so it encodes all of text and keeps what ends by n.
func (e *hf) EncodeHead(dst []Token, text []byte, n int) ([]Token, error) {
	if err := checkForC(text); err != nil || len(text) == 0 {
		return dst, err
	}
	enc := e.tokenizer.EncodeWithOptions(string(text), false, tokenizers.WithReturnOffsets())
	runtime.KeepAlive(e)
	if len(enc.IDs) == 0 || len(enc.Offsets) != len(enc.IDs) {
		return dst, errEncoder
	}
	for i, id := range enc.IDs {
		if enc.Offsets[i][1] > uint(n) {
			break
		}
		dst = append(dst, id)
	}
	return dst, nil
}

func checkForC(text []byte) error {
	switch {
	case !utf8.Valid(text):
		return errUTF8
	case bytes.IndexByte(text, 0) >= 0:
		return errEncoder
	}
	return nil
}

func (e *hf) Decode(ids []Token) string {
	text := e.tokenizer.Decode(ids, false)
	runtime.KeepAlive(e)
	return text
}
