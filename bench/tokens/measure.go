package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/warmroute/warmroute/tokenize"
	"github.com/warmroute/warmroute/tokenize/tokenizetest"
)

// row is one figure of one run.
type row struct {
	name, unit  string
	value       float64
	allocations float64 // for each operation
	counted     bool    // allocations were
	peer        string  // the row of Hugging Face's encoder for the same input
}

// Sizes of the workload.
const (
	promptBytes = 34 << 10
	tailBytes   = 1 << 10
	bodies      = 400
)

// The rows of Hugging Face's encoder.
const (
	dauletEncode = "daulet: encode prose"
	dauletBody   = "daulet: body to keys"
)

// bench is one run.
type bench struct {
	tokenizer string
	seed      uint64
	rows      []row
}

func (b *bench) all() error {
	before := heap()
	m, err := b.open("native", 0)
	if err != nil {
		return err
	}
	b.rows = append(b.rows, row{name: "memory of the tables", unit: "MiB", value: float64(heap()-before) / (1 << 20)})
	r := rand.New(rand.NewPCG(b.seed, 2))
	shared := tokenizetest.Prose(r, promptBytes-tailBytes)
	var seen, fresh, prose, code [][]byte
	for range bodies {
		fresh = append(fresh, chat(shared+tokenizetest.Prose(r, tailBytes)))
		prose = append(prose, chat(tokenizetest.Prose(r, promptBytes)))
		code = append(code, chat(tokenizetest.Code(r, promptBytes)))
	}
	for range 64 {
		seen = append(seen, chat(shared+tokenizetest.Prose(r, tailBytes)))
	}
	empty := heap()
	for range 3 { // the beginning, and each tail, becomes known
		if _, _, err := keys(m, seen); err != nil {
			return err
		}
	}
	for _, c := range []struct {
		name   string
		bodies [][]byte
		rounds int
	}{
		{"hot: known beginning, known tail", seen, 20},
		{"hot: known beginning, tail never seen", fresh, 1},
		{"cold: prose never seen", prose, 1},
		{"cold: code never seen", code, 1},
	} {
		if err := b.body(m, c.name, c.bodies, c.rounds, dauletBody); err != nil {
			return err
		}
	}
	b.rows = append(b.rows, row{name: "memory of the caches, 256 MiB allowed", unit: "MiB", value: float64(heap()-empty) / (1 << 20)})
	if err := b.scaling(m, seen); err != nil {
		return err
	}
	runtime.KeepAlive([][][]byte{seen, fresh, code})
	return b.encoders(prose)
}

func (b *bench) open(encoder string, cache int64) (*tokenize.Model, error) {
	start := cpu()
	m, err := tokenize.OpenModel(tokenize.ModelOptions{
		Name: "llama", TokenizerPath: b.tokenizer, Template: "llama3.1", Encoder: encoder, CacheBytes: cache,
	})
	if err != nil {
		return nil, fmt.Errorf("open the tokenizer (make run derives it): %w", err)
	}
	if encoder == "native" && cache == 0 {
		b.rows = append(b.rows, row{name: "reading tokenizer.json", unit: "ms", value: ms(cpu() - start)})
	}
	return m, nil
}

// body measures bodies to keys, one goroutine.
func (b *bench) body(m *tokenize.Model, name string, list [][]byte, rounds int, peer string) error {
	runtime.GC()
	var total time.Duration
	var mallocs uint64
	for range rounds {
		d, n, err := keys(m, list)
		if err != nil {
			return err
		}
		total, mallocs = total+d, mallocs+n
	}
	n := float64(rounds * len(list))
	b.rows = append(b.rows, row{name, "ms", ms(total) / n, float64(mallocs) / n, true, peer})
	return nil
}

// keys reads each body once and returns the CPU time and the allocations.
func keys(m *tokenize.Model, list [][]byte) (time.Duration, uint64, error) {
	var p tokenize.Prompt
	roots := []tokenize.Root{{BlockSize: 16, Key: 1}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := cpu()
	for _, body := range list {
		if err := m.Prompt(&p, tokenize.Chat, body, 0, roots); err != nil {
			return 0, 0, fmt.Errorf("read a prompt: %w", err)
		}
	}
	d := cpu() - start
	runtime.ReadMemStats(&after)
	return d, after.Mallocs - before.Mallocs, nil
}

// scaling is the rate of hot bodies with more goroutines, by the clock.
func (b *bench) scaling(m *tokenize.Model, list [][]byte) error {
	for _, n := range []int{1, 2, 4, 8} {
		const each = 4000
		var wg sync.WaitGroup
		errs := make([]error, n)
		start := time.Now()
		for g := range n {
			wg.Go(func() {
				var p tokenize.Prompt
				roots := []tokenize.Root{{BlockSize: 16, Key: 1}}
				for i := range each / n {
					if err := m.Prompt(&p, tokenize.Chat, list[i%len(list)], 0, roots); err != nil {
						errs[g] = err
						return
					}
				}
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("read prompts together: %w", err)
		}
		rate := float64(each/n*n) / time.Since(start).Seconds() / 1000
		b.rows = append(b.rows, row{name: fmt.Sprintf("hot, %d goroutine(s) on %d cores", n, runtime.GOMAXPROCS(0)), unit: "k/s", value: rate})
	}
	return nil
}

// encoders compares the encoders alone, without caches, and Hugging Face's from
// the body to keys.
func (b *bench) encoders(prose [][]byte) error {
	native, err := b.open("native", -1)
	if err != nil {
		return err
	}
	texts := prose[:40]
	if err := b.encode(native, "encode prose, no caches", texts); err != nil {
		return err
	}
	if !hfBuilt {
		return nil // there is nothing to compare
	}
	daulet, err := b.open("hf", -1)
	if err != nil {
		return err
	}
	if err := b.encode(daulet, dauletEncode, texts); err != nil {
		return err
	}
	return b.body(daulet, dauletBody, texts, 1, "")
}

func (b *bench) encode(m *tokenize.Model, name string, texts [][]byte) error {
	var ids []tokenize.Token
	var err error
	start := cpu()
	for _, t := range texts {
		if ids, err = m.Encode(ids[:0], t); err != nil {
			return fmt.Errorf("encode: %w", err)
		}
	}
	b.rows = append(b.rows, row{name: name, unit: "ms", value: ms(cpu()-start) / float64(len(texts)), peer: dauletEncode})
	return nil
}

func chat(text string) []byte {
	data, err := json.Marshal(map[string]any{
		"model": "llama", "max_tokens": 128, "stream": true, "messages": []map[string]string{{"role": "user", "content": text}},
	})
	if err != nil {
		panic(err) // strings always marshal
	}
	return data
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// cpu is the process' CPU time.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // the arguments are fixed
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc) //nolint:gosec // a heap fits
}
