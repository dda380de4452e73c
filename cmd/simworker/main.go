// Command simworker is a vLLM worker without a model, for development, tests
// and benchmarks: its KV cache, scheduling, timing, metrics and KV events are
// those of a real worker, its answers are made up.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the handler goes, so that a second one ends the
	// process at once.
	context.AfterFunc(ctx, stop)
	code := exitCode(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// exitCode is 0 after a stop or for --help, 2 for flags that don't make sense,
// 1 for anything else.
func exitCode(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, help, err := parseFlags(args)
	switch {
	case help != "":
		_, _ = fmt.Fprint(stdout, help)
		return 0
	case err != nil:
		_, _ = fmt.Fprintln(stderr, "simworker:", err)
		return 2
	}
	if err := run(ctx, c, stdout, stderr); err != nil {
		_, _ = fmt.Fprintln(stderr, "simworker:", err)
		return 1
	}
	return 0
}
