package simvllm

// blockID is a block's number. Block 0 is never given out: vLLM keeps it as
// the null block, and here it is the free list's sentinel.
type blockID int32

// block is one place in the cache.
type block struct {
	hash   Hash
	hashed bool    // hash is valid and the cache finds the block by it
	copies blockID // the next block of the same hash, 0 for none
	refs   int32   // sequences that hold the block; 0 exactly when in the free list

	prev, next blockID // neighbours in the free list
}

// freeList orders the free blocks: the front is reused first. It is a doubly
// linked list through the blocks, so that a block found in the cache leaves
// its middle in constant time.
type freeList struct {
	blocks []block
	size   int
}

func (l *freeList) front() blockID { return l.blocks[0].next }

func (l *freeList) pushBack(b blockID)  { l.insert(b, l.blocks[0].prev, 0) }
func (l *freeList) pushFront(b blockID) { l.insert(b, 0, l.blocks[0].next) }

func (l *freeList) insert(b, prev, next blockID) {
	l.blocks[b].prev, l.blocks[b].next = prev, next
	l.blocks[prev].next, l.blocks[next].prev = b, b
	l.size++
}

func (l *freeList) remove(b blockID) {
	prev, next := l.blocks[b].prev, l.blocks[b].next
	l.blocks[prev].next, l.blocks[next].prev = next, prev
	l.size--
}
