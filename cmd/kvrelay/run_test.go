package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/warmroute/warmroute/feedback"
)

// zmqVLLM is vLLM's two sockets.
type zmqVLLM struct {
	t           *testing.T
	pub, router zmq4.Socket
	mu          sync.Mutex
	batches     [][]byte
}

// listen opens both sockets, at the given addresses or free ones.
func listen(t *testing.T, pubAt, routerAt string) *zmqVLLM {
	t.Helper()
	v := &zmqVLLM{t: t, pub: zmq4.NewPub(context.Background()), router: zmq4.NewRouter(context.Background())}
	for s, at := range map[zmq4.Socket]string{v.pub: pubAt, v.router: routerAt} {
		deadline := time.Now().Add(20 * time.Second)
		for err := s.Listen(at); err != nil; err = s.Listen(at) { // the last process's port may not be free yet
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	go v.serve()
	t.Cleanup(v.close)
	return v
}

func (v *zmqVLLM) close() {
	_ = v.pub.Close()
	_ = v.router.Close()
}

func (v *zmqVLLM) addresses() (pub, router string) {
	return "tcp://" + v.pub.Addr().String(), "tcp://" + v.router.Addr().String()
}

// serve answers replay requests until the socket closes.
func (v *zmqVLLM) serve() {
	for {
		m, err := v.router.Recv()
		if err != nil {
			return
		}
		id, from := m.Frames[0], binary.BigEndian.Uint64(m.Frames[len(m.Frames)-1])
		v.mu.Lock()
		batches := v.batches
		v.mu.Unlock()
		for seq := from; seq < uint64(len(batches)); seq++ {
			_ = v.router.SendMulti(zmq4.NewMsgFrom(id, nil, []byte("kv"), binary.BigEndian.AppendUint64(nil, seq), batches[seq]))
		}
		_ = v.router.SendMulti(zmq4.NewMsgFrom(id, nil, nil, binary.BigEndian.AppendUint64(nil, endMark), nil))
	}
}

func (v *zmqVLLM) publish(live bool) {
	v.mu.Lock()
	seq := uint64(len(v.batches))
	payload := feedback.Encode(feedback.Batch{Time: float64(time.Now().UnixNano()), Events: []feedback.Event{}})
	v.batches = append(v.batches, payload)
	v.mu.Unlock()
	if live {
		if err := v.pub.SendMulti(zmq4.NewMsgFrom([]byte("kv"), binary.BigEndian.AppendUint64(nil, seq), payload)); err != nil {
			v.t.Error(err)
		}
	}
}

// TestRelayOverRealSockets: batches from before the relay, dropped ones and
// those of the next process all reach NATS, in order, each process as an epoch.
func TestRelayOverRealSockets(t *testing.T) {
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	defer ns.WaitForShutdown()
	defer ns.Shutdown()
	if !ns.ReadyForConnections(20 * time.Second) {
		t.Fatal("no NATS server")
	}
	reader, err := nats.Connect(ns.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	got := make(chan *nats.Msg, 10000)
	if _, err := reader.ChanSubscribe("kv.ep.w.0", got); err != nil {
		t.Fatal(err)
	}
	if err := reader.Flush(); err != nil {
		t.Fatal(err)
	}

	first := listen(t, "tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
	pub, router := first.addresses()
	for range 20 {
		first.publish(false)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, config{endpoint: "ep", instance: "w", zmq: pub, replay: router, nats: ns.ClientURL()}, io.Discard)
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	epoch := expect(t, got, first, 20, "")
	for i := range 30 {
		first.publish(i%7 != 0)
	}
	expect(t, got, first, 50, epoch)
	first.close()
	second := listen(t, pub, router)
	if other := expect(t, got, second, 5, ""); other == epoch {
		t.Error("the second process has the first one's epoch")
	}
}

// expect reads until the process's first n batches have come under one epoch,
// publishing more as long as the relay may not be connected.
func expect(t *testing.T, got chan *nats.Msg, v *zmqVLLM, n int, epoch string) string {
	t.Helper()
	deadline := time.After(60 * time.Second)
	more := time.NewTicker(100 * time.Millisecond)
	defer more.Stop()
	for seq := 0; ; {
		select {
		case m := <-got:
			e, at := m.Header.Get("Warmroute-Epoch"), m.Header.Get("Warmroute-Seq")
			v.mu.Lock()
			batches := v.batches
			v.mu.Unlock()
			if epoch == "" {
				if at != "0" || len(batches) == 0 || !bytes.Equal(m.Data, batches[0]) {
					continue // the last of the process before
				}
				epoch = e
			}
			if seq == 0 && at != "0" { // called for the rest of an epoch
				if _, err := fmt.Sscan(at, &seq); err != nil {
					t.Fatal(err)
				}
			}
			if e != epoch || at != fmt.Sprint(seq) || !bytes.Equal(m.Data, batches[seq]) {
				t.Fatalf("got batch %s of epoch %s, want %d of %s", at, e, seq, epoch)
			}
			if seq++; seq >= n {
				return epoch
			}
		case <-more.C:
			v.publish(true)
		case <-deadline:
			t.Fatalf("%d batches of %d came", seq, n)
		}
	}
}
