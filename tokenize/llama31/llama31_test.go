package llama31_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/warmroute/warmroute/tokenize/llama31"
	"github.com/warmroute/warmroute/tokenize/tokenizetest"
)

func TestDeriveGivesTheOfficialFile(t *testing.T) {
	data, err := os.ReadFile(tokenizetest.Path(t))
	if err != nil {
		t.Fatal(err)
	}
	if h := sha256.Sum256(data); hex.EncodeToString(h[:]) != llama31.SHA256 {
		t.Errorf("sha256 %x, want %s", h, llama31.SHA256)
	}
}

func TestDeriveRefusesAnyOtherInput(t *testing.T) {
	for _, in := range []string{"", "{}", strings.Repeat(`"content": "`, 300)} {
		if out, err := llama31.Derive([]byte(in)); err == nil || out != nil {
			t.Errorf("Derive(%.20q) = %d bytes, %v: want an error", in, len(out), err)
		}
	}
}

func TestAddedTokensAreNamedOnce(t *testing.T) {
	seen := map[string]bool{}
	names := llama31.AddedTokens()
	for _, n := range names {
		if seen[n] {
			t.Errorf("%s is named twice", n)
		}
		seen[n] = true
	}
	if len(names) != 256 || names[9] != "<|eot_id|>" || names[255] != "<|reserved_special_token_247|>" {
		t.Errorf("%d names, %s at 9, %s at the end", len(names), names[9], names[len(names)-1])
	}
}
