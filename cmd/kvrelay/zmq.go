package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/go-zeromq/zmq4"
)

// message is one batch as vLLM publishes it.
type message struct {
	seq     uint64
	payload []byte
}

var (
	errFrames  = errors.New("not a batch of KV events")
	errQuiet   = errors.New("the replay ended without its end mark")
	errNoReply = errors.New("no answer to a replay request")
)

// endMark is the seq (-1) of the empty message that ends a replay.
const endMark = ^uint64(0)

// parse reads a message. Versions differ in the frames before the last two.
func parse(frames [][]byte) (message, error) {
	if n := len(frames); n < 2 || len(frames[n-2]) != 8 {
		return message{}, fmt.Errorf("%w: %d frames", errFrames, len(frames))
	}
	return message{seq: binary.BigEndian.Uint64(frames[len(frames)-2]), payload: frames[len(frames)-1]}, nil
}

// subscribe reads live messages from one connection until it breaks or ctx
// ends. connected is called once vLLM is there.
func subscribe(ctx context.Context, endpoint, topic string, connected func(), each func(message)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sub := zmq4.NewSub(ctx, zmq4.WithDialerMaxRetries(0), zmq4.WithDialerTimeout(2*time.Second))
	defer sub.Close() //nolint:errcheck // nothing is written
	if err := sub.SetOption(zmq4.OptionSubscribe, topic); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	if err := sub.Dial(endpoint); err != nil {
		return fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	connected()
	for {
		m, err := sub.Recv()
		if err != nil {
			return fmt.Errorf("read from %s: %w", endpoint, err)
		}
		if b, err := parse(m.Frames); err == nil {
			each(b)
		}
	}
}

// replay asks vLLM for all that it keeps from seq on. ZMQ drops what a reader
// is too slow for here as well, so the answer may have holes and no end; what
// came is returned with an error then. errNoReply means that nothing came, not
// even the end.
func replay(ctx context.Context, endpoint string, from uint64, quiet time.Duration) ([]message, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dealer := zmq4.NewDealer(ctx, zmq4.WithDialerMaxRetries(0), zmq4.WithDialerTimeout(quiet), zmq4.WithTimeout(quiet))
	defer dealer.Close() //nolint:errcheck // all that was written is the request
	if err := dealer.Dial(endpoint); err != nil {
		return nil, errors.Join(errNoReply, err)
	}
	if err := dealer.SendMulti(zmq4.NewMsgFrom(nil, binary.BigEndian.AppendUint64(nil, from))); err != nil {
		return nil, errors.Join(errNoReply, err)
	}
	// Recv ends with its context only: cancelled when nothing came for long.
	idle := time.AfterFunc(quiet, cancel)
	defer idle.Stop()
	var messages []message
	for {
		m, err := dealer.Recv()
		if err != nil {
			if len(messages) == 0 {
				return nil, errors.Join(errNoReply, err)
			}
			return messages, errors.Join(errQuiet, err)
		}
		idle.Reset(quiet)
		b, err := parse(m.Frames)
		switch {
		case err != nil:
			return messages, err
		case b.seq == endMark:
			return messages, nil
		}
		messages = append(messages, b)
	}
}
