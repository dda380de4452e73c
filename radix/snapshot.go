package radix

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// ErrSnapshot is returned for bytes that are no snapshot.
var ErrSnapshot = errors.New("radix: bad snapshot")

// snapshotMagic starts a snapshot: the format and its version.
const snapshotMagic = 0x5752_5452_4545_0002

// A snapshot is little-endian words: the magic; then for each source 1, its
// instance, rank and group, and for each node that it holds blocks of, or that
// leads to one, parents first: 1, the number of blocks before it, the number of
// its keys, these keys, and for each hash of a block in it 1, the block's index
// among the keys, the hash, the copies; 0. Then 0. At the end 0.
//
// A node follows the nodes that lead to it, so the blocks before it are what
// was read last, up to their number.

// Snapshot writes what instances hold (none named: all of them): confirmed
// blocks with their hashes and copies, no predictions. Writers wait meanwhile.
func (x *Index) Snapshot(w io.Writer, instances ...Instance) error {
	x.gate.Lock()
	defer x.gate.Unlock()
	out := &words{w: bufio.NewWriter(w)}
	out.put(snapshotMagic)
	wanted := map[Instance]bool{}
	for _, i := range instances {
		wanted[i] = true
	}
	for i, in := range x.instances {
		if in == nil || in.now == nil || len(wanted) > 0 && !wanted[Instance(i)] {
			continue
		}
		for _, s := range in.now.sources {
			if s.table.used > 0 {
				x.snapshotSource(out, s)
			}
		}
	}
	out.put(0)
	if out.err == nil {
		out.err = out.w.Flush()
	}
	if out.err != nil {
		return fmt.Errorf("write snapshot: %w", out.err)
	}
	return nil
}

func (x *Index) snapshotSource(out *words, s *source) {
	byNode := map[*node][]named{}
	for _, e := range s.table.slots {
		if e.at.run != 0 {
			n, i := x.tree.runs[e.at.run].find(int(e.at.off))
			byNode[n] = append(byNode[n], named{i, e.hash, s.copies[e.hash] + 1})
		}
	}
	out.put(1, uint64(s.of.instance), uint64(s.rank), uint64(s.group))
	var lead []*node // to the node at hand; those after written are not written yet
	written := 0
	x.tree.each(&x.tree.root, func(n *node) {
		for len(lead) > 0 && lead[len(lead)-1] != n.parent {
			lead = lead[:len(lead)-1]
		}
		lead = append(lead, n)
		written = min(written, len(lead)-1)
		if len(byNode[n]) == 0 {
			return
		}
		for ; written < len(lead); written++ {
			m := lead[written]
			out.put(1, uint64(m.depth), uint64(m.size()))
			out.put(m.blocks()...)
			if m == n {
				for _, b := range byNode[n] {
					out.put(1, uint64(b.index), b.hash, uint64(b.copies))
				}
			}
			out.put(0)
		}
	})
	out.put(0)
}

// named is a block of a node by one of its hashes.
type named struct {
	index  int
	hash   Hash
	copies int
}

// Restore adds the blocks of a snapshot. as names the instance of this index
// that stands for one of the snapshot; without one its blocks are left out.
// Blocks that a source knows already get the snapshot's copies on top, so clear
// instances that are to be replaced. What comes before an error is stored.
func (x *Index) Restore(r io.Reader, as func(Instance) (Instance, bool)) error {
	in := &words{r: bufio.NewReader(r)}
	if in.get() != snapshotMagic {
		return fmt.Errorf("%w: wrong beginning", ErrSnapshot)
	}
	for in.more() {
		old, rank, group := in.get(), in.get(), in.get()
		i, ok := as(Instance(old))
		if old > 1<<32-1 || rank > 1<<16-1 || group > 1<<16-1 {
			return fmt.Errorf("%w: source out of range", ErrSnapshot)
		}
		s := Source{Instance: i, Rank: uint16(rank), Group: uint16(group)}
		var path []Key
		for in.more() {
			var err error
			if path, err = x.restoreNode(in, s, path, ok); err != nil {
				return err
			}
		}
	}
	if in.err != nil {
		return fmt.Errorf("%w: %w", ErrSnapshot, in.err)
	}
	return nil
}

