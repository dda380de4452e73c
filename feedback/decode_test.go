package feedback

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// line is one line of a capture of a real worker.
type line struct {
	Kind           string   `json:"kind"`
	Cause          string   `json:"cause"`
	Path           string   `json:"path"`
	FramesB64      [][]byte `json:"frames_b64"` // topic, seq, payload
	Seq            uint64   `json:"seq"`
	PromptTokenIDs []uint32 `json:"prompt_token_ids"`
	Body           struct {
		Model     string `json:"model"`
		CacheSalt string `json:"cache_salt"`
	} `json:"body"`
	Response struct {
		Usage struct {
			PromptTokens        int `json:"prompt_tokens"`
			PromptTokensDetails *struct {
				CachedTokens int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	} `json:"response"`
	Decoded   json.RawMessage `json:"decoded"`
	BlockSize int             `json:"block_size"`

	old bool // of a version whose events do not tell salts
}

func captures(tb testing.TB) []string {
	tb.Helper()
	files, err := filepath.Glob("testdata/*.jsonl.gz")
	if err != nil || len(files) < 6 {
		tb.Fatalf("captures: %v, %v", files, err)
	}
	return files
}

func capture(tb testing.TB, file string) []line {
	tb.Helper()
	f, err := os.Open(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	var lines []line
	s := bufio.NewScanner(z)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		var l line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			tb.Fatalf("%s: line %d: %v", file, len(lines)+1, err)
		}
		lines = append(lines, l)
	}
	if err := s.Err(); err != nil {
		tb.Fatal(err)
	}
	return lines
}

// TestDecodeReadsWhatWorkersSent compares each captured payload with what
// vLLM's own decoder made of it.
func TestDecodeReadsWhatWorkersSent(t *testing.T) {
	for _, file := range captures(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			batches := 0
			for _, l := range capture(t, file) {
				if l.Kind != "frames" {
					continue
				}
				batches++
				got, err := Decode(l.FramesB64[2])
				if err != nil {
					t.Fatalf("seq %d: %v", l.Seq, err)
				}
				if want := jsonBatch(t, l.Decoded); !reflect.DeepEqual(strip(got), want) {
					t.Fatalf("seq %d:\n got %+v\nwant %+v", l.Seq, got, want)
				}
				again, err := Decode(Encode(got))
				if err != nil || !reflect.DeepEqual(again, got) {
					t.Fatalf("seq %d: after Encode and Decode, %v:\n got %+v\nwant %+v", l.Seq, err, again, got)
				}
			}
			if batches == 0 {
				t.Fatal("no batches in the capture")
			}
		})
	}
}

// strip drops what jsonBatch does not compare.
func strip(b Batch) Batch {
	for i := range b.Events {
		b.Events[i].ExtraKeys = nil
	}
	return b
}

// jsonBatch reads the JSON form of a batch, independently of Decode.
func jsonBatch(t *testing.T, raw json.RawMessage) Batch {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	var v []any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	b := Batch{Time: jsonFloat(t, v[0]), Rank: int(jsonUint(t, v[2]))}
	stored := []string{"type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"}
	removed := []string{"type", "block_hashes", "medium"}
	for _, e := range v[1].([]any) {
		m, ok := e.(map[string]any)
		if list, isList := e.([]any); !ok && isList {
			m = map[string]any{}
			names := stored
			if list[0] == "BlockRemoved" {
				names = removed
			}
			for i, name := range names[:min(len(names), len(list))] {
				m[name] = list[i]
			}
		}
		b.Events = append(b.Events, jsonEvent(t, m))
	}
	return b
}

func jsonEvent(t *testing.T, m map[string]any) Event {
	t.Helper()
	e := Event{Kind: map[string]Kind{
		"BlockStored": BlockStored, "BlockRemoved": BlockRemoved, "AllBlocksCleared": AllBlocksCleared,
	}[m["type"].(string)]}
	if e.Kind == AllBlocksCleared {
		return e
	}
	e.Hashes = []uint64{}
	for _, h := range m["block_hashes"].([]any) {
		e.Hashes = append(e.Hashes, jsonHash(t, h))
	}
	e.Medium, _ = m["medium"].(string)
	if g, ok := m["group_idx"].(json.Number); ok {
		e.Group = int(jsonUint(t, g))
	}
	if e.Kind == BlockRemoved {
		return e
	}
	if m["parent_block_hash"] != nil {
		e.HasParent, e.Parent = true, jsonHash(t, m["parent_block_hash"])
	}
	e.Tokens = []uint32{}
	for _, tok := range m["token_ids"].([]any) {
		e.Tokens = append(e.Tokens, uint32(jsonUint(t, tok)))
	}
	e.BlockSize = int(jsonUint(t, m["block_size"]))
	if m["lora_id"] != nil {
		e.HasLoRAID, e.LoRAID = true, int64(jsonUint(t, m["lora_id"]))
	}
	e.LoRAName, _ = m["lora_name"].(string)
	e.GroupKind, _ = m["kv_cache_spec_kind"].(string)
	return e
}

