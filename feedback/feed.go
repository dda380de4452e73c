package feedback

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmroute/warmroute/scheduler"
)

// member is an instance of the configuration, with the streams of its ranks.
type member struct {
	instance *scheduler.Instance
	endpoint string
	name     string
	model    string
	feeds    map[int]*feed // by rank

	trust  scheduler.Trust
	reason string
	// unanswered is how many questions NATS found nobody to answer to.
	unanswered int
	// doubted is when the instance was last found unreachable: until each rank
	// has been heard after it, what it held counts for nothing.
	doubted time.Time
}

// feed is one rank's stream and what brings it into the tree.
type feed struct {
	member *member
	rank   int
	stream Stream
	applier
	heard time.Time // the last message or head

	counted StreamCounts // of stream.Counts, already in the metrics
	seen    prometheus.Gauge

	fetching     bool
	failures     int       // resyncs in a row that did not end well
	notBefore    time.Time // the next resync
	suspicions   int       // resyncs because of unknown parents
	suspectAfter time.Time // the next of those
	why          string    // the reason of the last resync
	incompatible string    // why this process's events can't be indexed, or ""
	gone         bool      // the instance left; a fetch may still be under way
}

// judge says how far the instance's blocks can be credited: as far as those of
// its worst rank.
func (m *member) judge(now time.Time, staleAfter time.Duration) (scheduler.Trust, string) {
	trust, reason := scheduler.Blind, "no KV events yet"
	for _, f := range m.feeds {
		switch {
		case !f.heard.After(m.doubted) && !m.doubted.IsZero():
			trust, reason = scheduler.Recovering, "it was unreachable, and has not said how far it is"
		case f.incompatible != "":
			return scheduler.Stale, f.incompatible
		case f.stream.Phase() == Recovering:
			trust, reason = scheduler.Recovering, f.why
		case f.stream.Phase() == Live && trust != scheduler.Recovering:
			trust, reason = scheduler.Live, ""
			if f.stream.Partial() {
				reason = "no snapshot to be had: blocks from before a loss are not known"
			}
		}
	}
	if trust == scheduler.Live && now.Sub(m.heard()) > staleAfter && m.instance.InFlight() > 0 {
		return scheduler.Stale, "it has work and is not heard of"
	}
	return trust, reason
}

// heard is when any of the ranks was last heard.
func (m *member) heard() time.Time {
	var last time.Time
	for _, f := range m.feeds {
		if f.heard.After(last) {
			last = f.heard
		}
	}
	return last
}
