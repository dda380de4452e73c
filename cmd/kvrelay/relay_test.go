package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmroute/warmroute/feedback"
)

// fakeVLLM is a worker's publisher: numbers from 0, a bounded replay buffer.
type fakeVLLM struct {
	batches [][]byte // of the running process
	made    int      // over all processes
	keeps   int      // batches kept for replay
	cut     int      // messages that the next replay brings, -1: all
	deaf    bool     // replay does not answer
}

func (v *fakeVLLM) publish() message {
	v.made++
	payload := feedback.Encode(feedback.Batch{Time: float64(v.made), Events: []feedback.Event{}})
	v.batches = append(v.batches, payload)
	return message{uint64(len(v.batches) - 1), payload}
}

func (v *fakeVLLM) replay(_ context.Context, from uint64) ([]message, error) {
	if v.deaf {
		return nil, errNoReply
	}
	var out []message
	for i := max(int(from), len(v.batches)-v.keeps, 0); i < len(v.batches); i++ {
		if v.cut >= 0 && len(out) == v.cut {
			v.cut = -1
			return out, errQuiet
		}
		out = append(out, message{uint64(i), v.batches[i]})
	}
	return out, nil
}

// recorder is an epoch as NATS gets it.
type recorder struct {
	epoch    string
	payloads [][]byte
	closed   bool
}

func (o *recorder) PublishRaw(payload []byte) error {
	o.payloads = append(o.payloads, payload)
	return nil
}

func (o *recorder) Close() error { o.closed = true; return nil }

type fixture struct {
	vllm   fakeVLLM
	relay  *relay
	epochs []*recorder
}

func newFixture(withReplay bool) *fixture {
	f := &fixture{vllm: fakeVLLM{keeps: 10, cut: -1}}
	n := 0
	f.relay = &relay{
		logger: slog.New(slog.DiscardHandler), seen: map[uint64]uint64{}, pause: time.Nanosecond,
		name: func() string { n++; return strconv.Itoa(n) },
		open: func(epoch string) (out, error) {
			f.epochs = append(f.epochs, &recorder{epoch: epoch})
			return f.epochs[len(f.epochs)-1], nil
		},
	}
	if withReplay {
		f.relay.replay = f.vllm.replay
	}
	return f
}

// check holds that the current epoch is a run of the running process's
// batches, and ends every epoch before it. It returns where the run begins and
// ends.
func (f *fixture) check() (from, to int, err error) {
	if len(f.epochs) == 0 {
		return 0, 0, nil
	}
	for _, o := range f.epochs[:len(f.epochs)-1] {
		if !o.closed {
			return 0, 0, fmt.Errorf("epoch %s was not ended", o.epoch)
		}
	}
	o := f.epochs[len(f.epochs)-1]
	if len(o.payloads) == 0 {
		return 0, 0, nil
	}
	for from < len(f.vllm.batches) && !bytes.Equal(f.vllm.batches[from], o.payloads[0]) {
		from++
	}
	to = from + len(o.payloads)
	if to > len(f.vllm.batches) {
		return from, to, fmt.Errorf("epoch %s has %d batches from %d on, the process %d", o.epoch, len(o.payloads), from, len(f.vllm.batches))
	}
	for i, p := range o.payloads {
		if !bytes.Equal(p, f.vllm.batches[from+i]) {
			return from, to, fmt.Errorf("batch %d of epoch %s is not batch %d of the process", i, o.epoch, from+i)
		}
	}
	return from, to, nil
}

