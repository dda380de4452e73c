package radix

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrSnapshot is returned for bytes that are no snapshot.
var ErrSnapshot = errors.New("radix: bad snapshot")

// snapshotMagic starts a snapshot: the format and its version.
const snapshotMagic = 0x5752_5452_4545_0001

// A snapshot is little-endian words: the magic; then for each source 1, its
// instance, rank and group, and for each node that it holds blocks of, from the
// root down: 1, the number of keys from the root to the node's end, these keys,
// and for each hash of a block in the node 1, the block's index among the keys,
// the hash, the copies; 0. Then 0. At the end 0.

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
	type named struct {
		index int
		hash  Hash
	}
	byNode := map[*node][]named{}
	for _, e := range s.table.slots {
		if e.at.run != 0 {
			n, i := x.tree.runs[e.at.run].find(int(e.at.off))
			byNode[n] = append(byNode[n], named{n.depth + i, e.hash})
		}
	}
	out.put(1, uint64(s.of.instance), uint64(s.rank), uint64(s.group))
	x.tree.each(&x.tree.root, func(n *node) {
		if len(byNode[n]) == 0 {
			return
		}
		keys := make([]Key, n.depth+n.size())
		for m := n; m != &x.tree.root; m = m.parent {
			copy(keys[m.depth:], m.blocks())
		}
		out.put(1, uint64(len(keys)))
		out.put(keys...)
		for _, b := range byNode[n] {
			out.put(1, uint64(b.index), b.hash, uint64(s.copies[b.hash]+1))
		}
		out.put(0)
	})
	out.put(0)
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
		for in.more() {
			if err := x.restoreNode(in, s, ok); err != nil {
				return err
			}
		}
	}
	if in.err != nil {
		return fmt.Errorf("%w: %w", ErrSnapshot, in.err)
	}
	return nil
}

func (x *Index) restoreNode(in *words, s Source, wanted bool) error {
	var keys []Key
	for n := in.get(); n > 0 && in.err == nil; n-- {
		keys = append(keys, in.get())
	}
	for in.more() {
		at, hash, copies := in.get(), in.get(), in.get()
		if in.err != nil || at >= uint64(len(keys)) || copies == 0 || copies > 1<<20 {
			return fmt.Errorf("%w: block out of range", ErrSnapshot)
		}
		if !wanted {
			continue
		}
		if err := x.restoreBlock(s, keys[:at+1], hash, int(copies)); err != nil {
			return err
		}
	}
	return nil
}

// restoreBlock stores one block by its whole path, whose other blocks need not
// be held.
func (x *Index) restoreBlock(s Source, path []Key, hash Hash, copies int) error {
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
	before := len(src.table.slots)
	src.table.reserve(1)
	x.bytes.Add(int64(len(src.table.slots)-before) * entryBytes)
	k, fresh := src.table.claim(hash)
	if fresh {
		in.spans = x.tree.place(&x.tree.root, 0, path, in.spans[:0])
		placed := 0
		for _, sp := range in.spans {
			placed += sp.hi - sp.lo
		}
		if placed < len(path) {
			src.table.deleteAt(k)
			x.tree.tidyAll(in.spans)
			return ErrNotChained
		}
		last := in.spans[len(in.spans)-1]
		x.tree.take(src, span{last.n, last.hi - 1, last.hi})
		last.n.run.refs++
		src.table.slots[k].at = place{last.n.run.id, uint32(last.n.start + last.hi - 1)}
		copies--
	}
	if copies > 0 {
		if src.copies == nil {
			src.copies = map[Hash]int{}
		}
		src.copies[hash] += copies
	}
	return nil
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
