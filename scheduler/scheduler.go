package scheduler

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmroute/warmroute/radix"
)

// ErrNoInstance is returned by [Scheduler.Acquire] when no instance may serve
// the request.
var ErrNoInstance = errors.New("no instance can serve the request")

// Options are a scheduler's parts. All but Registerer must be given.
type Options struct {
	Held       *radix.Index          // what each instance holds
	Placed     *radix.Index          // where each prefix id's prompts were sent
	Rand       *rand.Rand            // breaks ties; used under a lock
	Registerer prometheus.Registerer // nil: no metrics
	Hooks      Hooks                 // zero: there are no other routers
}

// Scheduler is the fleet and the decisions on it.
type Scheduler struct {
	held, placed *radix.Index
	scratch      sync.Pool // of *scratch
	metrics      *metrics
	hooks        Hooks
	predictions  atomic.Uint64 // that Hooks.Predicted was told of

	randMu sync.Mutex
	rand   *rand.Rand // guarded by randMu

	applyMu sync.Mutex            // one Apply at a time
	fleet   atomic.Pointer[fleet] // the configuration as it is now
}

// fleet is one configuration, whole.
type fleet struct {
	byName  map[string]*Endpoint
	byModel map[string]*Endpoint
	sorted  []*Endpoint
}

// New makes a scheduler without endpoints.
func New(o Options) *Scheduler {
	s := &Scheduler{held: o.Held, placed: o.Placed, rand: o.Rand, hooks: o.Hooks}
	s.scratch.New = func() any { return new(scratch) }
	s.fleet.Store(&fleet{})
	s.metrics = newMetrics(s, o.Registerer)
	return s
}

// Apply makes a configuration current: all of it or, with an error that names
// the field, nothing. Instances whose endpoint, name and address stay keep
// their counts and what is known of them; those that go leave the indexes at
// once, and their leases end as they would have.
func (s *Scheduler) Apply(endpoints []EndpointConfig) error {
	if err := check(endpoints); err != nil {
		return err
	}
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	old := s.fleet.Load()
	next := &fleet{byName: map[string]*Endpoint{}, byModel: map[string]*Endpoint{}}
	for _, c := range endpoints {
		e := &Endpoint{name: c.Name, model: c.Model, shared: &endpointState{}}
		was := old.byName[c.Name]
		if was != nil {
			e.shared = was.shared
		}
		for i, vc := range c.Variants {
			routing, err := vc.Routing.normal(fmt.Sprintf("Variants[%d].Routing", i))
			if err != nil {
				return err // not reached: check has seen it
			}
			v := &Variant{name: vc.Name, weight: vc.Weight, routing: routing}
			for _, ic := range vc.Instances {
				v.instances = append(v.instances, s.keepOrAdd(was, c.Name, ic))
			}
			e.variants = append(e.variants, v)
		}
		next.byName[c.Name], next.byModel[c.Model] = e, e
		next.sorted = append(next.sorted, e)
	}
	slices.SortFunc(next.sorted, func(a, b *Endpoint) int { return strings.Compare(a.name, b.name) })
	s.fleet.Store(next)
	s.removeMissing(old, next)
	return nil
}

// keepOrAdd is the instance that was there under this name and address, or a
// new one.
func (s *Scheduler) keepOrAdd(was *Endpoint, endpoint string, c InstanceConfig) *Instance {
	var i *Instance
	if was != nil {
		i = was.instance(c.Name)
	}
	if i == nil || i.url != c.URL {
		i = &Instance{
			endpoint: endpoint, name: c.Name, url: c.URL, rank: xxhash.Sum64String(c.Name),
			handle: s.held.AddInstance(), placedHandle: s.placed.AddInstance(), sinceHandle: s.placed.AddInstance(), held: s.held, placed: s.placed,
		}
		i.SetTrust(Blind, "no events yet")
		i.blockSize.Store(defaultBlockSize)
	}
	i.SetBlockSize(c.BlockSize)
	i.SetCacheBlocks(c.CacheBlocks)
	i.SetAdapters(c.Adapters)
	return i
}

// removeMissing takes what next has no more out of the indexes.
func (s *Scheduler) removeMissing(old, next *fleet) {
	kept := map[*Instance]bool{}
	for i := range next.instances {
		kept[i] = true
	}
	for i := range old.instances {
		if kept[i] {
			continue
		}
		shared := old.byName[i.endpoint].shared
		shared.mu.Lock() // no pick is under way
		i.removed.Store(true)
		shared.mu.Unlock()
		s.held.RemoveInstance(i.handle)
		s.placed.RemoveInstance(i.placedHandle)
		s.placed.RemoveInstance(i.sinceHandle)
	}
	for name := range old.byName {
		if next.byName[name] == nil {
			s.metrics.forget(name)
		}
	}
}

// instances is a sequence of all of them.
func (f *fleet) instances(yield func(*Instance) bool) {
	for _, e := range f.sorted {
		for _, v := range e.variants {
			for _, i := range v.instances {
				if !yield(i) {
					return
				}
			}
		}
	}
}

// Endpoints are all, by name. Not to be changed.
func (s *Scheduler) Endpoints() []*Endpoint { return s.fleet.Load().sorted }

// Endpoint finds one by name.
func (s *Scheduler) Endpoint(name string) (*Endpoint, bool) {
	e, ok := s.fleet.Load().byName[name]
	return e, ok
}

// ByModel finds the endpoint that serves a model, or one of whose instances has
// loaded an adapter of that name.
func (s *Scheduler) ByModel(model string) (e *Endpoint, adapter string, ok bool) {
	f := s.fleet.Load()
	if e := f.byModel[model]; e != nil {
		return e, "", true
	}
	for i := range f.instances {
		if _, ok := slices.BinarySearch(i.Adapters(), model); ok {
			return f.byName[i.endpoint], model, true
		}
	}
	return nil, "", false
}

// Instance finds one by its endpoint's name and its own.
func (s *Scheduler) Instance(endpoint, name string) (*Instance, bool) {
	e := s.fleet.Load().byName[endpoint]
	if e == nil {
		return nil, false
	}
	i := e.instance(name)
	return i, i != nil
}

// Expire drops predictions past their time. Call it about once a second.
func (s *Scheduler) Expire(now time.Time) {
	s.held.Expire(now)
	s.placed.Expire(now)
}

// float is a random number below 1.
func (s *Scheduler) float() float64 {
	s.randMu.Lock()
	defer s.randMu.Unlock()
	return s.rand.Float64()
}

// seed is a random number for one pick's ties.
func (s *Scheduler) seed() uint64 {
	s.randMu.Lock()
	defer s.randMu.Unlock()
	return s.rand.Uint64()
}
