package main

import (
	"context"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/warmroute/warmroute/scheduler"
)

// checkHealth watches the instances until ctx ends. It says only whether an
// instance is in service: it touches no count and nothing that is known of its
// cache.
func (r *router) checkHealth(ctx context.Context) error {
	c := r.config.Health
	client := newWorkerClient(r.workerKey, c.Timeout)
	defer client.CloseIdleConnections()
	tick := time.NewTicker(c.Interval)
	defer tick.Stop()
	checks := map[*scheduler.Instance]*healthCheck{}
	for {
		next := map[*scheduler.Instance]*healthCheck{}
		var wg sync.WaitGroup
		for _, e := range r.scheduler.Endpoints() {
			for _, v := range e.Variants() {
				for _, i := range v.Instances() {
					h := checks[i]
					if h == nil {
						h = &healthCheck{instance: i, down: c.Down, up: c.Up, logger: r.logger, doubt: r.doubt}
					}
					next[i] = h // those that are configured no more are forgotten
					wg.Go(func() { h.run(ctx, client) })
				}
			}
		}
		wg.Wait()
		checks = next
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// doubt says that an instance's process may have been replaced.
func (r *router) doubt(ctx context.Context, i *scheduler.Instance) {
	if r.events != nil {
		r.events.Doubt(ctx, i)
		return
	}
	r.held.Clear(i.Handle())
}

// healthCheck is one instance's.
type healthCheck struct {
	instance *scheduler.Instance
	down, up int
	logger   *slog.Logger

	doubt func(context.Context, *scheduler.Instance) // its process may be another

	out       bool // of service
	failed    int  // checks in a row
	good      int  // checks in a row
	described bool // its metrics have been read since it last came up
}

// run makes one check.
func (h *healthCheck) run(ctx context.Context, client *http.Client) {
	url := strings.TrimSuffix(h.instance.URL(), "/")
	err := getJSON(ctx, client, url+"/health", nil)
	if ctx.Err() != nil {
		return // the router ends
	}
	h.note(ctx, err)
	if err == nil && !h.described {
		h.described = h.describe(ctx, client, url)
	}
}

// note counts a check's outcome and takes the instance out of service or brings
// it back.
func (h *healthCheck) note(ctx context.Context, err error) {
	if err != nil {
		h.failed++
		h.good = 0
		if !h.out && h.failed >= h.down {
			h.out, h.described = true, false
			h.instance.SetReady(false)
			h.doubt(ctx, h.instance)
			h.logger.Warn("instance out of service", "endpoint", h.instance.Endpoint(), "instance", h.instance.Name(), "error", err)
		}
		return
	}
	h.good++
	h.failed = 0
	if h.out && h.good >= h.up {
		h.out = false
		h.doubt(ctx, h.instance) // before the first request
		h.instance.SetReady(true)
		h.logger.Info("instance back in service", "endpoint", h.instance.Endpoint(), "instance", h.instance.Name())
	}
}

// The labels of vLLM's vllm:cache_config_info.
const (
	cacheConfigLine = `(?m)^vllm:cache_config_info\{[^}]*\}`
	cacheBlockCount = `\bnum_gpu_blocks="(\d+)"`
)

// describe reads how many blocks the instance's cache holds, which bounds what
// is predicted on it, and reports whether the worker could say.
func (h *healthCheck) describe(ctx context.Context, client *http.Client, url string) bool {
	text, err := getText(ctx, client, url+"/metrics")
	if err != nil {
		return false
	}
	line := regexp.MustCompile(cacheConfigLine).FindString(text)
	if got := regexp.MustCompile(cacheBlockCount).FindStringSubmatch(line); got != nil {
		if blocks, err := strconv.Atoi(got[1]); err == nil {
			h.instance.SetCacheBlocks(blocks)
		}
	}
	return true
}
