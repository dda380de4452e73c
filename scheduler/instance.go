package scheduler

import (
	"slices"
	"sync/atomic"

	"github.com/warmroute/warmroute/radix"
)

// Trust is how far the tree's word on an instance counts.
type Trust int

// The states of trust.
const (
	// Blind: no event has ever come. Only predictions speak for it.
	Blind Trust = iota
	// Live: its events are whole and in order.
	Live
	// Recovering: events are missing and a snapshot is on its way. What it was
	// said to hold does not count, only what was sent there since.
	Recovering
	// Stale: it was given work and said nothing, so that evictions may be
	// missing too. The same counts as for Recovering.
	Stale
)

func (t Trust) String() string {
	switch t {
	case Blind:
		return "BLIND"
	case Live:
		return "LIVE"
	case Recovering:
		return "RECOVERING"
	case Stale:
		return "STALE"
	}
	return "UNKNOWN"
}

// trustState is a trust and why.
type trustState struct {
	trust  Trust
	reason string
}

// placementsPerBlock is how many ids' placements are remembered for each block
// of a cache: several ids may share what it holds.
const placementsPerBlock = 4

// Instance is one worker, as long as it is configured with the same name and
// address. Its identity is its pointer.
type Instance struct {
	// What every pick reads comes first, to lie in one cache line.
	inFlight         atomic.Int64   // leases not yet done; grows under the endpoint's lock only
	prefill          atomic.Int64   // tokens of its requests that are not yet computed; same
	elsewhere        atomic.Int64   // in flight by way of other routers
	blockSize        atomic.Int64   // tokens per block
	rank             uint64         // the name's hash, for rendezvous and ties
	handle           radix.Instance // in held
	placedHandle     radix.Instance // in placed: what was sent for each prefix id
	sinceHandle      radix.Instance // in placed: what was sent since its trust was lost
	unsure           atomic.Bool    // trust is Recovering or Stale
	notReady         atomic.Bool
	removed          atomic.Bool  // set under the endpoint's lock
	elsewherePrefill atomic.Int64 // as prefill, by way of other routers

	endpoint, name, url string
	held, placed        *radix.Index
	trust               atomic.Pointer[trustState]
	adapters            atomic.Pointer[[]string] // sorted
}

// Endpoint is the name of the endpoint that it belongs to.
func (i *Instance) Endpoint() string { return i.endpoint }

// Name is unique in the endpoint.
func (i *Instance) Name() string { return i.name }

// URL is where it serves.
func (i *Instance) URL() string { return i.url }

// Handle is its handle in the index of what is held.
func (i *Instance) Handle() radix.Instance { return i.handle }

// InFlight is the number of its leases not yet done.
func (i *Instance) InFlight() int { return int(i.inFlight.Load()) }

// QueuedPrefill is how many prompt tokens of its requests are believed to be
// still uncomputed.
func (i *Instance) QueuedPrefill() int { return int(i.prefill.Load()) }

// BlockSize is tokens per KV block.
func (i *Instance) BlockSize() int { return int(i.blockSize.Load()) }

// SetBlockSize takes a worker's own word on its block size.
func (i *Instance) SetBlockSize(tokens int) {
	if tokens > 0 {
		i.blockSize.Store(int64(tokens))
	}
}

// SetCacheBlocks says how many blocks its cache holds, which bounds what is
// predicted on it.
func (i *Instance) SetCacheBlocks(blocks int) {
	if blocks > 0 {
		i.held.SetCapacity(i.handle, blocks)
		i.placed.SetCapacity(i.placedHandle, placementsPerBlock*blocks)
		i.placed.SetCapacity(i.sinceHandle, blocks)
	}
}

// Trust is how far the tree's word on it counts, and why.
func (i *Instance) Trust() (Trust, string) {
	s := i.trust.Load()
	return s.trust, s.reason
}

// SetTrust changes that. When trust is lost, what was sent there in an earlier
// doubt is forgotten: nothing said what became of it.
func (i *Instance) SetTrust(t Trust, reason string) {
	i.trust.Store(&trustState{t, reason})
	unsure := t == Recovering || t == Stale
	if !i.unsure.Swap(unsure) && unsure {
		i.placed.Clear(i.sinceHandle)
	}
}

// Ready reports whether it takes new requests.
func (i *Instance) Ready() bool { return !i.notReady.Load() && !i.removed.Load() }

// SetReady says whether it takes new requests.
func (i *Instance) SetReady(ready bool) { i.notReady.Store(!ready) }

// Adapters are the LoRA adapters that it has loaded, sorted. Not to be changed.
func (i *Instance) Adapters() []string { return *i.adapters.Load() }

// SetAdapters takes a copy of the list.
func (i *Instance) SetAdapters(names []string) {
	list := slices.Clone(names)
	slices.Sort(list)
	i.adapters.Store(&list)
}

// ineligible says why it can't serve the request, "" when it can.
func (i *Instance) ineligible(r *Request) string {
	switch {
	case i.removed.Load():
		return "removed"
	case i.notReady.Load():
		return "not ready"
	case slices.Contains(r.Exclude, i):
		return "excluded"
	}
	if r.Adapter != "" {
		if _, ok := slices.BinarySearch(i.Adapters(), r.Adapter); !ok {
			return "adapter not loaded"
		}
	}
	return ""
}
