package tokenize

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/tidwall/gjson"
)

// ErrFamily is wrapped by the errors of a tokenizer.json that the native
// encoder does not support; they name the field.
var ErrFamily = errors.New("tokenize: not a tokenizer of the Llama 3 family")

// llama3Regex is the regular expression that nextWord implements.
const llama3Regex = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// fieldError is an ErrFamily about one field.
func fieldError(field, format string, args ...any) error {
	return fmt.Errorf("%w: field %s: %s", ErrFamily, field, fmt.Sprintf(format, args...))
}

// newNative reads a tokenizer.json. It fails with an [ErrFamily] that names the
// field unless everything in the file that has a part in encoding is
// what the native encoder does.
func newNative(data []byte) (*native, error) {
	if !gjson.ValidBytes(data) {
		return nil, errors.New("tokenize: the tokenizer file is not JSON")
	}
	root := gjson.ParseBytes(data)
	if err := checkFamily(root); err != nil {
		return nil, err
	}
	e := &native{classes: newClassTable()}
	if err := e.loadVocab(root.Get("model.vocab")); err != nil {
		return nil, err
	}
	if err := e.loadMerges(root.Get("model.merges")); err != nil {
		return nil, err
	}
	if err := e.loadSpecials(root.Get("added_tokens")); err != nil {
		return nil, err
	}
	return e, e.loadStart(root.Get("post_processor"))
}

// checkFamily checks all fields that have one value only in the family.
func checkFamily(root gjson.Result) error {
	for _, want := range []struct{ field, raw string }{
		{"normalizer", "null"},
		{"truncation", "null"},
		{"padding", "null"},
		{"pre_tokenizer.type", `"Sequence"`},
		{"pre_tokenizer.pretokenizers.#", "2"},
		{"pre_tokenizer.pretokenizers.0.type", `"Split"`},
		{"pre_tokenizer.pretokenizers.0.behavior", `"Isolated"`},
		{"pre_tokenizer.pretokenizers.0.invert", "false"},
		{"pre_tokenizer.pretokenizers.1.type", `"ByteLevel"`},
		{"pre_tokenizer.pretokenizers.1.add_prefix_space", "false"},
		{"pre_tokenizer.pretokenizers.1.use_regex", "false"},
		{"decoder.type", `"ByteLevel"`},
		{"model.type", `"BPE"`},
		{"model.dropout", "null"},
		{"model.unk_token", "null"},
		{"model.continuing_subword_prefix", "null"},
		{"model.end_of_word_suffix", "null"},
		{"model.fuse_unk", "false"},
		{"model.byte_fallback", "false"},
		{"model.ignore_merges", "true"},
	} {
		got := root.Get(want.field)
		raw := got.Raw
		if !got.Exists() && (want.raw == "null" || want.raw == "false") {
			continue // the default
		}
		if raw != want.raw {
			return fieldError(want.field, "is %.80s, want %s", orMissing(raw), want.raw)
		}
	}
	const regex = "pre_tokenizer.pretokenizers.0.pattern.Regex"
	if got := root.Get(regex).String(); got != llama3Regex {
		return fieldError(regex, "is %.120q, want that of Llama 3", got)
	}
	return nil
}

func orMissing(raw string) string {
	if raw == "" {
		return "missing"
	}
	return raw
}

// alphabet maps the characters that stand for bytes in a byte-level vocabulary
// to the bytes: printable Latin-1 characters stand for themselves, the others
// for the characters from U+0100 on.
func alphabet() map[rune]byte {
	m := make(map[rune]byte, 256)
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if r < '!' || r > '~' && r < 0xA1 || r == 0xAD {
			r = next
			next++
		}
		m[r] = byte(b)
	}
	return m
}

// unalphabet is a table for appendBytes; -1 is not in the alphabet.
func unalphabet() []int16 {
	t := make([]int16, 256+68)
	for i := range t {
		t[i] = -1
	}
	for r, b := range alphabet() {
		t[r] = int16(b)
	}
	return t
}

// appendBytes appends the bytes that word stands for.
func appendBytes(dst []byte, word string, table []int16) ([]byte, bool) {
	for _, r := range word {
		if int(r) >= len(table) || table[r] < 0 {
			return dst, false
		}
		dst = append(dst, byte(table[r]))
	}
	return dst, true
}

