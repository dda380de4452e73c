package feedback

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/warmroute/warmroute/scheduler"
)

func TestUnheardCountsWhoCanStillBeHeard(t *testing.T) {
	url := startServer(t, -1).ClientURL()
	nc := connect(t, url)
	publish(t, publisher(t, nc, "told", 0, "one"), newFakeWorker(1), 50)
	// One that is there and does not answer.
	hung, err := nc.Subscribe(headSubject("ep", "hung"), func(*nats.Msg) {})
	if err != nil {
		t.Fatal(err)
	}
	flush(t, nc)
	r := prepareRouter(t, connect(t, url), []string{"told", "dead", "hung"})
	if unheard, _ := r.sub.Unheard(); unheard == 0 {
		t.Error("before the start nothing is unheard")
	}
	r.start()
	r.eventually("all but the one that hangs is known", func() bool {
		unheard, of := r.sub.Unheard()
		return unheard == 1 && of == 3
	})
	if !r.trusts("told", scheduler.Live)() {
		t.Error("the one that answers is not live")
	}
	if err := hung.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	r.eventually("it is not waited for once it is dead", func() bool {
		unheard, _ := r.sub.Unheard()
		return unheard == 0
	})
}
