package tokenize

import "github.com/prometheus/client_golang/prometheus"

// collector reads the model's caches when it is asked.
type collector struct {
	model   *Model
	lookups *prometheus.Desc
	bytes   *prometheus.Desc
}

// Collector returns the metrics of the model's caches, with the model's name as
// a label:
//
//	warmroute_tokenize_cache_lookups_total{model,cache="chunk"|"prefix",result="hit"|"miss"}
//	warmroute_tokenize_cache_bytes{model,cache}
//
// The caller registers it, once a model.
func (m *Model) Collector() prometheus.Collector {
	model := prometheus.Labels{"model": m.name}
	return &collector{
		model: m,
		lookups: prometheus.NewDesc("warmroute_tokenize_cache_lookups_total",
			"Lookups of pieces of prompts (chunk) and of beginnings of prompts (prefix).", []string{"cache", "result"}, model),
		bytes: prometheus.NewDesc("warmroute_tokenize_cache_bytes",
			"Bytes that the cache holds.", []string{"cache"}, model),
	}
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.lookups
	ch <- c.bytes
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	if c.model.prefixes == nil {
		return
	}
	send := func(cache string, hits, misses uint64, bytes int64) {
		ch <- prometheus.MustNewConstMetric(c.lookups, prometheus.CounterValue, float64(hits), cache, "hit")
		ch <- prometheus.MustNewConstMetric(c.lookups, prometheus.CounterValue, float64(misses), cache, "miss")
		ch <- prometheus.MustNewConstMetric(c.bytes, prometheus.GaugeValue, float64(bytes), cache)
	}
	chunks, prefixes := c.model.native.chunks, c.model.prefixes
	send("chunk", chunks.hits.Load(), chunks.misses.Load(), chunks.bytes())
	send("prefix", prefixes.hits.Load(), prefixes.misses.Load(), prefixes.bytes())
}
