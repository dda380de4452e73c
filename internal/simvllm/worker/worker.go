package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmroute/warmroute/internal/simvllm"
	"github.com/warmroute/warmroute/tokenize"
)

// Options are what a worker is made of.
type Options struct {
	ModelName string          // the served model's name
	Adapters  []string        // LoRA adapters loaded from the start
	Tokenizer *tokenize.Model // the model's tokenizer and chat template
	Engine    simvllm.Config
	// TimeScale stretches the steps: 1 is real time, 0.1 ten times as fast, 0
	// without any waiting.
	TimeScale float64
	// MaxModelLen is the longest prompt with its answer, in tokens. 0, or more
	// than the cache holds: what the cache holds.
	MaxModelLen int
	AnswerSeed  uint64 // other seeds make up other answers
	Dev         bool   // serve /dev/hold and /dev/release
	// Publish is called by Run with the events of each step that has any, in
	// order. It must not block.
	Publish  func(time.Time, []simvllm.Event)
	Registry *prometheus.Registry // gets the metrics, and is served
	Logger   *slog.Logger
}

// Worker is one simulated vLLM worker. Run must run for requests to be served.
type Worker struct {
	o        Options
	author   *author
	runner   *runner
	adapters *adapters
	maxLen   int
	created  int64 // Unix seconds
}

// New returns a worker with an empty cache.
func New(o Options) (*Worker, error) {
	if o.TimeScale < 0 {
		return nil, errors.New("the time scale is negative")
	}
	engine, err := simvllm.New(o.Engine)
	if err != nil {
		return nil, err
	}
	author, err := newAuthor(o.Tokenizer, o.AnswerSeed)
	if err != nil {
		return nil, err
	}
	if o.Publish == nil {
		o.Publish = func(time.Time, []simvllm.Event) {}
	}
	m, err := newMetrics(o.Registry, o.ModelName)
	if err != nil {
		return nil, fmt.Errorf("register the metrics: %w", err)
	}
	w := &Worker{
		o:        o,
		author:   author,
		runner:   newRunner(o, engine, m),
		adapters: newAdapters(o.Adapters),
		maxLen:   o.Engine.Capacity(),
		created:  time.Now().Unix(),
	}
	if o.MaxModelLen > 0 {
		w.maxLen = min(w.maxLen, o.MaxModelLen)
	}
	if err := o.Registry.Register(newEngineCollector(w.runner.stats, o.Engine, m.labels)); err != nil {
		return nil, fmt.Errorf("register the metrics: %w", err)
	}
	return w, nil
}

// Run steps the engine until ctx ends. Requests still in flight then fail, and
// so does each later one.
func (w *Worker) Run(ctx context.Context) { w.runner.run(ctx) }

// Drain refuses further requests, with status 500 as vLLM does, and waits for
// those in flight, or for ctx.
func (w *Worker) Drain(ctx context.Context) error { return w.runner.drain(ctx) }

// Handler serves the worker's routes.
func (w *Worker) Handler() http.Handler { return w.routes() }
