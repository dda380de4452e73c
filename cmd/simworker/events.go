package main

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/warmroute/warmroute/feedback"
	"github.com/warmroute/warmroute/internal/simvllm"
)

// flushTimeout bounds how long the last events may take to leave.
const flushTimeout = time.Second

// events publishes the engine's KV events over NATS as a real worker's plugin
// does. A server that is down holds nobody up: it is dialled for ever, and
// what is lost meanwhile shows as a gap that readers repair.
type events struct {
	nc        *nats.Conn
	publisher *feedback.Publisher
	blockSize int
	logger    *slog.Logger
}

// connect begins to publish for one instance, under an epoch of its own.
func connect(c config, logger *slog.Logger) (*events, error) {
	nc, err := nats.Connect(c.nats,
		nats.Name("simworker "+c.name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250*time.Millisecond),
		nats.ConnectHandler(func(*nats.Conn) { logger.Info("connected to NATS") }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { logger.Warn("lost NATS", "error", err) }),
		nats.ReconnectHandler(func(*nats.Conn) { logger.Info("reconnected to NATS") }),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", c.nats, err)
	}
	publisher, err := feedback.NewPublisher(nc, c.endpoint, c.name, 0, rand.Text())
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("publish KV events: %w", err)
	}
	return &events{nc: nc, publisher: publisher, blockSize: c.engine.BlockSize, logger: logger}, nil
}

// publish sends the events of one step.
func (e *events) publish(now time.Time, list []simvllm.Event) {
	batch := feedback.Batch{Time: float64(now.UnixMicro()) / 1e6, Events: make([]feedback.Event, len(list))}
	for i := range list {
		batch.Events[i] = wireEvent(&list[i], e.blockSize)
	}
	if err := e.publisher.Publish(batch); err != nil {
		e.logger.Warn("a batch of KV events was not sent", "error", err)
	}
}

func (e *events) close() {
	if err := e.publisher.Close(); err != nil {
		e.logger.Warn("the last KV events may be lost", "error", err)
	}
	if e.nc.IsConnected() {
		if err := e.nc.FlushTimeout(flushTimeout); err != nil {
			e.logger.Warn("the last KV events may be lost", "error", err)
		}
	}
	e.nc.Close()
}

// wireEvent is an event as vLLM writes it.
func wireEvent(e *simvllm.Event, blockSize int) feedback.Event {
	out := feedback.Event{Hashes: e.Hashes, Medium: "GPU"}
	switch e.Kind {
	case simvllm.AllBlocksCleared:
		return feedback.Event{Kind: feedback.AllBlocksCleared}
	case simvllm.BlockRemoved:
		out.Kind = feedback.BlockRemoved
		return out
	case simvllm.BlocksStored:
	}
	out.Kind = feedback.BlockStored
	out.HasParent, out.Parent = !e.Root, e.Parent
	out.Tokens, out.BlockSize = e.Tokens, blockSize
	out.LoRAName = e.Scope.Adapter
	out.GroupKind = "full_attention"
	out.ExtraKeys = extraKeys(e)
	return out
}

// extraKeys is what the hashes cover beside the tokens: the adapter in each
// block, the salt in a prompt's first. A block without any has null.
func extraKeys(e *simvllm.Event) [][]feedback.ExtraKey {
	keys := make([][]feedback.ExtraKey, len(e.Hashes))
	if e.Scope.Adapter != "" {
		for i := range keys {
			keys[i] = []feedback.ExtraKey{{Text: e.Scope.Adapter}}
		}
	}
	if e.Root && e.Scope.Salt != "" {
		keys[0] = append(keys[0], feedback.ExtraKey{Text: e.Scope.Salt})
	}
	return keys
}
