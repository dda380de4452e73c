package feedback

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
)

const (
	// publishQueue is how many batches wait for the network before new ones
	// are dropped.
	publishQueue = 4096
	// keptSnapshots is how many snapshots are kept for readers that are still
	// fetching; each refers to the table's own tokens.
	keptSnapshots = 8
	// snapshotKept is how long.
	snapshotKept = time.Minute
	// chunkBytes is the most of a snapshot that goes into one message, before
	// compression. NATS servers allow 1 MiB unless configured otherwise.
	chunkBytes = 256 << 10
)

var (
	// ErrClosed is returned by a Publisher after Close.
	ErrClosed = errors.New("feedback: the publisher is closed")
	// ErrDropped is returned for a batch that was not sent because the network
	// is too slow. Its seq is used up, so that readers see the gap and ask for
	// a snapshot, which holds the batch's changes.
	ErrDropped = errors.New("feedback: the batch was dropped")
)

// Publisher sends one rank's batches, in order, and answers for snapshots of
// the blocks that they say are live. It must see every batch of its epoch.
type Publisher struct {
	nc       *nats.Conn
	subject  string
	instance string
	rank     int
	epoch    string
	subs     []*nats.Subscription
	encoder  *zstd.Encoder
	queue    chan *nats.Msg // closed by Close
	done     chan struct{}  // closed when the sender has ended

	mu      sync.Mutex
	closed  bool
	seq     uint64 // of the next batch
	table   table
	dropped uint64
	kept    []*keptSnapshot
	cut     uint64 // snapshots made: their ids
}

type keptSnapshot struct {
	id     string
	next   uint64
	chunks [][]Event
	expiry *time.Timer
}

// NewPublisher begins to publish a rank's batches and to answer for them. The
// epoch must differ from that of any other process that ever spoke for this
// rank. Close it before nc.
func NewPublisher(nc *nats.Conn, endpoint, instance string, rank int, epoch string) (*Publisher, error) {
	if epoch == "" {
		return nil, errors.New("feedback: a publisher needs an epoch")
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(chunkBytes))
	if err != nil {
		return nil, fmt.Errorf("feedback: make a compressor: %w", err)
	}
	p := &Publisher{
		nc: nc, subject: EventSubject(endpoint, instance, rank), instance: instance, rank: rank, epoch: epoch,
		encoder: encoder, queue: make(chan *nats.Msg, publishQueue), done: make(chan struct{}),
	}
	for _, subject := range []string{SnapshotSubject(endpoint, instance, rank), headSubject(endpoint, instance)} {
		sub, err := nc.Subscribe(subject, p.answer)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("feedback: subscribe to %s: %w", subject, err), p.unsubscribe())
		}
		p.subs = append(p.subs, sub)
	}
	go p.send()
	return p, nil
}

// Publish numbers a batch and hands it on to be sent. It never waits for the
// network, though it may wait for the copying of a snapshot. The batch must not
// be written afterwards; its Rank is the publisher's.
func (p *Publisher) Publish(b Batch) error {
	b.Rank = p.rank
	return p.publish(b, Encode(b))
}

// PublishRaw is Publish for a batch as the worker encoded it. A payload that
// can't be read is refused, and takes no seq.
func (p *Publisher) PublishRaw(payload []byte) error {
	b, err := Decode(payload)
	if err != nil {
		return err
	}
	return p.publish(b, payload)
}

func (p *Publisher) publish(b Batch, payload []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	p.table.apply(b)
	msg := &nats.Msg{Subject: p.subject, Data: payload, Header: nats.Header{
		headerEpoch:    {p.epoch},
		headerSeq:      {strconv.FormatUint(p.seq, 10)},
		headerInstance: {p.instance},
	}}
	p.seq++
	select {
	case p.queue <- msg:
		return nil
	default:
		p.dropped++
		return ErrDropped
	}
}

// Dropped is how many batches were not sent because the network was too slow.
func (p *Publisher) Dropped() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

// send ends when Close closes the queue.
func (p *Publisher) send() {
	defer close(p.done)
	for msg := range p.queue {
		if err := p.nc.PublishMsg(msg); err != nil {
			// The connection is down and its buffer full, or the batch is over
			// the server's limit: readers see the gap.
			p.mu.Lock()
			p.dropped++
			p.mu.Unlock()
		}
	}
}

// answer runs on the subscriptions' goroutines.
func (p *Publisher) answer(request *nats.Msg) {
	if request.Reply == "" {
		return
	}
	reply := &nats.Msg{Subject: request.Reply, Header: nats.Header{
		headerEpoch: {p.epoch}, headerInstance: {p.instance}, headerRank: {strconv.Itoa(p.rank)},
	}}
	if request.Header.Get(headerWant) == wantHead {
		p.mu.Lock()
		next := p.seq
		p.mu.Unlock()
		reply.Header.Set(headerNext, strconv.FormatUint(next, 10))
	} else {
		p.answerChunk(request.Header, reply)
	}
	_ = p.nc.PublishMsg(reply) // lost: the reader asks again
}

func (p *Publisher) answerChunk(request nats.Header, reply *nats.Msg) {
	index, id := 0, request.Get(headerSnapshot)
	var snapshot *keptSnapshot
	if id == "" {
		snapshot = p.newSnapshot()
	} else {
		snapshot = p.find(id)
		n, err := strconv.Atoi(request.Get(headerChunk))
		if snapshot == nil || err != nil || n < 0 || n >= len(snapshot.chunks) {
			reply.Header.Set(headerError, errorGone)
			return
		}
		index = n
	}
	reply.Header.Set(headerSnapshot, snapshot.id)
	reply.Header.Set(headerNext, strconv.FormatUint(snapshot.next, 10))
	reply.Header.Set(headerChunk, strconv.Itoa(index))
	reply.Header.Set(headerChunks, strconv.Itoa(len(snapshot.chunks)))
	reply.Header.Set(headerEncoding, "zstd")
	reply.Data = p.encoder.EncodeAll(Encode(Batch{Rank: p.rank, Events: snapshot.chunks[index]}), nil)
}

// newSnapshot freezes the table.
func (p *Publisher) newSnapshot() *keptSnapshot {
	size := chunkBytes
	if limit := p.nc.MaxPayload(); limit > 0 {
		size = min(size, int(limit/2)) // even if it can't be compressed
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut++
	s := &keptSnapshot{id: strconv.FormatUint(p.cut, 10), next: p.seq, chunks: split(p.table.snapshot(), size)}
	if p.closed {
		return s
	}
	s.expiry = time.AfterFunc(snapshotKept, func() { p.forget(s) })
	if len(p.kept) == keptSnapshots {
		p.kept[0].expiry.Stop()
		p.kept = p.kept[1:]
	}
	p.kept = append(p.kept, s)
	return s
}

func (p *Publisher) find(id string) *keptSnapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.kept {
		if s.id == id {
			return s
		}
	}
	return nil
}

func (p *Publisher) forget(s *keptSnapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, k := range p.kept {
		if k == s {
			p.kept = append(p.kept[:i:i], p.kept[i+1:]...)
			return
		}
	}
}

// Close hands what waits to the connection, and ends the answers. The
// connection stays open.
func (p *Publisher) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return ErrClosed
	}
	p.closed = true
	close(p.queue)
	for _, s := range p.kept {
		s.expiry.Stop()
	}
	p.kept = nil
	p.mu.Unlock()
	<-p.done
	return p.unsubscribe()
}

func (p *Publisher) unsubscribe() error {
	var errs []error
	for _, sub := range p.subs {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