func (e *native) loadVocab(v gjson.Result) error {
	const field = "model.vocab"
	table := unalphabet()
	var words [][]byte
	var err error
	v.ForEach(func(key, id gjson.Result) bool {
		n := id.Uint()
		if id.Type != gjson.Number || n >= 1<<idBits-1 {
			err = fieldError(field, "has the id %.20s", id.Raw)
			return false
		}
		word, ok := appendBytes(make([]byte, 0, len(key.Str)), key.Str, table)
		if !ok || len(word) == 0 {
			err = fieldError(field, "id %d is not a word of bytes", n)
			return false
		}
		for uint64(len(words)) <= n {
			words = append(words, nil)
		}
		if words[n] != nil {
			err = fieldError(field, "id %d has two words", n)
			return false
		}
		words[n] = word
		return true
	})
	if err != nil {
		return err
	}
	e.vocab = newVocab(words)
	e.size = len(words)
	for b := range e.byteID {
		e.byteID[b] = e.vocab.find([]byte{byte(b)})
		if e.byteID[b] == noToken {
			return fieldError(field, "has no word for the byte %#02x", b)
		}
	}
	return nil
}

func (e *native) loadMerges(list gjson.Result) error {
	const field = "model.merges"
	table := unalphabet()
	count := int(list.Get("#").Int())
	if count >= 1<<rankBits {
		return fieldError(field, "has %d items", count)
	}
	e.merges = newMerges(count)
	var err error
	var buf []byte
	list.ForEach(func(_, item gjson.Result) bool {
		left, right, ok := mergeParts(item)
		if ok {
			buf, ok = appendBytes(buf[:0], left, table)
		}
		n := len(buf)
		if ok {
			buf, ok = appendBytes(buf, right, table)
		}
		if ok {
			a, b, into := e.vocab.find(buf[:n]), e.vocab.find(buf[n:]), e.vocab.find(buf)
			ok = a != noToken && b != noToken && into != noToken && e.merges.add(a, b, into)
		}
		if !ok {
			err = fieldError(field, "item %d is not a pair of words whose join is a word", len(e.merges.into))
		}
		return ok
	})
	return err
}

// mergeParts reads a merge in its old form, "a b", or its new one, ["a","b"].
func mergeParts(item gjson.Result) (left, right string, ok bool) {
	if item.Type == gjson.String {
		for i := range len(item.Str) {
			if item.Str[i] == ' ' {
				return item.Str[:i], item.Str[i+1:], true
			}
		}
		return "", "", false
	}
	pair := item.Array()
	if len(pair) != 2 {
		return "", "", false
	}
	return pair[0].Str, pair[1].Str, true
}

func (e *native) loadSpecials(list gjson.Result) error {
	const field = "added_tokens"
	form := regexp.MustCompile(`^<\|[A-Za-z0-9_.-]+\|>$`)
	e.specials.ids = map[string]Token{}
	e.special = map[Token]string{}
	for i, item := range list.Array() {
		name := fmt.Sprintf("%s[%d].", field, i)
		for _, flag := range []string{"single_word", "lstrip", "rstrip", "normalized"} {
			if item.Get(flag).Bool() {
				return fieldError(name+flag, "is true")
			}
		}
		// A copy: a part of the file would keep all of it in memory.
		content, id := strings.Clone(item.Get("content").String()), item.Get("id").Uint()
		if !form.MatchString(content) {
			return fieldError(name+"content", "is %.80q, want <|name|>", content)
		}
		if id >= 1<<idBits-1 {
			return fieldError(name+"id", "is %d", id)
		}
		if int(id) < len(e.vocab.ends) || e.special[Token(id)] != "" {
			return fieldError(name+"id", "%d is taken", id)
		}
		e.specials.ids[content] = Token(id)
		e.special[Token(id)] = content
		e.specials.max = max(e.specials.max, len(content))
		e.size = max(e.size, int(id)+1)
	}
	return nil
}

// loadStart reads what the post-processor puts before a text. Byte-level
// processors only change offsets.
func (e *native) loadStart(p gjson.Result) error {
	const field = "post_processor"
	switch kind := p.Get("type").String(); {
	case !p.Exists() || p.Type == gjson.Null || kind == "ByteLevel":
		return nil
	case kind == "Sequence":
		for _, q := range p.Get("processors").Array() {
			if err := e.loadStart(q); err != nil {
				return err
			}
		}
		return nil
	case kind != "TemplateProcessing":
		return fieldError(field+".type", "is %.40q", kind)
	}
	if e.start != nil {
		return fieldError(field, "has two templates")
	}
	seen := false
	for _, item := range p.Get("single").Array() {
		name := item.Get("SpecialToken.id").String()
		id, known := e.specials.ids[name]
		switch {
		case item.Get("Sequence.id").String() == "A" && !seen:
			seen = true
		case known && !seen:
			e.start = append(e.start, id)
		default:
			return fieldError(field+".single", "is not special tokens before the text")
		}
	}
	if !seen {
		return fieldError(field+".single", "leaves out the text")
	}
	return nil
}
