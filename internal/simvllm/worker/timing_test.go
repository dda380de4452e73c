package worker

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmroute/warmroute/tokenize"
)

func timeZero() time.Time { return time.Time{} }

func mustJob(t testing.TB, w *Worker) *job {
	t.Helper()
	body := []byte(completion(`"Hello there"`, `,"max_tokens":5`))
	r, fail := parse(body)
	if fail != nil {
		t.Fatal(fail)
	}
	j, fail := w.newJob(tokenize.Completion, r, body)
	if fail != nil {
		t.Fatal(fail)
	}
	return j
}

// In virtual time, so that the figures are exact.
func TestRequestTakesAsLongAsItsStepsTimesTheScale(t *testing.T) {
	for _, scale := range []float64{0, 0.5, 1} {
		o := defaults(t) // opens the tokenizer outside the bubble
		o.TimeScale = scale
		synctest.Test(t, func(t *testing.T) {
			w, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			go w.Run(ctx) // ends with the bubble
			for _, cached := range []int{0, 2} {
				began := time.Now()
				rec := httptest.NewRecorder()
				// Three blocks; the second time two of them are cached.
				body := completion("["+strings.TrimSuffix(strings.Repeat("9,", 48), ",")+"]", `,"max_tokens":4`)
				w.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(body)))
				if rec.Code != http.StatusOK {
					t.Fatalf("status %d: %s", rec.Code, rec.Body)
				}
				timing := o.Engine.Timing
				whole := 4*timing.StepBase + time.Duration(48-16*cached)*timing.PerPrefill + 3*timing.PerDecode
				if got, want := time.Since(began), time.Duration(float64(whole)*scale); got != want {
					t.Errorf("scale %v: %v, want %v", scale, got, want)
				}
			}
		})
	}
}
