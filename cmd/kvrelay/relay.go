package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/warmroute/warmroute/feedback"
)

const (
	// waiting is how many live messages wait while a hole is repaired. vLLM
	// keeps 10000 batches for replay, so more could not be repaired anyway.
	waiting = 10000
	// repairs is how many replays in a row may bring nothing new before what
	// is missing is given up.
	repairs = 3
)

// out is where a process's batches go.
type out interface {
	PublishRaw(payload []byte) error
	Close() error
}

// relay follows one rank's processes. It belongs to one goroutine.
//
// vLLM numbers the batches of each process from 0 and names no process. So a
// new one is inferred: from a seq that goes back, or, after any interruption,
// from vLLM's replay not beginning with the last batch that was read. Each
// process, and each state that does not continue the one before, is published
// as an epoch of its own.
type relay struct {
	logger *slog.Logger
	replay func(ctx context.Context, from uint64) ([]message, error) // nil: vLLM has no replay
	open   func(epoch string) (out, error)                           // begins an epoch
	name   func() string                                             // a new epoch's
	pause  time.Duration                                             // before a replay is tried again

	stream feedback.Stream   // in epochs of its own: one for each process
	last   []byte            // the payload before the stream's next, nil if not known
	seen   map[uint64]uint64 // payloads' hashes by seq, of the last repair
	out    out               // nil before the first epoch
	fresh  bool              // out has published nothing yet
}

// process is the stream's epoch: the stream begins anew for each process.
const process = "process"

// connected is called when vLLM's publisher was reached. What it published
// before that, and which process it is, the replay tells.
func (r *relay) connected(ctx context.Context) error {
	answered, err := r.repair(ctx)
	if err == nil && !answered && r.stream.Phase() != feedback.Silent {
		err = r.restart("vLLM was away, and nothing tells whether it is the same process")
	}
	return err
}

// live takes a message as vLLM publishes it.
func (r *relay) live(ctx context.Context, m message) error {
	if r.stream.Phase() != feedback.Silent && m.seq < r.stream.Next() {
		if hash, ok := r.seen[m.seq]; ok && hash == xxhash.Sum64(m.payload) {
			return nil // a repair had it first
		}
		if err := r.restart("vLLM's numbers went back"); err != nil {
			return err
		}
	}
	if err := r.receive(m); err != nil {
		return err
	}
	if r.stream.Phase() == feedback.Recovering {
		_, err := r.repair(ctx)
		return err
	}
	return nil
}

func (r *relay) receive(m message) error {
	b, err := feedback.Decode(m.payload)
	if err != nil {
		r.logger.Warn("a batch can't be read", "seq", m.seq, "error", err)
		return r.do(r.stream.Lost(process, m.seq))
	}
	return r.do(r.stream.Receive(feedback.Message{Epoch: process, Seq: m.seq, Batch: b, Payload: m.payload}))
}

// repair asks for what is missing until nothing is, or until it can't be had.
// It says whether vLLM answered at all.
func (r *relay) repair(ctx context.Context) (answered bool, err error) {
	clear(r.seen)
	for fruitless := 0; r.replay != nil && fruitless < repairs; {
		next := r.stream.Next()
		messages, err := r.ask(ctx)
		if ctx.Err() != nil {
			return answered, ctx.Err()
		}
		if errors.Is(err, errNoReply) {
			r.logger.Debug("no replay", "error", err)
		} else {
			answered = true
			if err := r.replayed(messages, err == nil); err != nil {
				return answered, err
			}
		}
		if answered && r.stream.Phase() == feedback.Live {
			return answered, nil
		}
		if r.stream.Next() == next {
			fruitless++
		}
		wait(ctx, r.pause)
	}
	if r.stream.Phase() != feedback.Recovering {
		return answered, nil // nothing is known yet, so nothing is lost
	}
	r.logger.Warn("what is missing can't be had; going on without the blocks from before", "next", r.stream.Next())
	return answered, r.do(r.stream.NoSnapshot(r.stream.Ticket()))
}

// ask replays from the last batch that was read, to see that it is the same.
func (r *relay) ask(ctx context.Context) ([]message, error) {
	if r.last != nil {
		return r.replay(ctx, r.stream.Next()-1)
	}
	return r.replay(ctx, r.stream.Next())
}

// replayed takes what a replay brought.
func (r *relay) replayed(messages []message, whole bool) error {
	if r.last != nil && (len(messages) == 0 || messages[0].seq+1 != r.stream.Next() || !bytes.Equal(messages[0].payload, r.last)) {
		if err := r.restart("the replay does not go on from the last batch read"); err != nil {
			return err
		}
	}
	for _, m := range messages {
		r.seen[m.seq] = xxhash.Sum64(m.payload)
		if m.seq < r.stream.Next() {
			continue
		}
		if err := r.receive(m); err != nil {
			return err
		}
	}
	if len(messages) == 0 && whole && r.stream.Phase() == feedback.Silent {
		return r.do(r.stream.Head(process, 0)) // a process that has published nothing
	}
	return nil
}

// restart begins to follow another process: of the one before, nothing is left.
func (r *relay) restart(reason string) error {
	r.logger.Info("another process", "reason", reason, "next_of_the_last", r.stream.Next())
	r.stream, r.last = feedback.Stream{}, nil
	return r.begin()
}

// begin begins an epoch.
func (r *relay) begin() error {
	if r.out != nil {
		if r.fresh {
			return nil
		}
		if err := r.out.Close(); err != nil {
			return fmt.Errorf("end an epoch: %w", err)
		}
	}
	var err error
	if r.out, err = r.open(r.name()); err != nil {
		r.out = nil
		return fmt.Errorf("begin an epoch: %w", err)
	}
	r.fresh = true
	return nil
}

func (r *relay) do(step feedback.Step) error {
	if step.Clear {
		r.last = nil
		if err := r.begin(); err != nil {
			return err
		}
	}
	for _, m := range step.Apply {
		r.last, r.fresh = m.Payload, false
		if err := r.out.PublishRaw(m.Payload); err != nil {
			if !errors.Is(err, feedback.ErrDropped) {
				return fmt.Errorf("publish batch %d: %w", m.Seq, err)
			}
			r.logger.Warn("a batch was dropped: NATS is too slow or away", "seq", m.Seq)
		}
	}
	return nil
}

func (r *relay) close() error {
	if r.out == nil {
		return nil
	}
	return r.out.Close()
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
