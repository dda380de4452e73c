package feedback

import (
	"encoding/binary"
	"strconv"

	"github.com/warmroute/warmroute/internal/blockkey"
)

// Namespace is the namespace of the blocks that begin with the stored event's
// first. vLLM lists what a block's hash covers beside its tokens in this order:
// the adapter's name, images and the like, the cache salt as a bare string,
// embeddings. The rule for a request is thus: Adapter is the adapter's name,
// Salt its cache_salt, Extra empty unless it holds more than text.
//
// An adapter that the event names by number alone can't be matched with a
// request's: its blocks get a namespace that no request has.
func Namespace(model string, stored Event) blockkey.Namespace {
	ns := blockkey.Namespace{Model: model, Adapter: stored.LoRAName, BlockSize: stored.BlockSize}
	if ns.Adapter == "" && stored.HasLoRAID {
		ns.Adapter = "\x00lora_id " + strconv.FormatInt(stored.LoRAID, 10)
	}
	rest := withoutAdapter(stored.extra(0), stored.LoRAName)
	for i := len(rest) - 1; i >= 0; i-- {
		if rest[i].Raw == nil {
			ns.Salt = rest[i].Text
			ns.Extra = canonical(rest[:i]) + canonical(rest[i+1:])
			return ns
		}
	}
	ns.Extra = canonical(rest)
	return ns
}

// withoutAdapter is the extra keys but the adapter's name, which comes first
// in every block of the adapter.
func withoutAdapter(keys []ExtraKey, adapter string) []ExtraKey {
	if adapter != "" && len(keys) > 0 && keys[0].Raw == nil && keys[0].Text == adapter {
		return keys[1:]
	}
	return keys
}

// canonical is a string that two lists of extra keys share only if they are
// equal; "" for none.
func canonical(keys []ExtraKey) string {
	var dst []byte
	for _, k := range keys {
		mark, data := byte('r'), k.Raw
		if k.Raw == nil {
			mark, data = 't', []byte(k.Text)
		}
		dst = binary.AppendUvarint(append(dst, mark), uint64(len(data)))
		dst = append(dst, data...)
	}
	return string(dst)
}

// appendKeys appends the keys of a stored event's blocks after parent, which
// is the namespace's root if the event begins a prompt.
func appendKeys(dst []blockkey.Key, parent blockkey.Key, e *Event) []blockkey.Key {
	if e.ExtraKeys == nil {
		return blockkey.Append(dst, parent, e.Tokens, e.BlockSize)
	}
	for i := range len(e.Tokens) / e.BlockSize {
		// What the first block's hash covers beside the tokens is in the root.
		if i > 0 || e.HasParent {
			// An image, say: equal tokens stand for any image.
			if extra := canonical(withoutAdapter(e.extra(i), e.LoRAName)); extra != "" {
				parent = blockkey.WithID(parent, extra)
			}
		}
		dst = blockkey.Append(dst, parent, e.Tokens[i*e.BlockSize:(i+1)*e.BlockSize], e.BlockSize)
		parent = dst[len(dst)-1]
	}
	return dst
}
