package feedback

import "strings"

// verdict says whether an event can be indexed, and why not.
type verdict uint8

const (
	use          verdict = iota
	otherTier            // its blocks do not lie in the GPU's cache
	otherGroup           // its group's blocks say nothing of the blocks before them
	noBlockSize          // block_size is missing or 0
	badBlockSize         // block_size is not that of the group's other blocks
	badLength            // the tokens are not block_size for each hash
)

// String is the verdict as a metric's label.
func (v verdict) String() string {
	switch v {
	case use:
		return "use"
	case otherTier:
		return "other_tier"
	case otherGroup:
		return "other_group"
	case noBlockSize:
		return "no_block_size"
	case badBlockSize:
		return "other_block_size"
	case badLength:
		return "token_count"
	}
	return "unknown"
}

// filter says which of a stream's events count. It remembers what removals do
// not repeat: the kind and the block size of each group.
type filter struct {
	groups map[int]group
}

type group struct {
	prefix    bool // a block of it implies the blocks before it
	blockSize int  // of its first good event; 0 before
}

// prefixKind says whether a group's blocks are those of full attention, where
// a block can be used exactly if all before it are there. Workers that name no
// kind have no other.
func prefixKind(kind string) bool {
	switch kind {
	case "", "full_attention", "mla_attention", "sink_full_attention":
		return true
	}
	return false
}

// check judges one stored or removed event.
func (f *filter) check(e *Event) verdict {
	if e.Medium != "" && !strings.EqualFold(e.Medium, "GPU") {
		return otherTier
	}
	g, known := f.groups[e.Group]
	if e.Kind == BlockRemoved {
		if !known || !g.prefix {
			return otherGroup
		}
		return use
	}
	if !known || e.GroupKind != "" {
		g.prefix = prefixKind(e.GroupKind)
		if f.groups == nil {
			f.groups = make(map[int]group)
		}
		f.groups[e.Group] = g
	}
	switch {
	case !g.prefix:
		return otherGroup
	case e.BlockSize <= 0:
		return noBlockSize
	case g.blockSize != 0 && e.BlockSize != g.blockSize:
		return badBlockSize
	case len(e.Tokens)%e.BlockSize != 0 || len(e.Tokens)/e.BlockSize != len(e.Hashes):
		return badLength
	}
	g.blockSize = e.BlockSize
	f.groups[e.Group] = g
	return use
}

// reset forgets the groups: another process may lay its cache out otherwise.
func (f *filter) reset() { f.groups = nil }
