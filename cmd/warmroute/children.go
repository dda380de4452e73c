package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// grace is how long a child may take to end by itself.
const grace = 10 * time.Second

// children are the demo's processes. One goroutine uses it; the goroutines
// that wait for the processes end with them, and stop waits for those.
type children struct {
	dir  string                  // where their logs go
	fail context.CancelCauseFunc // called when a child ends that should not

	running []*child
	waiting sync.WaitGroup
}

// child is one process. stopping is closed before it is told to end.
type child struct {
	name     string
	cmd      *exec.Cmd
	stopping chan struct{}
	done     chan struct{}
}

func (c *children) log(name string) string { return filepath.Join(c.dir, name+".log") }

// start runs a program; what it prints goes to its log.
func (c *children) start(name, program string, args ...string) error {
	return c.run(name, nil, program, args...)
}

// startWorker runs a simulated worker and returns the address that it prints
// first.
func (c *children) startWorker(ctx context.Context, name, program string, args ...string) (string, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("start %s: %w", name, err)
	}
	err = c.run(name, w, program, args...)
	_ = w.Close() // the child has its own copy
	if err != nil {
		_ = r.Close()
		return "", err
	}
	line := make(chan string, 1)
	c.waiting.Go(func() { // ends when the child closes its output
		defer r.Close() //nolint:errcheck // read only
		first, _ := bufio.NewReader(r).ReadString('\n')
		line <- first
		_, _ = io.Copy(io.Discard, r)
	})
	select {
	case first := <-line:
		if _, url, ok := strings.Cut(strings.TrimSpace(first), "listening on "); ok {
			return url, nil
		}
		return "", fmt.Errorf("%s did not start; its log is %s", name, c.log(name))
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (c *children) run(name string, stdout *os.File, program string, args ...string) error {
	log, err := os.Create(c.log(name))
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close() //nolint:errcheck // the child has its own copy
	// Not CommandContext: the order in which they end is stop's.
	cmd := exec.Command(program, args...) //nolint:noctx // see above
	cmd.Stdout, cmd.Stderr = log, log
	if stdout != nil {
		cmd.Stdout = stdout
	}
	cmd.SysProcAttr = detached()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w (make build builds it)", name, err)
	}
	p := &child{name: name, cmd: cmd, stopping: make(chan struct{}), done: make(chan struct{})}
	c.running = append(c.running, p)
	c.waiting.Go(func() { // ends with the process
		err := cmd.Wait()
		close(p.done)
		select {
		case <-p.stopping:
		default:
			c.fail(fmt.Errorf("%s ended (%s); its log is %s: %s", name, exitText(err), c.log(name), lastLine(c.log(name))))
		}
	})
	return nil
}

// stop ends the processes, the last one started first, and waits for them.
func (c *children) stop() {
	for _, p := range c.running {
		close(p.stopping)
	}
	for i := len(c.running) - 1; i >= 0; i-- {
		p := c.running[i]
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(grace):
			_ = p.cmd.Process.Kill()
			<-p.done
		}
	}
	c.waiting.Wait()
}

func exitText(err error) string {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "exit status 0"
	case errors.As(err, &exit):
		return exit.String()
	}
	return err.Error()
}

// lastLine is the last line of a log, where the reason usually stands.
func lastLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	text := strings.TrimSpace(string(data))
	return text[strings.LastIndex(text, "\n")+1:]
}
