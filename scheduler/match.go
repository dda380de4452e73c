package scheduler

import (
	"github.com/warmroute/warmroute/internal/blockkey"
	"github.com/warmroute/warmroute/radix"
)

// Request is what a decision needs to know.
type Request struct {
	Endpoint *Endpoint
	Variant  string // the variant asked for, "" for the weighted choice
	Adapter  string // the LoRA adapter asked for, "" for the base model
	PrefixID string // whose prefix it is, "" for nobody's
	// PromptTokens is the prompt's length, as far as it was read.
	PromptTokens int
	// Chains are the prompt's block keys for each block size in use. None: no
	// affinity by tokens.
	Chains []blockkey.Chain
	// Exclude are instances that have failed this request already.
	Exclude []*Instance
}

// chain is the keys for a block size, none where there are none.
func (r *Request) chain(blockSize int) []blockkey.Key {
	for _, c := range r.Chains {
		if c.BlockSize == blockSize {
			return c.Keys
		}
	}
	return nil
}

// coldKey names the beginning that a prompt without a match is placed by: the
// block just past a match that does not decide, or its last one if it is
// shorter. It is taken of the smallest block size, so that every router agrees.
// 0: the prompt has no full block.
func (r *Request) coldKey(minMatch int) blockkey.Key {
	best := blockkey.Chain{}
	for _, c := range r.Chains {
		if len(c.Keys) > 0 && (best.BlockSize == 0 || c.BlockSize < best.BlockSize) {
			best = c
		}
	}
	if best.BlockSize == 0 {
		return 0
	}
	return best.Keys[min(minMatch/best.BlockSize, len(best.Keys)-1)]
}

// candidate is an eligible instance and what is known for one request.
type candidate struct {
	*Instance
	size      int    // tokens per block when it was matched
	blocks    int    // leading blocks held or predicted, of this id
	confirmed int    // leading blocks confirmed
	matched   int    // tokens that the worker will find cached
	cost      int    // KV_AWARE only
	ids       int    // other ids that have this prefix here
	score     uint64 // rendezvous: the highest is first
	tie       uint64 // random
}

// scratch is one request's memory.
type scratch struct {
	candidates []candidate
	matches    []radix.Match
	keys       []blockkey.Key
	at         []int32 // by handle: the candidate's position and one, 0 for none
}

// eligible fills in the candidates of a variant.
func (c *scratch) eligible(v *Variant, r *Request) {
	c.candidates = c.candidates[:0]
	for _, i := range v.instances {
		if i.ineligible(r) == "" {
			c.candidates = append(c.candidates, candidate{Instance: i, size: i.BlockSize()})
		}
	}
}

// match fills in how much of the prompt each candidate holds. What counts for a
// prefix id is what was placed for it and is still held.
func (s *Scheduler) match(c *scratch, r *Request) {
	for _, chain := range r.Chains {
		if len(chain.Keys) == 0 {
			continue
		}
		c.matches = s.held.Match(c.matches[:0], chain.Keys)
		c.assign(chain.BlockSize, func(i *Instance) radix.Instance { return i.handle }, func(k *candidate, m radix.Match) {
			k.blocks, k.confirmed = m.Blocks, m.Confirmed
		})
		if r.PrefixID == "" {
			continue
		}
		c.keys = c.keys[:0]
		for _, key := range chain.Keys {
			c.keys = append(c.keys, blockkey.WithID(key, r.PrefixID))
		}
		c.matches = s.placed.Match(c.matches[:0], c.keys)
		held := func(k *candidate) bool { return k.size == chain.BlockSize }
		for j := range c.candidates {
			if k := &c.candidates[j]; held(k) {
				k.score = 0 // no placement seen yet
			}
		}
		c.assign(chain.BlockSize, func(i *Instance) radix.Instance { return i.placedHandle }, func(k *candidate, m radix.Match) {
			k.score = uint64(m.Blocks)
		})
		for j := range c.candidates {
			if k := &c.candidates[j]; held(k) {
				k.blocks = min(k.blocks, int(k.score))
				k.confirmed = min(k.confirmed, k.blocks)
			}
		}
	}
	for j := range c.candidates {
		k := &c.candidates[j]
		if t, _ := k.Trust(); t == Recovering || t == Stale {
			k.blocks, k.confirmed = 0, 0
		}
		k.matched = cachedTokens(k.blocks, k.size, r.PromptTokens)
	}
}

// assign gives each match to its candidate of that block size.
func (c *scratch) assign(blockSize int, handle func(*Instance) radix.Instance, give func(*candidate, radix.Match)) {
	for j := range c.candidates {
		h := int(handle(c.candidates[j].Instance))
		if h >= len(c.at) {
			c.at = append(c.at, make([]int32, h+1-len(c.at))...)
		}
		c.at[h] = int32(j) + 1
	}
	for _, m := range c.matches {
		if int(m.Instance) >= len(c.at) || c.at[m.Instance] == 0 {
			continue
		}
		if k := &c.candidates[c.at[m.Instance]-1]; k.size == blockSize {
			give(k, m)
		}
	}
	for j := range c.candidates {
		c.at[handle(c.candidates[j].Instance)] = 0
	}
}

// cachedTokens is what a worker reports as cached for a match of leading
// blocks: whole blocks, and never the prompt's last token, which vLLM always
// computes.
func cachedTokens(blocks, blockSize, promptTokens int) int {
	if promptTokens > 0 {
		blocks = min(blocks, (promptTokens-1)/blockSize)
	}
	return blocks * blockSize
}
