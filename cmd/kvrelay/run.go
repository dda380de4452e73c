package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/warmroute/warmroute/feedback"
)

const (
	// quiet is how long a replay may say nothing before it is over.
	quiet = 2 * time.Second
	// again is how long to wait before another try.
	again = 250 * time.Millisecond
)

// news is a live message, or that vLLM was reached (payload nil).
type news struct {
	message
	connected bool
}

// run relays until ctx ends.
func run(ctx context.Context, c config, stderr io.Writer) error {
	logger := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: c.logLevel})).With("instance", c.instance, "rank", c.rank)
	nc, err := connectNATS(c, logger)
	if err != nil {
		return err
	}
	defer nc.Close()
	r := &relay{
		logger: logger,
		open: func(epoch string) (out, error) {
			logger.Info("epoch", "epoch", epoch)
			return feedback.NewPublisher(nc, c.endpoint, c.instance, c.rank, epoch)
		},
		name: rand.Text, pause: again, seen: make(map[uint64]uint64),
	}
	if c.replay != "" {
		r.replay = func(ctx context.Context, from uint64) ([]message, error) { return replay(ctx, c.replay, from, quiet) }
	}
	logger.Info("kvrelay follows", "zmq", c.zmq, "replay", c.replay)
	return errors.Join(follow(ctx, r, c, logger), r.close())
}

// follow feeds the relay until ctx ends.
func follow(ctx context.Context, r *relay, c config, logger *slog.Logger) error {
	// While a hole is repaired live messages wait here. When it is full, ZMQ's
	// buffers fill, vLLM's publisher drops, and that is a hole as well.
	queue := make(chan news, waiting)
	group, ctx := errgroup.WithContext(ctx)
	put := func(n news) {
		select {
		case queue <- n:
		case <-ctx.Done():
		}
	}
	group.Go(func() error { // ends with ctx
		for ctx.Err() == nil {
			err := subscribe(ctx, c.zmq, c.topic, func() { put(news{connected: true}) }, func(m message) { put(news{message: m}) })
			logger.Debug("vLLM is away", "error", err)
			wait(ctx, again)
		}
		return nil
	})
	group.Go(func() error { // ends with ctx
		for {
			select {
			case <-ctx.Done():
				return nil
			case n := <-queue:
				if err := r.take(ctx, n); err != nil && ctx.Err() == nil {
					return err
				}
			}
		}
	})
	return group.Wait()
}

func (r *relay) take(ctx context.Context, n news) error {
	if n.connected {
		return r.connected(ctx)
	}
	return r.live(ctx, n.message)
}

// connectNATS begins a connection that comes up when a server does and comes
// back whenever it is lost.
func connectNATS(c config, logger *slog.Logger) (*nats.Conn, error) {
	options := []nats.Option{
		nats.Name("kvrelay " + c.instance), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(again),
		nats.PingInterval(10 * time.Second), nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { logger.Warn("lost NATS", "error", err) }),
		nats.ReconnectHandler(func(*nats.Conn) { logger.Info("reconnected to NATS") }),
	}
	if c.credentials != "" {
		options = append(options, nats.UserCredentials(c.credentials))
	}
	nc, err := nats.Connect(c.nats, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return nc, nil
}
