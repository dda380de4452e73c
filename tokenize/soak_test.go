package tokenize

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/warmroute/warmroute/tokenize/tokenizetest"
)

// TestDistinctPromptsLeaveMemoryFlat sends prompts that differ, each with one of
// a few shared beginnings: 3,000, or as many as WARMROUTE_SOAK says. The heap
// stays within what the caches may hold.
func TestDistinctPromptsLeaveMemoryFlat(t *testing.T) {
	prompts := 3000
	if s := os.Getenv("WARMROUTE_SOAK"); s != "" {
		var err error
		if prompts, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	const limit = 8 << 20
	m := openTest(t, ModelOptions{CacheBytes: limit})
	r := rand.New(rand.NewPCG(31, 32))
	var beginnings []string
	for range 8 {
		beginnings = append(beginnings, prose(r, 6000))
	}
	var p Prompt
	roots := []Root{{16, 1}}
	send := func(n int) {
		for range n {
			body := chatBody(t, beginnings[r.IntN(len(beginnings))]+prose(r, 2000))
			if err := m.Prompt(&p, Chat, body, 0, roots); err != nil {
				t.Fatal(err)
			}
		}
	}
	base := heap()
	send(prompts / 3) // fills the caches
	full := heap()
	for i := range 4 {
		send(prompts / 6)
		now := heap()
		held := m.native.chunks.bytes() + m.prefixes.bytes()
		t.Logf("step %d: heap %d KiB above the start, %d KiB after the caches were full; they count %d KiB",
			i, (now-base)>>10, (full-base)>>10, held>>10)
		if held > limit {
			t.Errorf("the caches hold %d bytes, allowed are %d", held, limit)
		}
		if now-base > limit*5/4 && !underRace {
			t.Errorf("the heap grew by %d bytes, the caches may hold %d", now-base, limit)
		}
	}
	if m.prefixes.hits.Load() == 0 {
		t.Error("no beginning was remembered")
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

func TestAHotPromptAllocatesAHandful(t *testing.T) {
	if underRace {
		t.Skip("the race detector makes pools forget at random")
	}
	m := openTest(t, ModelOptions{})
	r := rand.New(rand.NewPCG(5, 6))
	body := chatBody(t, prose(r, 34<<10))
	var p Prompt
	roots := []Root{{16, 1}}
	prompt := func() {
		if err := m.Prompt(&p, Chat, body, 1<<16, roots); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		prompt()
	}
	if got := testing.AllocsPerRun(50, prompt); got > 4 {
		t.Errorf("%v allocations, want at most 4", got)
	}
}

func TestTheTablesAreSmall(t *testing.T) {
	e := openTest(t, ModelOptions{CacheBytes: -1}).native
	words, pairs := e.vocab.bytes(), 8*len(e.merges.slots)+4*len(e.merges.into)
	classes := len(e.classes.pages)<<pageBits + 2*len(e.classes.index)
	t.Logf("words %d KiB, merges %d KiB, classes %d KiB", words>>10, pairs>>10, classes>>10)
	total := words + pairs + classes
	if total > 20<<20 {
		t.Errorf("%d bytes of tables, want at most 20 MiB", total)
	}
	// And nothing else stays, such as the file that they were read from.
	before := heap()
	m, err := OpenModel(ModelOptions{TokenizerPath: tokenizetest.Path(t), Template: "llama3.1"})
	if err != nil {
		t.Fatal(err)
	}
	if grown := heap() - before; grown > int64(total)+2<<20 {
		t.Errorf("a model keeps %d KiB, its tables are %d KiB", grown>>10, total>>10)
	}
	runtime.KeepAlive(m)
}
