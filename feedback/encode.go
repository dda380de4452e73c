package feedback

import (
	"encoding/binary"
	"math"
)

// Encode writes a batch as vLLM 0.24 and later do: events as maps, fields in
// vLLM's order, those that have their default left out. Hashes are written as
// numbers.
func Encode(b Batch) []byte {
	dst := appendArray(nil, 3)
	dst = binary.BigEndian.AppendUint64(append(dst, 0xcb), math.Float64bits(b.Time))
	dst = appendArray(dst, len(b.Events))
	for i := range b.Events {
		dst = appendEvent(dst, &b.Events[i])
	}
	return appendUint(dst, uint64(b.Rank))
}

func appendEvent(dst []byte, e *Event) []byte {
	start := len(dst)
	dst = append(dst, 0x80) // at most 12 fields: one byte, set at the end
	fields := byte(1)
	name := func(s string) {
		fields++
		dst = appendText(dst, s)
	}
	dst = appendText(dst, "type")
	dst = appendText(dst, e.Kind.String())
	if e.Kind == BlockStored || e.Kind == BlockRemoved {
		name("block_hashes")
		dst = appendArray(dst, len(e.Hashes))
		for _, h := range e.Hashes {
			dst = appendUint(dst, h)
		}
	}
	if e.Kind == BlockStored {
		name("parent_block_hash")
		if e.HasParent {
			dst = appendUint(dst, e.Parent)
		} else {
			dst = append(dst, 0xc0)
		}
		name("token_ids")
		dst = appendArray(dst, len(e.Tokens))
		for _, t := range e.Tokens {
			dst = appendUint(dst, uint64(t))
		}
		name("block_size")
		dst = appendUint(dst, uint64(e.BlockSize))
		name("lora_id")
		if e.HasLoRAID {
			dst = appendInt(dst, e.LoRAID)
		} else {
			dst = append(dst, 0xc0)
		}
	}
	if e.Kind == BlockStored || e.Kind == BlockRemoved {
		name("medium")
		dst = appendTextOrNull(dst, e.Medium)
	}
	if e.Kind == BlockStored {
		name("lora_name")
		dst = appendTextOrNull(dst, e.LoRAName)
		if e.ExtraKeys != nil {
			name("extra_keys")
			dst = appendExtraKeys(dst, e.ExtraKeys)
		}
	}
	if e.Kind != AllBlocksCleared {
		name("group_idx")
		dst = appendUint(dst, uint64(e.Group))
	}
	if e.GroupKind != "" {
		name("kv_cache_spec_kind")
		dst = appendText(dst, e.GroupKind)
	}
	dst[start] |= fields
	return dst
}

func appendExtraKeys(dst []byte, blocks [][]ExtraKey) []byte {
	dst = appendArray(dst, len(blocks))
	for _, keys := range blocks {
		if keys == nil {
			dst = append(dst, 0xc0)
			continue
		}
		dst = appendArray(dst, len(keys))
		for _, k := range keys {
			if k.Raw != nil {
				dst = append(dst, k.Raw...)
			} else {
				dst = appendText(dst, k.Text)
			}
		}
	}
	return dst
}
