// Command index measures the tree on the published index workload: 128
// instances, 1.6 M (instance, block) entries, prompts of 500 blocks.
//
// Each run is a process of its own, so that resident memory means something.
// With -peers, the named trees of other routers run in turn with ours (A B A B)
// and the report compares medians. The figures go to standard output and, as
// JSON with a key for each column, to -out.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"
)

type options struct {
	once     string
	repeats  int
	runs     int
	peers    string
	names    string
	out      string
	together time.Duration
	profile  string
}

func main() {
	var o options
	flag.StringVar(&o.once, "once", "", "measure one thing in this process and print it as JSON: warmroute, together or go-radix")
	flag.IntVar(&o.repeats, "repeats", 5, "times that each set of questions is asked in a run; the rate is the best one's")
	flag.IntVar(&o.runs, "n", 5, "runs; the report has their medians")
	flag.StringVar(&o.peers, "peers", "", "the peers' benchmark program (idxbench); none: they are left out")
	flag.StringVar(&o.names, "peer-names", "dynamo-radix,dynamo-crtc,smg-chain", "which peers to run, separated by commas")
	flag.StringVar(&o.out, "out", "bench/out/index.json", "where the figures go as JSON; empty: nowhere")
	flag.DurationVar(&o.together, "together", 500*time.Millisecond, "how long each mix of readers and writers runs; 0: none")
	flag.StringVar(&o.profile, "cpuprofile", "", "with -once: write a CPU profile here")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "index:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.once != "" {
		return runOnce(o)
	}
	r := newReport()
	for n := range o.runs {
		fmt.Fprintf(os.Stderr, "run %d of %d\n", n+1, o.runs)
		if err := r.runOurs(ctx, o, "warmroute"); err != nil {
			return err
		}
		if o.peers == "" {
			continue
		}
		for name := range strings.SplitSeq(o.names, ",") {
			f, err := runPeer(ctx, o.peers, name, o.repeats)
			if err != nil {
				return err
			}
			r.add(name, f)
		}
	}
	if o.together > 0 {
		for range o.runs {
			if err := r.runOurs(ctx, o, "together"); err != nil {
				return err
			}
		}
	}
	if err := r.runOurs(ctx, o, "go-radix"); err != nil {
		return err
	}
	r.print(os.Stdout)
	return r.write(o.out)
}

func runOnce(o options) error {
	w := newWorkload()
	if o.profile != "" {
		file, err := os.Create(o.profile)
		if err != nil {
			return fmt.Errorf("create the profile: %w", err)
		}
		defer func() { _ = file.Close() }() // a diagnosis, not a result
		if err := pprof.StartCPUProfile(file); err != nil {
			return fmt.Errorf("start the profile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	var f figures
	switch o.once {
	case "warmroute":
		f = measure(w, o.repeats)
	case "together":
		f = measureTogether(w, o.together)
	case "go-radix":
		f = measureGoRadix(w, o.repeats)
	default:
		return fmt.Errorf("-once %q: no such thing to measure", o.once)
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}

// runOurs measures one thing in a fresh process of this program.
func (r *report) runOurs(ctx context.Context, o options, what string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "-once", what, "-repeats", strconv.Itoa(o.repeats), "-together", o.together.String())
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("measure %s: %w", what, err)
	}
	f := figures{}
	if err := json.Unmarshal(out, &f); err != nil {
		return fmt.Errorf("measure %s: %w", what, err)
	}
	r.add(what, f)
	return nil
}
