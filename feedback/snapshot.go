package feedback

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
)

// Headers of snapshot requests and answers, beside those of batches. A request
// without a snapshot's id asks for a new one, cut after the last batch that has
// a seq; its answer is the first chunk. Each chunk is a batch of its own.
const (
	headerWant     = "Warmroute-Want"     // request: "head" for no more than epoch and next
	headerSnapshot = "Warmroute-Snapshot" // the snapshot's id
	headerChunk    = "Warmroute-Chunk"    // which one, from 0
	headerChunks   = "Warmroute-Chunks"   // answer: how many
	headerNext     = "Warmroute-Next"     // answer: the first seq that the snapshot does not hold
	headerRank     = "Warmroute-Rank"     // answer: who speaks
	headerEncoding = "Warmroute-Encoding" // answer: "zstd", "gzip" or "" for none
	headerError    = "Warmroute-Error"    // answer: why there is no chunk
)

const (
	wantHead = "head"
	// errorGone answers for a snapshot that is no longer kept.
	errorGone = "gone"
)

// Limits of one snapshot, against a peer that answers nonsense.
const (
	maxChunks     = 1 << 16
	maxChunkBytes = 8 << 20 // decompressed
)

// head is what a rank says of itself.
type head struct {
	epoch string
	next  uint64
	rank  int
}

// chunk is one answer to a snapshot request.
type chunk struct {
	head
	snapshot string
	chunks   int
	batch    Batch
}

var (
	errGone   = errors.New("the worker keeps the snapshot no longer")
	errAnswer = errors.New("the answer makes no sense")
)

func parseSeq(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 62)
	if err != nil {
		return 0, fmt.Errorf("a sequence number: %w", err)
	}
	return n, nil
}

func parseHead(m *nats.Msg) (head, error) {
	h := head{epoch: m.Header.Get(headerEpoch)}
	if h.epoch == "" {
		return h, fmt.Errorf("%w: no epoch", errAnswer)
	}
	var err error
	if h.next, err = parseSeq(m.Header.Get(headerNext)); err != nil {
		return h, err
	}
	h.rank, err = parseRank(m.Header.Get(headerRank))
	return h, err
}

func parseChunk(m *nats.Msg) (chunk, error) {
	if e := m.Header.Get(headerError); e == errorGone {
		return chunk{}, errGone
	} else if e != "" {
		return chunk{}, fmt.Errorf("%w: it says %.100q", errAnswer, e)
	}
	h, err := parseHead(m)
	if err != nil {
		return chunk{}, err
	}
	c := chunk{head: h, snapshot: m.Header.Get(headerSnapshot)}
	c.chunks, err = strconv.Atoi(m.Header.Get(headerChunks))
	if err != nil || c.chunks < 1 || c.chunks > maxChunks || c.snapshot == "" {
		return chunk{}, fmt.Errorf("%w: %.20q chunks", errAnswer, m.Header.Get(headerChunks))
	}
	payload, err := decompress(m.Header.Get(headerEncoding), m.Data)
	if err != nil {
		return chunk{}, fmt.Errorf("decompress a chunk: %w", err)
	}
	c.batch, err = Decode(payload)
	return c, err
}

func decompress(encoding string, data []byte) ([]byte, error) {
	switch encoding {
	case "":
		return data, nil
	case "zstd":
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxChunkBytes))
		if err != nil {
			return nil, err
		}
		defer d.Close()
		return d.DecodeAll(data, nil)
	case "gzip":
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		out, err := io.ReadAll(io.LimitReader(z, maxChunkBytes+1))
		if err == nil && len(out) > maxChunkBytes {
			err = fmt.Errorf("%w: over %d bytes", errAnswer, maxChunkBytes)
		}
		return out, err
	}
	return nil, fmt.Errorf("%w: encoding %.20q", errAnswer, encoding)
}

// split cuts a snapshot's events into chunks whose encoding is about size
// bytes at most. There is always one.
func split(events []Event, size int) [][]Event {
	var chunks [][]Event
	from, sum := 0, 0
	for i := range events {
		n := encodedSize(&events[i])
		if i > from && sum+n > size {
			chunks = append(chunks, events[from:i:i])
			from, sum = i, 0
		}
		sum += n
	}
	return append(chunks, events[from:])
}

// encodedSize is at least the number of bytes that Encode makes of e, but for
// its longest names.
func encodedSize(e *Event) int {
	n := 256 + len(e.LoRAName) + len(e.GroupKind) + 9*len(e.Hashes) + 5*len(e.Tokens)
	for _, keys := range e.ExtraKeys {
		for _, k := range keys {
			n += 5 + len(k.Text) + len(k.Raw)
		}
		n += 5
	}
	return n
}
