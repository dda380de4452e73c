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
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/warmroute/warmroute/api"
	"github.com/warmroute/warmroute/feedback"
	"github.com/warmroute/warmroute/internal/replica"
	"github.com/warmroute/warmroute/radix"
	"github.com/warmroute/warmroute/scheduler"
	"github.com/warmroute/warmroute/tokenize"
)

// expireEvery is how often predictions that no event confirmed are dropped.
const expireEvery = time.Second

// router is the running service: its parts and what a reload changes. One
// goroutine reloads.
type router struct {
	source source
	config *Config                // as the process started with it
	live   atomic.Pointer[Config] // with the endpoints as they are now
	level  *slog.LevelVar
	logger *slog.Logger

	registry  *prometheus.Registry
	scheduler *scheduler.Scheduler
	held      *radix.Index
	models    *models
	workerKey string
	samples   samples
	nats      *nats.Conn // nil without events
	events    *feedback.Subscriber
	outbox    *replica.Outbox   // what the scheduler tells the other routers
	replicas  *replica.Replicas // nil: there are none
	api       *api.Server
	draining  atomic.Bool
	warmBy    time.Time   // when it serves however much it knows
	warm      atomic.Bool // it knew enough, or the time has come
}

// serve runs the router until ctx ends, and then lets the running requests
// end.
func serve(ctx context.Context, src source, stderr io.Writer) error {
	cfg, err := src.load()
	if err != nil {
		return err
	}
	r, err := newRouter(src, cfg, stderr) //nolint:contextcheck // requests have their own
	if err != nil {
		return err
	}
	defer r.close()
	// Both listeners first: a port in use ends the start before anything runs.
	public, err := listen(ctx, "listen", cfg.Listen)
	if err != nil {
		return err
	}
	admin, err := listen(ctx, "admin_listen", cfg.AdminListen)
	if err != nil {
		return errors.Join(err, public.Close())
	}
	return r.run(ctx, public, admin)
}

// listen opens a listener; its error says which field to change.
func listen(ctx context.Context, field, addr string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: can't listen on %s: %w; stop what uses it, or choose another address", field, addr, err)
	}
	return l, nil
}

func newRouter(src source, cfg *Config, stderr io.Writer) (*router, error) {
	r := &router{source: src, config: cfg, level: new(slog.LevelVar), registry: prometheus.NewRegistry(), models: newModels(), outbox: replica.NewOutbox(), warmBy: time.Now().Add(cfg.Timeouts.Warm)}
	r.samples.queue = make(chan sample, 1)
	r.level.Set(level(cfg.Log.Level))
	r.logger = newLogger(stderr, cfg.Log.Format, r.level)
	r.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), r.models)

	r.held = radix.New(radix.Options{
		PredictionTTL: cfg.Tree.PredictionTTL, MaxBytes: cfg.Tree.MaxBytes, DefaultCapacity: cfg.Tree.CacheBlocks,
	})
	// Where an id's prefix was placed stays true for as long as it is held: only
	// the instance's capacity bounds it.
	placed := radix.New(radix.Options{MaxBytes: cfg.Tree.MaxBytes, DefaultCapacity: cfg.Tree.CacheBlocks})
	r.registry.MustRegister(newTreeCollector(r.held, placed))
	r.scheduler = scheduler.New(scheduler.Options{
		Held: r.held, Placed: placed, Rand: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), Registerer: r.registry,
		Hooks: r.hooks(),
	})
	if err := r.apply(cfg); err != nil {
		return nil, err
	}
	if err := r.connect(); err != nil {
		return nil, err
	}
	options, err := r.apiOptions()
	if err != nil {
		r.close()
		return nil, err
	}
	r.api, err = api.New(options)
	if err != nil {
		r.close()
		return nil, fmt.Errorf("make the HTTP server: %w", err)
	}
	return r, nil
}

