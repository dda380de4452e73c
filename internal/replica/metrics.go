package replica

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have no labels but a direction: what grows with the group is read
// from each router itself.
type metrics struct {
	peers                    prometheus.Gauge
	sent, received           prometheus.Counter
	sentBytes, receivedBytes prometheus.Counter
	predicted, followed      prometheus.Counter
	gaps, expired            prometheus.Counter
	dropped, unreadable      prometheus.Counter
	loop                     prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	const namespace, subsystem = "warmroute", "replica"
	var all []prometheus.Collector
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help})
		all = append(all, c)
		return c
	}
	m := &metrics{
		peers: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "others", Help: "Other routers of the group that are heard.",
		}),
		sent:          counter("messages_sent_total", "Messages to the other routers."),
		received:      counter("messages_received_total", "Messages of other routers."),
		sentBytes:     counter("sent_bytes_total", "Bytes of the messages to the other routers."),
		receivedBytes: counter("received_bytes_total", "Bytes of the messages of other routers."),
		predicted:     counter("predictions_sent_total", "Predictions, and ends of predictions, told to the other routers."),
		followed:      counter("predictions_followed_total", "Predictions of other routers."),
		gaps:          counter("gaps_total", "Times that a message of another router was missing."),
		expired:       counter("expired_total", "Routers that were heard no more."),
		dropped:       counter("dropped_total", "Predictions that were not told because too many waited."),
		unreadable:    counter("unreadable_total", "Messages of other routers that could not be read."),
		loop: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "loop_seconds",
			Help:    "From a message's sending to its coming back to its sender: about how old what is known of the others is.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}),
	}
	for _, c := range append(all, m.peers, m.loop) {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("replica: register metrics: %w", err)
		}
	}
	return m, nil
}
