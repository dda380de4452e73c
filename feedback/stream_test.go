package feedback

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the transcripts anew")

// TestStreamTranscripts runs each file of testdata/stream: lines of commands,
// and below each what the stream said.
//
//	recv EPOCH SEQ [clear]   lost EPOCH SEQ   probe   head EPOCH NEXT
//	suspect   snapshot TICKET EPOCH NEXT   none TICKET   (EPOCH "-": no name)
func TestStreamTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/stream/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("transcripts: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			var s Stream
			for text := range strings.Lines(string(want)) {
				switch {
				case strings.HasPrefix(text, "  "):
				case strings.TrimSpace(text) == "" || strings.HasPrefix(text, "#"):
					got.WriteString(text)
				default:
					got.WriteString(text)
					fmt.Fprintf(&got, "  %s\n", runCommand(t, &s, strings.Fields(text)))
				}
			}
			if *update {
				if err := os.WriteFile(file, []byte(got.String()), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got.String() != string(want) {
				t.Errorf("%s: got\n%s", file, got.String())
			}
		})
	}
}

func runCommand(t *testing.T, s *Stream, f []string) string {
	t.Helper()
	number := func(i int) uint64 {
		n, err := strconv.ParseUint(f[i], 10, 64)
		if err != nil {
			t.Fatalf("%v: %v", f, err)
		}
		return n
	}
	epoch := func(i int) string { return strings.TrimPrefix(f[i], "-") }
	before := s.Counts
	var step Step
	switch f[0] {
	case "recv":
		m := Message{Epoch: epoch(1), Seq: number(2), Batch: Batch{Time: float64(number(2))}}
		if len(f) > 3 && f[3] == "clear" {
			m.Batch.Events = []Event{{Kind: AllBlocksCleared}}
		}
		step = s.Receive(m)
	case "lost":
		step = s.Lost(epoch(1), number(2))
	case "probe":
		s.Probe()
	case "head":
		step = s.Head(epoch(1), number(2))
	case "suspect":
		step = s.Suspect("suspect")
	case "snapshot":
		step = s.Snapshot(number(1), epoch(2), number(3))
	case "none":
		step = s.NoSnapshot(number(1))
	default:
		t.Fatalf("no such command: %v", f)
	}
	return describe(s, step, before)
}

func describe(s *Stream, step Step, before StreamCounts) string {
	out := []string{fmt.Sprintf("%s next=%d", s.Phase(), s.Next())}
	if step.Clear {
		out = append(out, "clear")
	}
	if step.Load {
		out = append(out, "load")
	}
	if len(step.Apply) > 0 {
		seqs := "apply"
		for _, m := range step.Apply {
			seqs += fmt.Sprintf(" %d", m.Seq)
		}
		out = append(out, seqs)
	}
	if step.Resync != "" {
		out = append(out, fmt.Sprintf("resync %d: %s", s.Ticket(), step.Resync))
	}
	if s.Partial() {
		out = append(out, "partial")
	}
	c := s.Counts
	for _, d := range []struct {
		name string
		n    uint64
	}{
		{"duplicate", c.Duplicates - before.Duplicates},
		{"late", c.Late - before.Late},
		{"gap", c.Gaps - before.Gaps},
		{"restart", c.Restarts - before.Restarts},
		{"overflow", c.Overflows - before.Overflows},
	} {
		if d.n > 0 {
			out = append(out, fmt.Sprintf("%s+%d", d.name, d.n))
		}
	}
	return strings.Join(out, ", ")
}

// world is a worker for TestStreamIsTrueWhenLive: a state is the list of
// batches that made it, and a batch is its number.
type world struct {
	epoch int
	sent  int // batches of this epoch
}

