// Package blockkey turns token ids into block keys: the 64-bit names under
// which the tree, the router and the event path all speak of one block.
//
// A key names a whole beginning of a prompt, not only its last block: it
// hashes the key before it and the tokens of its own block. Two prompts have
// the same key at position i exactly when they agree in all blocks up to i (but
// for a collision of a 64-bit hash). The first key hashes the namespace's
// root, so that blocks of two models, adapters or salts never meet, and so
// that blocks of different sizes can stand in one tree.
//
// All functions are pure and safe for concurrent use.
package blockkey

import (
	"encoding/binary"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// Key is the name of one block and of everything before it.
type Key = uint64

// Token is one token id of the worker's vocabulary.
type Token = uint32

// Chain is the block keys of one prompt for one block size, first block
// first. Only full blocks have keys.
type Chain struct {
	BlockSize int // tokens per block
	Keys      []Key
}

// Namespace is what two prompts must have in common before their blocks can
// be the same.
type Namespace struct {
	Model     string // the served model's name
	Adapter   string // the LoRA adapter's name, "" for the base model
	Salt      string // vLLM's cache_salt, "" for none
	Extra     string // any other extra keys of the worker's first block, in one canonical form
	BlockSize int    // tokens per block
	Raw       bool   // keys over raw bytes rather than tokens
}

// Root is the parent of the namespace's first blocks. It names no block
// itself.
func Root(ns Namespace) Key {
	d := xxhash.New()
	var n [8]byte
	for _, s := range []string{ns.Model, ns.Adapter, ns.Salt, ns.Extra} {
		// The length first, so that ("ab", "c") and ("a", "bc") differ.
		binary.LittleEndian.PutUint64(n[:], uint64(len(s)))
		d.Write(n[:])    //nolint:errcheck // a hash never fails
		d.WriteString(s) //nolint:errcheck // a hash never fails
	}
	size := uint64(ns.BlockSize) << 1
	if ns.Raw {
		size |= 1
	}
	binary.LittleEndian.PutUint64(n[:], size)
	d.Write(n[:]) //nolint:errcheck // a hash never fails
	return d.Sum64()
}

// Append appends to dst the keys of the full blocks of tokens, of blockSize
// tokens each, that follow the block named parent (a root for the first), and
// returns the extended slice. Tokens that do not fill a block have no key. It
// allocates only to grow dst.
func Append(dst []Key, parent Key, tokens []Token, blockSize int) []Key {
	if blockSize <= 0 {
		return dst
	}
	for len(tokens) >= blockSize {
		parent = next(parent, tokens[:blockSize])
		dst = append(dst, parent)
		tokens = tokens[blockSize:]
	}
	return dst
}

// AppendBytes is Append for raw bytes: blocks of blockSize bytes.
func AppendBytes(dst []Key, parent Key, data []byte, blockSize int) []Key {
	if blockSize <= 0 {
		return dst
	}
	for len(data) >= blockSize {
		h := xxhash.Sum64(data[:blockSize])
		parent = mix(parent, h)
		dst = append(dst, parent)
		data = data[blockSize:]
	}
	return dst
}

// WithID is the key of the block k for one prefix id: where an id's prefix was
// placed is kept apart from what an instance holds. The id "" is k itself.
func WithID(k Key, id string) Key {
	if id == "" {
		return k
	}
	return mix(xxhash.Sum64String(id), k)
}

// Odd constants with well-mixed bits: the first digits of pi, e and the golden
// ratio's fraction, as in many published hashes. Token ids are far below their
// upper halves, so that no token can cancel one.
const (
	secret0 = 0x9E3779B97F4A7C15
	secret1 = 0x243F6A8885A308D3
	secret2 = 0xB7E151628AED2A6B
)

// next is one step of the chain: the block's tokens, four at a time, folded
// into the parent by full 64x64-bit products.
func next(parent Key, tokens []Token) Key {
	h := parent ^ secret0
	for len(tokens) >= 4 {
		a := uint64(tokens[0]) | uint64(tokens[1])<<32
		b := uint64(tokens[2]) | uint64(tokens[3])<<32
		h = fold(a^secret1, b^h)
		tokens = tokens[4:]
	}
	for _, t := range tokens {
		h = fold(uint64(t)^secret1, h^secret2)
	}
	return mix(h, secret2)
}

// mix folds b into a.
func mix(a, b Key) Key { return fold(a^secret0, b^secret1) }

// fold is the exclusive or of both halves of the product.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
