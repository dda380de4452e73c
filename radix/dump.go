package radix

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Dump writes the tree in readable form: a line for each node with its first
// and last key and its holders.
func (x *Index) Dump(w io.Writer) {
	x.treeMu.Lock()
	defer x.treeMu.Unlock()
	x.tree.dump(w, &x.tree.root, 0)
}

func (t *tree) dump(w io.Writer, n *node, indent int) {
	if n != &t.root {
		keys := n.blocks()
		var holders []string
		tab := n.slots.Load()
		for i := range tab.word {
			s := slot(tab.word[i].Load())
			if s.sid() == 0 {
				continue
			}
			o := t.sids.owner[s.sid()]
			text := fmt.Sprintf("%d.%d.%d:%d", o.of.instance, o.rank, o.group, s.confirmed())
			if s.all() > s.confirmed() {
				text += fmt.Sprintf("+%d", s.all()-s.confirmed())
			}
			if c := n.cover(s.sid()); c.odd != nil {
				text += fmt.Sprintf("(%d)", c.count())
			}
			if t.sids.state(s.sid()).version.Load()&1 == 1 {
				text += "†"
			}
			holders = append(holders, text)
		}
		slices.Sort(holders)
		_, _ = fmt.Fprintf(w, "%s%x…%x %d blocks [%s]\n", strings.Repeat("  ", indent), n.first, keys[len(keys)-1], len(keys), strings.Join(holders, " "))
	}
	var kids []*node
	for k := n.kid; k != nil; k = k.next {
		kids = append(kids, k)
	}
	slices.SortFunc(kids, func(a, b *node) int {
		if a.first < b.first {
			return -1
		}
		return 1
	})
	for _, k := range kids {
		t.dump(w, k, indent+1)
	}
}
