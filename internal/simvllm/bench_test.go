package simvllm

import (
	"math/rand/v2"
	"testing"
)

// One instance of the simulated fleet under its long workload: what a request
// costs a simulator that has no time to wait for.
func BenchmarkLongPrompts(b *testing.B) {
	e := newEngine(b, Config{BlockSize: 16, Blocks: 1_330_000 / 16, MaxBatchedTokens: 8192, MaxSeqs: 256, Timing: H100Timing()})
	rng := rand.New(rand.NewPCG(1, 2))
	answer := make([]Token, 200)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		prompt := append(ids(rng.IntN(300)*8000, 8000), ids(1<<24+i*256, 190)...)
		mustAdd(b, e, Request{Prompt: prompt, Answer: answer})
		if i%4 == 3 { // four at a time
			serve(e)
		}
	}
}
