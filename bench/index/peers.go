package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

type peerLine struct {
	re      *regexp.Regexp
	columns []string
}

// newPeerLines has the lines that the peers' program prints, by column.
func newPeerLines() []peerLine {
	return []peerLine{
		{regexp.MustCompile(`store\s+([\d.]+) blocks/s.*\s([\d.-]+) B/entry`), []string{"store_blocks_per_s", "bytes_per_entry"}},
		{regexp.MustCompile(`storehot\s*([\d.]+) blocks/s`), []string{"storehot_blocks_per_s"}},
		{regexp.MustCompile(`churn\s+([\d.]+) blocks/s`), []string{"churn_blocks_per_s"}},
		{regexp.MustCompile(`hash8k\s+([\d.]+) µs`), []string{"hash8k_us"}},
	}
}

func newFindLine() *regexp.Regexp {
	return regexp.MustCompile(`find-(\w+)\s+([\d.]+) /s\s+p50\s+([\d.]+) µs\s+p99\s+([\d.]+) µs`)
}

// runPeer runs one published tree once.
func runPeer(ctx context.Context, program, name string, repeats int) (figures, error) {
	out, err := exec.CommandContext(ctx, program, name, strconv.Itoa(repeats)).Output()
	if err != nil {
		return nil, fmt.Errorf("run peer %s: %w", name, err)
	}
	f := figures{}
	findLine := newFindLine()
	sc := bufio.NewScanner(bytes.NewReader(out))
	for sc.Scan() {
		line := sc.Text()
		if m := findLine.FindStringSubmatch(line); m != nil {
			f.parse(m[1]+"_per_s", m[2])
			f.parse(m[1]+"_p50_us", m[3])
			f.parse(m[1]+"_p99_us", m[4])
			continue
		}
		for _, p := range newPeerLines() {
			if strings.Contains(line, "storehot") != (p.columns[0] == "storehot_blocks_per_s") {
				continue
			}
			if m := p.re.FindStringSubmatch(line); m != nil {
				for i, c := range p.columns {
					f.parse(c, m[i+1])
				}
			}
		}
	}
	if len(f) == 0 {
		return nil, fmt.Errorf("run peer %s: no figures in its output", name)
	}
	return f, nil
}

func (f figures) parse(column, text string) {
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		f[column] = v
	}
}
