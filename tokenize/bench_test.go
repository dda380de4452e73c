package tokenize

import (
	"math/rand/v2"
	"testing"

	"github.com/warmroute/warmroute/tokenize/tokenizetest"
)

// BenchmarkPromptHot is a 34 KB chat whose beginning is known: from the body's
// bytes to block keys.
func BenchmarkPromptHot(b *testing.B) {
	m := openTest(b, ModelOptions{})
	r := rand.New(rand.NewPCG(5, 6))
	shared := prose(r, 33<<10)
	var bodies [][]byte
	for range 64 {
		bodies = append(bodies, chatBody(b, shared+prose(r, 1<<10)))
	}
	benchmarkPrompt(b, m, bodies)
}

// BenchmarkPromptSame is the same 34 KB chat again and again.
func BenchmarkPromptSame(b *testing.B) {
	m := openTest(b, ModelOptions{})
	r := rand.New(rand.NewPCG(5, 6))
	benchmarkPrompt(b, m, [][]byte{chatBody(b, prose(r, 34<<10))})
}

func benchmarkPrompt(b *testing.B, m *Model, bodies [][]byte) {
	b.Helper()
	var p Prompt
	roots := []Root{{16, 1}}
	for range 3 {
		for _, body := range bodies {
			if err := m.Prompt(&p, Chat, body, 0, roots); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(bodies[0])))
	i := 0
	for b.Loop() {
		if err := m.Prompt(&p, Chat, bodies[i%len(bodies)], 0, roots); err != nil {
			b.Fatal(err)
		}
		i++
	}
	b.ReportMetric(float64(p.Tokens), "tokens")
}

// BenchmarkPromptCold is a 34 KB chat of prose that no cache has seen.
func BenchmarkPromptCold(b *testing.B) {
	m := openTest(b, ModelOptions{})
	r := rand.New(rand.NewPCG(5, 6))
	var p Prompt
	roots := []Root{{16, 1}}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		body := chatBody(b, prose(r, 34<<10))
		b.StartTimer()
		if err := m.Prompt(&p, Chat, body, 0, roots); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkNative encodes 34 KB without any cache.
func BenchmarkNative(b *testing.B) {
	e := openTest(b, ModelOptions{CacheBytes: -1}).native
	text := []byte(prose(rand.New(rand.NewPCG(5, 6)), 34<<10))
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	var ids []Token
	for b.Loop() {
		ids, _ = e.Encode(ids[:0], text)
	}
}

func BenchmarkOpen(b *testing.B) {
	path := tokenizetest.Path(b)
	for b.Loop() {
		if _, err := OpenModel(ModelOptions{TokenizerPath: path}); err != nil {
			b.Fatal(err)
		}
	}
}
