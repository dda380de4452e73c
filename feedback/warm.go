package feedback

import "github.com/warmroute/warmroute/scheduler"

// silentAnswers is how often NATS must have said that nobody answers for an
// instance until it is believed: a publisher may be connecting just now.
const silentAnswers = 2

// Unheard is how many instances have yet to say what they hold, and of how
// many. An instance that nobody answers for is not waited for. Before Run has
// looked it is all of one.
func (s *Subscriber) Unheard() (unheard, of int) {
	n := s.unheard.Load()
	if n == nil {
		return 1, 1
	}
	return n.unheard, n.of
}

type unheard struct{ unheard, of int }

func (s *Subscriber) countUnheard() {
	n := &unheard{of: len(s.members)}
	for _, m := range s.members {
		if !m.told() {
			n.unheard++
		}
	}
	s.unheard.Store(n)
}

// told reports whether all that can be learnt of the instance now is known.
func (m *member) told() bool {
	switch m.trust {
	case scheduler.Live, scheduler.Stale:
		return true
	case scheduler.Blind, scheduler.Recovering:
	}
	return len(m.feeds) == 0 && m.unanswered >= silentAnswers
}
