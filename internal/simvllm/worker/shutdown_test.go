package worker

import (
	"context"
	"net/http"
	"testing"
)

func TestDrainRefusesTheNewAndFinishesTheOld(t *testing.T) {
	b := start(t)
	b.runner.hold(0)
	old := make(chan answer, 1)
	go func() { old <- b.post("/v1/completions", completion(`"Hello"`, "")) }()
	b.inFlight(1)
	drained := make(chan error, 1)
	go func() { drained <- b.Drain(t.Context()) }()
	eventually(t, func() bool {
		code, _ := b.call(http.MethodPost, "/v1/completions", completion(`"Hello"`, `,"stream":true`))
		return code == http.StatusInternalServerError
	})
	if code, _ := b.call(http.MethodGet, "/health", ""); code != http.StatusOK {
		t.Errorf("/health answers %d", code)
	}
	b.runner.releaseHold()
	if err := <-drained; err != nil {
		t.Errorf("drained: %v", err)
	}
	if a := <-old; a.Usage.CompletionTokens != defaultCompletion {
		t.Errorf("the old request has %d tokens", a.Usage.CompletionTokens)
	}
}

func TestDrainGivesUpWithItsContext(t *testing.T) {
	b := start(t)
	b.runner.hold(0)
	call, err := b.runner.submit(mustJob(t, b.Worker).answers, "length", timeZero())
	if err != nil {
		t.Fatal(err)
	}
	defer b.runner.cancel(call)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Drain(ctx); err == nil {
		t.Error("drained with a request in flight")
	}
}

func TestStreamCutByTheEnginesStopEndsWithAnError(t *testing.T) {
	b := start(t)
	b.runner.hold(2)
	resp := b.do(t.Context(), http.MethodPost, "/v1/completions", completion(`"Hello"`, `,"stream":true`))
	defer resp.Body.Close()
	eventually(t, func() bool { return b.runner.stats().Generated == 2 })
	b.stop()
	<-b.ended
	events := b.events(resp.Body)
	last := events[len(events)-1]
	if resp.StatusCode != http.StatusOK || last.Error == nil || last.Error.Code != http.StatusInternalServerError {
		t.Errorf("status %d, the last event is %+v", resp.StatusCode, last)
	}
	if code, _ := b.call(http.MethodPost, "/v1/completions", completion(`"Hello"`, "")); code != http.StatusInternalServerError {
		t.Errorf("after the stop: status %d", code)
	}
}
