package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/warmroute/radix"
)

// together runs readers and writers side by side for a while. Writers share the
// instances out and churn their suffixes; readers ask full questions. The
// figures: reads/s and blocks/s of all together.
func together(w *workload, readers, writers int, d time.Duration) (reads, blocks float64) {
	t := newTree()
	t.store(w, all)
	var stop atomic.Bool
	var nr, nb atomic.Int64
	var wg sync.WaitGroup
	for r := range readers {
		wg.Go(func() {
			dst := make([]radix.Match, 0, instances)
			qs := w.question["full"]
			n := int64(0)
			for i := r * 97; !stop.Load(); i++ {
				dst = t.x.Match(dst[:0], qs[i%len(qs)])
				n++
			}
			nr.Add(n)
		})
	}
	for k := range writers {
		wg.Go(func() {
			n := int64(0)
			for !stop.Load() {
				for i := 0; i < requests && !stop.Load(); i++ {
					p, in := request(i)
					if in%writers != k {
						continue
					}
					t.x.Remove(t.src[in], w.suffix[i].hashes)
					must(t.x.Store(t.src[in], w.prefix[p].hashes[prefixBlocks-1], w.suffix[i].keys, w.suffix[i].hashes))
					n += 2 * suffixBlocks
				}
			}
			nb.Add(n)
		})
	}
	start := time.Now()
	timer := time.NewTimer(d)
	<-timer.C
	stop.Store(true)
	took := time.Since(start).Seconds()
	wg.Wait()
	return float64(nr.Load()) / took, float64(nb.Load()) / took
}

func measureTogether(w *workload, d time.Duration) figures {
	f := figures{}
	for _, n := range [][2]int{{1, 0}, {2, 0}, {4, 0}, {0, 1}, {0, 2}, {0, 4}, {1, 1}, {2, 2}, {4, 4}} {
		reads, blocks := together(w, n[0], n[1], d)
		name := fmt.Sprintf("r%dw%d", n[0], n[1])
		if n[0] > 0 {
			f[name+"_full_per_s"] = reads
		}
		if n[1] > 0 {
			f[name+"_churn_blocks_per_s"] = blocks
		}
	}
	return f
}
