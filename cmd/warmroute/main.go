// Command warmroute is the router: it stands in front of a fleet of vLLM
// workers and sends each request to the instance whose KV cache already holds
// the longest beginning of its prompt.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the handler goes, so that a second one ends the
	// process at once.
	context.AfterFunc(ctx, stop)
	err := newRootCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "warmroute:", err)
		os.Exit(1)
	}
}
