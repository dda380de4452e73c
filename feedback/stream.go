package feedback

import (
	"slices"
	"sort"
)

// Phase is how far a stream's state is known.
type Phase uint8

const (
	// Silent says that nothing was heard of it yet.
	Silent Phase = iota
	// Live says that every batch up to now was applied.
	Live
	// Recovering says that something is missing: a snapshot is asked for.
	Recovering
)

// String is the phase as a metric's label.
func (p Phase) String() string {
	switch p {
	case Silent:
		return "silent"
	case Live:
		return "live"
	case Recovering:
		return "recovering"
	}
	return "unknown"
}

// Limits of a stream's memory.
const (
	waitMessages  = 4096     // messages that wait for a snapshot or an earlier message
	waitBytes     = 32 << 20 // their payloads together
	retiredEpochs = 8        // ended epochs remembered, to know their late messages
)

// lateStart is the reason of a resync that no fault caused.
const lateStart = "late start"

// Message is one batch with its place.
type Message struct {
	Epoch   string // "" if the sender names none
	Seq     uint64
	Batch   Batch
	Payload []byte // what Batch was decoded from

	ticket uint64 // the stream's when it began to wait
}

// Step is what to do next, in the order of the fields.
type Step struct {
	Clear  bool      // forget the rank's blocks
	Load   bool      // apply the snapshot just handed in
	Apply  []Message // then these; the slice is reused by the next call
	Resync string    // ask for a snapshot, with [Stream.Ticket]; the reason, or ""
}

// StreamCounts counts what a stream saw.
type StreamCounts struct {
	Duplicates uint64 // dropped: applied or waiting already
	Late       uint64 // dropped: of an epoch that has ended
	Gaps       uint64 // a message was missing
	Restarts   uint64 // a new epoch began
	Overflows  uint64 // dropped: too many waited
}

// Stream puts one rank's messages in order. It decides, and does nothing
// itself: no clock, no I/O, no lock. The zero Stream is ready.
//
// A message that comes too early waits, within bounds, and the stream is
// Recovering until the missing one comes, or a snapshot that holds it, or a
// batch that clears the whole cache (which makes what was missed irrelevant).
type Stream struct {
	Counts StreamCounts

	phase   Phase
	epoch   string
	next    uint64 // the first seq not applied
	known   uint64 // the worker has sent all below; next >= known if live
	head    uint64 // known from the last Head: loss is certain at the next one
	suspect bool   // what is applied may be wrong though nothing is missing
	partial bool   // blocks from before a loss were given up
	join    bool   // the next message is the next, whatever its seq

	ticket  uint64 // the last resync's; it is outstanding while recovering
	asked   uint64 // next when the ticket was given out
	probed  uint64 // next at the last Probe
	wait    []Message
	bytes   int
	retired []string
	apply   []Message
}

// Phase says how far the state is known.
func (s *Stream) Phase() Phase { return s.phase }

// Epoch is the epoch now followed.
func (s *Stream) Epoch() string { return s.epoch }

// Next is the first seq that was not applied.
func (s *Stream) Next() uint64 { return s.next }

// Partial says that blocks from before a loss were given up because no
// snapshot came: what is applied is true, but not all.
func (s *Stream) Partial() bool { return s.partial }

// Ticket names the last resync that was asked for. An answer to an earlier
// one is void.
func (s *Stream) Ticket() uint64 { return s.ticket }

// Receive takes a message.
func (s *Stream) Receive(m Message) Step {
	var step Step
	s.apply = s.apply[:0]
	reason := "gap"
	switch {
	case s.phase == Silent:
		s.begin(m.Epoch)
		step.Clear = true
		reason = lateStart
	case m.Epoch != s.epoch:
		if slices.Contains(s.retired, m.Epoch) {
			s.Counts.Late++
			return Step{}
		}
		s.retire(s.epoch)
		s.restart(m.Epoch)
		step.Clear = true
		reason = "new epoch"
	case s.join:
		s.join = false
		s.next = m.Seq
	case m.Seq < s.next && m.Epoch == "":
		// Without an epoch, going back is the only sign of a new process.
		s.restart("")
		step.Clear = true
		reason = "new epoch"
	case m.Seq < s.next:
		s.Counts.Duplicates++
		return Step{}
	}
	if m.Seq == s.next && len(s.wait) == 0 {
		s.take(m)
	} else if !s.hold(m) {
		return step
	}
	if s.phase == Recovering && m.Seq >= s.next && m.Batch.ClearsAll() {
		s.drop(m.Seq)
		s.next, s.suspect, s.partial = m.Seq, false, false
		step.Clear = true
	}
	s.advance(&step, reason)
	return step
}

// Lost says that a message came and can't be read.
func (s *Stream) Lost(epoch string, seq uint64) Step {
	if s.phase == Silent || epoch != s.epoch {
		return Step{} // the next message shows it
	}
	s.apply = s.apply[:0]
	s.known = max(s.known, seq+1)
	var step Step
	s.advance(&step, "unreadable")
	return step
}

// Probe says that the worker was asked for its head.
func (s *Stream) Probe() { s.probed = s.next }

// Head says how far the worker is, by its own word. Being behind means loss
// only if the stream is still behind at the next Head: the word may overtake
// the messages.
func (s *Stream) Head(epoch string, next uint64) Step {
	s.apply = s.apply[:0]
	var step Step
	switch {
	case s.phase == Silent:
		s.begin(epoch)
		s.known = next
		step.Clear = true
		s.advance(&step, lateStart)
		return step
	case epoch != s.epoch:
		// Two lives of the process may have crossed; the snapshot's is the
		// one to follow.
		return s.Suspect("another epoch")
	case next < s.probed:
		// A process that uses its predecessor's epoch.
		return s.Suspect("seq went back")
	case s.join:
		s.join = false
		s.next = next
	}
	s.known = max(s.known, min(s.head, next))
	s.head = next
	s.advance(&step, "silent loss")
	return step
}

