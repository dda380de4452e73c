package scheduler

import (
	"fmt"
	"strings"
	"testing"
)

func containsText(s, part string) bool { return strings.Contains(s, part) }

func BenchmarkAcquire(b *testing.B) {
	for _, n := range []int{8, 100, 1000} {
		for _, s := range []Strategy{PrefixAware, KVAware, LeastOutstanding} {
			b.Run(fmt.Sprintf("%s/instances=%d", s, n), func(b *testing.B) {
				routing := prefixAware(1024)
				routing.Strategy = s
				f := newFleet(b, n, routing)
				p := tokens(1, 8000)
				for i := range min(n, 4) {
					f.hold(i, p, 8000)
				}
				r := f.request(p)
				b.ReportAllocs()
				for b.Loop() {
					f.acquire(r).Done(Served)
				}
			})
		}
	}
}

// BenchmarkReserve is what happens under the endpoint's lock, and the release.
func BenchmarkReserve(b *testing.B) {
	for _, n := range []int{8, 100, 1000} {
		b.Run(fmt.Sprintf("instances=%d", n), func(b *testing.B) {
			f := newFleet(b, n, prefixAware(1024))
			p := tokens(1, 8000)
			for i := range min(n, 4) {
				f.hold(i, p, 8000)
			}
			r := f.request(p)
			c := new(scratch)
			v, err := f.variant(c, r.Endpoint, r)
			if err != nil {
				b.Fatal(err)
			}
			f.match(c, r)
			b.ReportAllocs()
			for b.Loop() {
				l, _ := f.reserve(c, r.Endpoint, v, r, f.now)
				l.Done(Served)
			}
		})
	}
}
