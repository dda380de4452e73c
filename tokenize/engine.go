package tokenize

import "errors"

func newEngine(text, bos, eos string) (template, error) {
	return nil, errors.New("tokenize: this chat template is not supported yet")
}
