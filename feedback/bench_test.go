package feedback

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"

	"github.com/warmroute/warmroute/internal/blockkey"
	"github.com/warmroute/warmroute/radix"
)

// BenchmarkDecode reads a real batch: one stored run of 9 blocks of 32.
func BenchmarkDecode(b *testing.B) {
	for _, l := range capture(b, "testdata/vllm-0.32.0_bs32_sha256.jsonl.gz")[:3] {
		if l.Kind != "frames" {
			continue
		}
		b.SetBytes(int64(len(l.FramesB64[2])))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Decode(l.FramesB64[2]); err != nil {
				b.Fatal(err)
			}
		}
		return
	}
}

// busyWorker is a cache of 64 prompts of 1024 tokens that is full: each step
// drops a prompt's last 4 blocks of 16 and stores them anew, as a batch of two
// events. Its batches repeat after 64.
func busyWorker(seed uint64) (fill, steps []Batch) {
	random := rand.New(rand.NewPCG(seed, 1))
	for n := range uint64(64) {
		tokens := make([]uint32, 1024)
		for i := range tokens {
			tokens[i] = random.Uint32N(128_000)
		}
		first := n * 64
		fill = append(fill, Batch{Events: []Event{stored(16, first, tokens)}})
		tail := after(first+59, stored(16, first+60, tokens[960:]))
		steps = append(steps, Batch{Events: []Event{removed(tail.Hashes...), tail}})
	}
	return fill, steps
}

// BenchmarkApply is decoding and applying, without NATS: one batch of two
// events and 8 block changes each.
func BenchmarkApply(b *testing.B) {
	index := radix.New(radix.Options{})
	a := &applier{index: index, instance: index.AddInstance(), model: "m"}
	fill, steps := busyWorker(1)
	var sum applied
	for _, f := range fill {
		if err := a.apply(f, &sum); err != nil {
			b.Fatal(err)
		}
	}
	payloads := make([][]byte, len(steps))
	for i, s := range steps {
		payloads[i] = Encode(s)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		batch, err := Decode(payloads[i%len(payloads)])
		if err != nil {
			b.Fatal(err)
		}
		if err := a.apply(batch, &sum); err != nil {
			b.Fatal(err)
		}
		i++
	}
	b.ReportMetric(float64(2*b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkSnapshot is a whole resync without the network: a cache of 65536
// blocks of 16 tokens, 1 million tokens.
func BenchmarkSnapshot(b *testing.B) {
	var t table
	for seed := range uint64(16) {
		fill, _ := busyWorker(seed)
		for _, f := range fill {
			for i := range f.Events[0].Hashes {
				f.Events[0].Hashes[i] += seed * 4096
			}
			t.apply(f)
		}
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(chunkBytes))
	if err != nil {
		b.Fatal(err)
	}
	index := radix.New(radix.Options{})
	a := &applier{index: index, instance: index.AddInstance(), model: "m"}
	var frozen, size, chunks int
	for b.Loop() {
		from := time.Now()
		events := t.snapshot()
		frozen += int(time.Since(from))
		a.clear()
		size, chunks = 0, 0
		var sum applied
		for _, c := range split(events, chunkBytes) {
			data := encoder.EncodeAll(Encode(Batch{Events: c}), nil)
			size, chunks = size+len(data), chunks+1
			payload, err := decompress("zstd", data)
			if err != nil {
				b.Fatal(err)
			}
			batch, err := Decode(payload)
			if err != nil {
				b.Fatal(err)
			}
			if err := a.apply(batch, &sum); err != nil {
				b.Fatal(err)
			}
		}
		if sum.blocks != 1<<16 {
			b.Fatalf("%d blocks", sum.blocks)
		}
	}
	b.ReportMetric(float64(frozen)/float64(b.N)/1e6, "ms-frozen")
	b.ReportMetric(float64(size), "B-sent")
	b.ReportMetric(float64(chunks), "chunks")
}

// BenchmarkNATSToTree is the whole way, publishers and a NATS server in the
// same process: 128 instances publish, one router follows.
func BenchmarkNATSToTree(b *testing.B) {
	const instances = 128
	url := startServer(b, -1).ClientURL()
	names := make([]string, instances)
	for i := range names {
		names[i] = fmt.Sprintf("w%d", i)
	}
	r := startRouter(b, connect(b, url, nats.NoReconnect()), names, func(o *SubscriberOptions) {
		o.ProbeEvery, o.Tick, o.AnswerTimeout = 5*time.Second, 100*time.Millisecond, 2*time.Second
	})
	nc := connect(b, url)
	payloads := make([][][]byte, instances)
	seqs := make([]int, instances)
	send := func(i int, payload []byte) {
		m := &nats.Msg{Subject: EventSubject("ep", names[i], 0), Data: payload, Header: nats.Header{
			headerEpoch: {"one"}, headerSeq: {fmt.Sprint(seqs[i])}, headerInstance: {names[i]},
		}}
		seqs[i]++
		if err := nc.PublishMsg(m); err != nil {
			b.Fatal(err)
		}
	}
	r.ready(nc)
	last := make([][]uint32, instances)
	for i := range names {
		fill, steps := busyWorker(uint64(i))
		for _, f := range fill {
			send(i, Encode(f))
		}
		for _, s := range steps {
			payloads[i] = append(payloads[i], Encode(s))
		}
		last[i] = fill[len(fill)-1].Events[0].Tokens
	}
	applied := func() float64 { return r.metric("events_total", "stored") }
	r.eventually("the caches are full", func() bool { return applied() == 64*instances })
	base, sent := applied(), 0
	b.ResetTimer()
	for range b.N {
		i := sent % instances
		send(i, payloads[i][sent/instances%64])
		sent++
		// The way is as fast as its slowest part: never more than the router's
		// buffer ahead.
		if sent%(1<<14) == 0 {
			r.eventually("the router keeps up", func() bool { return applied()-base > float64(sent-1<<15) })
		}
	}
	r.eventually("all is applied", func() bool { return applied()-base == float64(sent) })
	b.StopTimer()
	b.ReportMetric(float64(2*b.N)/b.Elapsed().Seconds(), "events/s")
	if got := r.metric("gaps_total") + r.metric("unknown_parents_total"); got != 0 {
		b.Errorf("%v gaps and unknown parents", got)
	}
	for i, name := range names {
		if got := matched(r.index, r.instance(name).Handle(), blockkey.Namespace{Model: "m", BlockSize: 16}, last[i]); got != 64 {
			b.Fatalf("%s: %d blocks of a prompt of 64", name, got)
		}
	}
}
