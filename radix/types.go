package radix

import (
	"errors"
	"time"
)

// Key names one block of tokens together with everything before it: each key
// hashes its parent's key, so two equal keys have equal beginnings.
type Key = uint64

// Hash is a worker's own name for a block. It is opaque here and unique within
// a [Source].
type Hash = uint64

// Instance is the dense handle of one instance, from [Index.AddInstance].
type Instance uint32

// Source is the scope in which a worker's hashes are unique: one KV cache
// group of one data-parallel rank of one instance. Each source is a cache of
// its own.
type Source struct {
	Instance Instance
	Rank     uint16
	Group    uint16
}

// Options of an [Index]. The zero value is usable.
type Options struct {
	// PredictionTTL is how long a prediction lives that nothing confirms; 0: for ever.
	PredictionTTL time.Duration
	// MaxBytes bounds the memory of the whole tree; 0: no limit.
	MaxBytes int64
	// DefaultCapacity is the most blocks predicted on an instance whose cache
	// size is unknown; 0: [DefaultCapacity].
	DefaultCapacity int
}

// DefaultCapacity is the most blocks predicted on one instance where nothing
// else is said: 1 M tokens in blocks of 16, about the cache of one large GPU node.
const DefaultCapacity = 1 << 16

// Match says how much of a prompt one instance holds.
type Match struct {
	Instance Instance
	// Blocks counts the leading blocks that are confirmed or predicted.
	Blocks int
	// Confirmed counts the leading blocks that are confirmed: at most Blocks.
	Confirmed int
}

// Ticket stands for the predictions of one request. The zero Ticket stands for none.
type Ticket struct {
	instance Instance
	life     uint32 // of the instance's contents: a cleared instance knows no old tickets
	seq      uint64 // from 1
}

var (
	// ErrUnknownParent is returned by [Index.Store] for a parent that the source does not hold.
	ErrUnknownParent = errors.New("radix: unknown parent block")
	// ErrUnknownInstance is returned for an instance that was never added, or was removed.
	ErrUnknownInstance = errors.New("radix: unknown instance")
	// ErrNotChained is returned for keys that the tree knows under another
	// parent: they can't be the chained keys of this run. What comes before them is stored.
	ErrNotChained = errors.New("radix: keys are not chained to their parents")
	// ErrLengths is returned for a run whose keys and hashes differ in number.
	ErrLengths = errors.New("radix: keys and hashes differ in number")
)

// Buckets of a histogram: 0, 1, 2–3, 4–7 and so on by doubling.
const Buckets = 24
