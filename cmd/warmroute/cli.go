package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	yamlv3 "go.yaml.in/yaml/v3"
)

// newRootCommand is the command line.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "warmroute",
		Short: "Route each request to the vLLM worker whose KV cache is already warm for it",
		Long: `Warmroute stands in front of a fleet of vLLM workers and sends each request to
the instance whose KV cache already holds the longest beginning of its prompt.

Try it without a GPU:      warmroute demo      (or: make run)
Run it before a fleet:     warmroute serve --config warmroute.yaml
Check a configuration:     warmroute config check --config warmroute.yaml`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newServeCommand(), newDemoCommand(), newDoctorCommand(), newConfigCommand(), newTokenizeCommand(), newTokenizerCommand())
	return root
}

// configFlags are the flags that every command which reads the configuration
// has.
func configFlags(flags *pflag.FlagSet) func() source {
	path := flags.StringP("config", "c", "", "the configuration file (YAML)")
	overrides := map[string]string{
		"listen":       "listen",
		"admin-listen": "admin_listen",
		"nats-url":     "nats.url",
		"log-level":    "log.level",
		"log-format":   "log.format",
	}
	flags.String("listen", "", "address of the API, instead of the file's `listen`")
	flags.String("admin-listen", "", "address of metrics, health and status, instead of the file's `admin_listen`")
	flags.String("nats-url", "", "NATS servers, instead of the file's `nats.url`")
	flags.String("log-level", "", "debug, info, warn or error, instead of the file's `log.level`")
	flags.String("log-format", "", "json or text, instead of the file's `log.format`")
	return func() source {
		s := source{path: *path, env: os.Environ(), flags: map[string]any{}}
		flags.Visit(func(f *pflag.Flag) {
			if field, ok := overrides[f.Name]; ok {
				s.flags[field] = f.Value.String()
			}
		})
		return s
	}
}

func newServeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the router",
		Args:  cobra.NoArgs,
	}
	src := configFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return serve(cmd.Context(), src(), cmd.ErrOrStderr())
	}
	return cmd
}

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check or print the configuration"}
	check := &cobra.Command{
		Use:   "check",
		Short: "Say what is wrong with the configuration, or that nothing is",
		Args:  cobra.NoArgs,
	}
	src := configFlags(check.Flags())
	check.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := src().load()
		if err != nil {
			return err
		}
		if _, err := newModels().prepare(cfg.Endpoints, quietLogger()); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "the configuration is good: %d endpoints\n", len(cfg.Endpoints))
		return err
	}
	show := &cobra.Command{
		Use:   "print",
		Short: "Print the configuration as it holds: file, environment, flags and defaults",
		Args:  cobra.NoArgs,
	}
	showSource := configFlags(show.Flags())
	show.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := showSource().load()
		if err != nil {
			return err
		}
		cfg.NATS.URL = redactURLs(cfg.NATS.URL)
		out, err := yamlv3.Marshal(cfg)
		if err != nil {
			return fmt.Errorf("write the configuration: %w", err)
		}
		_, err = cmd.OutOrStdout().Write(out)
		return err
	}
	cmd.AddCommand(check, show)
	return cmd
}

// stamped is the version that the Makefile's link step sets.
var stamped string //nolint:gochecknoglobals // the linker can set nothing else

// version is the release that this is: what the Makefile stamped, else the
// module's version.
func version() string {
	if stamped != "" {
		return stamped
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
