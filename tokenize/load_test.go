package tokenize

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmroute/warmroute/tokenize/tokenizetest"
)

// smallTokenizer is a tokenizer.json of the family with a vocabulary of the 256
// bytes, the word "ab" and two special tokens.
func smallTokenizer() string {
	var vocab []string
	for r, b := range alphabet() {
		key := string(r)
		if r == '"' || r == '\\' {
			key = `\` + key
		}
		vocab = append(vocab, `"`+key+`":`+itoa(int(b)))
	}
	return `{"version":"1.0","truncation":null,"padding":null,"added_tokens":[
{"id":257,"content":"<|begin_of_text|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
{"id":258,"content":"<|eot_id|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
"normalizer":null,"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"` +
		strings.ReplaceAll(llama3Regex, `\`, `\\`) + `"},"behavior":"Isolated","invert":false},
{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]},
"post_processor":{"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing",
"single":[{"SpecialToken":{"id":"<|begin_of_text|>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}]}]},
"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,
"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":true,
"vocab":{` + strings.Join(vocab, ",") + `,"ab":256},"merges":["a b"]}}`
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}

func TestASmallTokenizerOfTheFamilyLoads(t *testing.T) {
	for _, merges := range []string{`["a b"]`, `[["a","b"]]`} { // the old and the new form
		e, err := newNative([]byte(strings.Replace(smallTokenizer(), `["a b"]`, merges, 1)))
		if err != nil {
			t.Fatal(err)
		}
		ids, err := e.Encode(nil, []byte("cab<|eot_id|>"))
		if err != nil || len(ids) != 3 || ids[0] != 'c' || ids[1] != 256 || ids[2] != 258 {
			t.Errorf("merges %s: got %v, %v, want [99 256 258]", merges, ids, err)
		}
		if len(e.Start()) != 1 || e.Start()[0] != 257 || e.VocabSize() != 259 {
			t.Errorf("start %v, size %d", e.Start(), e.VocabSize())
		}
	}
}

func TestAnotherFamilyIsRefusedByTheFieldsName(t *testing.T) {
	for _, tc := range []struct{ field, old, new string }{
		{"normalizer", `"normalizer":null`, `"normalizer":{"type":"NFC"}`},
		{"truncation", `"truncation":null`, `"truncation":{"max_length":9}`},
		{"pre_tokenizer.type", `"Sequence","pretokenizers"`, `"Metaspace","pretokenizers"`},
		{"pattern.Regex", `{1,3}`, `{1}`},
		{"pretokenizers.0.behavior", `"Isolated"`, `"Removed"`},
		{"pretokenizers.1.add_prefix_space", `"add_prefix_space":false`, `"add_prefix_space":true`},
		{"model.type", `"type":"BPE"`, `"type":"Unigram"`},
		{"model.ignore_merges", `"ignore_merges":true`, `"ignore_merges":false`},
		{"model.byte_fallback", `"byte_fallback":false`, `"byte_fallback":true`},
		{"model.dropout", `"dropout":null`, `"dropout":0.1`},
		{"model.vocab", `"ab":256`, `"ab":7`},
		{"model.vocab", `"ab":256`, `"ab":-1`},
		{"model.vocab", `"ab":256`, `"ab":99999999`},
		{"model.vocab", `"ab":256`, `"\u4e00":256`},
		{"model.vocab", `"!":33`, `"!!":33`},
		{"model.merges", `["a b"]`, `["a c"]`},
		{"model.merges", `["a b"]`, `["a b","a b"]`},
		{"model.merges", `["a b"]`, `["ab"]`},
		{"added_tokens[1].lstrip", `"<|eot_id|>","single_word":false,"lstrip":false`, `"<|eot_id|>","lstrip":true`},
		{"added_tokens[1].normalized", `"<|eot_id|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false`, `"<|eot_id|>","normalized":true`},
		{"added_tokens[1].content", `"<|eot_id|>"`, `"</s>"`},
		{"added_tokens[1].id", `"id":258`, `"id":3`},
		{"post_processor.type", `"TemplateProcessing"`, `"BertProcessing"`},
		{"post_processor.single", `{"Sequence":{"id":"A","type_id":0}}]`, `{"Sequence":{"id":"B","type_id":0}}]`},
		{"decoder.type", `"decoder":{"type":"ByteLevel"}`, `"decoder":null`},
	} {
		data := strings.Replace(smallTokenizer(), tc.old, tc.new, 1)
		if data == smallTokenizer() {
			t.Fatalf("%s: nothing was replaced", tc.field)
		}
		if _, err := newNative([]byte(data)); !errors.Is(err, ErrFamily) || !strings.Contains(err.Error(), tc.field) {
			t.Errorf("%s → %s: got %v, want an ErrFamily that names %s", tc.old, tc.new, err, tc.field)
		}
	}
}

func TestOpenModelNamesWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("tokenizer.json", smallTokenizer())
	other := write("other.json", strings.Replace(smallTokenizer(), `"normalizer":null`, `"normalizer":{"type":"NFC"}`, 1))
	for _, tc := range []struct {
		name string
		o    ModelOptions
		want string
	}{
		{"no file", ModelOptions{Name: "m", TokenizerPath: filepath.Join(dir, "none")}, `model "m"`},
		{"no JSON", ModelOptions{TokenizerPath: write("bad.json", "{")}, "not JSON"},
		{"another family", ModelOptions{TokenizerPath: other, Encoder: "native"}, "normalizer"},
		{"unknown encoder", ModelOptions{TokenizerPath: good, Encoder: "fast"}, "fast"},
		{"no template", ModelOptions{TokenizerPath: good, Template: filepath.Join(dir, "none.jinja")}, "none.jinja"},
		{"a template that doesn't parse", ModelOptions{TokenizerPath: good, Template: write("bad.jinja", "{% if %}")}, "template"},
		{"a template that needs a token", ModelOptions{TokenizerPath: good, Template: write("eos.jinja", "{{ eos_token }}")}, "eos_token"},
		{"a filter that is not known", ModelOptions{TokenizerPath: good, Template: write("map.jinja", "{{ x | map('upper') }}")}, "map"},
	} {
		if _, err := OpenModel(tc.o); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q in it", tc.name, err, tc.want)
		}
	}
}

func TestTheTemplateIsFoundBesideTheTokenizer(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tokenizer.json")
	if err := os.WriteFile(path, []byte(smallTokenizer()), 0o600); err != nil {
		t.Fatal(err)
	}
	const body = `{"messages":[{"role":"user","content":"x"}]}`
	open := func(want, text, reason string) {
		t.Helper()
		m, err := OpenModel(ModelOptions{TokenizerPath: path})
		if err != nil {
			t.Fatal(err)
		}
		_, got, err := m.Tokens(Chat, []byte(body))
		if m.Template() != want || got != text || Reason(err) != reason {
			t.Errorf("template %s: %q, %v; want %s, %q, %q", m.Template(), got, err, want, text, reason)
		}
	}
	open("none", "", "no_template") // not Llama 3.1's special tokens
	config := `{"bos_token":{"content":"<s>"},"eos_token":"</s>","chat_template":[{"name":"default","template":"{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"}]}`
	if err := os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	open("jinja", "<s>x</s>", "")
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte("{{ messages[0].role }}"), 0o600); err != nil {
		t.Fatal(err)
	}
	open("jinja", "user", "")
}

func TestOpenModelReadsLlama31(t *testing.T) {
	m, err := OpenModel(ModelOptions{Name: "llama", TokenizerPath: tokenizetest.Path(t)})
	if err != nil {
		t.Fatal(err)
	}
	if m.Template() != "llama3.1" || m.Encoder().Name() != "native" || m.Encoder().VocabSize() != 128256 {
		t.Errorf("template %s, encoder %s, %d ids", m.Template(), m.Encoder().Name(), m.Encoder().VocabSize())
	}
	if got := m.Encoder().Start(); len(got) != 1 || got[0] != 128000 {
		t.Errorf("starts with %v, want [128000]", got)
	}
}

func TestCacheMetrics(t *testing.T) {
	m := openTest(t, ModelOptions{Name: "llama"})
	body := chatBody(t, strings.Repeat("All work and no play makes Jack a dull boy. ", 300))
	var p Prompt
	for range 3 {
		if err := m.Prompt(&p, Chat, body, 0, []Root{{16, 1}}); err != nil {
			t.Fatal(err)
		}
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(m.Collector()); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			name := f.GetName()
			for _, l := range metric.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"warmroute_tokenize_cache_lookups_total chunk llama hit":   15,
		"warmroute_tokenize_cache_lookups_total chunk llama miss":  12,
		"warmroute_tokenize_cache_lookups_total prefix llama hit":  1,
		"warmroute_tokenize_cache_lookups_total prefix llama miss": 2,
		"warmroute_tokenize_cache_bytes chunk llama":               float64(m.native.chunks.bytes()),
		"warmroute_tokenize_cache_bytes prefix llama":              float64(m.prefixes.bytes()),
	} {
		if got[name] != want || want == 0 {
			t.Errorf("%s: got %v, want %v", name, got[name], want)
		}
	}
	if len(got) != 6 {
		t.Errorf("got %v", got)
	}
}
