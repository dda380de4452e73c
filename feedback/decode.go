package feedback

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Decode reads one batch as vLLM sends it: [time, [event…], rank], where an
// event is an array (0.9 to 0.23) or a map (from 0.24). Unknown keys, unknown
// events, arrays longer than known and fields that are null or missing are
// accepted, so that a newer or older worker can be read. Anything else that is
// not as it should be is an error, and never a panic; what is allocated is at
// most a constant times the payload's size. The batch keeps nothing of payload
// but the ExtraKeys' raw bytes.
func Decode(payload []byte) (Batch, error) {
	r := &reader{buf: payload}
	var b Batch
	n := r.array()
	if r.err == nil && n < 2 {
		r.fail(fmt.Errorf("a batch of %d elements, want time and events", n))
	}
	b.Time = r.number()
	for range r.array() {
		var e Event
		if r.isMap() {
			e = r.eventMap()
		} else {
			e = r.eventArray()
		}
		if r.err != nil {
			break
		}
		if e.Kind == 0 {
			b.Unknown++
			continue
		}
		b.Events = append(b.Events, e)
	}
	if n > 2 && !r.null() {
		b.Rank = int(r.small(math.MaxUint16))
	}
	r.skip(n - 3)
	if r.err == nil && r.left() > 0 {
		r.fail(fmt.Errorf("%d bytes after the batch", r.left()))
	}
	if r.err != nil {
		return Batch{}, fmt.Errorf("decode a KV event batch: %w", r.err)
	}
	return b, nil
}

func kindOf(name []byte) Kind {
	switch string(name) {
	case "BlockStored":
		return BlockStored
	case "BlockRemoved":
		return BlockRemoved
	case "AllBlocksCleared":
		return AllBlocksCleared
	}
	return 0
}

// eventMap reads an event of vLLM 0.24 and later.
func (r *reader) eventMap() Event {
	var e Event
	for range r.fields() {
		name := string(r.bytes())
		switch {
		case r.err != nil:
			return e
		case name == "type":
			e.Kind = kindOf(r.bytes())
		default:
			r.field(&e, name)
		}
	}
	return e
}

// eventArray reads an event of vLLM 0.23 and earlier: fields by position.
// Versions only ever added fields at the end.
func (r *reader) eventArray() Event {
	var e Event
	n := r.array()
	if n == 0 {
		return e
	}
	e.Kind = kindOf(r.bytes())
	var names []string
	switch e.Kind {
	case BlockStored:
		names = []string{
			"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
			"extra_keys", "group_idx", "kv_cache_spec_kind",
		}
	case BlockRemoved:
		names = []string{"block_hashes", "medium", "group_idx"}
	case AllBlocksCleared:
	}
	names = names[:min(len(names), n-1)]
	for _, name := range names {
		r.field(&e, name)
	}
	r.skip(n - 1 - len(names))
	return e
}

// field reads the value of one field of an event; null leaves it as it is.
func (r *reader) field(e *Event, name string) {
	if r.null() {
		return
	}
	switch name {
	case "block_hashes":
		e.Hashes = make([]uint64, r.array())
		for i := range e.Hashes {
			e.Hashes[i] = r.hash()
		}
	case "parent_block_hash":
		e.Parent, e.HasParent = r.hash(), true
	case "token_ids":
		e.Tokens = make([]uint32, r.array())
		for i := range e.Tokens {
			e.Tokens[i] = uint32(r.small(math.MaxUint32))
		}
	case "block_size":
		e.BlockSize = int(r.small(math.MaxInt32))
	case "lora_id":
		bits, _ := r.integer()
		e.LoRAID, e.HasLoRAID = int64(bits), true
	case "lora_name":
		e.LoRAName = string(r.bytes())
	case "medium":
		e.Medium = string(r.bytes())
	case "extra_keys":
		e.ExtraKeys = r.extraKeys()
	case "group_idx":
		e.Group = int(r.small(math.MaxUint16))
	case "kv_cache_spec_kind":
		e.GroupKind = string(r.bytes())
	default:
		r.skip(1)
	}
}

// hash reads a block's hash: an integer, signed or not, or bytes.
func (r *reader) hash() uint64 {
	if r.err != nil || r.left() == 0 {
		r.fail(errShort)
		return 0
	}
	if c := r.buf[r.off]; c <= 0x7f || c >= 0xe0 || c >= 0xcc && c <= 0xd3 {
		bits, _ := r.integer()
		return bits
	}
	b := r.bytes()
	if len(b) >= 8 {
		return binary.BigEndian.Uint64(b[len(b)-8:])
	}
	var v uint64
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}

// extraKeys reads one entry for each block, each null or an array.
func (r *reader) extraKeys() [][]ExtraKey {
	n := r.array()
	var keys [][]ExtraKey
	for i := range n {
		if r.null() {
			continue
		}
		if r.err != nil {
			return nil
		}
		if keys == nil {
			keys = make([][]ExtraKey, n)
		}
		for range r.array() {
			keys[i] = append(keys[i], r.extraKey())
		}
	}
	return keys
}

func (r *reader) extraKey() ExtraKey {
	if r.isText() {
		return ExtraKey{Text: string(r.bytes())}
	}
	from := r.off
	r.skip(1)
	return ExtraKey{Raw: r.buf[from:r.off:r.off]}
}
