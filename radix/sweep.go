package radix

// sweepChunk is how many blocks are swept under one hold of the tree's lock.
const sweepChunk = 4096

// grave has cleared contents until their slots have left the nodes.
type grave struct {
	list []*dead
}

type dead struct {
	of      *contents
	sources []*source
	next    int // slot of the first source's table to look at next
}

// bury makes readers ignore these sources at once, which is one store for each,
// and leaves their entries to sweep. The caller holds treeMu.
func (x *Index) bury(c *contents, sources []*source) {
	for _, s := range sources {
		x.tree.sids.kill(s)
		x.buried += s.table.used
	}
	x.grave.list = append(x.grave.list, &dead{of: c, sources: sources})
}

// sweep takes about n blocks of cleared sources out of the tree and reports
// whether there are more.
func (x *Index) sweep(n int) bool {
	x.gate.RLock()
	defer x.gate.RUnlock()
	x.treeMu.Lock()
	defer x.treeMu.Unlock()
	return x.sweepLocked(n)
}

func (x *Index) sweepLocked(n int) bool {
	for n > 0 && len(x.grave.list) > 0 {
		d := x.grave.list[0]
		switch c := d.of; {
		case c.tickets.live() > 0:
			for _, p := range c.tickets.at(0).pieces {
				n -= p.len
			}
			x.tree.dropOldest(c)
			n--
		case len(d.sources) > 0:
			n = x.sweepSource(d, n)
		default:
			x.grave.list[0] = nil
			if x.grave.list = x.grave.list[1:]; len(x.grave.list) == 0 {
				x.grave.list = nil
			}
		}
	}
	return len(x.grave.list) > 0
}

// sweepSource goes on with the first source of d. The first entry of a node
// takes the source out of the whole node, so the others cost a look each.
func (x *Index) sweepSource(d *dead, n int) int {
	s, t := d.sources[0], &x.tree
	for ; n > 0 && d.next < len(s.table.slots); d.next++ {
		e := s.table.slots[d.next]
		if e.at.run == 0 {
			n-- // a look counts, or a sparse table would take long under the lock
			continue
		}
		n--
		named := t.runs[e.at.run]
		if node, i := named.find(int(e.at.off)); node != nil && node.cover(s.sid).has(i) {
			t.leave(node, s)
		}
		t.unref(named, 1)
		x.buried--
	}
	if d.next == len(s.table.slots) {
		x.bytes.Add(-s.bytes())
		t.sids.release(s)
		d.sources, d.next = d.sources[1:], 0
	}
	return n
}

// leave takes a source out of a node.
func (t *tree) leave(n *node, s *source) {
	t.putOdd(n, s.sid, nil)
	t.settle(n, s.sid, cover{}, nil)
	t.tidy(n)
}
