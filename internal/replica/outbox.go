package replica

import (
	"sync"

	"github.com/warmroute/warmroute/scheduler"
)

// maxWaiting is how many bytes of predictions wait at most to be sent, such as
// while NATS is slow. What comes then is dropped and counted: it costs cache
// hits at most.
const maxWaiting = 4 << 20

// Outbox collects what the scheduler has to tell.
type Outbox struct {
	changed chan struct{} // room for one

	mu      sync.Mutex
	items   []byte // encoded, one after the other
	ends    []int  // of each item
	dropped int
	open    bool // somebody takes from it
}

// NewOutbox returns an empty one.
func NewOutbox() *Outbox { return &Outbox{changed: make(chan struct{}, 1)} }

// Hooks are for the scheduler.
func (o *Outbox) Hooks() scheduler.Hooks {
	return scheduler.Hooks{
		Loaded: o.signal,
		Predicted: func(number uint64, p scheduler.Prediction) {
			o.add(func(b []byte) []byte { return appendPrediction(b, number, p) })
		},
		Withdrawn: func(number uint64) {
			o.add(func(b []byte) []byte { return appendWithdrawal(b, number) })
		},
	}
}

func (o *Outbox) signal() {
	select {
	case o.changed <- struct{}{}:
	default: // it is known already
	}
}

func (o *Outbox) add(encode func([]byte) []byte) {
	o.mu.Lock()
	switch {
	case !o.open:
	case len(o.items) >= maxWaiting:
		o.dropped++
	default:
		o.items = encode(o.items)
		o.ends = append(o.ends, len(o.items))
	}
	o.mu.Unlock()
	o.signal()
}

// setOpen says whether there is anybody to tell. While there is not, nothing
// is kept.
func (o *Outbox) setOpen(open bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = open
	if !open {
		o.items, o.ends = o.items[:0], o.ends[:0]
	}
}

// take is all that waits, and how many items were dropped before it; spare is
// memory for what comes next.
func (o *Outbox) take(spare waiting) (waiting, int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w, dropped := waiting{o.items, o.ends}, o.dropped
	o.items, o.ends, o.dropped = spare.items[:0], spare.ends[:0], 0
	return w, dropped
}

// waiting are encoded items.
type waiting struct {
	items []byte
	ends  []int
}

// next cuts off the leading items that fit in room bytes, at least one.
func (w waiting) next(from, room int) (part []byte, to int) {
	start := 0
	if from > 0 {
		start = w.ends[from-1]
	}
	to = from + 1
	for to < len(w.ends) && w.ends[to]-start <= room {
		to++
	}
	return w.items[start:w.ends[to-1]], to
}
