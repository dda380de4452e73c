// Package tokenizetest gives tests the tokenizer.json of Llama 3.1, whose
// vocabulary is not part of this repository.
package tokenizetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/warmroute/warmroute/tokenize/llama31"
)

const module = "github.com/daulet/tokenizers"

// Path returns the path of Llama 3.1's tokenizer.json. The first test process
// to ask derives it from the module cache into the user's cache folder; the
// file's sum is checked every time. Processes may ask at the same time. The
// test fails when the file can't be made.
func Path(tb testing.TB) string {
	tb.Helper()
	path, err := derive(tb.Context())
	if err != nil {
		tb.Fatalf("tokenizetest: %v", err)
	}
	return path
}

func derive(ctx context.Context) (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	dir = filepath.Join(dir, "warmroute", "llama-3.1-"+llama31.SHA256[:8])
	path := filepath.Join(dir, "tokenizer.json")
	if have, err := os.ReadFile(path); err == nil {
		if h := sha256.Sum256(have); hex.EncodeToString(h[:]) == llama31.SHA256 {
			return path, nil
		}
	}
	llama3, err := readLlama3(ctx)
	if err != nil {
		return "", err
	}
	data, err := llama31.Derive(llama3)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder: %w", err)
	}
	return path, writeAtomically(dir, path, data)
}

func readLlama3(ctx context.Context) ([]byte, error) {
	dir, err := moduleDir(ctx)
	if err == nil && dir == "" {
		if out, err := exec.CommandContext(ctx, "go", "mod", "download", module).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go mod download %s: %w: %s", module, err, out)
		}
		dir, err = moduleDir(ctx)
	}
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, "test", "data", "Meta-Llama-3-8B-Instruct.json"))
	if err != nil {
		return nil, fmt.Errorf("read the Llama 3 tokenizer of %s: %w", module, err)
	}
	return data, nil
}

// moduleDir is the module's folder in the module cache, "" when it isn't there.
func moduleDir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("go list -m %s: %w", module, err)
	}
	return string(bytes.TrimSpace(out)), nil
}

func writeAtomically(dir, path string, data []byte) error {
	f, err := os.CreateTemp(dir, "tokenizer-*.json")
	if err != nil {
		return fmt.Errorf("write the tokenizer: %w", err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // gone once it is renamed
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write the tokenizer: %w", err)
	}
	return nil
}
