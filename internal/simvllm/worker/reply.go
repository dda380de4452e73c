package worker

import "github.com/warmroute/warmroute/tokenize"

// reply renders what the engine has done for a job in vLLM's format.
type reply struct {
	*job
	id      string
	created int64
	decode  func([]tokenize.Token) string
}

// fingerprint says in each body that the answer is made up.
const fingerprint = "simworker"

// envelope is a response, or one event of a stream.
type envelope struct {
	ID                string `json:"id"`
	Object            string `json:"object"`
	Created           int64  `json:"created"`
	Model             string `json:"model"`
	SystemFingerprint string `json:"system_fingerprint"`
	Choices           []any  `json:"choices"`
	Usage             *usage `json:"usage,omitempty"`
	// Of chat, where they are not in the choice. Null unless asked for.
	PromptTokenIDs *[]tokenize.Token `json:"prompt_token_ids,omitempty"`
}

type usage struct {
	PromptTokens        int           `json:"prompt_tokens"`
	TotalTokens         int           `json:"total_tokens"`
	CompletionTokens    int           `json:"completion_tokens"`
	PromptTokensDetails promptDetails `json:"prompt_tokens_details"`
}

type promptDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

type message struct {
	Role    string `json:"role,omitempty"`
	Content string `json:"content"`
}

// ending is what each choice has in common.
type ending struct {
	Index        int              `json:"index"`
	Logprobs     any              `json:"logprobs"`      // always null
	FinishReason *string          `json:"finish_reason"` // null until the last token
	StopReason   any              `json:"stop_reason"`   // always null
	TokenIDs     []tokenize.Token `json:"token_ids"`     // null unless asked for
}

type chatChoice struct {
	Message message `json:"message"`
	ending
}

type chatDelta struct {
	Delta message `json:"delta"`
	ending
}

type textChoice struct {
	Text string `json:"text"`
	ending
	PromptTokenIDs []tokenize.Token `json:"prompt_token_ids"` // null unless asked for
}

func (a *reply) envelope(choices ...any) envelope {
	e := envelope{ID: a.id, Object: "text_completion", Created: a.created, Model: a.model, SystemFingerprint: fingerprint, Choices: choices}
	if a.kind == tokenize.Chat {
		e.Object = "chat.completion"
		if a.stream {
			e.Object = "chat.completion.chunk"
		}
	}
	return e
}

// complete is the whole answer of a request that does not stream.
func (a *reply) complete(parts []progress) envelope {
	var choices []any
	for i, p := range parts {
		end, text := a.ending(i, 0, p)
		if a.kind == tokenize.Chat {
			choices = append(choices, chatChoice{message{"assistant", text}, end})
		} else {
			choices = append(choices, textChoice{text, end, a.promptIDs(i)})
		}
	}
	e := a.envelope(choices...)
	e.Usage = a.usage(parts)
	if a.kind == tokenize.Chat && a.returnIDs {
		e.PromptTokenIDs = &a.prompts[0]
	}
	return e
}

// opening is the event before the first token of answer i, nil for none: in
// chats, vLLM names the role first.
func (a *reply) opening(i int) any {
	if a.kind != tokenize.Chat {
		return nil
	}
	e := a.envelope(chatDelta{message{"assistant", ""}, ending{Index: i}})
	if a.returnIDs {
		e.PromptTokenIDs = &a.prompts[0]
	}
	return e
}

// chunk is the event for the tokens of answer i from the one numbered from.
func (a *reply) chunk(i, from int, now progress) envelope {
	end, text := a.ending(i, from, now)
	if a.kind == tokenize.Chat {
		return a.envelope(chatDelta{message{"", text}, end})
	}
	c := textChoice{text, end, nil}
	if from == 0 {
		c.PromptTokenIDs = a.promptIDs(i)
	}
	return a.envelope(c)
}

// usageChunk is the last event of a stream that was asked for it.
func (a *reply) usageChunk(parts []progress) envelope {
	e := a.envelope()
	e.Choices = []any{}
	e.Usage = a.usage(parts)
	return e
}

// ending is the state of answer i and the text of its tokens since from.
func (a *reply) ending(i, from int, now progress) (ending, string) {
	tokens := a.answers[i].Answer[from:now.produced]
	e := ending{Index: i}
	if now.done {
		e.FinishReason = &a.reason
	}
	if a.returnIDs {
		e.TokenIDs = tokens
	}
	return e, a.decode(tokens)
}

func (a *reply) promptIDs(i int) []tokenize.Token {
	if !a.returnIDs {
		return nil
	}
	return a.answers[i].Prompt
}

// usage counts each prompt once, however many answers it has. Its cached
// tokens are those that the first of them found.
func (a *reply) usage(parts []progress) *usage {
	u := &usage{}
	for i, p := range parts {
		u.CompletionTokens += p.produced
		if i%a.choices == 0 {
			u.PromptTokens += len(a.answers[i].Prompt)
			u.PromptTokensDetails.CachedTokens += p.cached
		}
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}
