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
	chat  chat
	text  rendering
	start bool    // the start tokens come before the text
	isIDs bool    // the prompt came as ids
	ids   []Token // of the prompt, or of what no cache knew
	trace trace
}

// Prompt reads the prompt of a request's body into p, whose memory it reuses.
// Only the first prefixLength characters of message text count (0: all), and
// of those only the tokens that what follows cannot change; so the keys are a
// true beginning of the whole prompt's keys. Of a list of prompts it reads the
// first. It fails with an [ErrUncertain]; p then holds no chains.
func (m *Model) Prompt(p *Prompt, kind Kind, body []byte, prefixLength int, roots []Root) error {
	p.Tokens, p.Whole, p.Chains = 0, false, p.Chains[:0]
	s, ok := m.states.Get().(*state)
	if !ok {
		s = &state{}
	}
	defer m.states.Put(s)
	if err := m.read(s, kind, body, prefixLength, m.DeveloperRole()); err != nil {
		return err
	}
	var err error
	if m.prefixes == nil || s.isIDs {
		err = m.chain(s, p, roots)
	} else {
		err = m.chainCached(s, p, roots)
	}
	if err != nil {
		p.Tokens, p.Chains = 0, p.Chains[:0]
		return err
	}
	p.Whole = s.text.cut < 0
	return nil
}

// chain fills p from the ids of the whole text.
func (m *Model) chain(s *state, p *Prompt, roots []Root) error {
	if err := m.encodeText(s); err != nil {
		return err
	}
	for _, root := range roots {
		keys := p.nextKeys()
		p.Chains = append(p.Chains, blockkey.Chain{
			BlockSize: root.BlockSize,
			Keys:      blockkey.Append(keys, root.Key, s.ids, root.BlockSize),
		})
	}
	p.Tokens = len(s.ids)
	return nil
}

// chainCached fills p by way of the caches: for every root the longest known
// beginning, then the rest of the text.
func (m *Model) chainCached(s *state, p *Prompt, roots []Root) error {
	e, text := m.native, s.text.out
	if s.text.cut >= 0 {
		text = text[:e.headEnd(text, 0, s.text.cut)]
	}
	for _, root := range roots {
		if root.BlockSize <= 0 {
			p.Chains = append(p.Chains, blockkey.Chain{})
			continue
		}
		sp := space{root, s.start}
		keys, parent, at, before := p.nextKeys(), root.Key, 0, 0
		s.ids = s.ids[:0]
		known := m.prefixes.find(sp, text)
		switch {
		case known != nil:
			keys = append(keys, known.keys...)
			if len(keys) > 0 {
				parent = keys[len(keys)-1]
			}
			s.ids = append(s.ids, known.tail...)
			at, before = known.at, len(known.keys)*root.BlockSize
		case s.start:
			s.ids = append(s.ids, e.start...)
		}
		s.trace.reset()
		var err error
		if s.ids, err = e.encode(s.ids, text, at, len(text), &s.trace); err != nil {
			return err
		}
		keys = blockkey.Append(keys, parent, s.ids, root.BlockSize)
		m.prefixes.learn(sp, text, known, s.trace.marks, s.ids, keys)
		p.Tokens = before + len(s.ids)
		p.Chains = append(p.Chains, blockkey.Chain{BlockSize: root.BlockSize, Keys: keys})
	}
	if len(roots) == 0 {
		return m.chain(s, p, nil)
	}
	return nil
}

// nextKeys is the memory of the keys of the chain that comes next.
func (p *Prompt) nextKeys() []blockkey.Key {
	if n := len(p.Chains); n < cap(p.Chains) {
		return p.Chains[:n+1][n].Keys[:0]
	}
	return nil
}

// Tokens returns the ids of a request's whole prompt, and its text (empty for a
// prompt of ids). It fails with an [ErrUncertain].
func (m *Model) Tokens(kind Kind, body []byte) (ids []Token, text string, err error) {
	return m.tokens(kind, body, m.DeveloperRole())
}

func (m *Model) tokens(kind Kind, body []byte, d DeveloperRole) (ids []Token, text string, err error) {
	s := &state{}
	err = m.read(s, kind, body, 0, d)
	if err == nil {
		err = m.encodeText(s)
	}
	if err == nil && s.text.cut >= 0 {
		err = errMedia
	}
	if err != nil {
		return nil, "", err
	}
	return s.ids, string(s.text.out), nil
}

// read renders the text of a body's prompt, or reads its ids.
func (m *Model) read(s *state, kind Kind, body []byte, limit int, d DeveloperRole) error {
	s.ids, s.start, s.isIDs = s.ids[:0], false, false
	s.text.reset(limit)
	if err := checkJSON(body); err != nil {
		return err
	}
	if kind == Completion {
		return m.readCompletion(s, body)
	}
	if m.template == nil {
		return errTemplate
	}
	if err := s.chat.readChat(body, d); err != nil {
		return err
	}
	for _, k := range s.chat.kwargs.keys {
		if reservedKwarg(k) {
			return errOwnTemplate
		}
	}
	if err := m.template.render(&s.text, &s.chat); err != nil {
		return err
	}
	s.start = s.chat.addSpecial
	if s.chat.continues && !s.text.done() {
		return continueFinal(&s.text, &s.chat)
	}
	return nil
}

// encodeText fills s.ids by encoding the text up to its cut, unless the prompt
// came as ids.
func (m *Model) encodeText(s *state) (err error) {
	if s.isIDs {
		return nil
	}
	if s.text.open && m.native == nil {
		return errMedia // another encoder's cuts are not known
	}
	if s.start {
		s.ids = append(s.ids, m.encoder.Start()...)
	}
	if s.text.cut < 0 {
		s.ids, err = m.encoder.Encode(s.ids, s.text.out)
	} else {
		s.ids, err = m.encoder.EncodeHead(s.ids, s.text.out, s.text.cut)
	}
	return err
}
