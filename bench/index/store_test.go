package main

import (
	"sync"
	"testing"
)

var theWorkload = sync.OnceValue(newWorkload)

func BenchmarkStore(b *testing.B) {
	w := theWorkload()
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n += newTree().store(w, all)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mblocks/s")
}

func BenchmarkChurn(b *testing.B) {
	w := theWorkload()
	t := newTree()
	t.store(w, all)
	n := 0
	for b.Loop() {
		n += t.churn(w)
		t.churnBack(w)
	}
	b.ReportMetric(2*float64(n)/b.Elapsed().Seconds()/1e6, "Mblocks/s")
}
