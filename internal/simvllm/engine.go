package simvllm

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/warmroute/warmroute/internal/blockkey"
)

// ErrEmpty is returned by [Engine.Add] for a request without prompt or answer.
var ErrEmpty = errors.New("simvllm: a prompt and an answer have at least one token each")

// ErrTooLong is returned by [Engine.Add] for a request that could never fit
// into the cache.
var ErrTooLong = errors.New("simvllm: the request is longer than the cache")

// Engine is a worker's scheduler and cache. The zero value is not usable: see
// [New].
type Engine struct {
	cfg     Config
	pool    *pool
	nextID  ID
	waiting []*sequence // in the order in which they are to be admitted
	running []*sequence // in the order in which they were admitted
	inStep  bool        // between Begin and Finish

	events   []Event  // not yet handed out
	outputs  []Output // of the last step; its memory is reused
	admitted []ID     // by the last step; its memory is reused
	counters Counters
}

// Counters only ever grow.
type Counters struct {
	Queries     uint64 // tokens of admitted requests looked up in the cache
	Hits        uint64 // tokens of them found there
	Preemptions uint64 // sequences that gave their blocks back and started over
	Prefilled   uint64 // tokens of prompts computed
	Generated   uint64 // tokens of answers
	Steps       uint64
}

// Stats is the engine's state at one moment.
type Stats struct {
	Counters
	Running, Waiting int
	UsedBlocks       int // held by running sequences
	CachedBlocks     int // full blocks that the cache finds, in use or free, copies included once
}

// Step is what a step does and how long it takes.
type Step struct {
	Duration      time.Duration
	PrefillTokens int // tokens of prompts
	DecodeSeqs    int // sequences past their prompt
	// Admitted are the requests that were waiting until now, for the first
	// time or again. The slice is valid until the next Begin.
	Admitted []ID
}

// Output is one generated token.
type Output struct {
	ID       ID
	Produced int  // tokens of the answer so far, this one included
	Cached   int  // tokens of the prompt that were found in the cache
	Done     bool // it is the last one
}

// Result is what a step brought about. Its slices are valid until the next
// Finish; what an event refers to is never written again.
type Result struct {
	Outputs []Output
	Events  []Event
}

// New returns an engine with an empty cache.
func New(cfg Config) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure the engine: %w", err)
	}
	e := &Engine{cfg: cfg}
	e.pool = newPool(cfg.Blocks, e.removed)
	return e, nil
}

// Config returns what the engine was made with.
func (e *Engine) Config() Config { return e.cfg }

// Stats returns the present state.
func (e *Engine) Stats() Stats {
	return Stats{
		Counters:     e.counters,
		Running:      len(e.running),
		Waiting:      len(e.waiting),
		UsedBlocks:   e.pool.used(),
		CachedBlocks: len(e.pool.cached),
	}
}

// Add queues a request: the next Begin considers it.
func (e *Engine) Add(r Request) (ID, error) {
	if len(r.Prompt) == 0 || len(r.Answer) == 0 {
		return 0, ErrEmpty
	}
	// The last token is generated, never computed.
	if n := len(r.Prompt) + len(r.Answer) - 1; n > e.cfg.Capacity() {
		return 0, fmt.Errorf("%w: %d tokens, it holds %d", ErrTooLong, n, e.cfg.Capacity())
	}
	e.nextID++
	e.waiting = append(e.waiting, &sequence{
		id:     e.nextID,
		scope:  r.Scope,
		prompt: len(r.Prompt),
		tokens: slices.Concat(r.Prompt, r.Answer),
		root:   e.root(r.Scope),
	})
	return e.nextID, nil
}

// root is the parent of a scope's first blocks. The seed makes it this
// engine's own.
func (e *Engine) root(s Scope) Hash {
	ns := blockkey.Namespace{Adapter: s.Adapter, Salt: s.Salt, BlockSize: e.cfg.BlockSize}
	return blockkey.WithID(blockkey.Root(ns), "seed "+strconv.FormatUint(e.cfg.HashSeed, 16))
}

// Abort ends a request that nobody waits for any more. What it has computed
// stays in the cache. It reports whether the request was still there. During a
// step too it takes effect at once; the step does not become shorter.
func (e *Engine) Abort(id ID) bool {
	is := func(s *sequence) bool { return s.id == id }
	if i := slices.IndexFunc(e.running, is); i >= 0 {
		e.release(e.running[i])
		e.running = slices.Delete(e.running, i, i+1)
		return true
	}
	if i := slices.IndexFunc(e.waiting, is); i >= 0 {
		e.waiting = slices.Delete(e.waiting, i, i+1)
		return true
	}
	return false
}

// ClearCache forgets all blocks. It reports false, and does nothing, while a
// request holds one. The event comes with the next step's.
func (e *Engine) ClearCache() bool {
	if !e.pool.clear() {
		return false
	}
	e.events = append(e.events, Event{Kind: AllBlocksCleared})
	return true
}

// Finish ends the step that Begin began: each sequence whose tokens are all
// computed gets one more.
func (e *Engine) Finish() Result {
	if !e.inStep {
		panic("simvllm: Finish without Begin")
	}
	e.inStep = false
	e.outputs = e.outputs[:0]
	kept := e.running[:0]
	for _, s := range e.running {
		s.computed += s.scheduled
		generates := s.scheduled > 0 && s.computed == s.known()
		s.scheduled = 0
		if generates {
			s.produced++
			e.counters.Generated++
			done := s.known() == len(s.tokens)
			e.outputs = append(e.outputs, Output{ID: s.id, Produced: s.produced, Cached: s.cached, Done: done})
			if done {
				e.release(s)
				continue
			}
		}
		kept = append(kept, s)
	}
	clear(e.running[len(kept):])
	e.running = kept
	r := Result{Outputs: e.outputs, Events: e.events}
	e.events = nil
	return r
}

func (e *Engine) release(s *sequence) {
	e.pool.release(s.blocks)
	s.blocks, s.stored, s.computed, s.scheduled = nil, 0, 0, 0
}

func (e *Engine) removed(h Hash) {
	e.events = append(e.events, Event{Kind: BlockRemoved, Hashes: []Hash{h}})
}
