package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/warmroute/warmroute/radix"
	"github.com/warmroute/warmroute/scheduler"
)

func TestG03_OneSlowAnswerTakesNoInstanceOut(t *testing.T) {
	s := scheduler.New(scheduler.Options{Held: radix.New(radix.Options{}), Placed: radix.New(radix.Options{}), Rand: rand.New(rand.NewPCG(1, 1))})
	if err := s.Apply([]scheduler.EndpointConfig{{Name: "e", Model: "m", Variants: []scheduler.VariantConfig{{
		Name: "v", Weight: 1, Instances: []scheduler.InstanceConfig{{Name: "a", URL: "http://h:1"}},
	}}}}); err != nil {
		t.Fatal(err)
	}
	i, _ := s.Instance("e", "a")
	doubts := 0
	h := &healthCheck{instance: i, down: 3, up: 2, logger: quietLogger(), doubt: func(context.Context, *scheduler.Instance) { doubts++ }}
	fails := errors.New("no answer")
	for step, c := range []struct {
		err   error
		ready bool
	}{
		{fails, true},
		{nil, true},
		{fails, true},
		{fails, true},
		{fails, false},
		{nil, false},
		{fails, false},
		{nil, false},
		{nil, true},
		{fails, true},
	} {
		h.note(t.Context(), c.err)
		if i.Ready() != c.ready {
			t.Fatalf("after check %d (%v) ready is %v, want %v", step, c.err, i.Ready(), c.ready)
		}
	}
	if doubts != 2 {
		t.Errorf("doubted %d times, want once on its way out and once on its way in", doubts)
	}
}
