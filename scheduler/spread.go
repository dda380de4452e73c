package scheduler

import (
	"github.com/warmroute/warmroute/internal/blockkey"
)

// spreadBeginnings bounds the beginnings that are remembered: the oldest are
// forgotten, after which an id of theirs may meet another on one instance.
const spreadBeginnings = 4096

// spread counts, for each beginning of a prompt, how many prefix ids were
// placed on each instance, so that the same text under different ids is spread.
// The zero value is empty. It is guarded by its owner's lock.
type spread struct {
	placed map[blockkey.Key]map[*Instance]int
	queue  []blockkey.Key // oldest first
}

// count fills in how many ids each candidate has for the beginning.
func (s *spread) count(beginning blockkey.Key, candidates []candidate) {
	on := s.placed[beginning]
	for j := range candidates {
		candidates[j].ids = on[candidates[j].Instance]
	}
}

// add counts one more id there.
func (s *spread) add(beginning blockkey.Key, i *Instance) {
	if s.placed == nil {
		s.placed = map[blockkey.Key]map[*Instance]int{}
	}
	on := s.placed[beginning]
	if on == nil {
		if len(s.queue) >= spreadBeginnings {
			delete(s.placed, s.queue[0])
			s.queue = s.queue[1:]
		}
		on = map[*Instance]int{}
		s.placed[beginning] = on
		s.queue = append(s.queue, beginning)
	}
	on[i]++
}
