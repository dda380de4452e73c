package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// bin is the folder of the programs under test, built once with the race
// detector on.
var bin string

func TestMain(m *testing.M) {
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "warmroute-e2e-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	bin = dir
	for _, program := range []string{"warmroute", "simworker"} {
		cmd := exec.Command("go", "build", "-race", "-o", filepath.Join(dir, program), "../../cmd/"+program)
		if out, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("build %s: %w\n%s", program, err, out)
		}
	}
	return m.Run(), nil
}
