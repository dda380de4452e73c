package radix

import (
	"runtime"
	"testing"
)

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// The budget is kept by Stats' estimate, so it must be near the heap's word:
// within a fifth, for shapes from one long prompt to many short ones.
func TestBytesAreTheHeaps(t *testing.T) {
	if underRace {
		t.Skip("the race detector has a heap of its own")
	}
	for name, shape := range map[string]struct{ instances, prompts, shared, own int }{
		"long prompts, few instances":    {4, 300, 0, 1000},
		"one beginning, many ends":       {16, 4000, 200, 12},
		"many instances hold the same":   {500, 20, 300, 10},
		"short prompts of their own":     {8, 40_000, 0, 3},
		"predictions, nothing confirmed": {-8, 4000, 20, 20},
	} {
		t.Run(name, func(t *testing.T) {
			before := heapBytes()
			x := New(Options{DefaultCapacity: 1 << 20})
			n := max(shape.instances, -shape.instances)
			for range n {
				x.AddInstance()
			}
			for p := range shape.prompts {
				keys := append(seq(1<<40, shape.shared), seq((p+1)<<12, shape.own)...)
				holders := 1
				if n >= 500 {
					holders = n
				}
				for h := range holders {
					i := Instance((p + h) % n)
					if shape.instances < 0 {
						x.Predict(i, keys, at(p))
						continue
					}
					hashes := make([]Hash, len(keys))
					for k := range hashes {
						hashes[k] = splitmix(keys[k] + uint64(i)<<50)
					}
					if err := x.StoreRoot(Source{Instance: i}, keys, hashes); err != nil {
						t.Fatal(err)
					}
				}
			}
			heap, stats := heapBytes()-before, x.Stats().Bytes
			t.Logf("heap %d KiB, stats %d KiB", heap>>10, stats>>10)
			if stats < heap*8/10 || stats > heap*12/10 {
				t.Errorf("stats say %d KiB, the heap grew by %d", stats>>10, heap>>10)
			}
			runtime.KeepAlive(x)
		})
	}
}