func jsonHash(t *testing.T, v any) uint64 {
	t.Helper()
	m, ok := v.(map[string]any)
	if !ok {
		return jsonUint(t, v)
	}
	var b []byte
	if err := json.Unmarshal([]byte(`"`+m["b64"].(string)+`"`), &b); err != nil {
		t.Fatal(err)
	}
	return binary.BigEndian.Uint64(b[len(b)-8:])
}

func jsonUint(t *testing.T, v any) uint64 {
	t.Helper()
	var n uint64
	if err := json.Unmarshal([]byte(v.(json.Number)), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func jsonFloat(t *testing.T, v any) float64 {
	t.Helper()
	f, err := v.(json.Number).Float64()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestE09_HashesOfEveryFormAreOneNumber: signed, unsigned and bytes.
func TestE09_HashesOfEveryFormAreOneNumber(t *testing.T) {
	digest := make([]byte, 32)
	for i := range digest {
		digest[i] = byte(0xf0 + i)
	}
	low := binary.BigEndian.Uint64(digest[24:])
	rows := []struct {
		name string
		wire []byte
		want uint64
	}{
		{"minus one, one byte", []byte{0xff}, ^uint64(0)},
		{"minus one, eight bytes", []byte{0xd3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, ^uint64(0)},
		{"the same unsigned", []byte{0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, ^uint64(0)},
		{"2^63+5", []byte{0xcf, 0x80, 0, 0, 0, 0, 0, 0, 5}, 1<<63 + 5},
		{"2^63+5 read as signed", []byte{0xd3, 0x80, 0, 0, 0, 0, 0, 0, 5}, 1<<63 + 5},
		{"eight bytes", []byte{0xc4, 8, 0x80, 0, 0, 0, 0, 0, 0, 5}, 1<<63 + 5},
		{"32 bytes", append([]byte{0xc4, 32}, digest...), low},
		{"the number of the 32 bytes", appendUint(nil, low), low},
		{"32 bytes sent as a string", append([]byte{0xd9, 32}, digest...), low},
		{"two bytes", []byte{0xc4, 2, 1, 2}, 0x0102},
		{"-200 in two bytes", []byte{0xd1, 0xff, 0x38}, ^uint64(199)},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			event := append(appendText(appendArray(nil, 2), "BlockRemoved"), 0x91)
			b, err := Decode(batchOf(append(event, row.wire...)))
			if err != nil {
				t.Fatal(err)
			}
			if got := b.Events[0].Hashes[0]; got != row.want {
				t.Errorf("got %#x, want %#x", got, row.want)
			}
		})
	}
}

// batchOf wraps encoded events.
func batchOf(events ...[]byte) []byte {
	dst := append(appendArray(nil, 3), 0xcb, 0, 0, 0, 0, 0, 0, 0, 0)
	dst = appendArray(dst, len(events))
	for _, e := range events {
		dst = append(dst, e...)
	}
	return append(dst, 3)
}

func TestDecodeAcceptsOtherVersions(t *testing.T) {
	tag := func(n int, s string) []byte { return appendText(appendArray(nil, n), s) }
	future := append([]byte{0x84}, appendText(nil, "novelty")...)
	future = append(future, 0x82, 0xc0, 0xc7, 2, 9, 1, 2, 0xa1, 'k', 0x92, 0x90, 0xd6, 1, 2, 3, 4, 5) // a map with an ext and a nested array
	future = append(appendText(future, "block_hashes"), 0x91, 7)
	future = append(appendText(future, "medium"), 0xc0)
	future = appendText(appendText(future, "type"), "BlockRemoved") // the tag last
	rows := []struct {
		name    string
		payload []byte
		want    Batch
	}{
		{"0.9: six elements", batchOf(append(tag(6, "BlockStored"), 0x91, 5, 0xc0, 0x92, 1, 2, 2, 0xc0)), Batch{Rank: 3, Events: []Event{
			{Kind: BlockStored, Hashes: []uint64{5}, Tokens: []uint32{1, 2}, BlockSize: 2},
		}}},
		{"block size null", batchOf(append(tag(5, "BlockStored"), 0x91, 5, 0xc0, 0x92, 1, 2, 0xc0)), Batch{Rank: 3, Events: []Event{
			{Kind: BlockStored, Hashes: []uint64{5}, Tokens: []uint32{1, 2}},
		}}},
		{"longer than any known", batchOf(append(tag(6, "BlockRemoved"), 0x91, 5, 0xa3, 'G', 'P', 'U', 1, 0x81, 1, 2, 0xc3)), Batch{Rank: 3, Events: []Event{
			{Kind: BlockRemoved, Hashes: []uint64{5}, Medium: "GPU", Group: 1},
		}}},
		{"keys in another order, unknown keys", batchOf(future), Batch{Rank: 3, Events: []Event{{Kind: BlockRemoved, Hashes: []uint64{7}}}}},
		{"an unknown event", batchOf(tag(1, "BlockMoved"), append([]byte{0x81}, appendText(appendText(nil, "type"), "X")...), tag(1, "AllBlocksCleared")), Batch{
			Rank: 3, Unknown: 2, Events: []Event{{Kind: AllBlocksCleared}},
		}},
		{"no rank", []byte{0x92, 1, 0x90}, Batch{Time: 1}},
		{"rank null, and one more element", []byte{0x94, 1, 0x90, 0xc0, 0xa1, 'x'}, Batch{Time: 1}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got, err := Decode(row.payload)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, row.want) {
				t.Errorf("\n got %+v\nwant %+v", got, row.want)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	rows := map[string][]byte{
		"nothing":                 {},
		"a map":                   {0x80},
		"one element":             {0x91, 1},
		"an array that claims 4G": {0x93, 1, 0xdd, 0xff, 0xff, 0xff, 0xff},
		"a string past the end":   {0x93, 1, 0x91, 0x91, 0xdb, 0xff, 0xff, 0xff, 0xf0, 'B'},
		"a rank of -1":            {0x93, 1, 0x90, 0xff},
		"a token of -1":           batchOf(append(appendText(appendArray(nil, 4), "BlockStored"), 0x90, 0xc0, 0x91, 0xff)),
		"a text for hashes":       batchOf(append(appendText(appendArray(nil, 2), "BlockRemoved"), 0xa1, 'x')),
		"bytes behind the batch":  {0x93, 1, 0x90, 0, 0},
	}
	for name, payload := range rows {
		t.Run(name, func(t *testing.T) {
			if b, err := Decode(payload); err == nil {
				t.Errorf("no error; got %+v", b)
			}
		})
	}
	// A real frame, cut anywhere.
	whole := firstFrame(t)
	for cut := range whole {
		if _, err := Decode(whole[:cut]); err == nil {
			t.Fatalf("no error for the first %d of %d bytes", cut, len(whole))
		}
	}
}

func firstFrame(t *testing.T) []byte {
	t.Helper()
	for _, l := range capture(t, "testdata/vllm-0.32.0_bs32_sha256.jsonl.gz") {
		if l.Kind == "frames" {
			return l.FramesB64[2]
		}
	}
	t.Fatal("no frame")
	return nil
}

// TestDecodeAllocatesInProportion: whatever lengths a payload claims.
func TestDecodeAllocatesInProportion(t *testing.T) {
	const n = 1 << 20
	stored := appendText(appendArray(nil, 12), "BlockStored")
	rows := map[string][]byte{
		"claims without content":   append([]byte{0x93, 1, 0xdd, 0, 0x10, 0, 0, 0x9c}, make([]byte, n)...),
		"null entries":             batchOf(append(append(stored, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xdd, 0, 0x0f, 0, 0, 0x90), make([]byte, n)...)),
		"arrays inside each other": append([]byte{0x93, 1, 0x90, 0, 0x91}, []byte(strings.Repeat("\x91", n))...),
	}
	for name, payload := range rows {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Decode(payload)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Error("no error")
			}
			if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(64*len(payload)); got > limit {
				t.Errorf("allocated %d bytes for %d, over %d", got, len(payload), limit)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, file := range captures(f) {
		seeds := 0
		for _, l := range capture(f, file) {
			if l.Kind == "frames" && seeds < 20 {
				seeds++
				f.Add(l.FramesB64[2])
			}
		}
	}
	f.Add([]byte{0x93, 1, 0x91, 0x81, 0xa4, 't', 'y', 'p', 'e', 0xc0, 0})
	f.Fuzz(func(t *testing.T, payload []byte) {
		b, err := Decode(payload)
		if err != nil {
			return
		}
		again, err := Decode(Encode(b))
		if err != nil {
			t.Fatalf("what was decoded can't be decoded once encoded: %v\n%+v", err, b)
		}
		b.Unknown = 0 // unknown events are not encoded
		if b.Time == b.Time && !reflect.DeepEqual(normal(again), normal(b)) {
			t.Fatalf("after Encode and Decode:\n got %+v\nwant %+v", again, b)
		}
	})
}

// normal drops fields that Encode does not write for an event's kind, and the
// difference between an empty list and none.
func normal(b Batch) Batch {
	for i := range b.Events {
		e := b.Events[i]
		switch e.Kind {
		case BlockRemoved:
			e = Event{Kind: e.Kind, Hashes: e.Hashes, Medium: e.Medium, Group: e.Group}
		case AllBlocksCleared:
			e = Event{Kind: e.Kind}
		case BlockStored:
		}
		if len(e.Hashes) == 0 {
			e.Hashes = nil
		}
		if len(e.Tokens) == 0 {
			e.Tokens = nil
		}
		for k, keys := range e.ExtraKeys {
			if len(keys) == 0 {
				e.ExtraKeys[k] = nil
			}
		}
		b.Events[i] = e
	}
	return b
}