func (r *router) apiOptions() (api.Options, error) {
	c := r.config
	key, err := c.workerKey()
	if err != nil {
		return api.Options{}, err
	}
	r.workerKey = key
	return api.Options{
		WorkerKey: key,
		Scheduler: r.scheduler, Models: r.models.get, Logger: r.logger, Registry: r.registry, Version: version(),
		Ready: r.ready, Tree: func() any { return viewTree(r.held.Stats()) },
		Sample: func(endpoint, url string, kind tokenize.Kind, body []byte) {
			r.samples.offer(sample{endpoint, url, kind, body}, time.Now())
		},
		HideReceipt: !c.Receipt, MaxBodyBytes: c.Limits.MaxBodyBytes, Retries: c.Limits.Retries,
		Timeouts: api.Timeouts{ReadBody: c.Timeouts.ReadBody, Connect: c.Timeouts.Connect, FirstByte: c.Timeouts.FirstByte, Chunk: c.Timeouts.Chunk},
	}, nil
}

// ready says whether a balancer should send requests here. A NATS that is down
// doesn't make the router unready: it serves without events.
func (r *router) ready() (ok bool, why string) {
	switch {
	case r.draining.Load():
		return false, "draining"
	case r.nats == nil:
		return true, "no NATS configured: the tree lives on predictions"
	}
	why = "NATS is connected"
	if !r.nats.IsConnected() {
		why = "NATS is not connected: the tree lives on predictions"
	}
	unheard, of := r.events.Unheard()
	if unheard == 0 {
		r.warm.Store(true)
		return true, why
	}
	why += fmt.Sprintf("; %d of %d instances have not said what they hold", unheard, of)
	if !r.warm.Load() && time.Now().Before(r.warmBy) {
		return false, why + ", and are waited for"
	}
	r.warm.Store(true) // from now on only draining makes it unready
	return true, why
}

// connect begins the NATS connection and the subscription to the events.
func (r *router) connect() error {
	if r.config.NATS.URL == "" {
		r.logger.Warn("no nats.url: the tree lives on predictions alone")
		return nil
	}
	nc, err := connectNATS(r.config.NATS)
	if err != nil {
		return err
	}
	r.nats = nc
	r.events, err = feedback.NewSubscriber(feedback.SubscriberOptions{
		Conn: nc, Scheduler: r.scheduler, Index: r.held, Logger: r.logger, Registerer: r.registry, Now: time.Now,
	})
	if err != nil {
		r.close()
		return fmt.Errorf("subscribe to KV events: %w", err)
	}
	if r.config.Replicas.Group == "" {
		return nil
	}
	r.replicas, err = replica.New(replica.Options{
		Conn: nc, Scheduler: r.scheduler, Outbox: r.outbox, Logger: r.logger, Registerer: r.registry, Now: time.Now,
		Group: r.config.Replicas.Group, Keep: r.config.Tree.PredictionTTL,
	})
	if err != nil {
		r.close()
		return fmt.Errorf("share with the other routers: %w", err)
	}
	return nil
}

// hooks are what the scheduler tells other routers with, none if there can't be
// any.
func (r *router) hooks() scheduler.Hooks {
	if r.config.NATS.URL == "" || r.config.Replicas.Group == "" {
		return scheduler.Hooks{}
	}
	return r.outbox.Hooks()
}

// apply makes the configuration's endpoints current: all of it or nothing.
func (r *router) apply(cfg *Config) error {
	commit, err := r.models.prepare(cfg.Endpoints, r.logger)
	if err != nil {
		return err
	}
	if err := r.scheduler.Apply(endpoints(cfg.Endpoints)); err != nil {
		return fmt.Errorf("apply the endpoints: %w", err)
	}
	commit()
	r.live.Store(cfg)
	return nil
}

// reload reads the configuration again. A bad one changes nothing.
func (r *router) reload() {
	next, err := r.source.load()
	if err == nil {
		err = r.apply(next)
	}
	if err != nil {
		r.logger.Error("the changed configuration is not applied; the old one stays", "error", err)
		return
	}
	if fields := restartNeeded(r.config, next); len(fields) > 0 {
		r.logger.Warn("these fields changed and need a restart", "fields", fields)
	}
	r.level.Set(level(next.Log.Level))
	r.logger.Info("the changed configuration is live", "endpoints", len(next.Endpoints))
}

