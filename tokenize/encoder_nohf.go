//go:build !hf

package tokenize

import "errors"

// newHF is not in this build.
func newHF([]byte) (Encoder, error) {
	return nil, errors.New("tokenize: Hugging Face's encoder is not in this build (tag hf)")
}
