package tokenize

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tidwall/gjson"
)

// ModelOptions say how one served model tokenizes.
type ModelOptions struct {
	Name          string // the served model's name, for messages
	TokenizerPath string // its tokenizer.json
	// Template is "llama3.1" for the built-in one, or the path of a .jinja file or
	// of a tokenizer_config.json. Empty: tokenizer_config.json or
	// chat_template.jinja beside the tokenizer, else the built-in one if the
	// tokenizer is Llama 3.1's, else none: chats are then uncertain.
	Template string
	// Encoder is "native" or "hf" (needs the build tag hf). Empty: native when it
	// supports the tokenizer, else hf.
	Encoder string
	// CacheBytes bounds the caches of chunks and of prefixes together. 0: 256 MiB.
	// Below 0: no caches.
	CacheBytes int64
}

// Model tokenizes for one served model.
type Model struct {
	name     string
	encoder  Encoder
	native   *native      // the encoder, when it is the native one
	prefixes *prefixCache // nil: none, as for any other encoder
	template template
	states   sync.Pool // of *state

	developer atomic.Int32 // a DeveloperRole
}

// template renders chats. llama31 and engine are the two.
type template interface {
	name() string
	render(r *rendering, c *chat) error
}

// OpenModel reads a model's tokenizer and chat template. A tokenizer that no
// encoder of this build supports is an [ErrFamily] that names the field.
func OpenModel(o ModelOptions) (*Model, error) {
	m, err := openModel(o)
	if err != nil {
		return nil, fmt.Errorf("open the tokenizer of model %q: %w", o.Name, err)
	}
	return m, nil
}

func openModel(o ModelOptions) (*Model, error) {
	if o.Encoder != "" && o.Encoder != "native" && o.Encoder != "hf" {
		return nil, fmt.Errorf("unknown encoder %q: want native or hf", o.Encoder)
	}
	data, err := os.ReadFile(o.TokenizerPath)
	if err != nil {
		return nil, err
	}
	m := &Model{name: o.Name}
	if o.Encoder == "" || o.Encoder == "native" {
		m.native, err = newNative(data)
		if m.native != nil && err == nil {
			m.encoder = m.native
		}
		if err != nil && (o.Encoder == "native" || !errors.Is(err, ErrFamily)) {
			return nil, err
		}
	}
	if m.encoder == nil {
		family := err
		if m.encoder, err = newHF(data); err != nil {
			return nil, errors.Join(family, err)
		}
		m.native = nil
	}
	if m.native != nil {
		m.useCaches(o.CacheBytes)
	}
	m.template, err = openTemplate(o, data)
	return m, err
}

// useCaches gives the native encoder caches of ModelOptions.CacheBytes.
func (m *Model) useCaches(limit int64) {
	if limit < 0 {
		return
	}
	if limit == 0 {
		limit = 256 << 20
	}
	m.native.chunks = newChunkCache(limit / 2)
	m.prefixes = newPrefixCache(limit / 2)
}

// openTemplate finds the chat template, nil for none.
func openTemplate(o ModelOptions, tokenizer []byte) (template, error) {
	source := o.Template
	config := filepath.Join(filepath.Dir(o.TokenizerPath), "tokenizer_config.json")
	bos, eos := "", ""
	if data, err := os.ReadFile(config); err == nil && gjson.ValidBytes(data) {
		bos, eos = tokenName(data, "bos_token"), tokenName(data, "eos_token")
	}
	if bos == "" && gjson.GetBytes(tokenizer, `added_tokens.#(content=="<|begin_of_text|>").id`).Exists() {
		bos = "<|begin_of_text|>"
	}
	if source == "" {
		for _, beside := range []string{"chat_template.jinja", "tokenizer_config.json"} {
			path := filepath.Join(filepath.Dir(o.TokenizerPath), beside)
			if text, err := readTemplate(path); err == nil && text != "" {
				return newTemplate(text, bos, eos)
			}
		}
		if !gjson.GetBytes(tokenizer, `added_tokens.#(content=="<|python_tag|>").id`).Exists() {
			return nil, nil //nolint:nilnil // a model may have no template
		}
		source = "llama3.1"
	}
	if source == "llama3.1" {
		return &llama31{bos: bos}, nil
	}
	text, err := readTemplate(source)
	if err != nil {
		return nil, err
	}
	if text == "" {
		return nil, fmt.Errorf("%s holds no chat template", source)
	}
	return newTemplate(text, bos, eos)
}

// newTemplate picks the renderer for a template's text. Jinja drops one newline
// at the end, so the sum is taken as if there were exactly one.
func newTemplate(text, bos, eos string) (template, error) {
	sum := sha256.Sum256([]byte(strings.TrimSuffix(text, "\n") + "\n"))
	if hex.EncodeToString(sum[:]) == llama31SHA256 {
		return &llama31{bos: bos}, nil
	}
	return newEngine(text, bos, eos)
}

// tokenName reads a special token of a tokenizer_config.json: a string, or an
// object with its content.
func tokenName(config []byte, key string) string {
	v := gjson.GetBytes(config, key)
	if v.IsObject() {
		v = v.Get("content")
	}
	if v.Type != gjson.String {
		return ""
	}
	return strings.Clone(v.Str) // a part of the file would keep all of it
}

// readTemplate reads a template from a .jinja file or a tokenizer_config.json:
// "" when that has none.
func readTemplate(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the chat template: %w", err)
	}
	if filepath.Ext(path) != ".json" {
		return string(data), nil
	}
	if !gjson.ValidBytes(data) {
		return "", fmt.Errorf("%s is not JSON", path)
	}
	v := gjson.GetBytes(data, "chat_template")
	if v.IsArray() {
		v = v.Get(`#(name=="default").template`)
	}
	return strings.Clone(v.String()), nil
}

// Encoder is the model's encoder.
func (m *Model) Encoder() Encoder { return m.encoder }

// Template is the chat template's renderer: "llama3.1", "jinja" or "none".
func (m *Model) Template() string {
	if m.template == nil {
		return "none"
	}
	return m.template.name()
}

// Decode is the text of ids.
func (m *Model) Decode(ids []Token) string { return m.encoder.Decode(ids) }

// Encode appends the ids of text to dst, none added.
func (m *Model) Encode(dst []Token, text []byte) ([]Token, error) {
	return m.encoder.Encode(dst, text)
}
