package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
)

// report gathers figures by who and column, one for each run.
type report struct {
	who    []string
	values map[string]map[string][]float64
}

func newReport() *report { return &report{values: map[string]map[string][]float64{}} }

func (r *report) add(who string, f figures) {
	if r.values[who] == nil {
		r.who = append(r.who, who)
		r.values[who] = map[string][]float64{}
	}
	for c, v := range f {
		r.values[who][c] = append(r.values[who][c], v)
	}
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if len(v)%2 == 1 {
		return v[len(v)/2]
	}
	return (v[len(v)/2-1] + v[len(v)/2]) / 2
}

// spread is the larger distance of a run from the median, in percent of it.
func spread(v []float64) float64 {
	m := median(v)
	return 100 * max(slices.Max(v)-m, m-slices.Min(v)) / m
}

func (r *report) print(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(tw, format, args...) }
	p("median of %d runs ± the farthest run\n", len(r.values["warmroute"]["full_per_s"]))
	p("column")
	for _, who := range r.who {
		if who != "together" {
			p("\t%s", who)
		}
	}
	p("\twarmroute / best other\n")
	for _, c := range columns() {
		p("%s", c)
		best := 0.0
		for _, who := range r.who {
			if who == "together" {
				continue
			}
			v := r.values[who][c]
			if len(v) == 0 {
				p("\t–")
				continue
			}
			m := median(v)
			p("\t%s ±%.0f%%", number(m), spread(v))
			if who != "warmroute" && (best == 0 || smallerIsBetter(c) == (m < best)) {
				best = m
			}
		}
		if best > 0 {
			p("\t%.2f", median(r.values["warmroute"][c])/best)
		}
		p("\n")
	}
	for _, c := range slices.Sorted(maps.Keys(r.values["together"])) {
		v := r.values["together"][c]
		p("%s\t%s ±%.0f%%\n", c, number(median(v)), spread(v))
	}
	_ = tw.Flush()
}

func number(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.1f M", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.0f k", v/1e3)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// write stores the medians: {"warmroute": {"column": median, …}, …}.
func (r *report) write(path string) error {
	if path == "" {
		return nil
	}
	medians := map[string]figures{}
	for who, cs := range r.values {
		medians[who] = figures{}
		for c, v := range cs {
			medians[who][c] = median(v)
		}
	}
	b, err := json.MarshalIndent(medians, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the figures: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the output folder: %w", err)
	}
	if err := os.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	return nil
}
