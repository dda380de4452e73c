package worker

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmroute/warmroute/internal/simvllm"
)

// metrics has vLLM's names, labels and buckets.
type metrics struct {
	firstToken, betweenTokens, queueTime, whole prometheus.Observer

	success *prometheus.CounterVec // by finished_reason
	labels  prometheus.Labels
}

func newMetrics(reg prometheus.Registerer, model string) (*metrics, error) {
	m := &metrics{labels: prometheus.Labels{"engine": "0", "model_name": model}}
	seconds := []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	between := []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	whole := []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	for _, h := range []struct {
		to         *prometheus.Observer
		name, help string
		buckets    []float64
	}{
		{&m.firstToken, "vllm:time_to_first_token_seconds", "Time from a request's arrival to its first token.", seconds},
		{&m.betweenTokens, "vllm:inter_token_latency_seconds", "Time between two tokens of a request.", between},
		{&m.queueTime, "vllm:request_queue_time_seconds", "Time that a request waited to be scheduled first.", whole},
		{&m.whole, "vllm:e2e_request_latency_seconds", "Time from a request's arrival to its last token.", whole},
	} {
		histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: h.name, Help: h.help, Buckets: h.buckets, ConstLabels: m.labels})
		if err := reg.Register(histogram); err != nil {
			return nil, err
		}
		*h.to = histogram
	}
	m.success = prometheus.NewCounterVec(prometheus.CounterOpts{ //nolint:promlinter // the name is vLLM's
		Name: "vllm:request_success_total", Help: "Requests that came to their end.", ConstLabels: m.labels,
	}, []string{"finished_reason"})
	return m, reg.Register(m.success)
}

// token counts one token of t.
func (m *metrics) token(t *target, o simvllm.Output, now time.Time) {
	if o.Produced == 1 {
		m.firstToken.Observe(now.Sub(t.call.arrived).Seconds())
	} else {
		m.betweenTokens.Observe(now.Sub(t.last).Seconds())
	}
	if o.Done {
		m.whole.Observe(now.Sub(t.call.arrived).Seconds())
		m.success.WithLabelValues(t.reason).Inc()
	}
}

// engineCollector reads what the engine itself counts.
type engineCollector struct {
	stats  func() simvllm.Stats
	config simvllm.Config
	info   *prometheus.Desc
	values []engineValue
}

type engineValue struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(simvllm.Stats) float64
}

func newEngineCollector(stats func() simvllm.Stats, config simvllm.Config, labels prometheus.Labels) *engineCollector {
	c := &engineCollector{stats: stats, config: config}
	c.info = prometheus.NewDesc("vllm:cache_config_info", "What the cache was configured with.", nil, prometheus.Labels{
		"engine":                   "0",
		"block_size":               strconv.Itoa(config.BlockSize),
		"num_gpu_blocks":           strconv.Itoa(config.Blocks),
		"kv_cache_size_tokens":     strconv.Itoa(config.Blocks * config.BlockSize),
		"enable_prefix_caching":    "True",
		"prefix_caching_hash_algo": "simworker",
	})
	add := func(kind prometheus.ValueType, name, help string, of func(simvllm.Stats) float64) {
		c.values = append(c.values, engineValue{prometheus.NewDesc(name, help, nil, labels), kind, of})
	}
	usable := float64(config.Blocks - 1)
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	add(gauge, "vllm:num_requests_running", "Requests in the running batch.", func(s simvllm.Stats) float64 { return float64(s.Running) })
	add(gauge, "vllm:num_requests_waiting", "Requests that wait to be scheduled.", func(s simvllm.Stats) float64 { return float64(s.Waiting) })
	add(gauge, "vllm:kv_cache_usage_perc", "Share of the blocks in use by requests, 0 to 1.", func(s simvllm.Stats) float64 { return float64(s.UsedBlocks) / usable })
	add(counter, "vllm:prefix_cache_queries_total", "Tokens looked up in the cache.", func(s simvllm.Stats) float64 { return float64(s.Queries) })
	add(counter, "vllm:prefix_cache_hits_total", "Tokens found in the cache.", func(s simvllm.Stats) float64 { return float64(s.Hits) })
	add(counter, "vllm:prompt_tokens_cached_total", "Prompt tokens found in the cache.", func(s simvllm.Stats) float64 { return float64(s.Hits) })
	add(counter, "vllm:prompt_tokens_total", "Prompt tokens of admitted requests.", func(s simvllm.Stats) float64 { return float64(s.Queries) })
	add(counter, "vllm:generation_tokens_total", "Tokens generated.", func(s simvllm.Stats) float64 { return float64(s.Generated) })
	add(counter, "vllm:num_preemptions_total", "Requests that gave their blocks back and started over.", func(s simvllm.Stats) float64 { return float64(s.Preemptions) })
	return c
}

// Describe implements [prometheus.Collector].
func (c *engineCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.info
	for _, v := range c.values {
		ch <- v.desc
	}
}

// Collect implements [prometheus.Collector].
func (c *engineCollector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(c.info, prometheus.GaugeValue, 1)
	stats := c.stats()
	for _, v := range c.values {
		ch <- prometheus.MustNewConstMetric(v.desc, v.kind, v.of(stats))
	}
}
