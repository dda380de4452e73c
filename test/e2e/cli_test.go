package e2e

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/warmroute/warmroute/tokenize/tokenizetest"
)

// command runs the router's program to its end.
func command(t *testing.T, stdin string, args ...string) (out string, err error) {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "warmroute"), args...)
	cmd.Stdin = strings.NewReader(stdin)
	data, err := cmd.CombinedOutput()
	return string(data), err
}

func TestDoctorExaminesEveryInstance(t *testing.T) {
	f := startFleet(t, fleetOptions{workers: 2})
	out, err := command(t, "", "doctor", "--config", f.config, "--wait", "50ms")
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	for _, name := range []string{"w0", "w1"} {
		line := lineWith(out, name)
		for _, want := range []string{"yes", model, "16", "llama3.1", "equal"} {
			if !strings.Contains(line, want) {
				t.Errorf("the line of %s does not say %q: %s", name, want, line)
			}
		}
	}
	// A worker that is gone, and one with another block size than configured.
	f.o.blockSize = 32
	delete(f.workers, "w0")
	f.workers["w0"] = "http://" + freeAddress(t)
	f.writeConfig("PREFIX_AWARE")
	out, err = command(t, "", "doctor", "--config", f.config, "--wait", "50ms")
	if err == nil || !strings.Contains(lineWith(out, "w0"), "no: ") || !strings.Contains(lineWith(out, "w1"), "16, configured 32") || !strings.Contains(out, "2 of 2") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func lineWith(text, part string) string {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.Contains(line, part) {
			return line
		}
	}
	return ""
}

func TestTokenizePrintsTheWorkersTokens(t *testing.T) {
	f := startFleet(t, fleetOptions{workers: 1})
	body := chat([]message{{"system", document(tongues()[6], 1, 400)}, {"user", "🧀 <|eot_id|> it's 12345"}}, 4, nil)
	out, err := command(t, body+"\n"+`{"text":"a\u0000b é"}`+"\n{}\n[1]\n", "tokenize", "--tokenizer", tokenizetest.Path(t))
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines: %s", len(lines), out)
	}
	var ours struct {
		IDs  []int
		Text string
	}
	if err := json.Unmarshal([]byte(lines[0]), &ours); err != nil {
		t.Fatal(err)
	}
	var theirs struct{ Tokens []int }
	if err := json.Unmarshal(f.post(f.workers["w0"]+"/tokenize", body).ok(t).Body, &theirs); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(ours.IDs, theirs.Tokens) || !strings.HasPrefix(ours.Text, "<|begin_of_text|>") {
		t.Errorf("ours %v %q, the worker's %v", ours.IDs, ours.Text, theirs.Tokens)
	}
	if !strings.Contains(lines[1], `"ids":[64,188,65,`) || !strings.Contains(lines[2], "error") || !strings.Contains(lines[3], "error") {
		t.Errorf("got %s", out)
	}
}

func TestConfigCheckAndPrint(t *testing.T) {
	f := startFleet(t, fleetOptions{workers: 1})
	if out, err := command(t, "", "config", "check", "--config", f.config); err != nil || !strings.Contains(out, "good") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := command(t, "", "config", "print", "--config", f.config, "--log-level", "debug"); err != nil || !strings.Contains(out, "level: debug") || !strings.Contains(out, "RoutingStrategy: PREFIX_AWARE") {
		t.Errorf("%v: %s", err, out)
	}
	f.writeConfig("NEAREST")
	if out, err := command(t, "", "config", "check", "--config", f.config); err == nil || !strings.Contains(out, "RoutingStrategy") || !strings.Contains(out, "NEAREST") {
		t.Errorf("%v: %s", err, out)
	}
}
