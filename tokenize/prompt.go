package tokenize

import (
	"github.com/warmroute/warmroute/internal/blockkey"
)

// Kind is the route of a request.
type Kind int

// The two kinds of prompts.
const (
	Chat       Kind = iota // /v1/chat/completions: messages
	Completion             // /v1/completions: prompt
)

// Root is where the chain of one block size starts.
type Root struct {
	BlockSize int
	Key       blockkey.Key
}

// Prompt is what is known of a request's prompt.
type Prompt struct {
	// Tokens is the number of tokens read: of the whole prompt, or of what
	// lies in the prefix length.
	Tokens int
	// Whole says that the whole prompt was read.
	Whole bool
	// Chains holds the keys of the full blocks read, one chain for every root.
	Chains []blockkey.Chain
}

// state is the working memory of one request.
type state struct {
	chat chat
	text rendering
	ids  []Token
}

// Prompt reads the prompt of a request's body into p, whose memory it reuses.
// Only the first prefixLength characters of message text count (0: all), and
// of those only the tokens that what follows cannot change; so the keys are a
// true beginning of the whole prompt's keys. Of a list of prompts it reads the
// first. It fails with an [ErrUncertain]; p then holds no chains.
func (m *Model) Prompt(p *Prompt, kind Kind, body []byte, prefixLength int, roots []Root) error {
	p.Tokens, p.Whole = 0, false
	for i := range p.Chains {
		p.Chains[i].Keys = p.Chains[i].Keys[:0]
	}
	chains := p.Chains[:cap(p.Chains)]
	p.Chains = p.Chains[:0]
	s, ok := m.states.Get().(*state)
	if !ok {
		s = &state{}
	}
	defer m.states.Put(s)
	whole, err := m.read(s, kind, body, prefixLength)
	if err != nil {
		return err
	}
	p.Tokens, p.Whole = len(s.ids), whole
	for i, root := range roots {
		var keys []blockkey.Key
		if i < len(chains) {
			keys = chains[i].Keys[:0]
		}
		p.Chains = append(p.Chains, blockkey.Chain{
			BlockSize: root.BlockSize,
			Keys:      blockkey.Append(keys, root.Key, s.ids, root.BlockSize),
		})
	}
	return nil
}

// Tokens returns the ids of a request's whole prompt, and its text (empty for a
// prompt of ids). It fails with an [ErrUncertain].
func (m *Model) Tokens(kind Kind, body []byte) (ids []Token, text string, err error) {
	s := &state{}
	whole, err := m.read(s, kind, body, 0)
	if err == nil && !whole {
		err = reasonMedia
	}
	if err != nil {
		return nil, "", err
	}
	return s.ids, string(s.text.out), nil
}

// read fills s.ids, and reports whether they are the whole prompt.
func (m *Model) read(s *state, kind Kind, body []byte, limit int) (whole bool, err error) {
	s.ids = s.ids[:0]
	if err := checkJSON(body); err != nil {
		return false, err
	}
	s.text.reset(limit)
	if kind == Completion {
		return m.readCompletion(s, body)
	}
	if m.template == nil {
		return false, reasonTemplate
	}
	if err := s.chat.readChat(body); err != nil {
		return false, err
	}
	for _, k := range s.chat.kwargs.keys {
		if reservedKwarg(k) {
			return false, reasonOwnTemplate
		}
	}
	if err := m.template.render(&s.text, &s.chat); err != nil {
		return false, err
	}
	if s.chat.continues && !s.text.done() {
		if err := continueFinal(&s.text, &s.chat); err != nil {
			return false, err
		}
	}
	if s.chat.addSpecial {
		s.ids = append(s.ids, m.encoder.Start()...)
	}
	return m.encodeText(s)
}

// encodeText encodes the rendering up to its cut.
func (m *Model) encodeText(s *state) (whole bool, err error) {
	if s.text.cut < 0 {
		s.ids, err = m.encoder.Encode(s.ids, s.text.out)
		return true, err
	}
	s.ids, err = m.encoder.EncodeHead(s.ids, s.text.out, s.text.cut)
	return false, err
}
