package simvllm

import (
	"errors"
	"fmt"
	"time"
)

// Config is what a worker is started with. All fields must be set.
type Config struct {
	BlockSize int // tokens per block
	// Blocks is vLLM's num_gpu_blocks. One of them is never given out.
	Blocks           int
	MaxBatchedTokens int // tokens computed in one step; longer prompts are prefilled in chunks
	MaxSeqs          int // sequences running at a time
	// HashSeed makes the block hashes differ from other engines'.
	HashSeed uint64
	Timing   Timing
}

// Timing says how long a step takes: the sum of its parts. Zero is no time.
type Timing struct {
	StepBase   time.Duration // each step
	PerPrefill time.Duration // each token of a prompt that the step computes
	PerDecode  time.Duration // each sequence that the step gives one more token
}

// H100Timing is the model of one instance of Llama 3.1 70B on 8 H100s with
// which the published results of prefix-aware routing were reproduced: 14 ms,
// 32,000 prompt tokens a second, 0.15 ms for each decoding sequence.
func H100Timing() Timing {
	return Timing{
		StepBase:   14 * time.Millisecond,
		PerPrefill: time.Second / 32000,
		PerDecode:  150 * time.Microsecond,
	}
}

// Validate reports all that is wrong.
func (c Config) Validate() error {
	var errs []error
	for _, f := range []struct {
		name     string
		got, min int
	}{
		{"block size", c.BlockSize, 1},
		{"number of blocks", c.Blocks, 2},
		{"batched tokens per step", c.MaxBatchedTokens, 1},
		{"sequences at a time", c.MaxSeqs, 1},
	} {
		if f.got < f.min {
			errs = append(errs, fmt.Errorf("the %s is %d: at least %d", f.name, f.got, f.min))
		}
	}
	if c.Timing.StepBase < 0 || c.Timing.PerPrefill < 0 || c.Timing.PerDecode < 0 {
		errs = append(errs, errors.New("a part of a step takes a negative time"))
	}
	return errors.Join(errs...)
}

// Capacity is the longest sequence in tokens that the cache can hold.
func (c Config) Capacity() int { return (c.Blocks - 1) * c.BlockSize }
