package worker

import (
	"bytes"
	"encoding/json"
	"maps"

	"github.com/tidwall/gjson"

	"github.com/warmroute/warmroute/internal/simvllm"
	"github.com/warmroute/warmroute/tokenize"
)

// Limits that keep one request from filling the memory.
const (
	maxBody    = 64 << 20 // bytes
	maxAnswers = 1024     // prompts times choices of one request
	maxTokens  = 4 << 20  // of all its prompts and answers together, a prompt counted for each answer
)

// defaultCompletion is vLLM's max_tokens of a completion that names none.
const defaultCompletion = 16

// request is what is read of a body; the rest is ignored.
type request struct {
	Model               *string         `json:"model"`
	Messages            json.RawMessage `json:"-"`
	Prompt              json.RawMessage `json:"-"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	N                   *int            `json:"n"`
	Stream              bool            `json:"stream"`
	StreamOptions       *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	CacheSalt      *string `json:"cache_salt"`
	ReturnTokenIDs bool    `json:"return_token_ids"`
}

// job is a request that was found good.
type job struct {
	kind         tokenize.Kind
	model        string // as asked for
	prompts      [][]tokenize.Token
	choices      int               // answers to each prompt
	answers      []simvllm.Request // choices of the first prompt, of the second, …
	reason       string            // why the answers end
	stream       bool
	includeUsage bool
	returnIDs    bool
}

// parse reads a body. The prompt, nearly all of it, is only skipped here: the
// tokenizer reads it.
func parse(body []byte) (*request, *apiError) {
	fields := gjson.ParseBytes(body)
	if !gjson.ValidBytes(body) || !fields.IsObject() {
		return nil, badRequest("", "The body is not a JSON object.")
	}
	var r request
	small := []byte{'{'}
	fields.ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "messages":
			r.Messages = json.RawMessage(value.Raw)
		case "prompt":
			r.Prompt = json.RawMessage(value.Raw)
		default:
			if len(small) > 1 {
				small = append(small, ',')
			}
			small = append(append(append(small, key.Raw...), ':'), value.Raw...)
		}
		return true
	})
	if err := json.Unmarshal(append(small, '}'), &r); err != nil {
		return nil, badRequest("", "The body can't be read: %v", err)
	}
	return &r, nil
}

func present(raw json.RawMessage) bool { return len(raw) > 0 && !bytes.Equal(raw, []byte("null")) }

// newJob checks a request as vLLM does, and makes up its answers.
func (w *Worker) newJob(kind tokenize.Kind, r *request, body []byte) (*job, *apiError) {
	j := &job{kind: kind, model: w.o.ModelName, choices: 1, reason: "length", stream: r.Stream, returnIDs: r.ReturnTokenIDs}
	scope, fail := w.scope(r)
	if fail != nil {
		return nil, fail
	}
	if r.Model != nil {
		j.model = *r.Model
	}
	if r.StreamOptions != nil {
		if !r.Stream {
			return nil, badRequest("stream_options", "Stream options can only be defined when `stream=True`.")
		}
		j.includeUsage = r.StreamOptions.IncludeUsage
	}
	if r.N != nil {
		j.choices = *r.N
	}
	if j.prompts, fail = w.prompts(kind, r, body); fail != nil {
		return nil, fail
	}
	if j.choices < 1 || j.choices > maxAnswers/len(j.prompts) {
		return nil, badRequest("n", "n must be from 1 to %d for %d prompts, got %d.", maxAnswers/len(j.prompts), len(j.prompts), j.choices)
	}
	left := maxTokens
	for _, prompt := range j.prompts {
		length, limit, fail := w.length(kind, r, len(prompt))
		if fail != nil {
			return nil, fail
		}
		if left -= j.choices * (len(prompt) + length); left < 0 {
			return nil, badRequest("n", "The prompts and answers of one request may have %d tokens in all.", maxTokens)
		}
		if length == 0 {
			j.reason = "stop"
		}
		for choice := range j.choices {
			j.answers = append(j.answers, simvllm.Request{Prompt: prompt, Answer: w.author.write(prompt, choice, length, limit), Scope: scope})
		}
	}
	return j, nil
}

// scope resolves the model's name and the salt.
func (w *Worker) scope(r *request) (s simvllm.Scope, fail *apiError) {
	if r.Model != nil && *r.Model != w.o.ModelName {
		if !w.adapters.has(*r.Model) {
			return s, notFound(*r.Model)
		}
		s.Adapter = *r.Model
	}
	if r.CacheSalt != nil {
		if *r.CacheSalt == "" {
			return s, badRequest("cache_salt", "Parameter 'cache_salt' must be a non-empty string if provided.")
		}
		s.Salt = *r.CacheSalt
	}
	return s, nil
}

// length is how many tokens an answer to a prompt of so many tokens has: as
// many as asked for, or 0 for a length of its own up to limit.
func (w *Worker) length(kind tokenize.Kind, r *request, prompt int) (length, limit int, fail *apiError) {
	limit = w.maxLen - prompt
	if limit < 1 {
		return 0, 0, badRequest("input_tokens", "This model's maximum context length is %d tokens. However, your request has %d input tokens, and the answer needs one at least.", w.maxLen, prompt)
	}
	asked, param := r.MaxTokens, "max_tokens"
	if kind == tokenize.Chat && r.MaxCompletionTokens != nil {
		asked, param = r.MaxCompletionTokens, "max_completion_tokens"
	}
	switch {
	case asked == nil && kind == tokenize.Chat:
		return 0, limit, nil
	case asked == nil:
		return min(defaultCompletion, limit), limit, nil
	case *asked < 1:
		return 0, 0, badRequest(param, "%s must be at least 1, got %d.", param, *asked)
	case *asked > limit:
		return 0, 0, badRequest(param, "This model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt contains %d input tokens.", w.maxLen, *asked, prompt)
	}
	return *asked, limit, nil
}

// prompts turns what was asked into token ids.
func (w *Worker) prompts(kind tokenize.Kind, r *request, body []byte) ([][]tokenize.Token, *apiError) {
	if kind == tokenize.Chat {
		if !present(r.Messages) {
			return nil, badRequest("messages", "messages is missing.")
		}
		ids, fail := w.tokens(kind, body)
		return [][]tokenize.Token{ids}, fail
	}
	if !present(r.Prompt) {
		return nil, badRequest("prompt", "prompt is missing.")
	}
	var one []tokenize.Token
	if json.Unmarshal(r.Prompt, &one) == nil && len(one) > 0 {
		return [][]tokenize.Token{one}, nil
	}
	var many [][]tokenize.Token
	if json.Unmarshal(r.Prompt, &many) == nil && len(many) > 0 {
		return checkPrompts(many)
	}
	var texts []json.RawMessage
	if json.Unmarshal(r.Prompt, &texts) != nil {
		ids, fail := w.tokens(kind, body) // a string, or an error of the tokenizer's
		if fail != nil {
			return nil, fail
		}
		return checkPrompts([][]tokenize.Token{ids})
	}
	return w.listOfTexts(body, texts)
}

// listOfTexts reads each text as the only prompt of the same request.
func (w *Worker) listOfTexts(body []byte, texts []json.RawMessage) ([][]tokenize.Token, *apiError) {
	if len(texts) > maxAnswers {
		return nil, badRequest("prompt", "%d prompts are too many: at most %d.", len(texts), maxAnswers)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, badRequest("", "The body can't be read: %v", err)
	}
	prompts := make([][]tokenize.Token, 0, len(texts))
	for _, text := range texts {
		single := maps.Clone(fields)
		single["prompt"] = text
		encoded, err := json.Marshal(single)
		if err != nil {
			return nil, badRequest("prompt", "The prompt can't be read: %v", err)
		}
		ids, fail := w.tokens(tokenize.Completion, encoded)
		if fail != nil {
			return nil, fail
		}
		prompts = append(prompts, ids)
	}
	return checkPrompts(prompts)
}

func checkPrompts(prompts [][]tokenize.Token) ([][]tokenize.Token, *apiError) {
	if len(prompts) == 0 || len(prompts) > maxAnswers {
		return nil, badRequest("prompt", "%d prompts: from 1 to %d are served.", len(prompts), maxAnswers)
	}
	for _, p := range prompts {
		if len(p) == 0 {
			return nil, badRequest("prompt", "The decoder prompt cannot be empty.")
		}
	}
	return prompts, nil
}

func (w *Worker) tokens(kind tokenize.Kind, body []byte) ([]tokenize.Token, *apiError) {
	ids, _, err := w.o.Tokenizer.Tokens(kind, body)
	if err != nil {
		return nil, badRequest("", "The prompt can't be tokenized: %v", err)
	}
	return ids, nil
}
