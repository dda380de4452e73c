package feedback

import "slices"

// Kind says what an [Event] reports.
type Kind uint8

// The events of vLLM's KV cache. Events of any other name are dropped by
// [Decode] and counted in [Batch.Unknown].
const (
	BlockStored Kind = iota + 1
	BlockRemoved
	AllBlocksCleared
)

// String is the event's name on the wire.
func (k Kind) String() string {
	switch k {
	case BlockStored:
		return "BlockStored"
	case BlockRemoved:
		return "BlockRemoved"
	case AllBlocksCleared:
		return "AllBlocksCleared"
	}
	return "unknown"
}

// Batch is what a worker publishes at once: the events of one engine step, in
// order.
type Batch struct {
	Time    float64 // seconds since 1970, by the worker's clock
	Rank    int     // the data-parallel rank, 0 if the worker names none
	Events  []Event
	Unknown int // events of a kind that this version does not know
}

// Event is one change of a worker's KV cache. Which fields mean something
// depends on Kind; a field that the worker's version does not send is zero.
type Event struct {
	Kind Kind

	// Stored: a run of consecutive blocks, in order. Removed: any blocks.
	// A hash given as bytes is folded to its last eight, big-endian, which is
	// the number that the same worker sends for the same digest when it sends
	// numbers.
	Hashes []uint64
	// Medium is where the blocks lie: "GPU", "" (older versions: the GPU), or
	// the name of an offload tier.
	Medium string
	// Group is the index of the KV cache group, 0 if the worker has but one.
	Group int

	// The rest is of BlockStored.

	HasParent bool
	Parent    uint64   // the block before the first, if HasParent
	Tokens    []uint32 // BlockSize tokens for each hash; more in groups that skip blocks
	BlockSize int      // tokens; 0 if missing
	HasLoRAID bool
	LoRAID    int64
	LoRAName  string // "" for the base model
	// ExtraKeys says for each block what its hash covers beside the tokens.
	// Nil if it is nothing for all of them.
	ExtraKeys [][]ExtraKey
	GroupKind string // "full_attention", "sliding_window", …; "" if not said
}

// ExtraKey is one thing that a block's hash covers beside its tokens. vLLM
// sends adapter names and cache salts as bare strings, and the rest (images,
// embeddings) as pairs or bytes.
type ExtraKey struct {
	Text string // of a bare string
	Raw  []byte // the MessagePack of anything else, else nil
}

// ClearsAll says whether the batch tells of the whole cache's end, so that
// nothing before it matters.
func (b Batch) ClearsAll() bool {
	return slices.ContainsFunc(b.Events, func(e Event) bool { return e.Kind == AllBlocksCleared })
}
