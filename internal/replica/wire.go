package replica

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/warmroute/warmroute/internal/blockkey"
	"github.com/warmroute/warmroute/scheduler"
)

// The wire format, all of it in one NATS message:
//
//	version, flags         1 byte each
//	sender, seq            8 bytes, uvarint
//	target                 8 bytes, only with flagAsk
//	count of loads         uvarint
//	  endpoint, instance   strings: uvarint length, bytes
//	  in flight, prefill   uvarints
//	items till the end
//	  1: prediction        number, endpoint, instance, prefix id, beginning (8 bytes), count of keys, keys (8 bytes each)
//	  2: withdrawal        number
//
// Fixed numbers are little-endian.
const version = 1

const (
	flagReset  byte = 1 << iota // what the sender said of loads before is void
	flagLeave                   // the sender ends: its loads are void
	flagAsk                     // the target is asked for its full state
	knownFlags = flagReset | flagLeave | flagAsk
)

const (
	itemPrediction = 1
	itemWithdrawal = 2
)

var errShort = errors.New("the message ends inside a value")

// load is what one router has in flight on an instance.
type load struct{ inFlight, prefill uint64 }

// name is an instance's identity.
type name struct{ endpoint, instance string }

// head is a message without its lists.
type head struct {
	flags  byte
	sender uint64
	seq    uint64
	target uint64
}

func appendHead(b []byte, h head) []byte {
	b = append(b, version, h.flags)
	b = binary.LittleEndian.AppendUint64(b, h.sender)
	b = binary.AppendUvarint(b, h.seq)
	if h.flags&flagAsk != 0 {
		b = binary.LittleEndian.AppendUint64(b, h.target)
	}
	return b
}

func appendLoad(b []byte, n name, l load) []byte {
	b = appendString(b, n.endpoint)
	b = appendString(b, n.instance)
	b = binary.AppendUvarint(b, l.inFlight)
	return binary.AppendUvarint(b, l.prefill)
}

func appendPrediction(b []byte, number uint64, p scheduler.Prediction) []byte {
	b = append(b, itemPrediction)
	b = binary.AppendUvarint(b, number)
	b = appendString(b, p.Endpoint)
	b = appendString(b, p.Instance)
	b = appendString(b, p.PrefixID)
	b = binary.LittleEndian.AppendUint64(b, p.Beginning)
	b = binary.AppendUvarint(b, uint64(len(p.Keys)))
	for _, k := range p.Keys {
		b = binary.LittleEndian.AppendUint64(b, k)
	}
	return b
}

func appendWithdrawal(b []byte, number uint64) []byte {
	return binary.AppendUvarint(append(b, itemWithdrawal), number)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// visitor gets a message's lists in order. The keys of a prediction are only
// valid during the call.
type visitor interface {
	load(name, load)
	predicted(number uint64, p scheduler.Prediction)
	withdrawn(number uint64)
}

// readHead is a message's head and the rest.
func readHead(data []byte) (head, *reader, error) {
	r := &reader{buf: data}
	v := r.byte()
	h := head{flags: r.byte(), sender: r.fixed(), seq: r.uvarint()}
	if h.flags&flagAsk != 0 {
		h.target = r.fixed()
	}
	switch {
	case r.err != nil:
		return head{}, nil, r.err
	case v != version:
		return head{}, nil, fmt.Errorf("version %d of the message, want %d: routers of one group must run versions that understand each other", v, version)
	case h.flags&^knownFlags != 0:
		return head{}, nil, fmt.Errorf("unknown flags %#x", h.flags)
	}
	return h, r, nil
}

// reader reads the format. The first error stays, and makes later reads zero.
// Its memory is bounded by the message's.
type reader struct {
	buf  []byte
	err  error
	keys []blockkey.Key
}

func (r *reader) take(n uint64) []byte {
	if r.err != nil || n > uint64(len(r.buf)) {
		if r.err == nil {
			r.err = errShort
		}
		return nil
	}
	b := r.buf[:n]
	r.buf = r.buf[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) fixed() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.buf)
	if n <= 0 {
		r.err = errShort
		return 0
	}
	r.buf = r.buf[n:]
	return v
}

func (r *reader) string() string { return string(r.take(r.uvarint())) }

// lists reads what follows the head. A message that can't be read to its end
// has been told to v as far as it could.
func (r *reader) lists(v visitor) error {
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		of := name{r.string(), r.string()}
		l := load{r.uvarint(), r.uvarint()}
		if r.err == nil {
			v.load(of, l)
		}
	}
	for r.err == nil && len(r.buf) > 0 {
		switch kind := r.byte(); kind {
		case itemPrediction:
			number := r.uvarint()
			p := scheduler.Prediction{Endpoint: r.string(), Instance: r.string(), PrefixID: r.string(), Beginning: r.fixed(), Keys: r.chain()}
			if r.err == nil {
				v.predicted(number, p)
			}
		case itemWithdrawal:
			number := r.uvarint()
			if r.err == nil {
				v.withdrawn(number)
			}
		default:
			r.err = fmt.Errorf("unknown item %d", kind)
		}
	}
	return r.err
}

func (r *reader) chain() []blockkey.Key {
	n := r.uvarint()
	if n > uint64(len(r.buf))/8 {
		r.take(uint64(len(r.buf)) + 1) // too short
		return nil
	}
	r.keys = r.keys[:0]
	for range n {
		r.keys = append(r.keys, r.fixed())
	}
	return r.keys
}

func appendCount(b []byte, n int) []byte { return binary.AppendUvarint(b, uint64(n)) }