// restoreNode reads one node, which path leads to, and returns the path to its
// end.
func (x *Index) restoreNode(in *words, s Source, path []Key, wanted bool) ([]Key, error) {
	depth, size := in.get(), in.get()
	if in.err != nil || depth > uint64(len(path)) {
		return nil, fmt.Errorf("%w: a node without what leads to it", ErrSnapshot)
	}
	path = path[:depth]
	for ; size > 0 && in.err == nil; size-- {
		path = append(path, in.get())
	}
	var blocks []named
	for in.more() {
		index, hash, copies := in.get(), in.get(), in.get()
		if in.err != nil || index >= uint64(len(path))-depth || copies == 0 || copies > 1<<20 {
			return nil, fmt.Errorf("%w: block out of range", ErrSnapshot)
		}
		blocks = append(blocks, named{int(depth + index), hash, int(copies)})
	}
	if !wanted || len(blocks) == 0 {
		return path, nil
	}
	slices.SortFunc(blocks, func(a, b named) int { return cmp.Compare(a.index, b.index) })
	return path, x.restoreBlocks(s, path[:blocks[len(blocks)-1].index+1], blocks)
}

// restoreBlocks stores blocks by their whole path, whose other blocks need not
// be held. Their indexes are along the path, ascending, and the last is its end.
func (x *Index) restoreBlocks(s Source, path []Key, blocks []named) error {
	in := x.enter(s.Instance)
	if in == nil {
		return ErrUnknownInstance
	}
	defer x.after()
	defer x.leave(in)
	x.treeMu.Lock()
	defer x.treeMu.Unlock()
	src := in.now.source(s.Rank, s.Group)
	if src == nil {
		src = x.tree.addSource(in.now, s.Rank, s.Group)
	}
	defer x.account(src, src.bytes())
	src.table.reserve(len(blocks))
	in.spans = x.tree.place(&x.tree.root, 0, path, in.spans[:0])
	defer func() { x.tree.tidyAll(in.spans) }()
	span, start := 0, 0 // the span of the block at hand, and the blocks before it
	for _, b := range blocks {
		for span < len(in.spans) && b.index >= start+in.spans[span].hi-in.spans[span].lo {
			start += in.spans[span].hi - in.spans[span].lo
			span++
		}
		if span == len(in.spans) {
			return ErrNotChained
		}
		src.restore(&x.tree, b, in.spans[span].n, in.spans[span].lo+b.index-start)
	}
	return nil
}

// restore lets s hold the i-th block of n under one hash.
func (s *source) restore(t *tree, b named, n *node, i int) {
	k, fresh := s.table.claim(b.hash)
	if fresh {
		t.take(s, span{n, i, i + 1})
		n.run.refs++
		s.table.slots[k].at = place{n.run.id, uint32(n.start + i)}
		b.copies--
	}
	if b.copies > 0 {
		if s.copies == nil {
			s.copies = map[Hash]int{}
		}
		s.copies[b.hash] += b.copies
	}
}

// words reads or writes 64-bit words; the first error stays.
type words struct {
	w   *bufio.Writer
	r   *bufio.Reader
	err error
}

func (s *words) put(vs ...uint64) {
	var b [8]byte
	for _, v := range vs {
		if s.err == nil {
			binary.LittleEndian.PutUint64(b[:], v)
			_, s.err = s.w.Write(b[:])
		}
	}
}

// get returns the next word; 0 after an error.
func (s *words) get() uint64 {
	var b [8]byte
	if s.err == nil {
		_, s.err = io.ReadFull(s.r, b[:])
	}
	if s.err != nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}

// more reads the word before each element of a list: 1, and 0 after the last.
func (s *words) more() bool {
	v := s.get()
	if v > 1 && s.err == nil {
		s.err = errors.New("a list goes on with neither 0 nor 1")
	}
	return v == 1 && s.err == nil
}