// TestEpochsAreOneProcessesBatchesInOrder: whatever ZMQ drops and however often
// vLLM restarts; and when all is quiet and the replay answers, the epoch goes
// up to the process's last batch, from its first if the buffer still has it.
func TestEpochsAreOneProcessesBatchesInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFixture(rapid.IntRange(0, 4).Draw(t, "replay") > 0)
		var queue []message // read by the subscriber, not yet by the relay
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		connected := true
		drain := func() {
			for _, m := range queue {
				must(f.relay.live(t.Context(), m))
			}
			queue = nil
		}
		must(f.relay.connected(t.Context()))
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{1, 1, 2, 15}).Draw(t, "batches") {
					m := f.vllm.publish()
					if connected && rapid.IntRange(0, 5).Draw(t, "dropped") > 0 {
						queue = append(queue, m)
					}
				}
			},
			"read": func(*rapid.T) { drain() },
			"restart": func(*rapid.T) {
				drain()
				f.vllm.batches, connected = nil, false
			},
			"lose the connection": func(*rapid.T) { connected = false },
			"connect": func(*rapid.T) {
				drain()
				connected = true
				must(f.relay.connected(t.Context()))
			},
			"replay falters": func(t *rapid.T) { f.vllm.cut = rapid.IntRange(0, 5).Draw(t, "after") },
			"replay is deaf": func(t *rapid.T) { f.vllm.deaf = rapid.Bool().Draw(t, "deaf") },
			"": func(t *rapid.T) {
				if len(f.vllm.batches) == 0 || !connected {
					return // the last process's epoch may still stand
				}
				if _, _, err := f.check(); err != nil {
					t.Fatal(err)
				}
			},
		})
		drain()
		f.vllm.deaf, f.vllm.cut = false, -1
		must(f.relay.connected(t.Context()))
		must(f.relay.live(t.Context(), f.vllm.publish()))
		from, to, err := f.check()
		if err != nil {
			t.Fatal(err)
		}
		if to != len(f.vllm.batches) {
			t.Fatalf("the epoch ends at %d, the process at %d", to, len(f.vllm.batches))
		}
		if f.relay.replay != nil && len(f.vllm.batches) <= f.vllm.keeps && from > 0 && !f.relay.stream.Partial() {
			t.Fatalf("the epoch begins at %d though nothing was lost for good", from)
		}
	})
}

func (f *fixture) publishAndDeliver(t *testing.T, n int) {
	t.Helper()
	for range n {
		if err := f.relay.live(t.Context(), f.vllm.publish()); err != nil {
			t.Fatal(err)
		}
	}
}

func (f *fixture) want(t *testing.T, epochs, from, to int) {
	t.Helper()
	gotFrom, gotTo, err := f.check()
	if err != nil {
		t.Fatal(err)
	}
	if len(f.epochs) != epochs || gotFrom != from || gotTo != to {
		t.Fatalf("%d epochs, the last with batches %d to %d; want %d, %d to %d", len(f.epochs), gotFrom, gotTo, epochs, from, to)
	}
}

func TestE01_HolesAreRepairedFromTheReplay(t *testing.T) {
	f := newFixture(true)
	f.publishAndDeliver(t, 3)
	f.vllm.publish() // dropped
	f.publishAndDeliver(t, 1)
	f.want(t, 1, 0, 5)
	// The replay itself has a hole at its end.
	f.vllm.publish()
	f.vllm.publish()
	f.vllm.cut = 2
	f.publishAndDeliver(t, 1)
	f.want(t, 1, 0, 8)
}

func TestE03_AnOverrunReplayBeginsAnEpochOfWhatIsLeft(t *testing.T) {
	f := newFixture(true)
	f.publishAndDeliver(t, 3)
	for range 20 {
		f.vllm.publish() // dropped, and too many for the buffer of 10
	}
	f.publishAndDeliver(t, 1)
	f.want(t, 2, 14, 24)
	if !f.relay.stream.Partial() {
		t.Error("the epoch is held for whole")
	}
}

func TestE05_ARestartBetweenTwoConnectionsIsSeen(t *testing.T) {
	f := newFixture(true)
	f.publishAndDeliver(t, 3)
	f.vllm.batches = nil // another process, with more batches than were read of the last
	for range 6 {
		f.vllm.publish()
	}
	if err := f.relay.connected(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.want(t, 2, 0, 6)
	// A new process that has said nothing: what the last held is over.
	f.vllm.batches = nil
	if err := f.relay.connected(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.want(t, 3, 0, 0)
	f.publishAndDeliver(t, 1)
	f.want(t, 3, 0, 1)
}

// The relay starts after vLLM, which is idle.
func TestA18_ALateRelayReadsTheReplay(t *testing.T) {
	f := newFixture(true)
	for range 5 {
		f.vllm.publish()
	}
	if err := f.relay.connected(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.want(t, 1, 0, 5)
}

func TestFlagsSayAllThatIsWrong(t *testing.T) {
	_, _, err := parseFlags([]string{"--rank=-1", "--zmq=inproc://x", "--log-level=loud", "rest"})
	for _, want := range []string{"--endpoint and --instance", "--rank", "--zmq", "--log-level", "rest"} {
		if err == nil || !bytes.Contains([]byte(err.Error()), []byte(want)) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
	if c, help, err := parseFlags([]string{"--endpoint=e", "--instance=i", "--replay="}); err != nil || help != "" || c.zmq == "" {
		t.Errorf("%+v, %q, %v", c, help, err)
	}
	if _, help, err := parseFlags([]string{"--help"}); err != nil || help == "" {
		t.Errorf("help: %q, %v", help, err)
	}
}
