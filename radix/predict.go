package radix

import "time"

// piece is a stretch of blocks by name.
type piece struct {
	run      *run
	off, len int
}

// ticket is the record of one request's predictions.
type ticket struct {
	at     time.Time
	pieces []piece // nil: it ended
}

// ticketQueue has an instance's tickets, oldest first, by their numbers.
type ticketQueue struct {
	list []ticket
	head int    // of list: the oldest
	next uint64 // the number of the next ticket less one
	open int    // tickets that have not ended
}

func (q *ticketQueue) live() int        { return len(q.list) - q.head }
func (q *ticketQueue) at(i int) *ticket { return &q.list[q.head+i] }
func (q *ticketQueue) first() uint64    { return q.next - uint64(q.live()) + 1 }

func (q *ticketQueue) push(t ticket) uint64 {
	q.list = append(q.list, t)
	q.next++
	q.open++
	return q.next
}

func (q *ticketQueue) pop() {
	q.list[q.head] = ticket{}
	q.head++
	if q.head*2 > len(q.list) {
		q.list = append(q.list[:0:0], q.list[q.head:]...)
		q.head = 0
	}
}

// find returns the ticket with this number unless it was dropped.
func (q *ticketQueue) find(seq uint64) *ticket {
	if i := seq - q.first(); seq >= q.first() && i < uint64(q.live()) {
		return q.at(int(i))
	}
	return nil
}

// predict records that c will hold the blocks of keys that it does not hold,
// the first room of them. It returns the ticket's number; 0 if there was nothing to predict.
func (t *tree) predict(c *contents, keys []Key, room int, now time.Time, spans []span) (uint64, []span) {
	spans = t.walk(keys, spans)
	upto, missing := 0, 0
	for _, sp := range spans {
		if missing == room {
			break
		}
		if t.whole(sp, c) {
			upto += sp.hi
			continue
		}
		for i := 0; i < sp.hi && missing < room; i++ {
			if !t.confirmed(sp.n, c, i) {
				missing++
			}
			upto++
		}
	}
	if missing < room {
		more := min(len(keys)-upto, room-missing)
		upto, missing = upto+more, missing+more
	}
	if missing == 0 {
		return 0, spans[:0]
	}
	seq := c.tickets.next + 1
	spans = t.place(&t.root, 0, keys[:upto], spans[:0])
	var pieces []piece
	for _, sp := range spans {
		if t.guess(sp, c, seq) {
			pieces = append(pieces, piece{sp.n.run, sp.n.start + sp.lo, sp.hi - sp.lo})
			sp.n.run.refs++
			sp.n.run.pieces++
		}
	}
	if pieces == nil { // keys that are no chain
		return 0, spans[:0]
	}
	c.tickets.push(ticket{at: now, pieces: pieces})
	t.tickets++
	return seq, spans[:0]
}

// whole reports whether one source of c holds the node as far as sp goes.
func (t *tree) whole(sp span, c *contents) bool {
	for _, s := range c.sources {
		if _, v := sp.n.slots.Load().find(s.sid); v.confirmed() >= sp.hi {
			return true
		}
	}
	return false
}

func (t *tree) confirmed(n *node, c *contents, i int) bool {
	for _, s := range c.sources {
		if n.cover(s.sid).has(i) {
			return true
		}
	}
	return false
}

// guess adds a ticket to the blocks of sp that are not confirmed.
func (t *tree) guess(sp span, c *contents, seq uint64) bool {
	if t.whole(sp, c) {
		return false
	}
	f := sp.n.forecast(c)
	if f == nil {
		f = &forecast{of: c}
		sp.n.forecasts = append(sp.n.forecasts, f)
	}
	if more := sp.hi - len(f.blocks); more > 0 {
		f.blocks = append(f.blocks, make([]guess, more)...)
	}
	added := false
	for i := sp.lo; i < sp.hi; i++ {
		if t.confirmed(sp.n, c, i) {
			continue
		}
		added = true
		g := &f.blocks[i]
		if g.tickets == 0 {
			g.first = seq
			t.addPredicted(c, 1)
		}
		g.tickets++
	}
	t.refresh(sp.n, c)
	return added
}

// endTicket takes a ticket's share out of its blocks' predictions.
func (t *tree) endTicket(c *contents, tk *ticket, seq uint64) {
	pieces := tk.pieces
	*tk = ticket{}
	c.tickets.open--
	for i := len(pieces) - 1; i >= 0; i-- {
		p := pieces[i]
		spans := t.spansOf(p, nil)
		for _, sp := range spans {
			t.unguess(sp, c, seq)
		}
		t.tidyAll(spans)
		p.run.pieces--
		t.unref(p.run, 1)
	}
}

func (t *tree) unguess(sp span, c *contents, seq uint64) {
	f := sp.n.forecast(c)
	if f == nil {
		return
	}
	ended := 0
	for i := sp.lo; i < min(sp.hi, len(f.blocks)); i++ {
		g := &f.blocks[i]
		if g.tickets == 0 || g.first > seq {
			continue
		}
		if g.tickets--; g.tickets == 0 {
			*g = guess{}
			ended++
		}
	}
	if ended > 0 {
		t.addPredicted(c, -ended)
		t.refresh(sp.n, c)
	}
}

func (t *tree) addPredicted(c *contents, n int) {
	c.predicted += n
	t.predicted += n
}

// dropOldest ends the oldest ticket.
func (t *tree) dropOldest(c *contents) {
	if tk := c.tickets.at(0); tk.pieces != nil {
		t.endTicket(c, tk, c.tickets.first())
	}
	c.tickets.pop()
	t.tickets--
}

// fit ends tickets, oldest first, until the rest is within room blocks.
func (t *tree) fit(c *contents, room int) {
	for c.tickets.live() > 0 && (c.tickets.open > room || c.predicted > room) {
		t.dropOldest(c)
	}
}

// withdraw ends the ticket with this number, if it still lives.
func (t *tree) withdraw(c *contents, seq uint64) {
	tk := c.tickets.find(seq)
	if tk == nil || tk.pieces == nil {
		return
	}
	t.endTicket(c, tk, seq)
	for c.tickets.live() > 0 && c.tickets.at(0).pieces == nil {
		c.tickets.pop()
		t.tickets--
	}
}
