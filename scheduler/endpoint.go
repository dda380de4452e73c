package scheduler

import (
	"slices"
	"sync"
)

// Endpoint is one endpoint as it is configured now: a view that does not
// change. A new configuration makes new ones.
type Endpoint struct {
	name, model string
	variants    []*Variant
	shared      *endpointState
}

// endpointState outlives configurations.
type endpointState struct {
	mu     sync.Mutex // pick and reserve
	spread spread     // guarded by mu
}

// Variant is one production variant of an [Endpoint].
type Variant struct {
	name      string
	weight    float64
	routing   Routing
	instances []*Instance
}

// Name is unique.
func (e *Endpoint) Name() string { return e.name }

// Model is the served model's name.
func (e *Endpoint) Model() string { return e.model }

// Variants are at least one. Not to be changed.
func (e *Endpoint) Variants() []*Variant { return e.variants }

// BlockSizes are the distinct block sizes of its instances, ascending.
func (e *Endpoint) BlockSizes() []int { return e.AppendBlockSizes(nil) }

// AppendBlockSizes is BlockSizes into the caller's memory.
func (e *Endpoint) AppendBlockSizes(dst []int) []int {
	for _, v := range e.variants {
		for _, i := range v.instances {
			if size := i.BlockSize(); !slices.Contains(dst, size) {
				dst = append(dst, size)
			}
		}
	}
	slices.Sort(dst)
	return dst
}

// PrefixLength is how much of a prompt can count: the most that any of its
// variants takes; 0 is everything.
func (e *Endpoint) PrefixLength() int {
	length := 0
	for _, v := range e.variants {
		if v.routing.PrefixLength == 0 {
			return 0
		}
		length = max(length, v.routing.PrefixLength)
	}
	return length
}

// instance finds one by name, nil when there is none.
func (e *Endpoint) instance(name string) *Instance {
	for _, v := range e.variants {
		for _, i := range v.instances {
			if i.name == name {
				return i
			}
		}
	}
	return nil
}

// Name is unique in the endpoint.
func (v *Variant) Name() string { return v.name }

// Weight is its share of the endpoint's requests, relative to the others'.
func (v *Variant) Weight() float64 { return v.weight }

// Routing is how it chooses.
func (v *Variant) Routing() Routing { return v.routing }

// Instances are its workers. Not to be changed.
func (v *Variant) Instances() []*Instance { return v.instances }
