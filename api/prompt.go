package api

import (
	"errors"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/warmroute/warmroute/internal/blockkey"
	"github.com/warmroute/warmroute/tokenize"
)

// bytesPerToken is about what a token of English text stands for: raw bodies
// are cut into blocks of as many bytes, and their lengths are estimates.
const bytesPerToken = 4

// prompt is what is known of a request's prompt.
type prompt struct {
	tokens int
	chains []blockkey.Chain
	exact  bool // real tokens, not an estimate from bytes
	kind   tokenize.Kind
	memory *promptMemory
}

// promptMemory is reused from request to request.
type promptMemory struct {
	prompt tokenize.Prompt
	roots  []tokenize.Root
	sizes  []int
}

// prompts makes and takes back that memory.
type prompts struct{ pool sync.Pool }

func (p *prompts) get() *promptMemory {
	if m, ok := p.pool.Get().(*promptMemory); ok {
		return m
	}
	return &promptMemory{}
}

// release gives the memory back; the chains are not to be used after it.
func (p *prompts) release(r *request) {
	if r.prompt.memory != nil {
		p.pool.Put(r.prompt.memory)
		r.prompt = prompt{}
	}
}

// readPrompt turns the request's prompt into block keys. Where that can't be
// done with certainty the request goes on without them, and is counted.
func (s *Server) readPrompt(r *request) {
	if !r.route.prompt && !r.route.native {
		return
	}
	m := s.prompts.get()
	r.prompt.memory = m
	m.sizes = r.endpoint.AppendBlockSizes(m.sizes[:0])
	limit := r.endpoint.PrefixLength()
	kind, understood := r.promptKind()
	model := s.o.Models(r.endpoint.Name())
	if !understood || model == nil {
		s.readRaw(r, m, limit)
		return
	}
	m.roots = m.roots[:0]
	for _, size := range m.sizes {
		ns := blockkey.Namespace{Model: r.endpoint.Model(), Adapter: r.adapter, Salt: r.salt, BlockSize: size}
		m.roots = append(m.roots, tokenize.Root{BlockSize: size, Key: blockkey.Root(ns)})
	}
	err := model.Prompt(&m.prompt, kind, r.body, limit, m.roots)
	switch {
	case errors.Is(err, tokenize.ErrUncertain):
		s.metrics.uncertain.WithLabelValues(r.endpoint.Name(), tokenize.Reason(err)).Inc()
	case err != nil:
		s.metrics.uncertain.WithLabelValues(r.endpoint.Name(), "error").Inc()
	default:
		r.prompt.tokens, r.prompt.chains, r.prompt.exact = m.prompt.Tokens, m.prompt.Chains, true
		r.prompt.kind = kind
	}
}

// promptKind says how to read the body's prompt, as vLLM's own /invocations
// does on the native route: messages are a chat, prompt is a completion.
func (r *request) promptKind() (tokenize.Kind, bool) {
	if !r.route.native {
		return r.route.kind, true
	}
	if !r.json {
		return 0, false
	}
	if gjson.GetBytes(r.body, "messages").IsArray() {
		return tokenize.Chat, true
	}
	return tokenize.Completion, gjson.GetBytes(r.body, "prompt").Exists()
}

// readRaw matches a body by its bytes.
func (s *Server) readRaw(r *request, m *promptMemory, limit int) {
	data := r.body
	if limit > 0 && len(data) > limit {
		data = data[:limit]
	}
	m.prompt.Chains = m.prompt.Chains[:0]
	for _, size := range m.sizes {
		root := blockkey.Root(blockkey.Namespace{Model: r.endpoint.Model(), Adapter: r.adapter, Salt: r.salt, BlockSize: size, Raw: true})
		m.prompt.Chains = append(m.prompt.Chains, blockkey.Chain{
			BlockSize: size, Keys: blockkey.AppendBytes(nil, root, data, size*bytesPerToken),
		})
	}
	r.prompt.tokens, r.prompt.chains = len(data)/bytesPerToken, m.prompt.Chains
}
