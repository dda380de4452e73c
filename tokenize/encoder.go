package tokenize

// Encoder turns text into token ids. There are two: the native one, for the
// Llama 3 family, and Hugging Face's own library behind the build tag hf.
type Encoder interface {
	// Encode appends the ids of text to dst, special tokens in it included and
	// none added.
	Encode(dst []Token, text []byte) ([]Token, error)
	// EncodeHead appends ids of text up to some place at or before n, an offset in
	// bytes: a beginning of the ids of text. Those of the native encoder begin the
	// ids of any text that begins with text[:n].
	EncodeHead(dst []Token, text []byte, n int) ([]Token, error)
	// Decode is the text of ids; what is not UTF-8 becomes U+FFFD.
	Decode(ids []Token) string
	// Start is what the tokenizer puts before a text when it is asked to add
	// special tokens.
	Start() []Token
	// VocabSize is one more than the greatest id.
	VocabSize() int
	// Name is "native" or "hf".
	Name() string
}
