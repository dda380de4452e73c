package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// errStopped ends the calls in flight when the engine stops.
var errStopped = errors.New("the engine has stopped")

// progress is how far one answer has come.
type progress struct {
	produced int // tokens
	cached   int // tokens of the prompt that were in the cache
	done     bool
}

// call is what the engine has done so far for one HTTP request, which may ask
// for several answers. The engine's goroutine writes it, the handler waits on
// it; the latest state is what counts, so a slow client holds nobody up and
// gets several tokens at once.
type call struct {
	arrived time.Time
	changed chan struct{} // holds at most one: there is news

	mu    sync.Mutex
	parts []progress
	err   error
}

func newCall(answers int, arrived time.Time) *call {
	return &call{arrived: arrived, changed: make(chan struct{}, 1), parts: make([]progress, answers)}
}

func (c *call) set(i int, p progress) {
	c.mu.Lock()
	c.parts[i] = p
	c.mu.Unlock()
	c.wake()
}

func (c *call) fail(err error) {
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
	c.wake()
}

func (c *call) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// next waits for news and appends the state of each answer to dst.
func (c *call) next(ctx context.Context, dst []progress) ([]progress, error) {
	select {
	case <-ctx.Done():
		return dst, context.Cause(ctx)
	case <-c.changed:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(dst, c.parts...), c.err
}

// all waits for the last token of each answer.
func (c *call) all(ctx context.Context) ([]progress, error) {
	var parts []progress
	for {
		var err error
		if parts, err = c.next(ctx, parts[:0]); err != nil || finished(parts) {
			return parts, err
		}
	}
}

func finished(parts []progress) bool {
	return !slices.ContainsFunc(parts, func(p progress) bool { return !p.done })
}