// run serves until ctx ends, then drains.
func (r *router) run(ctx context.Context, public, admin net.Listener) error {
	servers := []*http.Server{r.server(r.api.Public()), r.server(r.api.Admin())}
	// The parts outlive ctx: they stop once the requests are done.
	parts, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, parts := errgroup.WithContext(parts)
	for i, l := range []net.Listener{public, admin} {
		group.Go(func() error { // ends at Shutdown or Close
			if err := servers[i].Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve %s: %w", l.Addr(), err)
			}
			return nil
		})
	}
	group.Go(func() error { return r.expire(parts) })
	group.Go(func() error { return r.checkParity(parts) })
	group.Go(func() error { return r.checkHealth(parts) })
	if r.events != nil {
		group.Go(func() error { return r.events.Run(parts) })
	}
	if r.replicas != nil {
		group.Go(func() error { return r.replicas.Run(parts) })
	}
	if r.source.path != "" {
		group.Go(func() error { return watch(parts, r.source.path, r.logger, r.reload) })
	}
	r.logger.Info("warmroute serves", "api", public.Addr().String(), "admin", admin.Addr().String(), "version", version())
	group.Go(func() error {
		select {
		case <-ctx.Done(): // the operator's signal
		case <-parts.Done(): // a part failed
		}
		defer stop()
		return r.drain(context.WithoutCancel(ctx), servers)
	})
	return group.Wait()
}

// drain says not ready, goes on for the drain delay so that balancers notice,
// and lets the running requests end within the drain time.
func (r *router) drain(ctx context.Context, servers []*http.Server) error {
	t := r.config.Timeouts
	r.draining.Store(true)
	r.logger.Info("draining", "delay", t.DrainDelay, "limit", t.Drain)
	delay := time.NewTimer(t.DrainDelay)
	defer delay.Stop()
	<-delay.C
	ctx, cancel := context.WithTimeout(ctx, t.Drain)
	defer cancel()
	var errs []error
	for _, s := range servers {
		if err := s.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("requests were still running after %s: %w", t.Drain, errors.Join(err, s.Close())))
		}
	}
	return errors.Join(errs...)
}

func (r *router) server(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: r.config.Timeouts.ReadHeader,
		IdleTimeout:       r.config.Timeouts.Idle,
		MaxHeaderBytes:    r.config.Limits.MaxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(r.logger.Handler(), slog.LevelDebug),
	}
}

func (r *router) expire(ctx context.Context) error {
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			r.scheduler.Expire(now)
		}
	}
}

func (r *router) close() {
	if r.api != nil {
		r.api.Close()
	}
	if r.nats != nil {
		r.nats.Close()
	}
}

// level is the slog level of a name that validate has let through.
func level(name string) slog.Level {
	var l slog.Level
	_ = l.UnmarshalText([]byte(name))
	return l
}

func newLogger(w io.Writer, format string, level slog.Leveler) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == "text" {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

// quietLogger drops everything.
func quietLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// endpoints is the scheduler's form of the configuration.
func endpoints(list []EndpointConfig) []scheduler.EndpointConfig {
	out := make([]scheduler.EndpointConfig, len(list))
	for i, e := range list {
		out[i] = scheduler.EndpointConfig{Name: e.EndpointName, Model: e.Model}
		for _, v := range e.ProductionVariants {
			p := v.RoutingConfig.PrefixAwareRoutingConfig
			variant := scheduler.VariantConfig{
				Name:   v.VariantName,
				Weight: *v.InitialVariantWeight,
				Routing: scheduler.Routing{
					Strategy:             scheduler.Strategy(v.RoutingConfig.RoutingStrategy),
					PrefixLength:         p.PrefixLength,
					ConcurrencyThreshold: p.ConcurrencyThreshold,
					MinMatchTokens:       p.MinMatchTokens,
				},
			}
			for _, inst := range v.Instances {
				variant.Instances = append(variant.Instances, scheduler.InstanceConfig(inst))
			}
			out[i].Variants = append(out[i].Variants, variant)
		}
	}
	return out
}
