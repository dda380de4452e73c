// Command tokens measures the token path: from a request's body to block keys,
// hot and cold, beside Hugging Face's own encoder (github.com/daulet/tokenizers)
// in the same process where it is built with the tag hf.
//
// Times are CPU time of the process, so that other work on the machine adds
// little. The figures go to standard output and, as JSON, to -out.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
)

func main() {
	tokenizer := flag.String("tokenizer", ".tmp/llama-3.1/tokenizer.json", "Llama 3.1's tokenizer.json")
	runs := flag.Int("n", 5, "runs; the report has their medians")
	out := flag.String("out", "bench/out/tokens.json", "where the medians go as JSON; empty: nowhere")
	flag.Parse()
	if err := run(*tokenizer, *runs, *out); err != nil {
		fmt.Fprintln(os.Stderr, "tokens:", err)
		os.Exit(1)
	}
}

func run(tokenizer string, runs int, out string) error {
	rows := map[string][]float64{}
	allocations := map[string]float64{}
	var order []row
	for n := range runs {
		b := &bench{tokenizer: tokenizer, seed: uint64(n + 1)}
		if err := b.all(); err != nil {
			return err
		}
		order = b.rows
		for _, r := range b.rows {
			rows[r.name] = append(rows[r.name], r.value)
			allocations[r.name] = r.allocations
		}
	}
	medians := map[string]float64{}
	for name, v := range rows {
		medians[name] = median(v)
	}
	table(order, rows, allocations, medians)
	if out == "" {
		return nil
	}
	data, err := json.MarshalIndent(medians, "", "  ")
	if err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	if err := os.WriteFile(out, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	return nil
}

// table prints each row's median and farthest run, and how many times as long
// Hugging Face's encoder takes for the same.
func table(order []row, rows map[string][]float64, allocations, medians map[string]float64) {
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(tw, format, args...) }
	p("what\tmedian of %d\tfarthest\tallocations\tdaulet takes\n", len(rows[order[0].name]))
	for _, r := range order {
		v := rows[r.name]
		m := medians[r.name]
		far := 0.0
		if m > 0 {
			far = 100 * max(slices.Max(v)-m, m-slices.Min(v)) / m
		}
		p("%s\t%.3f %s\t±%.0f %%", r.name, m, r.unit, far)
		if r.counted {
			p("\t%.0f", allocations[r.name])
		} else {
			p("\t")
		}
		if peer := medians[r.peer]; peer > 0 && m > 0 {
			p("\t%.0f times as long", peer/m)
		} else {
			p("\t")
		}
		p("\n")
	}
	_ = tw.Flush()
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if len(v)%2 == 1 {
		return v[len(v)/2]
	}
	return (v[len(v)/2-1] + v[len(v)/2]) / 2
}
