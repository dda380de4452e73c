package main

import (
	"encoding/binary"
	"time"

	goradix "github.com/armon/go-radix"
)

// measureGoRadix does the workload's first part on armon/go-radix, the straight
// way: a block is stored under the bytes of its whole path, with the set of its
// holders. That costs 8 bytes × depth for every block, so only one request in
// share is stored.
func measureGoRadix(w *workload, repeats int) figures {
	const share = 64
	f := figures{}
	path := func(parts ...[]uint64) []byte {
		var b []byte
		for _, keys := range parts {
			for _, k := range keys {
				b = binary.BigEndian.AppendUint64(b, k)
			}
		}
		return b
	}
	h0 := heap()
	t := goradix.New()
	hold := func(p []byte, from, instance int) {
		for at := from + 8; at <= len(p); at += 8 {
			v, ok := t.Get(string(p[:at]))
			if !ok {
				set := map[int]struct{}{instance: {}}
				t.Insert(string(p[:at]), set)
				continue
			}
			v.(map[int]struct{})[instance] = struct{}{}
		}
	}
	blocks := 0
	seen := map[[2]int]bool{}
	var asked []int
	start := time.Now()
	for i := range requests {
		p, in := request(i)
		if p%share != 0 {
			continue
		}
		from := prefixBlocks * 8
		if !seen[[2]int{p, in}] {
			seen[[2]int{p, in}] = true
			from = 0
			blocks += prefixBlocks
		}
		hold(path(w.prefix[p].keys, w.suffix[i].keys), from, in)
		blocks += suffixBlocks
		asked = append(asked, i)
	}
	f["store_blocks_per_s"] = float64(blocks) / time.Since(start).Seconds()
	f["heap_bytes_per_entry"] = float64(heap()-h0) / float64(blocks)
	for range repeats {
		start = time.Now()
		for _, i := range asked {
			p, in := request(i)
			got := map[int]int{}
			depth := 0
			t.WalkPath(string(path(w.prefix[p].keys, w.suffix[i].keys)), func(_ string, v any) bool {
				depth++
				for h := range v.(map[int]struct{}) {
					if got[h] == depth-1 {
						got[h] = depth
					}
				}
				return false
			})
			if got[in] != prefixBlocks+suffixBlocks || len(got) != 4 {
				panic("go-radix answers wrong")
			}
		}
		f["full_per_s"] = max(f["full_per_s"], float64(len(asked))/time.Since(start).Seconds())
	}
	return f
}
