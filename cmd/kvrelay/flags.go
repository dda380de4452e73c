package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"
)

const intro = `kvrelay sends the KV events of one vLLM data-parallel rank on to NATS.

vLLM must be started with, for example,
  --kv-events-config '{"enable_kv_cache_events":true,"publisher":"zmq",
    "endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5558","topic":"kv"}'
With several ranks, rank n listens on both ports plus n: run one kvrelay for each.

Flags:
`

// config is what the flags say.
type config struct {
	endpoint, instance string
	rank               int
	zmq, replay, topic string
	nats, credentials  string
	logLevel           slog.Level
}

// parseFlags reads the command line. help is what to print if it asks for it.
func parseFlags(args []string) (c config, help string, err error) {
	f := pflag.NewFlagSet("kvrelay", pflag.ContinueOnError)
	f.SortFlags = false
	f.Usage = func() {}
	level := "info"
	f.StringVar(&c.endpoint, "endpoint", "", "the endpoint's name in Warmroute's configuration (needed)")
	f.StringVar(&c.instance, "instance", "", "the instance's name in Warmroute's configuration (needed)")
	f.IntVar(&c.rank, "rank", 0, "the data-parallel rank")
	f.StringVar(&c.zmq, "zmq", "tcp://127.0.0.1:5557", "where vLLM publishes its KV events")
	f.StringVar(&c.replay, "replay", "tcp://127.0.0.1:5558", "where vLLM replays them; empty: it does not, and any loss costs what was known")
	f.StringVar(&c.topic, "topic", "", "the topic that vLLM publishes under; empty: all")
	f.StringVar(&c.nats, "nats", "nats://127.0.0.1:4222", "NATS servers, separated by commas")
	f.StringVar(&c.credentials, "nats-creds", "", "NATS credentials file")
	f.StringVar(&level, "log-level", level, "debug, info, warn or error")
	if err := f.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return c, intro + f.FlagUsages(), nil
	} else if err != nil {
		return c, "", err
	}
	var errs []error
	if f.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected arguments %q", f.Args()))
	}
	if c.endpoint == "" || c.instance == "" {
		errs = append(errs, errors.New("--endpoint and --instance are needed"))
	}
	if c.rank < 0 || c.rank > 65535 {
		errs = append(errs, errors.New("--rank must be from 0 to 65535"))
	}
	for name, v := range map[string]string{"zmq": c.zmq, "replay": c.replay} {
		if (v != "" || name == "zmq") && !strings.HasPrefix(v, "tcp://") && !strings.HasPrefix(v, "ipc://") {
			errs = append(errs, fmt.Errorf("--%s: %q is not tcp:// or ipc://", name, v))
		}
	}
	if err := c.logLevel.UnmarshalText([]byte(level)); err != nil {
		errs = append(errs, fmt.Errorf("--log-level: %w", err))
	}
	return c, "", errors.Join(errs...)
}
