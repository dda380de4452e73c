package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/warmroute/warmroute/tokenize"
)

// words are what answers are made of.
const words = `the of and to in is that for it was on are as with they be at one have this from by not but what all were when we there can an
your which their if will each about how up out them then many some so these would other into has more her two like him time see could no make
than first been its who now people my made over did down only way find use may water long little very after called just where most know get
through back much before go good new write our used me man too any day same right look think also around another came come work three word must
because does part even place well such here take why things help put years different away again off went old number great tell men say small
every found still between name should home big give air line set own under read last never us left end along while might next sound below saw
something thought both few those always looked show large often together asked house world going want school important until form food keep
children feet land side without boy once animals life enough took sometimes four head above kind began almost live page got earth need far hand
high year mother light parts country father let night following picture being study second eyes soon times story boys since white days ever paper
hard near sentence better best across during today others however sure means knew try told young miles sun ways thing whole hear example heard
several change answer room sea against top turned learn point city play toward five using himself usually`

// author makes up answers. It is safe for concurrent use.
type author struct {
	seed                uint64
	first               []tokenize.Token // words that can begin a text
	capital, small      []tokenize.Token // words within a text, each with the space before it
	fullStop            tokenize.Token
	minLength, extraLen int
}

// newAuthor looks up the words. Only words that are one token are used, so
// that a client that sends an answer back has it read as the same tokens.
func newAuthor(model *tokenize.Model, seed uint64) (*author, error) {
	a := &author{seed: seed, minLength: 16, extraLen: 240}
	single := func(text string) (tokenize.Token, bool, error) {
		ids, err := model.Encode(nil, []byte(text))
		if err != nil || len(ids) != 1 {
			return 0, false, err
		}
		return ids[0], true, nil
	}
	for word := range strings.FieldsSeq(words) {
		title := strings.ToUpper(word[:1]) + word[1:]
		for _, form := range []struct {
			to   *[]tokenize.Token
			text string
		}{{&a.first, title}, {&a.capital, " " + title}, {&a.small, " " + word}} {
			id, ok, err := single(form.text)
			if err != nil {
				return nil, fmt.Errorf("look up the words of answers: %w", err)
			}
			if ok {
				*form.to = append(*form.to, id)
			}
		}
	}
	var ok bool
	var err error
	if a.fullStop, ok, err = single("."); err != nil {
		return nil, fmt.Errorf("look up the words of answers: %w", err)
	}
	if !ok || len(a.first) == 0 || len(a.capital) == 0 || len(a.small) == 0 {
		return nil, errors.New("the vocabulary has too few whole English words to make up answers")
	}
	return a, nil
}

// write makes up an answer of length tokens, or of a length of its own, at
// most limit, when length is 0.
func (a *author) write(prompt []tokenize.Token, choice, length, limit int) []tokenize.Token {
	rng := rand.New(rand.NewPCG(a.seed^digest(prompt), uint64(choice)))
	if length == 0 {
		length = min(a.minLength+rng.IntN(a.extraLen), limit)
	}
	out := make([]tokenize.Token, 0, length)
	from := a.first
	for len(out) < length {
		out = append(out, from[rng.IntN(len(from))])
		for n := 4 + rng.IntN(10); n > 0 && len(out) < length; n-- {
			out = append(out, a.small[rng.IntN(len(a.small))])
		}
		if len(out) < length {
			out = append(out, a.fullStop)
		}
		from = a.capital
	}
	return out
}

func digest(tokens []tokenize.Token) uint64 {
	d := xxhash.New()
	var buf [4096]byte
	for len(tokens) > 0 {
		n := min(len(tokens), len(buf)/4)
		for i, t := range tokens[:n] {
			binary.LittleEndian.PutUint32(buf[4*i:], t)
		}
		_, _ = d.Write(buf[:4*n]) // a hash never fails
		tokens = tokens[n:]
	}
	return d.Sum64()
}
