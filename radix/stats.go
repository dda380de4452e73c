package radix

import "unsafe"

// Stats counts what an [Index] holds. All are kept as things change.
type Stats struct {
	Instances int
	Entries   int // confirmed (source, hash) pairs
	Predicted int // predicted (instance, block) pairs
	Nodes     int
	Blocks    int    // distinct blocks that the tree has room for
	Buried    int    // entries of cleared sources whose memory is still to come back
	Bytes     int64  // estimated memory of everything
	Pruned    uint64 // entries given up for MaxBytes since the start

	// Depths counts nodes by the blocks before them, Holders by the sources
	// that hold some of them; see [Buckets].
	Depths, Holders [Buckets]int
}

// Approximate sizes of what allocations hold beside their arrays.
const (
	nodeBytes     = int64(unsafe.Sizeof(node{}))
	runBytes      = int64(unsafe.Sizeof(run{})) + 16
	guessBytes    = int64(unsafe.Sizeof(guess{}))
	ticketBytes   = int64(unsafe.Sizeof(ticket{})+2*unsafe.Sizeof(piece{})+unsafe.Sizeof(forecast{})) + 16
	mapBytes      = 32 // an entry of a map of words
	contentsBytes = int64(unsafe.Sizeof(contents{}) + unsafe.Sizeof(source{}))
)

// bytes estimates the memory of the nodes, runs and predictions; the caller holds treeMu.
func (t *tree) bytes() int64 {
	n := &t.count
	return int64(t.predicted)*guessBytes + int64(t.tickets)*ticketBytes + int64(n.nodes)*nodeBytes + int64(n.runs)*runBytes + int64(len(t.runs)+len(t.freeRuns))*8 +
		int64(n.keyRoom+n.slotCap+n.oddWords)*8 + int64(len(t.dir.at.Load().slots))*dirSlotBytes
}

// Stats returns the counts of this moment. It costs a few loads for each instance.
func (x *Index) Stats() Stats {
	st := Stats{Pruned: x.pruned.Load()}
	x.instancesMu.RLock()
	all := x.instances
	x.instancesMu.RUnlock()
	for i := range all {
		in := x.enter(Instance(i))
		if in == nil {
			continue
		}
		st.Instances++
		st.Entries += in.now.entries()
		st.Predicted += in.now.predicted
		x.leave(in)
	}
	x.treeMu.Lock()
	defer x.treeMu.Unlock()
	n := &x.tree.count
	st.Nodes, st.Blocks, st.Buried = n.nodes, n.keyRoom, x.buried
	st.Depths, st.Holders = n.depths, n.holders
	st.Bytes = x.tree.bytes() + x.bytes.Load() + int64(st.Instances)*contentsBytes
	return st
}
