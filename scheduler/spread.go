package scheduler

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/warmroute/warmroute/internal/blockkey"
)

// Bounds of what is remembered of prefix ids: what is older, or more, is
// forgotten, after which two ids may meet on one instance. They still share no
// match.
const (
	spreadPlacements = 32768 // per endpoint, about 200 bytes each
	spreadTTL        = time.Hour
)

// placement is one prefix id's prompt on one instance, by its beginning.
type placement struct {
	beginning blockkey.Key
	id        uint64 // the prefix id's hash
	on        *Instance
}

// aged is a placement in the queue of those to forget.
type aged struct {
	placement
	at time.Time
}

// spread knows which prefix ids were placed where, so that the same beginning
// under different ids is spread. The zero value is empty. It is guarded by its
// owner's lock.
type spread struct {
	last  map[placement]time.Time            // when it was last placed
	ids   map[blockkey.Key]map[*Instance]int // how many ids of last
	queue []aged                             // all of last, and some forgotten ones
}

func newPlacement(beginning blockkey.Key, id string, on *Instance) placement {
	return placement{beginning, xxhash.Sum64String(id), on}
}

// count fills in how many ids other than this one each candidate has for the
// beginning.
func (s *spread) count(beginning blockkey.Key, id string, candidates []candidate) {
	on := s.ids[beginning]
	own := newPlacement(beginning, id, nil)
	for j := range candidates {
		k := &candidates[j]
		if k.ids = on[k.Instance]; k.ids == 0 {
			continue
		}
		own.on = k.Instance
		if _, ok := s.last[own]; ok {
			k.ids--
		}
	}
}

// add remembers one more placement.
func (s *spread) add(p placement, now time.Time) {
	if s.last == nil {
		s.last, s.ids = map[placement]time.Time{}, map[blockkey.Key]map[*Instance]int{}
	}
	_, known := s.last[p]
	s.last[p] = now
	if known {
		return
	}
	on := s.ids[p.beginning]
	if on == nil {
		on = map[*Instance]int{}
		s.ids[p.beginning] = on
	}
	on[p.on]++
	s.queue = append(s.queue, aged{p, now})
	s.forget(now)
}

// remove takes a placement back.
func (s *spread) remove(p placement) {
	if _, ok := s.last[p]; !ok {
		return
	}
	delete(s.last, p)
	on := s.ids[p.beginning]
	if on[p.on]--; on[p.on] == 0 {
		delete(on, p.on)
	}
	if len(on) == 0 {
		delete(s.ids, p.beginning)
	}
}

// forget drops what is too old or too much, the oldest first.
func (s *spread) forget(now time.Time) {
	for len(s.queue) > 0 {
		head := s.queue[0]
		old := now.Sub(head.at) > spreadTTL
		if !old && len(s.last) <= spreadPlacements && len(s.queue) <= 2*spreadPlacements {
			return
		}
		s.queue = s.queue[1:]
		switch at, ok := s.last[head.placement]; {
		case !ok: // taken back meanwhile
		case at.After(head.at): // placed again meanwhile
			s.queue = append(s.queue, aged{head.placement, at})
		default:
			s.remove(head.placement)
		}
	}
}
