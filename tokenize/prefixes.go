package tokenize

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/armon/go-radix"

	"github.com/warmroute/warmroute/internal/blockkey"
)

const (
	prefixStep = 4096 // bytes between two remembered prefixes of one text, and the shortest
	prefixCost = 400  // bytes of a prefix beside its text and keys, measured
)

// prefixCache remembers the block keys of beginnings of prompts, in radix trees
// over the text, in [generations]: a walk down a tree compares the text itself,
// so what it finds is right. Every space has trees of its own. A prefix is remembered only when all of its chunks
// were known, so prompts that come once leave no trace here.
type prefixCache struct {
	generations
	seed   maphash.Seed
	shards [shardCount]prefixShard

	hits, misses atomic.Uint64
}

// space is what two texts must have in common for their keys to be the same.
type space struct {
	root  Root
	start bool // the tokenizer's start tokens come first
}

type prefixShard struct {
	mu sync.RWMutex
	// mu guards the following.
	young, old map[space]*radix.Tree
}

// prefix is what is known of a text up to a cut. It is immutable.
type prefix struct {
	text   string         // up to the cut and what makes it one
	at     int            // the cut
	tokens int            // tokens of it, those of a start included
	keys   []blockkey.Key // of its full blocks
	tail   []Token        // the tokens after them
}

func newPrefixCache(limit int64) *prefixCache {
	c := &prefixCache{seed: maphash.MakeSeed()}
	c.limit, c.turn = limit/2, c.turnShards
	c.turnShards()
	return c
}

func (c *prefixCache) turnShards() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.old, s.young = s.young, map[space]*radix.Tree{}
		s.mu.Unlock()
	}
}

// shard picks the shard of a text by its first step, which all of its
// remembered prefixes share.
func (c *prefixCache) shard(text []byte) *prefixShard {
	return &c.shards[maphash.Bytes(c.seed, text[:prefixStep])%shardCount]
}

// find returns the longest remembered beginning of text, or nil.
func (c *prefixCache) find(sp space, text []byte) *prefix {
	if len(text) < prefixStep {
		return nil
	}
	// The trees don't keep what they are asked for.
	asked := unsafe.String(unsafe.SliceData(text), len(text))
	s := c.shard(text)
	s.mu.RLock()
	found := longest(s.young[sp], asked)
	var older *prefix
	if found == nil || len(text)-found.at >= 2*prefixStep {
		older = longest(s.old[sp], asked)
	}
	s.mu.RUnlock()
	if older != nil && (found == nil || older.at > found.at) {
		found = older
		c.put(sp, s, found, int64(len(found.text)+8*len(found.keys)))
	}
	if found == nil {
		c.misses.Add(1)
		return nil
	}
	c.hits.Add(1)
	return found
}

func longest(t *radix.Tree, text string) *prefix {
	if t == nil {
		return nil
	}
	_, v, ok := t.LongestPrefix(text)
	if !ok {
		return nil
	}
	p, _ := v.(*prefix)
	return p
}

// learn remembers prefixes of text at some of the marks, which count ids from
// known on (nil: from the beginning). ids are those from known's tail on, and
// keys those of the whole text.
func (c *prefixCache) learn(sp space, text []byte, known *prefix, marks []mark, ids []Token, keys []blockkey.Key) {
	at, blocks := 0, 0
	if known != nil {
		at, blocks = known.at, len(known.keys)
	}
	chosen := choose(marks, at)
	if len(chosen) == 0 {
		return
	}
	last := chosen[len(chosen)-1]
	shared := string(text[:last.needs])
	size := sp.root.BlockSize
	allKeys := append([]blockkey.Key(nil), keys[:blocks+last.ids/size]...)
	s := c.shard(text)
	charged := int64(len(shared) + 8*len(allKeys)) // all prefixes share this memory
	for _, m := range chosen {
		full := m.ids / size
		p := &prefix{
			text:   shared[:m.needs],
			at:     m.at,
			tokens: blocks*size + m.ids,
			keys:   allKeys[: blocks+full : blocks+full],
			tail:   append([]Token(nil), ids[full*size:m.ids]...),
		}
		c.put(sp, s, p, charged)
		charged = 0
	}
}

// choose thins out marks to those at least prefixStep apart, counted from at.
// The chunk cache serves what lies after the last.
func choose(marks []mark, at int) []mark {
	var chosen []mark
	for _, m := range marks {
		if m.at-at >= prefixStep {
			chosen = append(chosen, m)
			at = m.at
		}
	}
	return chosen
}

// put adds p to the young half; charge is the bytes that p holds beside its own.
func (c *prefixCache) put(sp space, s *prefixShard, p *prefix, charge int64) {
	cost := charge + prefixCost + int64(4*len(p.tail))
	if cost > c.limit {
		return
	}
	s.mu.Lock()
	t := s.young[sp]
	if t == nil {
		t = radix.New()
		s.young[sp] = t
	}
	_, again := t.Insert(p.text, p)
	s.mu.Unlock()
	if !again { // else it takes the memory of an equal one
		c.spend(cost)
	}
}