// TestStreamIsTrueWhenLive: under any mix of loss, duplicates, reordering,
// unreadable messages, restarts and lost or late snapshots, what was applied
// while the stream is live is the epoch's batches from 0 to next, in order; and
// once faults end, one probe round and one snapshot make it live at the
// worker's own end.
func TestStreamIsTrueWhenLive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			s       Stream
			w       world
			flight  []Message // sent, not delivered
			heads   []head
			shots   []shot
			applied []float64 // what a router holds: the batches since the last clear
			holds   string    // the epoch they are of
			asked   bool
		)
		name := func(e int) string { return "e" + strconv.Itoa(e) }
		do := func(step Step, loaded shot) {
			if step.Clear {
				applied, holds = nil, s.Epoch()
			}
			if step.Load {
				for i := range loaded.next {
					applied = append(applied, float64(i))
				}
			}
			for _, m := range step.Apply {
				applied = append(applied, m.Batch.Time)
			}
			if step.Resync != "" {
				asked = true
			}
			if s.Phase() == Live {
				check(t, &s, applied, holds)
			}
		}
		shoot := func() shot { return shot{ticket: s.Ticket(), epoch: name(w.epoch), next: uint64(w.sent)} }
		deliver := func(m Message) { do(s.Receive(m), shot{}) }
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) {
				flight = append(flight, Message{Epoch: name(w.epoch), Seq: uint64(w.sent), Batch: Batch{Time: float64(w.sent)}})
				w.sent++
			},
			"restart": func(t *rapid.T) { w = world{epoch: w.epoch + 1} },
			"deliver": func(t *rapid.T) {
				if len(flight) == 0 {
					t.Skip("nothing in flight")
				}
				i := 0
				if rapid.Bool().Draw(t, "out of order") {
					i = rapid.IntRange(0, len(flight)-1).Draw(t, "which")
				}
				m := flight[i]
				switch rapid.SampledFrom([]string{"", "", "", "lose", "twice", "corrupt"}).Draw(t, "fault") {
				case "":
					flight = append(flight[:i:i], flight[i+1:]...)
					deliver(m)
				case "lose":
					flight = append(flight[:i:i], flight[i+1:]...)
				case "twice":
					deliver(m)
				case "corrupt":
					flight = append(flight[:i:i], flight[i+1:]...)
					do(s.Lost(m.Epoch, m.Seq), shot{})
				}
			},
			"probe": func(t *rapid.T) {
				s.Probe()
				heads = append(heads, head{epoch: name(w.epoch), next: uint64(w.sent)})
			},
			"head": func(t *rapid.T) {
				if len(heads) == 0 {
					t.Skip("no answer in flight")
				}
				h := heads[0]
				heads = heads[1:]
				do(s.Head(h.epoch, h.next), shot{})
			},
			"snapshot": func(t *rapid.T) {
				if !asked || s.Phase() != Recovering {
					t.Skip("not asked for")
				}
				shots = append(shots, shoot())
				asked = rapid.Bool().Draw(t, "asked again")
			},
			"answer": func(t *rapid.T) {
				if len(shots) == 0 {
					t.Skip("no snapshot in flight")
				}
				x := shots[0]
				shots = shots[1:]
				if rapid.IntRange(0, 3).Draw(t, "lost") > 0 {
					do(s.Snapshot(x.ticket, x.epoch, x.next), x)
				}
			},
			"": func(t *rapid.T) {
				if len(s.wait) > waitMessages {
					t.Fatalf("%d messages wait", len(s.wait))
				}
			},
		})
		// The faults end: what was in flight is lost.
		for range 3 {
			s.Probe()
			do(s.Head(name(w.epoch), uint64(w.sent)), shot{})
			if s.Phase() == Recovering {
				x := shoot()
				do(s.Snapshot(x.ticket, x.epoch, x.next), x)
			}
		}
		if s.Phase() != Live || s.Epoch() != name(w.epoch) || s.Next() != uint64(w.sent) {
			t.Fatalf("after the faults: %s at %s %d, the worker at %s %d", s.Phase(), s.Epoch(), s.Next(), name(w.epoch), w.sent)
		}
		check(t, &s, applied, holds)
	})
}

// shot is a snapshot on its way.
type shot struct {
	ticket uint64
	epoch  string
	next   uint64
}

func check(t *rapid.T, s *Stream, applied []float64, holds string) {
	if holds != s.Epoch() || uint64(len(applied)) != s.Next() {
		t.Fatalf("live at %s %d with %d batches of %s applied", s.Epoch(), s.Next(), len(applied), holds)
	}
	for i, at := range applied {
		if at != float64(i) {
			t.Fatalf("live at %s %d, but batch %d was applied as number %d", s.Epoch(), s.Next(), int(at), i)
		}
	}
}

func TestStreamBoundsWhatWaits(t *testing.T) {
	var s Stream
	for seq := range uint64(waitMessages + 100) {
		s.Receive(Message{Epoch: "a", Seq: seq + 10, Payload: make([]byte, 10)})
	}
	if len(s.wait) != waitMessages || s.Counts.Overflows != 100 {
		t.Errorf("%d wait and %d were dropped, want %d and 100", len(s.wait), s.Counts.Overflows, waitMessages)
	}
	// A snapshot that reaches what still waits makes it whole.
	step := s.Snapshot(s.Ticket(), "a", 110)
	if s.Phase() != Live || len(step.Apply) != waitMessages || s.bytes != 0 {
		t.Errorf("%s after %d batches, %d bytes still wait", s.Phase(), len(step.Apply), s.bytes)
	}
	for seq := range uint64(10) {
		s.Receive(Message{Epoch: "a", Seq: s.Next() + 1 + seq, Payload: make([]byte, waitBytes/4)})
	}
	if s.bytes > waitBytes {
		t.Errorf("%d bytes wait, over %d", s.bytes, waitBytes)
	}
}
