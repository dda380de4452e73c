// Package simvllm is a vLLM engine without a model: the scheduler and the
// paged KV cache of a worker, in simulated steps. What it computes is which
// blocks a request finds, allocates, announces and evicts, and how long each
// step would take; the tokens of the answers are given to it.
//
// It has no clock, no goroutine and no I/O. A caller adds requests, begins a
// step, learns how long the step takes, lets that time pass in whatever way it
// keeps time, and finishes the step:
//
//	e.Add(request)
//	for step, ok := e.Begin(); ok; step, ok = e.Begin() {
//		wait(step.Duration)
//		result := e.Finish()
//	}
//
// The same calls in the same order give the same steps, events and hashes.
//
// # Words
//
// A block holds the KV entries of BlockSize tokens. A full block has a hash,
// which names it and everything before it; the cache finds it by that. A block
// is in use while sequences refer to it, else it is free. A free block keeps
// its content, and can be found, until the room is needed: then it is evicted.
// Several blocks can have one hash (two requests that computed the same
// tokens at the same time): copies.
//
// # What is as in vLLM
//
// Checked against captures of real workers (see replay_test.go): blocks get
// their hash and are announced when they are scheduled to be filled; the last
// token of a prompt is always computed, so that a prompt of exactly k cached
// blocks finds k-1 of them; free blocks are reused least recently freed first,
// a request's tail before its head, and partly filled blocks before all
// others; one of num_gpu_blocks is never given out; an eviction is announced
// before the blocks that needed the room; clearing the cache is announced with
// the next step only, and refused while a block is in use.
//
// # Invariants
//
// A block is either free or in use, and its reference count is the number of
// sequences that hold it. Every hash that the events announced and did not
// take back is in the cache as often as it was announced. A waiting sequence
// holds no blocks.
//
// An [Engine] is for one goroutine at a time.
package simvllm
