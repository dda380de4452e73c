package feedback

import (
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/warmroute/warmroute/scheduler"
)

// feedKey is how a message finds its feed.
type feedKey struct {
	subject string
	rank    int // as the payload says
}

// silentTimes is how many times StaleAfter a rank may say nothing while other
// ranks of its instance do.
const silentTimes = 4

// memberKey is an instance's identity in the configuration.
type memberKey struct{ endpoint, instance string }

// refresh follows the configuration: instances that left are forgotten, new
// ones are asked for their head.
func (s *Subscriber) refresh() {
	current := make(map[memberKey]*scheduler.Instance)
	for _, e := range s.o.Scheduler.Endpoints() {
		for _, v := range e.Variants() {
			for _, i := range v.Instances() {
				key := memberKey{e.Name(), i.Name()}
				current[key] = i
				if m := s.members[key]; m != nil && m.instance == i && m.model == e.Model() {
					continue
				}
				s.forget(key)
				m := &member{instance: i, endpoint: e.Name(), name: i.Name(), model: e.Model(), feeds: make(map[int]*feed)}
				m.trust, m.reason = i.Trust()
				s.members[key] = m
				s.probe(m)
			}
		}
	}
	for key := range s.members {
		if current[key] == nil {
			s.forget(key)
		}
	}
}

// forget drops an instance. The scheduler has taken it out of the tree.
func (s *Subscriber) forget(key memberKey) {
	m := s.members[key]
	if m == nil {
		return
	}
	delete(s.members, key)
	for rank, f := range m.feeds {
		f.gone = true
		s.metrics.heard.DeleteLabelValues(m.endpoint, m.name, strconv.Itoa(rank))
	}
	for k, f := range s.feeds {
		if f.gone {
			delete(s.feeds, k)
		}
	}
}

// member finds an instance, looking again in the configuration for one that is
// not known yet.
func (s *Subscriber) member(key memberKey) *member {
	m := s.members[key]
	if m == nil {
		if _, ok := s.o.Scheduler.Instance(key.endpoint, key.instance); ok {
			s.refresh()
			m = s.members[key]
		}
	}
	return m
}

// feed is the rank's feed, made on first use.
func (s *Subscriber) feed(m *member, rank int) *feed {
	f := m.feeds[rank]
	if f == nil {
		f = &feed{
			member: m, rank: rank, seen: s.metrics.heard.WithLabelValues(m.endpoint, m.name, strconv.Itoa(rank)),
			applier: applier{index: s.o.Index, instance: m.instance.Handle(), rank: uint16(rank), model: m.model},
		}
		m.feeds[rank] = f
	}
	return f
}

// silence forgets ranks that are heard no more while others of the instance
// are: the instance has fewer ranks than before.
func (s *Subscriber) silence(m *member, now time.Time) {
	last := m.heard()
	for _, f := range m.feeds {
		if f.stream.Phase() == Silent || last.Sub(f.heard) < silentTimes*s.o.StaleAfter || now.Sub(last) > s.o.StaleAfter {
			continue
		}
		s.o.Logger.Info("a rank is heard no more; its blocks are forgotten", "endpoint", m.endpoint, "instance", m.name, "rank", f.rank)
		f.clear()
		f.stream, f.counted = Stream{}, StreamCounts{}
	}
}

// locate finds a message's feed; nil if its sender is not known.
func (s *Subscriber) locate(msg *nats.Msg, rank int) *feed {
	key := feedKey{msg.Subject, rank}
	f := s.feeds[key]
	if f == nil {
		endpoint, instance, subjectRank, err := parseSubject(msg.Subject)
		if err != nil {
			s.unknown(msg.Subject)
			return nil
		}
		m := s.member(memberKey{endpoint, instance})
		if m == nil {
			s.unknown(msg.Subject)
			return nil
		}
		if rank == 0 { // what workers say that do not know their rank
			rank = subjectRank
		}
		f = s.feed(m, rank)
		s.feeds[key] = f
	}
	if name := msg.Header.Get(headerInstance); name != "" && name != f.member.name {
		s.unknown(msg.Subject + " as " + name)
		return nil
	}
	return f
}

// unknown counts a message of a sender that the configuration does not name.
// It is never indexed, and told of once a minute.
func (s *Subscriber) unknown(sender string) {
	s.metrics.unknownSenders.Inc()
	s.strangers++
	s.lastStranger = sender
	s.tellStrangers(s.o.Now())
}

func (s *Subscriber) tellStrangers(now time.Time) {
	if s.strangers == 0 || now.Sub(s.strangersTold) < time.Minute {
		return
	}
	s.o.Logger.Warn("KV events of instances that are not configured are dropped; names must match the configuration's",
		"messages", s.strangers, "last", limit(s.lastStranger, 200))
	s.strangers, s.strangersTold = 0, now
}

// probe asks all ranks of an instance for their heads. The answers come as
// messages.
func (s *Subscriber) probe(m *member) {
	for _, f := range m.feeds {
		f.stream.Probe()
	}
	// Each question has a reply subject of its own: a worker may be allowed one
	// answer to each.
	s.probes++
	request := &nats.Msg{
		Subject: headSubject(m.endpoint, m.name),
		Reply:   s.inbox + "." + token(m.endpoint) + "." + token(m.name) + "." + strconv.FormatUint(s.probes, 36),
		Header:  nats.Header{headerWant: {wantHead}},
	}
	if err := s.o.Conn.PublishMsg(request); err != nil {
		s.o.Logger.Debug("can't ask for a head", "endpoint", m.endpoint, "instance", m.name, "error", err)
	}
}

func limit(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
