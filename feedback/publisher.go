package feedback

import (
	"errors"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
)

// publishQueue is how many batches wait for the network before new ones are
// dropped.
const publishQueue = 4096

// ErrClosed is returned by a Publisher after Close.
var ErrClosed = errors.New("feedback: the publisher is closed")

// ErrDropped is returned for a batch that was not sent because the network is
// too slow. Its seq is used up, so that readers see the gap and ask for a
// snapshot, which holds the batch's changes.
var ErrDropped = errors.New("feedback: the batch was dropped")

// Publisher sends one rank's batches.
type Publisher struct {
	nc       *nats.Conn
	subject  string
	instance string
	epoch    string
	done     chan struct{} // closed when the sender has ended

	mu     sync.Mutex
	queue  chan *nats.Msg // closed by Close
	closed bool
	seq    uint64 // of the next batch
}

// NewPublisher begins to publish a rank's batches. The epoch must differ from
// that of any other process that ever spoke for this rank. Close it before nc.
func NewPublisher(nc *nats.Conn, endpoint, instance string, rank int, epoch string) (*Publisher, error) {
	p := &Publisher{
		nc: nc, subject: EventSubject(endpoint, instance, rank), instance: instance, epoch: epoch,
		queue: make(chan *nats.Msg, publishQueue), done: make(chan struct{}),
	}
	go p.send()
	return p, nil
}

// Publish numbers a batch and hands it on to be sent. It never waits for the
// network. The batch must not be written afterwards.
func (p *Publisher) Publish(b Batch) error { return p.publish(b, Encode(b)) }

func (p *Publisher) publish(_ Batch, payload []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
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
		return ErrDropped
	}
}

// send ends when Close closes the queue.
func (p *Publisher) send() {
	defer close(p.done)
	for msg := range p.queue {
		_ = p.nc.PublishMsg(msg) // lost: readers see the gap
	}
}

// Close sends what waits and ends the sender. The connection stays open.
func (p *Publisher) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return ErrClosed
	}
	p.closed = true
	close(p.queue)
	p.mu.Unlock()
	<-p.done
	return nil
}
