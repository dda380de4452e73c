package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/warmroute/warmroute/tokenize"
)

// finding is one line of the doctor's table.
type finding struct {
	Endpoint, Instance string
	Reachable          string
	Model              string
	BlockSize          string
	Template           string
	Tokens             string
	Events             string
	Good               bool
}

func newDoctorCommand() *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check every configured instance: reachable, model, block size, tokens equal, events seen",
		Long: `Asks each instance of the configuration what it is, compares the router's tokens
with the worker's own /tokenize, and listens for its KV events, which a worker
sends when it serves: send it a request meanwhile. Ends with status 1 when
something is wrong.`,
		Args: cobra.NoArgs,
	}
	src := configFlags(cmd.Flags())
	cmd.Flags().DurationVar(&wait, "wait", 5*time.Second, "how long to listen for events")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := src().load()
		if err != nil {
			return err
		}
		return doctor(cmd.Context(), cfg, wait, cmd.OutOrStdout())
	}
	return cmd
}

// doctor examines every instance and prints the table.
func doctor(ctx context.Context, cfg *Config, wait time.Duration, out io.Writer) error {
	m := newModels()
	commit, err := m.prepare(cfg.Endpoints, quietLogger())
	if err != nil {
		return err
	}
	commit()
	seen, err := listenForEvents(ctx, cfg.NATS, wait)
	if err != nil {
		return err
	}
	key, err := cfg.workerKey()
	if err != nil {
		return err
	}
	client := newWorkerClient(key, 10*time.Second)
	defer client.CloseIdleConnections()
	var findings []*finding
	var wg sync.WaitGroup
	for _, e := range cfg.Endpoints {
		for _, v := range e.ProductionVariants {
			for _, inst := range v.Instances {
				f := &finding{Endpoint: e.EndpointName, Instance: inst.Name, Events: seen.of(e.EndpointName, inst.Name)}
				findings = append(findings, f)
				wg.Go(func() { f.examine(ctx, client, e, inst, m.get(e.EndpointName)) })
			}
		}
	}
	wg.Wait()
	return printFindings(out, findings)
}

func printFindings(out io.Writer, findings []*finding) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "ENDPOINT\tINSTANCE\tREACHABLE\tMODEL\tBLOCK SIZE\tTEMPLATE\tTOKENS\tEVENTS")
	bad := 0
	for _, f := range findings {
		_, _ = fmt.Fprintln(w, strings.Join([]string{f.Endpoint, f.Instance, f.Reachable, f.Model, f.BlockSize, f.Template, f.Tokens, f.Events}, "\t"))
		if !f.Good {
			bad++
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d instances have a fault", bad, len(findings))
	}
	return nil
}

// examine fills in what the instance says of itself.
func (f *finding) examine(ctx context.Context, client *http.Client, e EndpointConfig, inst InstanceConfig, model *tokenize.Model) {
	f.Model, f.BlockSize, f.Template, f.Tokens = "-", "-", templateName(e.Tokenizer), "-"
	url := strings.TrimSuffix(inst.URL, "/")
	if err := getJSON(ctx, client, url+"/health", nil); err != nil {
		f.Reachable = "no: " + reason(err)
		return
	}
	f.Reachable = "yes"
	modelGood := f.checkModel(ctx, client, url, e.Model)
	sizeGood := f.checkBlockSize(ctx, client, url, inst.BlockSize)
	tokensGood := f.checkTokens(ctx, client, url, e, model)
	f.Good = modelGood && sizeGood && tokensGood
}

func (f *finding) checkModel(ctx context.Context, client *http.Client, url, served string) bool {
	var models struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := getJSON(ctx, client, url+"/v1/models", &models); err != nil {
		f.Model = reason(err)
		return false
	}
	var ids []string
	for _, m := range models.Data {
		ids = append(ids, m.ID)
	}
	if !slices.Contains(ids, served) {
		f.Model = fmt.Sprintf("serves %s, not %s", strings.Join(ids, ", "), served)
		return false
	}
	f.Model = served
	return true
}

// blockSizeLabel finds the block size in vLLM's vllm:cache_config_info.
const blockSizeLabel = `(?m)^vllm:cache_config_info\{[^}]*\bblock_size="(\d+)"`

func (f *finding) checkBlockSize(ctx context.Context, client *http.Client, url string, configured int) bool {
	text, err := getText(ctx, client, url+"/metrics")
	if err != nil {
		f.BlockSize = reason(err)
		return configured != 0
	}
	got := regexp.MustCompile(blockSizeLabel).FindStringSubmatch(text)
	if got == nil {
		f.BlockSize = "not in its metrics"
		return configured != 0
	}
	f.BlockSize = got[1]
	if size, err := strconv.Atoi(got[1]); configured != 0 && (err != nil || size != configured) {
		f.BlockSize = fmt.Sprintf("%s, configured %d", got[1], configured)
		return false
	}
	return true
}

func (f *finding) checkTokens(ctx context.Context, client *http.Client, url string, e EndpointConfig, model *tokenize.Model) bool {
	if model == nil {
		f.Tokens = "no tokenizer configured"
		return true
	}
	for i, body := range probes() {
		p, err := compareTokens(ctx, client, url, model, e.Model, tokenize.Chat, []byte(body))
		if err != nil {
			f.Tokens = "unknown: " + reason(err)
			return false
		}
		if !p.Equal {
			f.Tokens = fmt.Sprintf("probe %d: %s", i, p)
			return false
		}
	}
	f.Tokens = "equal"
	return true
}

func templateName(t TokenizerConfig) string {
	switch {
	case t.Path == "":
		return "-"
	case t.Template == "":
		return "beside the tokenizer"
	}
	return t.Template
}

// reason is the last part of a wrapped error: what a table has room for.
func reason(err error) string {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err.Error()
}

func getText(ctx context.Context, client *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", fmt.Errorf("ask the worker: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("ask the worker: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answered %s", req.URL.Path, resp.Status)
	}
	text, err := io.ReadAll(bufio.NewReader(io.LimitReader(resp.Body, 16<<20)))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", req.URL.Path, err)
	}
	return string(text), nil
}

// heard is which instances sent events.
type heard struct {
	state  string // why nothing could be heard, "" where it could
	counts map[string]int
}

func (h heard) of(endpoint, instance string) string {
	if h.state != "" {
		return h.state
	}
	if n := h.counts[endpoint+"."+instance]; n > 0 {
		return fmt.Sprintf("%d batches", n)
	}
	return "none while listening"
}

// listenForEvents counts the KV event batches of each instance for a while.
func listenForEvents(ctx context.Context, cfg NATSConfig, wait time.Duration) (heard, error) {
	if cfg.URL == "" {
		return heard{state: "no nats.url"}, nil
	}
	nc, err := connectNATS(cfg)
	if err != nil {
		return heard{}, err
	}
	defer nc.Close()
	messages := make(chan *nats.Msg, 4096)
	sub, err := nc.ChanSubscribe("kv.*.*.*", messages)
	if err != nil {
		return heard{}, fmt.Errorf("listen for events: %w", err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is closed next
	h := heard{counts: map[string]int{}}
	done := time.NewTimer(wait)
	defer done.Stop()
	for {
		select {
		case m := <-messages:
			parts := strings.Split(m.Subject, ".")
			h.counts[parts[1]+"."+parts[2]]++
		case <-ctx.Done():
			return heard{}, context.Cause(ctx)
		case <-done.C:
			if !nc.IsConnected() {
				h.state = "NATS can't be reached"
			}
			return h, nil
		}
	}
}
