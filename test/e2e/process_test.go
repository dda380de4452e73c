package e2e

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// limit bounds every wait: past it the thing waited for is not going to
// happen. No test's outcome depends on how long something takes below it.
const limit = 60 * time.Second

// process is a running program of ours.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	done  chan struct{}
	lines chan string // what it prints, line by line, until its reader stops

	mu  sync.Mutex
	log bytes.Buffer
	err error
}

// start runs a program until the test ends; its output is shown when the test
// fails.
func start(t *testing.T, program string, args ...string) *process {
	t.Helper()
	r, w := io.Pipe()
	p := &process{t: t, cmd: exec.Command(filepath.Join(bin, program), args...), done: make(chan struct{}), lines: make(chan string, 64)}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	go func() {
		err := p.cmd.Wait()
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		w.Close()
	}()
	go func() {
		defer close(p.done)
		scan := bufio.NewScanner(r)
		scan.Buffer(nil, 1<<20)
		for scan.Scan() {
			p.mu.Lock()
			p.log.WriteString(scan.Text() + "\n")
			p.mu.Unlock()
			select {
			case p.lines <- scan.Text():
			default: // nobody reads any more
			}
		}
	}()
	t.Cleanup(func() {
		p.stop()
		if strings.Contains(p.output(), "WARNING: DATA RACE") {
			t.Errorf("%s: a data race", program)
		}
		if t.Failed() {
			t.Logf("%s %v printed:\n%s", program, args, tail(p.output(), 4000))
		}
	})
	return p
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// line waits for a line that holds text and returns it.
func (p *process) line(text string) string {
	p.t.Helper()
	timeout := time.After(limit)
	for {
		select {
		case l := <-p.lines:
			if strings.Contains(l, text) {
				return l
			}
		case <-p.done:
			p.t.Fatalf("%s ended before it printed %q:\n%s", p.cmd.Path, text, p.output())
		case <-timeout:
			p.t.Fatalf("%s has not printed %q:\n%s", p.cmd.Path, text, p.output())
		}
	}
}

// signal sends one and waits for the end; the error is the exit status.
func (p *process) signal(s syscall.Signal) error {
	p.t.Helper()
	_ = p.cmd.Process.Signal(s)
	return p.wait()
}

// wait waits for the end; the error is the exit status.
func (p *process) wait() error {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		_ = p.cmd.Process.Kill()
		<-p.done
		p.t.Errorf("%s did not end", p.cmd.Path)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *process) stop() {
	select {
	case <-p.done:
	default:
		_ = p.signal(syscall.SIGTERM)
	}
}

// eventually waits until ok says that the thing is so.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(limit)
	for !ok() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("not so: %s", what)
		}
	}
}
