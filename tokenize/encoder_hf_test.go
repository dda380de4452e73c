//go:build hf

package tokenize

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/warmroute/warmroute/tokenize/tokenizetest"
)

func openBoth(t testing.TB) (*native, Encoder) {
	t.Helper()
	data, err := os.ReadFile(tokenizetest.Path(t))
	if err != nil {
		t.Fatal(err)
	}
	n, err := newNative(data)
	if err != nil {
		t.Fatal(err)
	}
	h, err := newHF(data)
	if err != nil {
		t.Fatal(err)
	}
	return n, h
}

// envInt is a number from the environment.
func envInt(t testing.TB, name string, standard int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return standard
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestNativeEqualsHF compares the encoders on random texts: 40,000, or as many
// as WARMROUTE_DIFF says.
func TestNativeEqualsHF(t *testing.T) {
	n, h := openBoth(t)
	seed := uint64(envInt(t, "WARMROUTE_SEED", 1))
	texts := envInt(t, "WARMROUTE_DIFF", 40_000)
	workers := runtime.GOMAXPROCS(0)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(w)))
			for range texts / workers {
				if !compare(t, n, h, randomText(r)) {
					t.Logf("seed %d, worker %d", seed, w)
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("compared %d texts", texts/workers*workers)
}

func compare(t *testing.T, n *native, h Encoder, text string) bool {
	t.Helper()
	// The library's C strings end at a NUL. Its neighbour U+0001 is of the same
	// class; texts with NULs themselves are among the golden ones.
	text = strings.ReplaceAll(text, "\x00", "\x01")
	got, err := n.Encode(nil, []byte(text))
	if err != nil {
		t.Errorf("native, %q: %v", text, err)
		return false
	}
	want, err := h.Encode(nil, []byte(text))
	if err != nil {
		t.Errorf("hf, %q: %v", text, err)
		return false
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q: got %v, want %v", text, got, want)
		return false
	}
	if got, want := n.Decode(got), h.Decode(got); got != want {
		t.Errorf("decoded %q, want %q", got, want)
		return false
	}
	return true
}

func TestNativeEqualsHFOnLongTexts(t *testing.T) {
	n, h := openBoth(t)
	r := rand.New(rand.NewPCG(1, 2))
	for _, text := range sampleTexts() {
		compare(t, n, h, text)
	}
	for range 40 {
		compare(t, n, h, longText(r, 20_000))
	}
	for _, unit := range []string{"a", "é", " ", "=", "ab", "漢", "\n", "1", "\u0301"} {
		compare(t, n, h, strings.Repeat(unit, 65536/len(unit)))
	}
}

func TestHFHeadIsABeginningOfTheWhole(t *testing.T) {
	_, h := openBoth(t)
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		text := strings.ReplaceAll(randomText(r), "\x00", "")
		whole, err := h.Encode(nil, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		n := r.IntN(len(text) + 1)
		head, err := h.EncodeHead(nil, []byte(text), n)
		if err != nil || len(head) > len(whole) || !slices.Equal(head, whole[:len(head)]) {
			t.Fatalf("%q to %d: got %v, %v, want a beginning of %v", text, n, head, err, whole)
		}
	}
}

func TestF08_HFRefusesWhatItCannotBeGiven(t *testing.T) {
	_, h := openBoth(t)
	for _, text := range []string{"a\xffb", "a\x00b", "\xed\xa0\x80"} {
		if ids, err := h.Encode(nil, []byte(text)); Reason(err) == "" || len(ids) > 0 {
			t.Errorf("%q: got %v, %v: want an error", text, ids, err)
		}
	}
	if ids, err := h.Encode(nil, nil); err != nil || len(ids) > 0 {
		t.Errorf("no text: got %v, %v", ids, err)
	}
}

func BenchmarkHF(b *testing.B) {
	_, h := openBoth(b)
	text := []byte(prose(rand.New(rand.NewPCG(5, 6)), 34<<10))
	b.SetBytes(int64(len(text)))
	var ids []Token
	for b.Loop() {
		ids, _ = h.Encode(ids[:0], text)
	}
}

// TestCodePointsHaveHFsClass meets code points with letters, numbers, blanks,
// newlines and marks on both sides: an eighth of them, or all when WARMROUTE_DIFF
// is set.
func TestCodePointsHaveHFsClass(t *testing.T) {
	n, h := openBoth(t)
	const block = 64
	step := 16 * block
	if os.Getenv("WARMROUTE_DIFF") != "" {
		step = 2 * block
	}
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for first := w * block; first <= utf8.MaxRune; first += step {
				var b strings.Builder
				for c := max(first, 1); c < first+block; c++ {
					if r := rune(c); utf8.ValidRune(r) {
						for _, s := range []string{"a", string(r), "b1", string(r), "2!", string(r), "?  ", string(r), "\n ", string(r), string(r), " "} {
							b.WriteString(s)
						}
					}
				}
				if !compare(t, n, h, b.String()) {
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestAnotherFamilyGoesToHF(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	data := strings.Replace(smallTokenizer(), `"normalizer":null`, `"normalizer":{"type":"NFC"}`, 1)
	data = strings.ReplaceAll(data, `{"type":"ByteLevel"}`, `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false}`)
	data = strings.Replace(data, `"type_id":0}}]}]}`, `"type_id":0}}],"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],`+
		`"special_tokens":{"<|begin_of_text|>":{"id":"<|begin_of_text|>","ids":[257],"tokens":["<|begin_of_text|>"]}}}]}`, 1)
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := OpenModel(ModelOptions{TokenizerPath: path, Template: "llama3.1"})
	if err != nil {
		t.Fatal(err)
	}
	if m.Encoder().Name() != "hf" || m.prefixes != nil {
		t.Errorf("the encoder is %s", m.Encoder().Name())
	}
	roots := []Root{{1, 1}}
	var whole, part Prompt
	body := chatBody(t, strings.Repeat("abcab ", 50), "yes", "more")
	if err := m.Prompt(&whole, Chat, body, 0, roots); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int{1, 7, 100, 299, 301, 1000} {
		if err := m.Prompt(&part, Chat, body, limit, roots); err != nil {
			t.Fatal(err)
		}
		keys := part.Chains[0].Keys
		if len(keys) < 10 || len(keys) > len(whole.Chains[0].Keys) || !slices.Equal(keys, whole.Chains[0].Keys[:len(keys)]) {
			t.Errorf("limit %d: %d keys, which do not begin the %d of the whole", limit, len(keys), len(whole.Chains[0].Keys))
		}
	}
	image := []byte(`{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`)
	if err := m.Prompt(&part, Chat, image, 0, roots); Reason(err) != "media" || len(part.Chains) > 0 {
		t.Errorf("an image: %v, %d chains", err, len(part.Chains))
	}
	if ids, _, err := m.Tokens(Completion, []byte(`{"prompt":"ab"}`)); err != nil || !slices.Equal(ids, []Token{257, 256}) {
		t.Errorf("a completion: got %v, %v", ids, err)
	}
}

// TestF07_HFMemoryStaysFlat encodes large texts and watches the memory of the
// process, which the Go heap does not show.
func TestF07_HFMemoryStaysFlat(t *testing.T) {
	_, h := openBoth(t)
	text := []byte(prose(rand.New(rand.NewPCG(8, 9)), 300<<10))
	encode := func(n int) {
		var ids []Token
		for range n {
			var err error
			if ids, err = h.Encode(ids[:0], text); err != nil {
				t.Fatal(err)
			}
		}
	}
	encode(8)
	before := resident(t)
	encode(envInt(t, "WARMROUTE_SOAK", 24))
	after := resident(t)
	t.Logf("resident %d KiB, then %d KiB", before, after)
	if after > before*5/4 {
		t.Errorf("resident memory grew from %d to %d KiB", before, after)
	}
}

// resident is the process's memory in KiB.
func resident(t *testing.T) int {
	t.Helper()
	debug.FreeOSMemory()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("no /proc on this system")
	}
	for _, line := range strings.Split(string(data), "\n") {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no VmRSS in /proc/self/status")
	return 0
}
