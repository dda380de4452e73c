package feedback

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// maxSnapshotTokens bounds what one snapshot may put into memory: the blocks of
// a cache of 64 million tokens.
const maxSnapshotTokens = 64 << 20

// fetcher asks one rank for a snapshot.
type fetcher struct {
	conn     *nats.Conn
	subject  string
	rank     int
	timeout  time.Duration // for one answer
	pause    time.Duration // before the second try; doubled for each further
	attempts int           // tries without any progress
	rand     *rand.Rand
}

// fetch asks chunk by chunk, each again when its answer is lost, and from the
// start when the worker no longer keeps the snapshot.
func (f *fetcher) fetch(ctx context.Context) (head, []Batch, error) {
	var (
		id      string
		of      head
		batches []Batch
		tokens  int
		last    error
	)
	for failed := 0; failed < f.attempts; {
		if failed > 0 {
			if err := f.wait(ctx, failed); err != nil {
				return head{}, nil, err
			}
		}
		c, err := f.ask(ctx, id, len(batches))
		switch {
		case errors.Is(err, errGone):
			id, batches, tokens = "", nil, 0
			fallthrough
		case err != nil:
			last = err
			failed++
			continue
		case id != "" && (c.snapshot != id || c.head != of):
			last = fmt.Errorf("%w: a chunk of another snapshot", errAnswer)
			failed++
			continue
		}
		failed = 0
		id, of = c.snapshot, c.head
		batches = append(batches, c.batch)
		for i := range c.batch.Events {
			tokens += len(c.batch.Events[i].Tokens)
		}
		if tokens > maxSnapshotTokens {
			return head{}, nil, fmt.Errorf("%w: a snapshot of over %d tokens", errAnswer, maxSnapshotTokens)
		}
		if len(batches) == c.chunks {
			return of, batches, nil
		}
	}
	return head{}, nil, fmt.Errorf("no snapshot from %s in %d tries: %w", f.subject, f.attempts, last)
}

func (f *fetcher) ask(ctx context.Context, id string, index int) (chunk, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	request := &nats.Msg{Subject: f.subject, Header: nats.Header{}}
	if id != "" {
		request.Header.Set(headerSnapshot, id)
		request.Header.Set(headerChunk, strconv.Itoa(index))
	}
	answer, err := f.conn.RequestMsgWithContext(ctx, request)
	if err != nil {
		return chunk{}, fmt.Errorf("ask for chunk %d: %w", index, err)
	}
	c, err := parseChunk(answer)
	if err == nil && c.rank != f.rank {
		err = fmt.Errorf("%w: rank %d speaks for rank %d", errAnswer, c.rank, f.rank)
	}
	return c, err
}

// wait waits before another try: longer each time, and never the same for two
// readers, so that a fleet of routers does not ask in step.
func (f *fetcher) wait(ctx context.Context, failed int) error {
	pause := f.pause << min(failed-1, 6)
	t := time.NewTimer(pause/2 + time.Duration(f.rand.Int64N(int64(pause))))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
