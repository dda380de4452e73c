package worker

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// What a worker without any delay costs beside the router that is measured.
func BenchmarkChat(b *testing.B) {
	for _, size := range []int{1 << 10, 34 << 10} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			o := defaults(b)
			o.Registry = prometheus.NewRegistry()
			w, err := New(o)
			if err != nil {
				b.Fatal(err)
			}
			ctx, stop := context.WithCancel(b.Context())
			defer stop()
			go w.Run(ctx) // ends at stop
			body := chat(prompt("whales", size/50), `,"max_tokens":1,"stream":true`)
			h := w.Handler()
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body)))
				if rec.Code != http.StatusOK {
					b.Fatal(rec.Code)
				}
			}
		})
	}
}
