package tokenize

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

const (
	chunkBytes = 1024     // a chunk ends at the first cut at or after this length
	minChunk   = 256      // a shorter one is quicker to encode than to remember
	maxChunk   = 32 << 10 // a longer one is not worth its memory
	chunkCost  = 160      // bytes of a chunk beside its text and ids, measured
	shardCount = 32       // a power of two
)

// chunkCache remembers the ids of chunks of text, in [generations]. Chunks are
// found by a hash with a random seed and believed only if the text is the same.
type chunkCache struct {
	generations
	seed   maphash.Seed
	shards [shardCount]chunkShard

	hits, misses atomic.Uint64
}

type chunkShard struct {
	mu sync.Mutex
	// mu guards the following.
	young, old map[uint64]*chunk
}

// chunk is immutable.
type chunk struct {
	text string
	ids  []Token
}

func newChunkCache(limit int64) *chunkCache {
	c := &chunkCache{seed: maphash.MakeSeed()}
	c.limit, c.turn = limit/2, c.turnShards
	c.turnShards()
	return c
}

func (c *chunkCache) turnShards() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.old, s.young = s.young, map[uint64]*chunk{}
		s.mu.Unlock()
	}
}

func (c *chunkCache) hash(text []byte) uint64 { return maphash.Bytes(c.seed, text) }

// get returns the chunk of text, whose hash it is, or nil.
func (c *chunkCache) get(text []byte, hash uint64) *chunk {
	s := &c.shards[hash%shardCount]
	s.mu.Lock()
	found, older := s.young[hash], false
	if found == nil {
		found = s.old[hash]
		older = found != nil
	}
	s.mu.Unlock()
	if found == nil || found.text != string(text) {
		c.misses.Add(1)
		return nil
	}
	c.hits.Add(1)
	if older {
		c.put(found, hash)
	}
	return found
}

// learn remembers the ids of text.
func (c *chunkCache) learn(text []byte, hash uint64, ids []Token) {
	c.put(&chunk{text: string(text), ids: append(make([]Token, 0, len(ids)), ids...)}, hash)
}

func (c *chunkCache) put(made *chunk, hash uint64) {
	cost := made.cost()
	if cost > c.limit {
		return
	}
	s := &c.shards[hash%shardCount]
	s.mu.Lock()
	if was := s.young[hash]; was != nil {
		cost -= was.cost()
	}
	s.young[hash] = made
	s.mu.Unlock()
	c.spend(cost)
}

func (c *chunk) cost() int64 { return int64(len(c.text) + 4*len(c.ids) + chunkCost) }

// trace notes where an encoding passed cuts, as long as it met only chunks
// that were known.
type trace struct {
	marks []mark
	new   bool // a chunk was not known
}

// mark is a cut: the place in the text, the number of ids before it, and how
// much of the text must be the same in another one for it to be a cut there as
// well: up to the end of the character or special token that makes it one.
type mark struct{ at, ids, needs int }

func (t *trace) reset() { t.marks, t.new = t.marks[:0], false }

func (t *trace) mark(m mark) {
	if t != nil && !t.new {
		t.marks = append(t.marks, m)
	}
}

// markCut marks a cut before text[at]. The end of a text is none.
func (t *trace) markCut(text []byte, at, ids int) {
	if t != nil && !t.new && at < len(text) {
		_, n := utf8.DecodeRune(text[at:])
		t.mark(mark{at, ids, at + n})
	}
}

// appendChunks is appendPlain of text[from:to] by way of the cache. Chunks are counted from the
// text's beginning, so those of a message are the same wherever it stands.
func (e *native) appendChunks(dst []Token, text []byte, from, to int, s *scratch, t *trace) ([]Token, error) {
	text = text[:to]
	for from < to {
		end := e.classes.firstCut(text, from+chunkBytes, to)
		piece := text[from:end]
		if len(piece) < minChunk || len(piece) > maxChunk {
			var err error
			if dst, err = e.appendPlain(dst, piece, s); err != nil {
				return dst, err
			}
			t.markCut(text, end, len(dst))
			from = end
			continue
		}
		hash := e.chunks.hash(piece)
		if known := e.chunks.get(piece, hash); known != nil {
			dst = append(dst, known.ids...)
			t.markCut(text, end, len(dst))
		} else {
			if t != nil {
				t.new = true
			}
			before := len(dst)
			var err error
			if dst, err = e.appendPlain(dst, piece, s); err != nil {
				return dst, err
			}
			e.chunks.learn(piece, hash, dst[before:])
		}
		from = end
	}
	return dst, nil
}
