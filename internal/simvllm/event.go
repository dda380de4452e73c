package simvllm

// EventKind says what happened to the cache.
type EventKind uint8

// The events of vLLM's KV cache.
const (
	BlocksStored EventKind = iota
	BlockRemoved
	AllBlocksCleared
)

// String is the name on vLLM's wire.
func (k EventKind) String() string {
	switch k {
	case BlocksStored:
		return "BlockStored"
	case BlockRemoved:
		return "BlockRemoved"
	case AllBlocksCleared:
		return "AllBlocksCleared"
	}
	return "unknown"
}

// Event is one change of the cache. Its slices are never written again.
type Event struct {
	Kind   EventKind
	Hashes []Hash // stored: a run of consecutive blocks; removed: one block
	// The fields of BlocksStored.
	Parent Hash    // the block before the first; meaningless when Root
	Root   bool    // the run begins a prompt
	Tokens []Token // BlockSize tokens for each hash
	Scope  Scope
}
