package e2e

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/warmroute/warmroute/feedback"
)

// status is what the admin listener says of the fleet.
type status struct {
	Endpoints []struct {
		Variants []struct {
			Strategy  string
			Instances []struct {
				Name, Trust string
				Ready       bool
				InFlight    int `json:"in_flight"`
				Elsewhere   int `json:"in_flight_elsewhere"`
			}
		}
	}
}

func (f *fleet) status() status {
	f.t.Helper()
	var s status
	if err := json.Unmarshal(f.get(f.admin+"/admin/v1/status").ok(f.t).Body, &s); err != nil {
		f.t.Fatal(err)
	}
	return s
}

func (f *fleet) strategy() string {
	f.t.Helper()
	return f.status().Endpoints[0].Variants[0].Strategy
}

// inFlight counts by instance.
func (f *fleet) inFlight() map[string]int {
	f.t.Helper()
	counts := map[string]int{}
	for _, i := range f.status().Endpoints[0].Variants[0].Instances {
		counts[i.Name] = i.InFlight
	}
	return counts
}

func (f *fleet) inFlightTotal() int {
	f.t.Helper()
	total := 0
	for _, n := range f.inFlight() {
		total += n
	}
	return total
}

// listener hears the same events as the router.
type listener struct {
	conn   *nats.Conn
	events atomic.Int64 // KV events heard, of all workers
	next   map[string]*atomic.Int64
}

// listen begins to hear the workers' events.
func (f *fleet) listen() {
	f.t.Helper()
	conn, err := nats.Connect(f.nats.ClientURL())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(conn.Close)
	l := &listener{conn: conn, next: map[string]*atomic.Int64{}}
	for i := range f.o.workers {
		l.next["w"+strconv.Itoa(i)] = new(atomic.Int64)
	}
	if _, err := conn.Subscribe("kv.>", func(m *nats.Msg) {
		batch, err := feedback.Decode(m.Data)
		if err != nil {
			f.t.Errorf("a worker's batch: %v", err)
			return
		}
		l.events.Add(int64(len(batch.Events)))
		seq, err := strconv.ParseInt(m.Header.Get("Warmroute-Seq"), 10, 64)
		if err != nil {
			f.t.Errorf("a worker's seq: %v", err)
			return
		}
		l.next[m.Header.Get("Warmroute-Instance")].Store(seq + 1)
	}); err != nil {
		f.t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		f.t.Fatal(err)
	}
	f.listener = l
}

// settle waits until every event that a worker has published is in the router's
// tree. A worker publishes a step's events before it hands out the tokens.
func (f *fleet) settle() {
	f.t.Helper()
	l := f.listener
	for name, heard := range l.next {
		m := nats.NewMsg(feedback.SnapshotSubject("llama", name, 0))
		m.Header.Set("Warmroute-Want", "head")
		answer, err := l.conn.RequestMsg(m, limit)
		if err != nil {
			f.t.Fatalf("ask %s for its last batch: %v", name, err)
		}
		next, err := strconv.ParseInt(answer.Header.Get("Warmroute-Next"), 10, 64)
		if err != nil {
			f.t.Fatal(err)
		}
		eventually(f.t, "the events of "+name+" came", func() bool { return heard.Load() >= next })
	}
	eventually(f.t, "the router has applied all events", func() bool {
		return f.metric("warmroute_feedback_events_total") >= float64(l.events.Load())
	})
}

// metric is the sum over the series of one name.
func (f *fleet) metric(name string) float64 {
	f.t.Helper()
	sum := 0.0
	for line := range strings.SplitSeq(string(f.get(f.admin+"/metrics").ok(f.t).Body), "\n") {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || (rest[0] != ' ' && rest[0] != '{') {
			continue
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndex(rest, " ")+1:], 64)
		if err != nil {
			f.t.Fatalf("%s: %v", line, err)
		}
		sum += v
	}
	return sum
}
