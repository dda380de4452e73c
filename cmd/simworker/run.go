package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmroute/warmroute/internal/simvllm"
	"github.com/warmroute/warmroute/internal/simvllm/worker"
	"github.com/warmroute/warmroute/tokenize"
)

// run serves until ctx ends.
func run(ctx context.Context, c config, stdout, stderr io.Writer) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.logLevel)); err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	logger := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})).With("instance", c.name)
	model, err := tokenize.OpenModel(tokenize.ModelOptions{Name: c.model, TokenizerPath: c.tokenizer, Template: c.template})
	if err != nil {
		return fmt.Errorf("open the tokenizer: %w", err)
	}
	model.SetDeveloperRole(tokenize.DeveloperAsSystem) // as vLLM 0.32 does
	if c.engine.HashSeed == 0 {
		c.engine.HashSeed = rand.Uint64()
	}
	publish := func(time.Time, []simvllm.Event) {}
	if c.nats != "" {
		ev, err := connect(c, logger)
		if err != nil {
			return err
		}
		defer ev.close()
		publish = ev.publish
	}
	w, err := worker.New(worker.Options{
		ModelName: c.model, Adapters: c.adapters, Tokenizer: model,
		Engine: c.engine, TimeScale: c.timeScale, MaxModelLen: c.maxModelLen,
		AnswerSeed: c.seed, Dev: c.dev,
		Publish: publish, Registry: prometheus.NewRegistry(), Logger: logger,
	})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", c.listen, err)
	}
	if _, err := fmt.Fprintf(stdout, "simworker %s listening on http://%s\n", c.name, listener.Addr()); err != nil {
		_ = listener.Close()
		return fmt.Errorf("say where it listens: %w", err)
	}
	return serve(ctx, listener, w, c.shutdownTimeout, logger)
}

// serve answers requests until ctx ends, and then for as long as those in
// flight are granted.
func serve(ctx context.Context, listener net.Listener, w *worker.Worker, grace time.Duration, logger *slog.Logger) error {
	// The engine goes on after ctx, for the requests in flight.
	engineCtx, stopEngine := context.WithCancel(context.WithoutCancel(ctx))
	var engine sync.WaitGroup
	engine.Go(func() { w.Run(engineCtx) }) // ends with engineCtx
	defer engine.Wait()
	defer stopEngine()

	// Go's TCP connections have TCP_NODELAY set.
	server := &http.Server{Handler: w.Handler(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }() // ends at Close, whose answer is read below
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	logger.Info("stopping", "grace", grace)
	graceCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	_ = w.Drain(graceCtx) // what has not ended by then is cut
	stopEngine()
	engine.Wait()
	// The handlers now write their last words; a client that does not read
	// them is cut.
	lastCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := server.Shutdown(lastCtx); err != nil {
		if err := server.Close(); err != nil {
			logger.Debug("close the server", "error", err)
		}
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
