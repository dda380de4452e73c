package scheduler

import (
	"slices"

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
	placed    int    // leading blocks placed here for this id
	matched   int    // tokens that the worker will find cached
	load      int64  // in flight when it was picked
	cost      int    // KV_AWARE only
	ids       int    // other ids that have this prefix here
	score     uint64 // rendezvous: the highest is first
	unsure    bool   // only predictions made since its trust was lost count
}

// scratch is one request's memory.
type scratch struct {
	candidates []candidate
	matches    []radix.Match
	keys       []blockkey.Key
	held       positions // by handle in held
	placed     positions // by handles in placed
	unsure     bool      // a candidate is
}

// positions finds candidates by handle. Starting again costs nothing.
type positions struct {
	round uint32
	at    []position
}

type position struct {
	round uint32 // that it was set in
	index int32  // of the candidate
}

func (p *positions) reset() {
	if p.round++; p.round == 0 { // it came round: old entries would look new
		clear(p.at)
		p.round = 1
	}
}

func (p *positions) set(h radix.Instance, index int) {
	if int(h) >= len(p.at) {
		p.at = append(p.at, make([]position, int(h)+1-len(p.at))...)
	}
	p.at[h] = position{p.round, int32(index)}
}

func (p *positions) find(h radix.Instance) (index int, ok bool) {
	if int(h) >= len(p.at) || p.at[h].round != p.round {
		return 0, false
	}
	return int(p.at[h].index), true
}

// eligible fills in the candidates of a variant.
func (c *scratch) eligible(v *Variant, r *Request) {
	c.candidates, c.unsure = slices.Grow(c.candidates[:0], len(v.instances)), false
	c.held.reset()
	for _, i := range v.instances {
		if i.ineligible(r) != "" {
			continue
		}
		n := len(c.candidates)
		c.candidates = c.candidates[:n+1]
		k := &c.candidates[n] // in place: appending would build and copy it
		*k = candidate{Instance: i, size: i.BlockSize(), unsure: i.unsure.Load()}
		c.unsure = c.unsure || k.unsure
		c.held.set(i.handle, n)
	}
}

// match fills in how much of the prompt each candidate holds. What counts for a
// prefix id is what was placed for it and is still held; on an instance whose
// events are in doubt, what was sent there since.
func (s *Scheduler) match(c *scratch, r *Request) {
	withPlaced := r.PrefixID != "" || c.unsure
	if withPlaced {
		c.placed.reset()
		for j := range c.candidates {
			c.placed.set(c.candidates[j].placedHandle, j)
			c.placed.set(c.candidates[j].sinceHandle, j)
		}
	}
	for _, chain := range r.Chains {
		if len(chain.Keys) == 0 {
			continue
		}
		c.matches = s.held.Match(c.matches[:0], chain.Keys)
		for _, m := range c.matches {
			if j, ok := c.held.find(m.Instance); ok && c.candidates[j].size == chain.BlockSize {
				k := &c.candidates[j]
				k.blocks, k.confirmed = m.Blocks, m.Confirmed
			}
		}
		if withPlaced {
			s.matchPlaced(c, chain, r.PrefixID)
		}
	}
	for j := range c.candidates {
		k := &c.candidates[j]
		switch {
		case k.unsure:
			k.blocks, k.confirmed = k.placed, 0
		case r.PrefixID != "":
			k.blocks = min(k.blocks, k.placed)
			k.confirmed = min(k.confirmed, k.blocks)
		}
		if k.blocks > 0 {
			k.matched = cachedTokens(k.blocks, k.size, r.PromptTokens)
		}
	}
}

// matchPlaced fills in what was placed for the id: ever, or since the
// instance's trust was lost.
func (s *Scheduler) matchPlaced(c *scratch, chain blockkey.Chain, id string) {
	c.matches = s.placed.Match(c.matches[:0], c.withID(chain.Keys, id))
	for _, m := range c.matches {
		j, ok := c.placed.find(m.Instance)
		if !ok || c.candidates[j].size != chain.BlockSize {
			continue
		}
		if k := &c.candidates[j]; k.unsure == (m.Instance == k.sinceHandle) {
			k.placed = m.Blocks
		}
	}
}

// withID are the keys for a prefix id, in c's memory.
func (c *scratch) withID(keys []blockkey.Key, id string) []blockkey.Key {
	if id == "" {
		return keys
	}
	c.keys = c.keys[:0]
	for _, key := range keys {
		c.keys = append(c.keys, blockkey.WithID(key, id))
	}
	return c.keys
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
