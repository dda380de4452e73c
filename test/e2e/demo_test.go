package e2e

import (
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/warmroute/warmroute/tokenize/tokenizetest"
)

// freeAddress is one that was free a moment ago: the demo binds its addresses
// itself.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestDemoAnswersItsOwnCurlLineAndStopsWhole(t *testing.T) {
	dir := t.TempDir()
	api, admin, nats := freeAddress(t), freeAddress(t), freeAddress(t)
	args := []string{"demo", "--tokenizer", tokenizetest.Path(t), "--dir", dir, "--listen", api, "--admin-listen", admin, "--nats-listen", nats, "--time-scale", "0"}
	demo := start(t, "warmroute", args...)
	demo.line("Ctrl-C stops everything")
	text := demo.output()
	for _, want := range []string{api, admin, nats, "PREFIX_AWARE", "llama", model} {
		if !strings.Contains(text, want) {
			t.Errorf("the demo does not print %s:\n%s", want, text)
		}
	}

	// The line as a newcomer pastes it.
	at := strings.Index(text, "curl ")
	line, _, _ := strings.Cut(text[at:], "\n\n")
	var instance string
	for i := range 2 {
		out, err := exec.Command("bash", "-c", line).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		if !strings.Contains(string(out), "200 OK") || !strings.Contains(string(out), `"choices"`) {
			t.Fatalf("the curl line got:\n%s", out)
		}
		got := regexp.MustCompile(`(?i)x-warmroute-instance: (\S+)`).FindStringSubmatch(string(out))
		if got == nil {
			t.Fatalf("no receipt:\n%s", out)
		}
		if i == 1 && got[1] != instance {
			t.Errorf("the first went to %s, the second to %s", instance, got[1])
		}
		instance = got[1]
	}

	second := exec.Command(filepath.Join(bin, "warmroute"), args...)
	out, err := second.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "already running") {
		t.Errorf("a second demo says (%v): %s", err, out)
	}
	if resp, err := http.Get("http://" + admin + "/readyz"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("the first demo suffered from the second: %v", err)
	} else {
		resp.Body.Close()
	}

	if err := demo.signal(syscall.SIGINT); err != nil {
		t.Errorf("Ctrl-C ended the demo with %v", err)
	}
	for _, addr := range []string{api, admin, nats} {
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			t.Errorf("something still listens on %s", addr)
		}
	}
	if out, err := exec.Command("pgrep", "-f", dir).Output(); err == nil {
		t.Errorf("processes are left: %s", out)
	}
}

func TestDemoNamesAPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	for _, flag := range []string{"--listen", "--admin-listen", "--nats-listen"} {
		args := []string{"demo", "--tokenizer", tokenizetest.Path(t), "--dir", t.TempDir()}
		for _, other := range []string{"--listen", "--admin-listen", "--nats-listen"} {
			if other != flag {
				args = append(args, other, freeAddress(t))
			}
		}
		out, err := exec.Command(filepath.Join(bin, "warmroute"), append(args, flag, taken)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), taken) || !strings.Contains(string(out), flag) {
			t.Errorf("%s on a port in use says (%v): %s", flag, err, out)
		}
	}
}

func TestServeNamesAPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out, err := exec.Command(filepath.Join(bin, "warmroute"), "serve", "--listen", l.Addr().String(), "--admin-listen", "127.0.0.1:0", "--nats-url", "").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "listen: can't listen on "+l.Addr().String()) {
		t.Errorf("serve on a port in use says (%v): %s", err, out)
	}
}
