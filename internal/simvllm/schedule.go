package simvllm

import (
	"slices"
	"time"
)

// Begin decides what the next step computes and returns how long it takes, or
// false when there is nothing to do. Finish must follow before the next Begin.
//
// Running sequences come first, in the order of their admission; then waiting
// ones are admitted while there are tokens, sequences and blocks left for
// them. A running sequence that finds no block pushes out the one admitted
// last, which starts over later, and nothing is admitted in that step.
func (e *Engine) Begin() (Step, bool) {
	if e.inStep {
		panic("simvllm: Begin before Finish")
	}
	step := Step{Admitted: e.admitted[:0]}
	preemptions := e.counters.Preemptions
	budget := e.scheduleRunning(&step)
	if e.counters.Preemptions == preemptions {
		e.scheduleWaiting(&step, budget)
	}
	if len(e.running) == 0 {
		return Step{}, false
	}
	e.admitted = step.Admitted
	e.inStep = true
	e.counters.Steps++
	t := e.cfg.Timing
	step.Duration = t.StepBase + time.Duration(step.PrefillTokens)*t.PerPrefill + time.Duration(step.DecodeSeqs)*t.PerDecode
	return step, true
}

// scheduleRunning returns how many tokens it left for others.
func (e *Engine) scheduleRunning(step *Step) (budget int) {
	budget = e.cfg.MaxBatchedTokens
	for i := 0; i < len(e.running) && budget > 0; i++ {
		s := e.running[i]
		n := min(s.known()-s.computed, budget)
		if !e.makeRoom(s, n) {
			break // s was the last one, and pushed itself out
		}
		e.schedule(s, n, step)
		budget -= n
	}
	return budget
}

// makeRoom pushes out sequences until there are blocks for n more tokens of s.
// It reports whether s itself is still running.
func (e *Engine) makeRoom(s *sequence, n int) bool {
	need := blocksFor(s.computed+n, e.cfg.BlockSize) - len(s.blocks)
	for need > e.pool.free.size {
		last := len(e.running) - 1
		victim := e.running[last]
		e.running = slices.Delete(e.running, last, last+1)
		e.release(victim)
		e.waiting = slices.Insert(e.waiting, 0, victim)
		e.counters.Preemptions++
		if victim == s {
			return false
		}
	}
	return true
}

func (e *Engine) scheduleWaiting(step *Step, budget int) {
	for len(e.waiting) > 0 && budget > 0 && len(e.running) < e.cfg.MaxSeqs {
		s := e.waiting[0]
		if !e.admit(s) {
			return // first come, first served: nobody overtakes it
		}
		e.waiting = slices.Delete(e.waiting, 0, 1)
		e.running = append(e.running, s)
		step.Admitted = append(step.Admitted, s.id)
		n := min(s.known()-s.computed, budget)
		e.schedule(s, n, step)
		budget -= n
	}
}

// admit gives s the blocks that it finds in the cache, if all that it needs
// to compute what it knows would fit.
func (e *Engine) admit(s *sequence) bool {
	size := e.cfg.BlockSize
	// Never all of it: the last token must be computed to get the next.
	hashes := s.hashTo((s.known()-1)/size, size)
	hits, free := 0, 0
	for _, h := range hashes {
		b, ok := e.pool.find(h)
		if !ok {
			break
		}
		hits++
		if e.pool.isFree(b) {
			free++
		}
	}
	if blocksFor(s.known(), size)-hits+free > e.pool.free.size {
		return false
	}
	for _, h := range hashes[:hits] {
		b, _ := e.pool.find(h)
		e.pool.hold(b)
		s.blocks = append(s.blocks, b)
	}
	s.stored, s.computed = hits, hits*size
	if !s.started {
		s.started, s.cached = true, s.computed
		e.counters.Queries += uint64(s.known())
		e.counters.Hits += uint64(s.cached)
	}
	return true
}

// schedule lets the step compute n more tokens of s, for which there are free
// blocks, and announces the blocks that this fills.
func (e *Engine) schedule(s *sequence, n int, step *Step) {
	if s.produced > 0 && n == 1 {
		step.DecodeSeqs++
	} else {
		step.PrefillTokens += n
		e.counters.Prefilled += uint64(n)
	}
	s.scheduled = n
	end, size := s.computed+n, e.cfg.BlockSize
	for len(s.blocks) < blocksFor(end, size) {
		s.blocks = append(s.blocks, e.pool.take())
	}
	full := end / size
	if full == s.stored {
		return
	}
	hashes := s.hashTo(full, size)
	for i := s.stored; i < full; i++ {
		e.pool.store(s.blocks[i], hashes[i])
	}
	event := Event{
		Kind:   BlocksStored,
		Hashes: hashes[s.stored:full:full],
		Root:   s.stored == 0,
		Tokens: s.tokens[s.stored*size : full*size : full*size],
		Scope:  s.scope,
	}
	if !event.Root {
		event.Parent = hashes[s.stored-1]
	}
	e.events = append(e.events, event)
	s.stored = full
}
