// Package worker is an OpenAI-compatible HTTP server around a [simvllm.Engine]:
// a vLLM worker whose KV cache, scheduling, timing and KV events are real and
// whose answers are made up.
//
// # What is made up
//
// The text of an answer: ordinary words, the same for the same seed, prompt
// and choice. With max_tokens (or max_completion_tokens) an answer has exactly
// that many tokens; without, between 16 and 255. Sampling parameters, stop
// strings and tools are read past. Every response carries the header
// "X-Simworker: made-up answer" and the fingerprint "simworker".
//
// # What is as in vLLM
//
// Routes, envelopes, the stream format, the names of the metrics, usage with
// cached tokens (as with --enable-prompt-tokens-details), and what a
// disconnect does: the request ends within a step, its blocks stay cached.
//
// # Concurrency
//
// One goroutine, [Worker.Run], steps the engine; the handlers add and abort
// requests under the same lock. They wait for nothing but their own tokens.
// At rest Run waits for a request and uses no CPU.
package worker
