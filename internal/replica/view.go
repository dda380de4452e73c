package replica

import (
	"time"

	"github.com/warmroute/warmroute/scheduler"
)

// view is what is known of the other routers. It has no clock and no network.
type view struct {
	scheduler *scheduler.Scheduler
	keep      time.Duration // how long a prediction can still be taken back
	peers     map[uint64]*peer
	totals    map[name]load // over all peers
	changed   map[name]bool // of totals, not yet told to the scheduler
}

// peer is one other router, by what it said.
type peer struct {
	next     uint64 // the seq that comes next
	whole    bool   // its loads are complete up to next
	heard    time.Time
	asked    time.Time
	loads    map[name]load
	followed map[uint64]*scheduler.Followed
	order    []followedAt // of followed, oldest first
}

type followedAt struct {
	number uint64
	at     time.Time
}

func newView(s *scheduler.Scheduler, keep time.Duration) *view {
	return &view{scheduler: s, keep: keep, peers: map[uint64]*peer{}, totals: map[name]load{}, changed: map[name]bool{}}
}

// received is what came of a message.
type received struct {
	joined, left bool // the sender
	gap          bool // something of it is missing
	predictions  int
}

// receive takes in a message of another router's.
func (v *view) receive(h head, r *reader, now time.Time) (received, error) {
	var out received
	p := v.peers[h.sender]
	if h.flags&flagLeave != 0 {
		out.left = p != nil
		v.drop(h.sender)
		v.tell()
		return out, nil
	}
	if p == nil {
		p = &peer{next: h.seq, loads: map[name]load{}, followed: map[uint64]*scheduler.Followed{}}
		v.peers[h.sender] = p
		out.joined = true
	}
	p.heard = now
	if h.seq < p.next {
		return out, nil // it came twice; newer words on all of it are known
	}
	out.gap = h.seq > p.next
	p.next = h.seq + 1
	switch {
	case h.flags&flagReset != 0:
		v.forget(p)
		p.whole = true
	case out.gap:
		p.whole = false
	}
	b := &batch{v, p, now, 0}
	err := r.lists(b)
	if err != nil {
		p.whole = false
	}
	out.predictions = b.predictions
	v.tell()
	return out, err
}

// batch visits one message's lists.
type batch struct {
	v           *view
	p           *peer
	now         time.Time
	predictions int
}

func (b *batch) load(n name, l load) { b.v.set(b.p, n, l) }

func (b *batch) predicted(number uint64, p scheduler.Prediction) {
	b.predictions++
	f := b.v.scheduler.Follow(p, b.now)
	if f == nil {
		return // an instance that is not known here, or not yet
	}
	b.p.followed[number] = f
	b.p.order = append(b.p.order, followedAt{number, b.now})
}

func (b *batch) withdrawn(number uint64) {
	if f := b.p.followed[number]; f != nil {
		f.Withdraw()
		delete(b.p.followed, number)
	}
}

// set changes one load of a peer's, and the total.
func (v *view) set(p *peer, n name, l load) {
	was := p.loads[n]
	if was == l {
		return
	}
	if l == (load{}) {
		delete(p.loads, n)
	} else {
		p.loads[n] = l
	}
	t := v.totals[n]
	t.inFlight += l.inFlight - was.inFlight
	t.prefill += l.prefill - was.prefill
	if t == (load{}) {
		delete(v.totals, n)
	} else {
		v.totals[n] = t
	}
	v.changed[n] = true
}

// forget voids a peer's loads.
func (v *view) forget(p *peer) {
	for n := range p.loads {
		v.set(p, n, load{})
	}
}

// drop takes a peer out. What it predicted ends by itself.
func (v *view) drop(sender uint64) {
	if p := v.peers[sender]; p != nil {
		v.forget(p)
		delete(v.peers, sender)
	}
}

// expire drops the peers that were last heard before the time, and forgets
// predictions too old to be taken back. It returns how many peers it dropped.
func (v *view) expire(before, now time.Time) int {
	n := 0
	for sender, p := range v.peers {
		if p.heard.Before(before) {
			v.drop(sender)
			n++
			continue
		}
		for len(p.order) > 0 && now.Sub(p.order[0].at) > v.keep {
			delete(p.followed, p.order[0].number)
			p.order = p.order[1:]
		}
	}
	v.tell()
	return n
}

// lacking are the peers whose full state is not known and who were not asked
// since the time; they now were.
func (v *view) lacking(since, now time.Time) []uint64 {
	var list []uint64
	for sender, p := range v.peers {
		if !p.whole && p.asked.Before(since) {
			p.asked = now
			list = append(list, sender)
		}
	}
	return list
}

// tell gives the changed totals to the scheduler.
func (v *view) tell() {
	for n := range v.changed {
		v.tellOne(n)
	}
	clear(v.changed)
}

// tellAll gives all of them: the configuration may have new instances.
func (v *view) tellAll() {
	for n := range v.totals {
		v.tellOne(n)
	}
}

func (v *view) tellOne(n name) {
	if i, ok := v.scheduler.Instance(n.endpoint, n.instance); ok {
		t := v.totals[n]
		i.SetElsewhere(int(t.inFlight), int(t.prefill)) //nolint:gosec // sums of what routers counted as ints; a liar's overflow is a wrong load, no more
	}
}
