package radix

// hold records that s holds blocks lo…hi-1 of n, and ends their predictions.
func (t *tree) hold(n *node, s *source, lo, hi int) {
	c := n.cover(s.sid).with(lo, hi)
	t.putOdd(n, s.sid, c.odd)
	if n.forecasts == nil {
		t.settle(n, s.sid, c, nil)
		return
	}
	t.settle(n, s.sid, c, n.forecast(s.of))
	t.endGuesses(n, s.of, lo, hi)
}

// drop records that s no longer holds blocks lo…hi-1 of n, which have no
// predictions, as they were confirmed. The caller tidies n.
func (t *tree) drop(n *node, s *source, lo, hi int) {
	c := n.cover(s.sid).without(lo, hi)
	t.putOdd(n, s.sid, c.odd)
	t.settle(n, s.sid, c, n.forecast(s.of))
	t.lost(s.sid)
}

// endGuesses ends all predictions of blocks lo…hi-1 of n.
func (t *tree) endGuesses(n *node, c *contents, lo, hi int) {
	f := n.forecast(c)
	if f == nil {
		return
	}
	ended := 0
	for i := lo; i < min(hi, len(f.blocks)); i++ {
		if f.blocks[i].tickets > 0 {
			f.blocks[i] = guess{}
			ended++
		}
	}
	if ended > 0 {
		t.addPredicted(c, -ended)
		t.refresh(n, c)
	}
}

// refresh shows readers what the sources of c hold of n after its forecast
// changed, and forgets an empty forecast.
func (t *tree) refresh(n *node, c *contents) {
	f := n.forecast(c)
	if f != nil && !f.trim() {
		n.dropForecast(c)
		f = nil
	}
	for _, s := range c.sources {
		t.settle(n, s.sid, n.cover(s.sid), f)
		t.lost(s.sid)
	}
}

// putOdd keeps or forgets the set of a holder with holes.
func (t *tree) putOdd(n *node, sid uint32, b bitset) {
	if b == nil && n.odd == nil {
		return
	}
	t.count.oddWords += len(b) - len(n.odd[sid])
	n.setOdd(sid, b)
}

// settle writes the slot of a source with this cover and forecast. It is one
// atomic store, so a reader sees the state before or after. For a source that
// loses something, lost comes next.
func (t *tree) settle(n *node, sid uint32, c cover, f *forecast) {
	t.change()
	tab := n.slots.Load()
	i, old := tab.find(sid)
	if c.empty() && f == nil {
		if i >= 0 {
			tab.word[i].Store(uint64(tombstone))
			t.countHolders(tab.live, tab.live-1)
			tab.live--
			if len(tab.word) > firstSlots && int(tab.live)*4 < len(tab.word) {
				t.resize(n, tab)
			}
		}
		return
	}
	v := makeSlot(sid, c.n, reach(c, f))
	if i >= 0 {
		if v != old {
			tab.word[i].Store(uint64(v))
		}
		return
	}
	if !tab.roomy() {
		tab = t.resize(n, tab)
	}
	t.change()
	tab.add(v)
	t.countHolders(tab.live-1, tab.live)
}

func (t *tree) countHolders(from, to int32) {
	t.count.holders[bucket(from)]--
	t.count.holders[bucket(to)]++
}

// resize replaces the slots of n with a table that suits its holders. Readers
// of the old one see the state of this moment.
func (t *tree) resize(n *node, old *slots) *slots {
	next := newSlots(sized(int(old.live) + 1))
	for i := range old.word {
		if v := slot(old.word[i].Load()); v.sid() != 0 {
			next.add(v)
		}
	}
	t.count.slotCap += len(next.word) - len(old.word)
	t.change()
	n.slots.Store(next)
	return next
}
