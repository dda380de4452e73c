package main

import (
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/spf13/pflag"

	"github.com/warmroute/warmroute/internal/simvllm"
)

const intro = `simworker is a vLLM worker without a model. Its paged prefix cache, continuous
batching, timing, metrics and KV events behave like vLLM's. ITS ANSWERS ARE MADE
UP: ordinary words, the same for the same --seed and prompt; each response says
so in the header X-Simworker. An answer has as many tokens as max_tokens asks
for, or between 16 and 255 if a chat does not say.

The first line on stdout is "simworker <name> listening on http://<address>";
logs go to stderr. SIGTERM ends it within --shutdown-timeout and two seconds.

With --dev, POST /dev/hold stops the engine between two steps (?steps=N: after N
more) until POST /dev/release, so that tests can hold requests in flight. While
it is held requests are still taken, and wait.

Flags:
`

// config is what the flags say.
type config struct {
	name, endpoint, model string
	adapters              []string
	listen                string
	nats                  string
	tokenizer, template   string
	maxModelLen           int
	timeScale             float64
	latencyFree           bool
	seed                  uint64
	hashSeed              uint64
	shutdownTimeout       time.Duration
	dev                   bool
	logLevel              string
	engine                simvllm.Config
}

// parseFlags reads the command line. help is what to print if it asks for it.
func parseFlags(args []string) (c config, help string, err error) {
	t := simvllm.H100Timing()
	perSecond := float64(time.Second / t.PerPrefill)
	f := pflag.NewFlagSet("simworker", pflag.ContinueOnError)
	f.SortFlags = false
	f.Usage = func() {}
	f.StringVar(&c.name, "name", "sim-0", "the instance's name, in logs and KV events")
	f.StringVar(&c.endpoint, "endpoint", "llama", "the endpoint's name, in KV events")
	f.StringVar(&c.model, "model", "meta-llama/Llama-3.1-8B-Instruct", "the served model's name")
	f.StringArrayVar(&c.adapters, "adapter", nil, "a loaded LoRA adapter's name; may be repeated")
	f.StringVar(&c.listen, "listen", "127.0.0.1:0", "address to serve on")
	f.StringVar(&c.nats, "nats", "", "URL of the NATS server for KV events (default: none are sent)")
	f.StringVar(&c.tokenizer, "tokenizer", "", "the model's tokenizer.json (needed)")
	f.StringVar(&c.template, "template", "llama3.1", "the chat template: a built-in one's name or a file")
	f.IntVar(&c.engine.BlockSize, "block-size", 16, "tokens per KV block")
	f.IntVar(&c.engine.Blocks, "cache-blocks", 8192, "KV blocks (num_gpu_blocks: as in vLLM, one of them is never used)")
	f.IntVar(&c.maxModelLen, "max-model-len", 0, "longest prompt with its answer, in tokens (default: what the cache holds)")
	f.IntVar(&c.engine.MaxBatchedTokens, "max-batched-tokens", 8192, "tokens computed in one step")
	f.IntVar(&c.engine.MaxSeqs, "max-seqs", 256, "requests running at a time")
	f.DurationVar(&c.engine.Timing.StepBase, "step-base", t.StepBase, "time of each step")
	f.Float64Var(&perSecond, "prefill-rate", perSecond, "prompt tokens computed a second; 0: they cost nothing")
	f.DurationVar(&c.engine.Timing.PerDecode, "decode-cost", t.PerDecode, "time that each decoding request adds to a step")
	f.Float64Var(&c.timeScale, "time-scale", 1, "scale of all times: 0.1 is ten times as fast, 0 without any waiting")
	f.BoolVar(&c.latencyFree, "latency-free", false, "the same as --time-scale 0")
	f.Uint64Var(&c.seed, "seed", 0, "other seeds make up other answers")
	f.Uint64Var(&c.hashSeed, "hash-seed", 0, "seed of the block hashes, to repeat a run (default: random, so that no two processes share hashes)")
	f.DurationVar(&c.shutdownTimeout, "shutdown-timeout", 0, "how long requests in flight may go on after SIGTERM; new ones get status 500 meanwhile, as in vLLM")
	f.BoolVar(&c.dev, "dev", false, "serve POST /dev/hold and /dev/release")
	f.StringVar(&c.logLevel, "log-level", "info", "debug, info, warn or error")
	switch err := f.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return c, intro + f.FlagUsages(), nil
	case err != nil:
		return c, "", err
	case f.NArg() > 0:
		return c, "", fmt.Errorf("what is %q? All is said by flags: see --help", f.Arg(0))
	}
	if perSecond > 0 {
		c.engine.Timing.PerPrefill = time.Duration(float64(time.Second) / perSecond)
	}
	c.engine.HashSeed = c.hashSeed
	if c.latencyFree {
		c.timeScale = 0
	}
	return c, "", c.validate(perSecond)
}

// validate reports all that is wrong.
func (c config) validate(perSecond float64) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, s := range []struct{ flag, value string }{
		{"--name", c.name}, {"--endpoint", c.endpoint}, {"--model", c.model}, {"--tokenizer", c.tokenizer},
	} {
		if s.value == "" {
			wrong("%s is missing", s.flag)
		}
	}
	if _, _, err := net.SplitHostPort(c.listen); err != nil {
		wrong("--listen %q is not host:port: %w", c.listen, err)
	}
	if c.timeScale < 0 || math.IsNaN(c.timeScale) || math.IsInf(c.timeScale, 0) {
		wrong("--time-scale %v: a number, 0 or more", c.timeScale)
	}
	if perSecond < 0 || math.IsNaN(perSecond) {
		wrong("--prefill-rate %v: a number, 0 or more", perSecond)
	}
	if c.maxModelLen < 0 {
		wrong("--max-model-len %d: 0 or more", c.maxModelLen)
	}
	if err := c.engine.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
