package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/spf13/cobra"
	yamlv3 "go.yaml.in/yaml/v3"
)

// demoOptions are the demo's flags.
type demoOptions struct {
	api, admin, nats  string
	workers           int
	strategy          string
	tokenizer         string
	dir               string
	blockSize, blocks int
	timeScale         float64
	endpoint, model   string
	threshold         int
}

func newDemoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a whole small fleet on this machine: NATS, simulated workers, and the router",
		Long: `Starts a NATS server, simulated workers and the router, each a process of its own
as in production, and prints a curl line to try. Ctrl-C stops everything.
The workers make up their answers; their KV cache, timing and events are real.
The configuration file it writes is watched: edit it and see the change live.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.api, "listen", "127.0.0.1:8080", "address of the API")
	f.StringVar(&o.admin, "admin-listen", "127.0.0.1:8081", "address of metrics, health and status")
	f.StringVar(&o.nats, "nats-listen", "127.0.0.1:4222", "address of the NATS server")
	f.IntVar(&o.workers, "workers", 3, "simulated workers")
	f.StringVar(&o.strategy, "strategy", "PREFIX_AWARE", "RANDOM, LEAST_OUTSTANDING_REQUESTS, PREFIX_AWARE or KV_AWARE")
	f.IntVar(&o.threshold, "threshold", 16, "ConcurrencyThreshold, 1-1024")
	f.StringVar(&o.tokenizer, "tokenizer", "", "the Llama 3.1 tokenizer.json")
	f.StringVar(&o.dir, "dir", "", "where the configuration and the logs go (default: a new temporary folder)")
	f.IntVar(&o.blockSize, "block-size", 16, "tokens per KV block of the workers")
	f.IntVar(&o.blocks, "cache-blocks", 8192, "KV blocks of each worker")
	f.Float64Var(&o.timeScale, "time-scale", 1, "speed of the workers: 1 is about a GPU's, 0.1 ten times as fast, 0 without waiting")
	o.endpoint, o.model = "llama", "meta-llama/Llama-3.1-8B-Instruct"
	return cmd
}

// runDemo runs the fleet until ctx ends or a part of it fails.
func runDemo(ctx context.Context, o demoOptions, out io.Writer) error {
	if o.tokenizer == "" {
		return errors.New("--tokenizer is missing: `make run` derives the file and gives its path")
	}
	if o.workers < 1 || o.workers > 64 {
		return fmt.Errorf("--workers %d is not allowed: a number from 1 to 64", o.workers)
	}
	if err := portsFree(ctx, o); err != nil {
		return err
	}
	dir, err := demoDir(o.dir)
	if err != nil {
		return err
	}
	// On Linux a child dies with the thread that started it: that thread must
	// be the one that stays.
	runtime.LockOSThread()
	ns, err := startNATS(o.nats)
	if err != nil {
		return err
	}
	defer ns.WaitForShutdown()
	defer ns.Shutdown()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	fleet := &children{dir: dir, fail: cancel}
	defer fleet.stop()
	instances, err := startWorkers(ctx, fleet, o)
	if err != nil {
		return err
	}
	config, err := writeDemoConfig(dir, o, instances)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if err := fleet.start("warmroute", self, "serve", "--config", config); err != nil {
		return err
	}
	if err := waitReady(ctx, "http://"+o.admin+"/readyz"); err != nil {
		return fmt.Errorf("the router did not become ready; its log is %s: %w", fleet.log("warmroute"), err)
	}
	printDemo(out, o, dir, config, instances)
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	_, _ = fmt.Fprintln(out, "\nstopping")
	return nil
}

// portsFree says which port is taken, and by what where it is another demo.
func portsFree(ctx context.Context, o demoOptions) error {
	for _, p := range []struct{ flag, variable, addr string }{
		{"--listen", "API", o.api}, {"--admin-listen", "ADMIN", o.admin}, {"--nats-listen", "NATS", o.nats},
	} {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.addr)
		if err == nil {
			if err := l.Close(); err != nil {
				return fmt.Errorf("try %s: %w", p.addr, err)
			}
			continue
		}
		if p.flag != "--nats-listen" && isWarmroute(ctx, o.admin) {
			return fmt.Errorf("already running here, and answering (API http://%s, admin http://%s): use it, or stop it with Ctrl-C, or start another with `make run API=127.0.0.1:9080 ADMIN=127.0.0.1:9081 NATS=127.0.0.1:9222`", o.api, o.admin)
		}
		return fmt.Errorf("can't listen on %s: %w; choose another address with %s (make run %s=127.0.0.1:PORT)", p.addr, err, p.flag, p.variable)
	}
	return nil
}

// isWarmroute reports whether a router's admin listener answers at addr.
func isWarmroute(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", http.NoBody)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return err == nil && strings.Contains(string(body), "warmroute_")
}

func demoDir(dir string) (string, error) {
	if dir == "" {
		tmp, err := os.MkdirTemp("", "warmroute-demo-")
		if err != nil {
			return "", fmt.Errorf("make a folder for the demo: %w", err)
		}
		return tmp, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make a folder for the demo: %w", err)
	}
	return filepath.Abs(dir)
}

func startNATS(addr string) (*server.Server, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("--nats-listen %q is not allowed: host:port", addr)
	}
	number, err := strconv.Atoi(port)
	if err != nil || number < 1 || number > 65535 {
		return nil, fmt.Errorf("--nats-listen %q is not allowed: host:port, the port from 1 to 65535", addr)
	}
	ns, err := server.NewServer(&server.Options{Host: host, Port: number, NoSigs: true, NoLog: true, ServerName: "warmroute-demo"})
	if err != nil {
		return nil, fmt.Errorf("start the NATS server: %w", err)
	}
	go ns.Start() // ends at Shutdown, for which runDemo waits
	if !ns.ReadyForConnections(10 * time.Second) {
		ns.Shutdown()
		return nil, fmt.Errorf("the NATS server is not ready on %s", addr)
	}
	return ns, nil
}

// startWorkers starts the simulated workers, each on a free port, and returns
// their entries for the configuration.
func startWorkers(ctx context.Context, fleet *children, o demoOptions) ([]InstanceConfig, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	program := filepath.Join(filepath.Dir(self), "simworker")
	var instances []InstanceConfig
	for i := range o.workers {
		name := fmt.Sprintf("sim-%d", i)
		url, err := fleet.startWorker(ctx, name, program,
			"--name", name, "--endpoint", o.endpoint, "--model", o.model, "--listen", "127.0.0.1:0",
			"--nats", "nats://"+o.nats, "--tokenizer", o.tokenizer,
			"--block-size", strconv.Itoa(o.blockSize), "--cache-blocks", strconv.Itoa(o.blocks),
			"--time-scale", fmt.Sprint(o.timeScale))
		if err != nil {
			return nil, err
		}
		instances = append(instances, InstanceConfig{Name: name, URL: url, BlockSize: o.blockSize, CacheBlocks: o.blocks})
	}
	return instances, nil
}

func writeDemoConfig(dir string, o demoOptions, instances []InstanceConfig) (string, error) {
	tokenizer, err := filepath.Abs(o.tokenizer)
	if err != nil {
		return "", fmt.Errorf("find the tokenizer: %w", err)
	}
	cfg := defaultConfig()
	cfg.Listen, cfg.AdminListen = o.api, o.admin
	cfg.NATS.URL = "nats://" + o.nats
	cfg.Timeouts.DrainDelay = 0
	cfg.Timeouts.Drain = 5 * time.Second
	cfg.Endpoints = []EndpointConfig{{
		EndpointName: o.endpoint,
		Model:        o.model,
		Tokenizer:    TokenizerConfig{Path: tokenizer, Template: "llama3.1"},
		ProductionVariants: []VariantConfig{{
			RoutingConfig: RoutingConfig{
				RoutingStrategy:          o.strategy,
				PrefixAwareRoutingConfig: PrefixAwareRouting{PrefixLength: 65536, ConcurrencyThreshold: o.threshold},
			},
			Instances: instances,
		}},
	}}
	cfg.Endpoints[0].fill()
	if problems := cfg.validate(); len(problems) > 0 {
		return "", errors.New(strings.Join(problems, "; "))
	}
	data, err := yamlv3.Marshal(&cfg)
	if err != nil {
		return "", fmt.Errorf("write the demo's configuration: %w", err)
	}
	path := filepath.Join(dir, "warmroute.yaml")
	return path, writeFileAtomic(path, data)
}

// waitReady asks until url answers 200 or ctx ends.
func waitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return fmt.Errorf("ask %s: %w", url, err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			err = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func printDemo(out io.Writer, o demoOptions, dir, config string, instances []InstanceConfig) {
	names := make([]string, len(instances))
	for i, inst := range instances {
		names[i] = inst.Name + " " + inst.URL
	}
	_, _ = fmt.Fprintf(out, `
Warmroute is up.

  API        http://%s        endpoint %s, model %s
  admin      http://%s        /metrics /readyz /admin/v1/status
  NATS       nats://%s
  workers    %s
  strategy   %s  (change it in %s: it is watched)
  logs       %s

Try it, twice: the second answer comes from the instance that is warm, and says so.

  curl -si http://%s/v1/chat/completions -H 'Content-Type: application/json' \
    -d '{"model":"%s","max_tokens":24,"messages":[{"role":"system","content":"You are the keeper of an old lighthouse. You answer sailors in two or three short sentences, always calmly, and you never leave out the weather."},{"role":"user","content":"Tell me about the sea."}]}'

Ctrl-C stops everything.
`, o.api, o.endpoint, o.model, o.admin, o.nats, strings.Join(names, "\n             "), o.strategy, config,
		filepath.Join(dir, "*.log"), o.api, o.model)
}
