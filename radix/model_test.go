package radix

import (
	"encoding/binary"
	"time"

	goradix "github.com/armon/go-radix"
)

// model is the index done naively: a set of blocks for each source, kept in
// go-radix under the block's whole path, and a list of tickets for each
// instance. It is the oracle of the property tests and the baseline of the
// benchmarks.
type model struct {
	o     Options
	world *world
	insts map[Instance]*modelInstance
}

// world knows the path of each key: the keys of its ancestors and itself.
type world struct{ path map[Key]string }

func newWorld() *world { return &world{path: map[Key]string{}} }

// key names block digit after parent ("" is the root).
func (w *world) key(parent Key, digit uint64) Key {
	k := splitmix(parent ^ splitmix(digit+1))
	if _, ok := w.path[k]; !ok {
		w.path[k] = string(binary.BigEndian.AppendUint64([]byte(w.path[parent]), k))
	}
	return k
}

func (w *world) chain(parent Key, digits []int) []Key {
	var keys []Key
	for _, d := range digits {
		parent = w.key(parent, uint64(d))
		keys = append(keys, parent)
	}
	return keys
}

func splitmix(x uint64) uint64 {
	z := x + 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

type modelBlock struct {
	key    Key
	copies int
}

type modelSource struct {
	blocks map[Hash]modelBlock
	held   *goradix.Tree // path → hashes that stand for the block
}

type modelTicket struct {
	seq  uint64
	at   time.Time
	keys map[Key]bool
}

type modelInstance struct {
	capacity int
	seq      uint64
	sources  map[Source]*modelSource
	tickets  []*modelTicket // oldest first
}

func newModel(o Options, w *world) *model {
	return &model{o: o, world: w, insts: map[Instance]*modelInstance{}}
}

func (m *model) add(i Instance) {
	m.insts[i] = &modelInstance{capacity: m.o.DefaultCapacity, sources: map[Source]*modelSource{}}
}

func (m *model) source(s Source) *modelSource {
	in := m.insts[s.Instance]
	if in.sources[s] == nil {
		in.sources[s] = &modelSource{blocks: map[Hash]modelBlock{}, held: goradix.New()}
	}
	return in.sources[s]
}

func (m *model) confirmed(in *modelInstance, k Key) bool {
	for _, s := range in.sources {
		if _, ok := s.held.Get(m.world.path[k]); ok {
			return true
		}
	}
	return false
}

func (in *modelInstance) predicted(k Key) bool {
	for _, t := range in.tickets {
		if t.keys[k] {
			return true
		}
	}
	return false
}

func (in *modelInstance) predictedBlocks() int {
	all := map[Key]bool{}
	for _, t := range in.tickets {
		for k := range t.keys {
			all[k] = true
		}
	}
	return len(all)
}

func (in *modelInstance) fit() {
	for len(in.tickets) > 0 && (len(in.tickets) > in.capacity || in.predictedBlocks() > in.capacity) {
		in.tickets = in.tickets[1:]
	}
}

func (m *model) store(s Source, keys []Key, hashes []Hash) {
	src, in := m.source(s), m.insts[s.Instance]
	for i, h := range hashes {
		b, ok := src.blocks[h]
		if !ok {
			b.key = keys[i]
			n, _ := src.held.Get(m.world.path[b.key])
			c, _ := n.(int)
			src.held.Insert(m.world.path[b.key], c+1)
			for _, t := range in.tickets {
				delete(t.keys, b.key)
			}
		}
		b.copies++
		src.blocks[h] = b
	}
}

func (m *model) remove(s Source, hashes []Hash) (unknown int) {
	src := m.source(s)
	for _, h := range hashes {
		b, ok := src.blocks[h]
		if !ok {
			unknown++
			continue
		}
		if b.copies--; b.copies > 0 {
			src.blocks[h] = b
			continue
		}
		delete(src.blocks, h)
		p := m.world.path[b.key]
		n, _ := src.held.Get(p)
		if c := n.(int); c > 1 {
			src.held.Insert(p, c-1)
		} else {
			src.held.Delete(p)
		}
	}
	return unknown
}

func (m *model) clear(i Instance) {
	m.insts[i].sources, m.insts[i].tickets = map[Source]*modelSource{}, nil
}

func (m *model) clearRank(i Instance, rank uint16) {
	in := m.insts[i]
	in.tickets = nil
	for s := range in.sources {
		if s.Rank == rank {
			delete(in.sources, s)
		}
	}
}

// predict returns the ticket's number; 0: nothing was predicted.
func (m *model) predict(i Instance, keys []Key, now time.Time) *modelTicket {
	in := m.insts[i]
	t := &modelTicket{at: now, keys: map[Key]bool{}}
	for _, k := range keys {
		if len(t.keys) == in.capacity {
			break
		}
		if !m.confirmed(in, k) {
			t.keys[k] = true
		}
	}
	if len(t.keys) == 0 {
		return nil
	}
	in.seq++
	t.seq = in.seq
	in.tickets = append(in.tickets, t)
	in.fit()
	return t
}

func (m *model) withdraw(i Instance, t *modelTicket) {
	in := m.insts[i]
	if in == nil || t == nil {
		return
	}
	for j, o := range in.tickets {
		if o == t {
			in.tickets = append(in.tickets[:j:j], in.tickets[j+1:]...)
			return
		}
	}
}

func (m *model) expire(now time.Time) {
	for _, in := range m.insts {
		for len(in.tickets) > 0 && now.Sub(in.tickets[0].at) >= m.o.PredictionTTL {
			in.tickets = in.tickets[1:]
		}
	}
}

func (m *model) match(keys []Key) map[Instance]Match {
	out := map[Instance]Match{}
	for i, in := range m.insts {
		got := Match{Instance: i, Blocks: leading(keys, in.predicted)}
		for _, s := range in.sources {
			holds := func(k Key) bool {
				_, ok := s.held.Get(m.world.path[k])
				return ok
			}
			got.Confirmed = max(got.Confirmed, leading(keys, holds))
			got.Blocks = max(got.Blocks, leading(keys, func(k Key) bool { return holds(k) || in.predicted(k) }))
		}
		if got.Blocks > 0 {
			out[i] = got
		}
	}
	return out
}

func leading(keys []Key, has func(Key) bool) int {
	for n, k := range keys {
		if !has(k) {
			return n
		}
	}
	return len(keys)
}
