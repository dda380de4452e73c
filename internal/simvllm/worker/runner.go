package worker

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/warmroute/warmroute/internal/simvllm"
)

// runner steps the engine as time passes.
type runner struct {
	scale   float64 // of the steps' durations; 0: they take no time
	publish func(time.Time, []simvllm.Event)
	metrics *metrics
	wake    chan struct{} // holds at most one: there may be something to do

	mu       sync.Mutex // guards what follows
	engine   *simvllm.Engine
	targets  map[simvllm.ID]*target
	ended    sync.Cond // a step ended, or a hold did
	stepping bool      // between Begin and Finish
	held     bool      // no step begins, but allowed many
	allowed  int
	stopped  bool // no request is taken any more
}

// target is where a request's tokens go.
type target struct {
	call     *call
	index    int
	reason   string    // why it will end
	last     time.Time // of its last token
	admitted bool
}

func newRunner(o Options, engine *simvllm.Engine, m *metrics) *runner {
	r := &runner{
		scale:   o.TimeScale,
		publish: o.Publish,
		metrics: m,
		wake:    make(chan struct{}, 1),
		engine:  engine,
		targets: make(map[simvllm.ID]*target),
	}
	r.ended.L = &r.mu
	return r
}

// ticket is a call in the engine: it must be given back to cancel.
type ticket struct {
	*call
	ids []simvllm.ID
}

// submit queues the requests of one call, all or none.
func (r *runner) submit(requests []simvllm.Request, reason string, now time.Time) (ticket, error) {
	t := ticket{call: newCall(len(requests), now)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return t, errStopped
	}
	for i, request := range requests {
		id, err := r.engine.Add(request)
		if err != nil {
			r.abortLocked(t.ids)
			return t, err
		}
		t.ids = append(t.ids, id)
		r.targets[id] = &target{call: t.call, index: i, reason: reason, last: now}
	}
	r.signal()
	return t, nil
}

// cancel ends what is left of a call.
func (r *runner) cancel(t ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abortLocked(t.ids)
}

func (r *runner) abortLocked(ids []simvllm.ID) {
	for _, id := range ids {
		if _, inFlight := r.targets[id]; inFlight {
			r.engine.Abort(id)
			delete(r.targets, id)
		}
	}
	r.ended.Broadcast()
}

func (r *runner) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *runner) stats() simvllm.Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engine.Stats()
}

func (r *runner) clearCache() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engine.ClearCache()
}

// hold lets no step begin after steps more, and returns once the present one
// has ended.
func (r *runner) hold(steps int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held, r.allowed = true, steps
	r.signal()
	for r.stepping && steps == 0 && !r.stopped {
		r.ended.Wait()
	}
}

func (r *runner) releaseHold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = false
	r.signal()
}

// drain takes no more requests and returns when those in flight have ended.
func (r *runner) drain(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ended.Broadcast()
	})
	defer stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	for len(r.targets) > 0 && ctx.Err() == nil {
		r.ended.Wait()
	}
	return ctx.Err()
}

// run steps the engine until ctx ends; what is still in flight then fails.
func (r *runner) run(ctx context.Context) {
	defer r.stop()
	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	end := time.Now() // when the last step ended, or should have
	for ctx.Err() == nil {
		step, ok := r.begin()
		if !ok {
			select {
			case <-ctx.Done():
			case <-r.wake:
			}
			end = time.Now()
			continue
		}
		if d := time.Duration(float64(step.Duration) * r.scale); d > 0 {
			// Steps follow each other without gaps, as long as this
			// process keeps up.
			now := time.Now()
			if end = end.Add(d); end.Before(now) {
				end = now
			}
			timer.Reset(end.Sub(now))
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
		}
		r.finish(time.Now())
	}
}

func (r *runner) begin() (simvllm.Step, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held && r.allowed == 0 {
		return simvllm.Step{}, false
	}
	step, ok := r.engine.Begin()
	if !ok {
		return step, false
	}
	r.stepping = true
	if r.held {
		r.allowed--
	}
	now := time.Now()
	for _, id := range step.Admitted {
		if t := r.targets[id]; t != nil && !t.admitted {
			t.admitted = true
			r.metrics.queueTime.Observe(now.Sub(t.call.arrived).Seconds())
		}
	}
	return step, true
}

// delivery is one token on its way to a handler.
type delivery struct {
	call  *call
	index int
	state progress
}

// finish ends the step, publishes its events and then hands out its tokens.
func (r *runner) finish(now time.Time) {
	r.mu.Lock()
	result := r.engine.Finish()
	deliveries := make([]delivery, 0, len(result.Outputs))
	for _, o := range result.Outputs {
		t := r.targets[o.ID]
		deliveries = append(deliveries, delivery{t.call, t.index, progress{o.Produced, o.Cached, o.Done}})
		r.metrics.token(t, o, now)
		t.last = now
		if o.Done {
			delete(r.targets, o.ID)
		}
	}
	r.stepping = false
	r.ended.Broadcast()
	r.mu.Unlock()
	if len(result.Events) > 0 {
		r.publish(now, result.Events)
	}
	for _, d := range deliveries {
		d.call.set(d.index, d.state)
	}
}

// stop fails what is in flight.
func (r *runner) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	for id, t := range r.targets {
		t.call.fail(errStopped)
		r.engine.Abort(id)
	}
	clear(r.targets)
	r.ended.Broadcast()
}

// isTooLong says whether the engine refused a request for its length.
func isTooLong(err error) bool { return errors.Is(err, simvllm.ErrTooLong) }
