package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmroute/warmroute/radix"
)

// treeCollector reads the sizes of the two indexes at each scrape.
type treeCollector struct {
	indexes                                          map[string]*radix.Index // by the label's value
	entries, predicted, nodes, blocks, bytes, pruned *prometheus.Desc
}

func newTreeCollector(held, placed *radix.Index) *treeCollector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("warmroute_tree_"+name, help, []string{"index"}, nil)
	}
	return &treeCollector{
		indexes:   map[string]*radix.Index{"held": held, "placed": placed},
		entries:   desc("entries", "Blocks that instances hold by their events, counted for each instance."),
		predicted: desc("predicted", "Blocks that instances are believed to hold, counted for each instance."),
		nodes:     desc("nodes", "Nodes of the tree."),
		blocks:    desc("blocks", "Distinct blocks in the tree."),
		bytes:     desc("bytes", "Memory of the tree."),
		pruned:    desc("pruned_total", "Entries given up to stay within tree.max_bytes."),
	}
}

// Describe is [prometheus.Collector]'s.
func (c *treeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.entries, c.predicted, c.nodes, c.blocks, c.bytes, c.pruned} {
		ch <- d
	}
}

// Collect is [prometheus.Collector]'s.
func (c *treeCollector) Collect(ch chan<- prometheus.Metric) {
	for name, index := range c.indexes {
		s := index.Stats()
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, name)
		}
		gauge(c.entries, float64(s.Entries))
		gauge(c.predicted, float64(s.Predicted))
		gauge(c.nodes, float64(s.Nodes))
		gauge(c.blocks, float64(s.Blocks))
		gauge(c.bytes, float64(s.Bytes))
		ch <- prometheus.MustNewConstMetric(c.pruned, prometheus.CounterValue, float64(s.Pruned), name)
	}
}

// treeView is what the status says of the tree.
type treeView struct {
	Entries   int    `json:"entries"`
	Predicted int    `json:"predicted"`
	Nodes     int    `json:"nodes"`
	Blocks    int    `json:"blocks"`
	Bytes     int64  `json:"bytes"`
	Pruned    uint64 `json:"pruned"`
}

func viewTree(s radix.Stats) treeView {
	return treeView{s.Entries, s.Predicted, s.Nodes, s.Blocks, s.Bytes, s.Pruned}
}
