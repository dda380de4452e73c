package scheduler

import "github.com/prometheus/client_golang/prometheus"

// metrics are counted here; what an instance counts itself is read from it.
type metrics struct {
	decisions *prometheus.CounterVec // by endpoint and rule
	refused   *prometheus.CounterVec // by endpoint
}

func newMetrics(s *Scheduler, r prometheus.Registerer) *metrics {
	m := &metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmroute_decisions_total",
			Help: "Requests placed, by endpoint and the rule that decided.",
		}, []string{"endpoint", "rule"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmroute_no_instance_total",
			Help: "Requests that no instance of the endpoint could serve.",
		}, []string{"endpoint"}),
	}
	if r != nil {
		r.MustRegister(m.decisions, m.refused, newInstanceCollector(s))
	}
	return m
}

// forget ends the series of an endpoint that was removed.
func (m *metrics) forget(endpoint string) {
	m.decisions.DeletePartialMatch(prometheus.Labels{"endpoint": endpoint})
	m.refused.DeletePartialMatch(prometheus.Labels{"endpoint": endpoint})
}

// instanceCollector reads the instances' own counters at each scrape, so that
// no gauge can drift and a removed instance has no series.
type instanceCollector struct {
	scheduler                           *Scheduler
	inFlight, elsewhere, prefill, trust *prometheus.Desc
}

func newInstanceCollector(s *Scheduler) *instanceCollector {
	labels := []string{"endpoint", "instance"}
	return &instanceCollector{
		scheduler: s,
		inFlight:  prometheus.NewDesc("warmroute_instance_in_flight", "Requests in flight.", labels, nil),
		elsewhere: prometheus.NewDesc("warmroute_instance_in_flight_elsewhere", "Requests in flight by way of other routers, as last heard.", labels, nil),
		prefill:   prometheus.NewDesc("warmroute_instance_queued_prefill_tokens", "Prompt tokens in flight believed to be uncomputed.", labels, nil),
		trust:     prometheus.NewDesc("warmroute_instance_trust", "1 for the state that the instance's events are in.", append(labels, "state"), nil),
	}
}

// Describe is [prometheus.Collector]'s.
func (c *instanceCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.inFlight
	ch <- c.elsewhere
	ch <- c.prefill
	ch <- c.trust
}

// Collect is [prometheus.Collector]'s.
func (c *instanceCollector) Collect(ch chan<- prometheus.Metric) {
	for i := range c.scheduler.fleet.Load().instances {
		ch <- prometheus.MustNewConstMetric(c.inFlight, prometheus.GaugeValue, float64(i.InFlight()), i.endpoint, i.name)
		ch <- prometheus.MustNewConstMetric(c.elsewhere, prometheus.GaugeValue, float64(i.Elsewhere()), i.endpoint, i.name)
		ch <- prometheus.MustNewConstMetric(c.prefill, prometheus.GaugeValue, float64(i.QueuedPrefill()), i.endpoint, i.name)
		trust, _ := i.Trust()
		for _, t := range []Trust{Blind, Live, Recovering, Stale} {
			value := 0.0
			if t == trust {
				value = 1
			}
			ch <- prometheus.MustNewConstMetric(c.trust, prometheus.GaugeValue, value, i.endpoint, i.name, t.String())
		}
	}
}
