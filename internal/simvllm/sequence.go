package simvllm

import "github.com/warmroute/warmroute/internal/blockkey"

// Hash is a block's name inside one engine. Those of two engines differ.
type Hash = uint64

// Token is one token id.
type Token = uint32

// ID is a request's name inside one engine.
type ID uint64

// Scope is what two requests must have in common to share blocks.
type Scope struct {
	Adapter string // the LoRA adapter's name, "" for the base model
	Salt    string // cache_salt, "" for none
}

// Request is what a worker is asked for. The engine keeps Prompt and Answer;
// the caller must not write to them any more.
type Request struct {
	Prompt []Token // at least one
	Answer []Token // what will be generated, at least one token
	Scope  Scope
}

// sequence is a request in the engine.
type sequence struct {
	id     ID
	scope  Scope
	prompt int     // tokens of the prompt
	tokens []Token // the prompt, then the whole answer

	produced  int       // tokens of the answer generated so far
	computed  int       // tokens whose KV entries are in blocks
	scheduled int       // tokens that the present step computes
	blocks    []blockID // hold computed+scheduled tokens; nil while waiting
	stored    int       // leading blocks that are in the cache under their hash
	hashes    []Hash    // of the leading full blocks, as far as asked for
	root      Hash      // parent of the first

	cached  int  // tokens found in the cache when first scheduled
	started bool // was scheduled at least once
}

// known is the number of tokens that exist so far: the next step computes up
// to there, and only then is there a further token.
func (s *sequence) known() int { return s.prompt + s.produced }

// hashTo makes sure that the hashes of the first n blocks are there; their
// tokens must be known.
func (s *sequence) hashTo(n, blockSize int) []Hash {
	if have := len(s.hashes); have < n {
		parent := s.root
		if have > 0 {
			parent = s.hashes[have-1]
		}
		s.hashes = blockkey.Append(s.hashes, parent, s.tokens[have*blockSize:n*blockSize], blockSize)
	}
	return s.hashes[:n]
}

func blocksFor(tokens, blockSize int) int { return (tokens + blockSize - 1) / blockSize }
