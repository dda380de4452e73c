package feedback

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what operators see of the events. Labels are of fixed sets, but
// for endpoint and instance, which the configuration bounds.
type metrics struct {
	events         *prometheus.CounterVec // by kind: applied to the tree
	refused        *prometheus.CounterVec // by reason: left out
	blocks         prometheus.Counter
	unknownParents prometheus.Counter
	unknownRemoved prometheus.Counter
	unknownKinds   prometheus.Counter
	unknownSenders prometheus.Counter
	decodeErrors   prometheus.Counter
	duplicates     prometheus.Counter
	late           prometheus.Counter
	gaps           prometheus.Counter
	restarts       prometheus.Counter
	overflows      prometheus.Counter
	dropped        prometheus.Counter
	resyncs        *prometheus.CounterVec // by outcome
	resyncSeconds  prometheus.Histogram
	lag            prometheus.Histogram
	connected      prometheus.Gauge
	streams        *prometheus.GaugeVec // by phase
	heard          *prometheus.GaugeVec // by endpoint, instance, rank
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "warmroute", Subsystem: "feedback", Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "warmroute", Subsystem: "feedback", Name: name, Help: help}, labels)
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "warmroute", Subsystem: "feedback", Name: name, Help: help}, labels)
	}
	seconds := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "warmroute", Subsystem: "feedback", Name: name, Help: help,
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		})
	}
	m := &metrics{
		events:         counters("events_total", "KV events applied to the tree.", "kind"),
		refused:        counters("events_refused_total", "KV events left out of the tree.", "reason"),
		blocks:         counter("blocks_stored_total", "Blocks that applied events stored."),
		unknownParents: counter("unknown_parents_total", "Runs of blocks left out because the block before them is not known."),
		unknownRemoved: counter("unknown_removes_total", "Removed blocks that were not in the tree."),
		unknownKinds:   counter("unknown_events_total", "KV events of a kind that this version does not know."),
		unknownSenders: counter("unknown_instances_total", "Messages of instances that the configuration does not name."),
		decodeErrors:   counter("decode_errors_total", "Messages that could not be read."),
		duplicates:     counter("duplicates_total", "Messages that had come before."),
		late:           counter("late_messages_total", "Messages of ended worker processes, or with a wrong seq."),
		gaps:           counter("gaps_total", "Times that a message was missing."),
		restarts:       counter("restarts_total", "Times that a worker process took another's place."),
		overflows:      counter("overflows_total", "Messages dropped because too many waited for an earlier one."),
		dropped:        counter("slow_consumer_dropped_total", "Messages that the NATS client dropped because the router was too slow."),
		resyncs:        counters("resyncs_total", "Snapshots asked for, by outcome.", "outcome"),
		resyncSeconds:  seconds("resync_seconds", "From asking for a snapshot to having all of it."),
		lag:            seconds("lag_seconds", "From a batch's making, by the worker's clock, to its reading."),
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "warmroute", Subsystem: "feedback", Name: "nats_connected", Help: "1 while NATS is connected.",
		}),
		streams: gauges("streams", "Ranks by what is known of them; live means that the index is in step.", "phase"),
		heard:   gauges("last_heard_timestamp_seconds", "When a rank was last heard.", "endpoint", "instance", "rank"),
	}
	for _, c := range []prometheus.Collector{
		m.events, m.refused, m.blocks, m.unknownParents, m.unknownRemoved, m.unknownKinds, m.unknownSenders, m.decodeErrors, m.duplicates, m.late,
		m.gaps, m.restarts, m.overflows, m.dropped, m.resyncs, m.resyncSeconds, m.lag, m.connected, m.streams, m.heard,
	} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("feedback: register metrics: %w", err)
		}
	}
	return m, nil
}

// count adds what became of events.
func (m *metrics) count(a *applied) {
	add := func(c prometheus.Counter, n int) {
		if n > 0 {
			c.Add(float64(n))
		}
	}
	add(m.blocks, a.blocks)
	add(m.unknownParents, a.unknownParents)
	add(m.unknownRemoved, a.unknownRemoved)
	add(m.unknownKinds, a.unknownKinds)
	if a.stored > 0 {
		m.events.WithLabelValues("stored").Add(float64(a.stored))
	}
	if a.removed > 0 {
		m.events.WithLabelValues("removed").Add(float64(a.removed))
	}
	if a.cleared > 0 {
		m.events.WithLabelValues("cleared").Add(float64(a.cleared))
	}
	for v, n := range a.refused {
		if n > 0 {
			m.refused.WithLabelValues(verdict(v).String()).Add(float64(n))
		}
	}
}

// countStream adds what a stream saw since before.
func (m *metrics) countStream(now, before StreamCounts) {
	m.duplicates.Add(float64(now.Duplicates - before.Duplicates))
	m.late.Add(float64(now.Late - before.Late))
	m.gaps.Add(float64(now.Gaps - before.Gaps))
	m.restarts.Add(float64(now.Restarts - before.Restarts))
	m.overflows.Add(float64(now.Overflows - before.Overflows))
}
