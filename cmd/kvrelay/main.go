// Command kvrelay stands beside an untouched vLLM and sends the KV events of
// one data-parallel rank on to NATS, as Warmroute reads them.
//
// vLLM publishes over ZMQ, which loses messages when a reader is slow or not
// connected, names no process, and has no snapshot. The relay makes up for it:
// it notices holes, repairs them from vLLM's replay socket as far as that goes
// back, infers restarts, keeps the table of live blocks, and answers for
// snapshots.
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
		_, _ = fmt.Fprintln(stderr, "kvrelay:", err)
		return 2
	}
	if err := run(ctx, c, stderr); err != nil {
		_, _ = fmt.Fprintln(stderr, "kvrelay:", err)
		return 1
	}
	return 0
}