// Suspect says that what is applied may be wrong.
func (s *Stream) Suspect(reason string) Step {
	s.apply = s.apply[:0]
	var step Step
	if s.phase != Silent {
		s.suspect = true
		s.advance(&step, reason)
	}
	return step
}

// Snapshot takes a snapshot that holds all before next. Its answer's Load says
// whether to apply it.
func (s *Stream) Snapshot(ticket uint64, epoch string, next uint64) Step {
	if s.phase != Recovering || ticket != s.ticket {
		return Step{}
	}
	s.apply = s.apply[:0]
	if epoch != s.epoch {
		// It answers a question asked after the last message we saw: that
		// process lives.
		s.retire(s.epoch)
		s.restart(epoch)
	} else if next < s.next && next >= s.asked {
		return Step{Resync: s.ask("snapshot too old")}
	}
	s.drop(next)
	// Whatever the worker had sent when it was asked is in the snapshot. What
	// claims to be more bears a wrong seq.
	s.wait = slices.DeleteFunc(s.wait, func(m Message) bool {
		if m.ticket == ticket {
			return false
		}
		s.Counts.Late++
		s.bytes -= len(m.Payload)
		return true
	})
	s.next, s.known, s.head, s.probed = next, 0, 0, 0
	s.suspect, s.partial, s.join = false, false, false
	s.phase = Live
	step := Step{Clear: true, Load: true}
	s.advance(&step, "gap behind the snapshot")
	return step
}

// NoSnapshot says that no snapshot can be had. What the worker held before the
// loss is forgotten, and the stream goes on with what comes: what is then
// known is true, though not all.
func (s *Stream) NoSnapshot(ticket uint64) Step {
	if s.phase != Recovering || ticket != s.ticket {
		return Step{}
	}
	s.apply = s.apply[:0]
	s.suspect, s.partial, s.known, s.head = false, true, 0, 0
	s.phase = Live
	if n := len(s.wait); n == 0 {
		s.join = true
	} else {
		// After the last hole.
		from := n - 1
		for from > 0 && s.wait[from-1].Seq+1 == s.wait[from].Seq {
			from--
		}
		s.next = s.wait[from].Seq
		s.drop(s.next)
	}
	step := Step{Clear: true}
	s.advance(&step, "gap")
	return step
}

// advance applies what is in order and sets the phase.
func (s *Stream) advance(step *Step, reason string) {
	for len(s.wait) > 0 && s.wait[0].Seq == s.next {
		m := s.wait[0]
		s.drop(m.Seq + 1)
		s.take(m)
	}
	step.Apply = s.apply
	whole := len(s.wait) == 0 && s.next >= s.known && !s.suspect
	switch {
	case whole:
		s.phase = Live
	case s.phase != Recovering:
		if !s.suspect && reason != lateStart {
			s.Counts.Gaps++
		}
		s.phase = Recovering
		step.Resync = s.ask(reason)
	}
}

// ask gives out a new ticket.
func (s *Stream) ask(reason string) string {
	s.ticket++
	s.asked = s.next
	return reason
}

func (s *Stream) take(m Message) {
	s.apply = append(s.apply, m)
	s.next = m.Seq + 1
}

// hold lets m wait; false if it waits already.
func (s *Stream) hold(m Message) bool {
	at := sort.Search(len(s.wait), func(i int) bool { return s.wait[i].Seq >= m.Seq })
	if at < len(s.wait) && s.wait[at].Seq == m.Seq {
		s.Counts.Duplicates++
		return false
	}
	m.ticket = s.ticket
	s.wait = slices.Insert(s.wait, at, m)
	s.bytes += len(m.Payload)
	// The earliest go first: a snapshot is likeliest to hold those.
	for len(s.wait) > waitMessages || s.bytes > waitBytes && len(s.wait) > 1 {
		s.Counts.Overflows++
		s.known = max(s.known, s.wait[0].Seq+1)
		s.drop(s.wait[0].Seq + 1)
	}
	return true
}

// drop ends the waiting of all messages below seq.
func (s *Stream) drop(seq uint64) {
	n := 0
	for n < len(s.wait) && s.wait[n].Seq < seq {
		s.bytes -= len(s.wait[n].Payload)
		s.wait[n] = Message{}
		n++
	}
	s.wait = s.wait[n:]
}

// begin follows an epoch from its first message on.
func (s *Stream) begin(epoch string) {
	s.wait, s.bytes = nil, 0
	s.epoch, s.phase = epoch, Live
	s.next, s.known, s.head, s.probed = 0, 0, 0, 0
	s.suspect, s.partial, s.join = false, false, false
	s.retired = slices.DeleteFunc(s.retired, func(e string) bool { return e == epoch })
}

func (s *Stream) restart(epoch string) {
	s.Counts.Restarts++
	s.begin(epoch)
}

// retire remembers an epoch as ended. Epochs without a name can't be told
// apart, so they never end.
func (s *Stream) retire(epoch string) {
	if epoch == "" {
		return
	}
	if len(s.retired) == retiredEpochs {
		s.retired = slices.Delete(s.retired, 0, 1)
	}
	s.retired = append(s.retired, epoch)
}
