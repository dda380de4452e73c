// Package tokenize turns the body of a request into block keys: it renders the
// chat template, tokenizes as the worker will, and hashes full blocks.
//
// Words: an [Encoder] turns text into token ids; a word is what the
// tokenizer's regular expression splits off and byte-pair encoding works on; a
// cut is a place in a text where encode(a)+encode(b) == encode(a+b) whatever
// the rest of the text is; a chunk is the text between two cuts; a root is the
// parent of a namespace's first blocks.
//
// What must hold:
//   - Ids are those of Hugging Face's tokenizers, or there is an error. Where
//     the prompt cannot be known with certainty, methods fail with an error that
//     is [ErrUncertain]; they never guess.
//   - Keys of a part of a prompt are a true beginning of the whole prompt's keys.
//   - Caches never change an answer: text is compared on every hit.
//   - No error, metric or log line holds text of a prompt.
//
// A [Model] and every [Encoder] may be used by many goroutines at once; a
// [Prompt] belongs to one goroutine at a time.
package tokenize

import "errors"

// Token is one token id of a model's vocabulary.
type Token = uint32

// ErrUncertain is wrapped by the errors that say that a request's prompt cannot
// be known as the worker will see it. The request is to be routed without token
// affinity. [Reason] names the cause.
var ErrUncertain = errors.New("tokenize: the prompt is uncertain")

// uncertain is an [ErrUncertain] with its reason, a constant of this package.
type uncertain string

func (u uncertain) Error() string { return ErrUncertain.Error() + ": " + string(u) }

func (u uncertain) Is(target error) bool { return target == ErrUncertain }

// Reasons of [ErrUncertain]. They are label values: few, and without any text
// of a request.
const (
	errUTF8         uncertain = "invalid_utf8"
	errSurrogate    uncertain = "lone_surrogate"
	errLongWord     uncertain = "long_word"
	errJSON         uncertain = "invalid_json"
	errDepth        uncertain = "deep_json"
	errShape        uncertain = "unknown_shape"
	errEmpty        uncertain = "empty_prompt"
	errTemplate     uncertain = "no_template"
	errOwnTemplate  uncertain = "request_template"
	errTemplateFail uncertain = "template_error"
	errTruncate     uncertain = "truncate_prompt_tokens"
	errContinue     uncertain = "continue_final_message"
	errMedia        uncertain = "media"
	errDeveloper    uncertain = "developer_role" // vLLM 0.16 passes it as it is, 0.32 as system
	errTokenRange   uncertain = "token_out_of_range"
	errEncoder      uncertain = "encoder_error"
	errClock        uncertain = "template_clock"
)

// Reason returns why err is an [ErrUncertain], as a label value, or "".
func Reason(err error) string {
	var u uncertain
	if errors.As(err, &u) {
		return string(u)
	}
	return ""
}
