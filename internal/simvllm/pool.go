package simvllm

// pool is the paged prefix cache: all blocks, which of them are free, and
// which hash is in which block.
type pool struct {
	free   freeList
	cached map[Hash]blockID // the oldest block of each hash; its copies follow it
	evict  func(Hash)       // called for each block whose content is given up
}

func newPool(blocks int, evict func(Hash)) *pool {
	p := &pool{
		free:   freeList{blocks: make([]block, blocks)},
		cached: make(map[Hash]blockID),
		evict:  evict,
	}
	for b := 1; b < blocks; b++ {
		p.free.pushBack(blockID(b))
	}
	return p
}

// used is the number of blocks in use.
func (p *pool) used() int { return len(p.free.blocks) - 1 - p.free.size }

// find returns the block that a request is given for a hash.
func (p *pool) find(h Hash) (blockID, bool) {
	b, ok := p.cached[h]
	return b, ok
}

// isFree reports whether nobody holds b.
func (p *pool) isFree(b blockID) bool { return p.free.blocks[b].refs == 0 }

// hold takes one more reference to a block that find returned.
func (p *pool) hold(b blockID) {
	if p.isFree(b) {
		p.free.remove(b)
	}
	p.free.blocks[b].refs++
}

// take gives out the block that is to be reused next, evicting what it holds.
// There must be a free one.
func (p *pool) take() blockID {
	b := p.free.front()
	if b == 0 {
		panic("simvllm: no free block")
	}
	if p.free.blocks[b].hashed {
		h := p.free.blocks[b].hash
		p.forget(b)
		p.evict(h)
	}
	p.hold(b)
	return b
}

// store makes a block in use findable by its hash.
func (p *pool) store(b blockID, h Hash) {
	blk := &p.free.blocks[b]
	blk.hash, blk.hashed = h, true
	first, ok := p.cached[h]
	if !ok {
		p.cached[h] = b
		return
	}
	for p.free.blocks[first].copies != 0 {
		first = p.free.blocks[first].copies
	}
	p.free.blocks[first].copies = b
}

// forget takes a block out of the cache. Its copies stay.
func (p *pool) forget(b blockID) {
	blk := &p.free.blocks[b]
	if first := p.cached[blk.hash]; first != b {
		for p.free.blocks[first].copies != b {
			first = p.free.blocks[first].copies
		}
		p.free.blocks[first].copies = blk.copies
	} else if blk.copies != 0 {
		p.cached[blk.hash] = blk.copies
	} else {
		delete(p.cached, blk.hash)
	}
	blk.hash, blk.hashed, blk.copies = 0, false, 0
}

// release gives up a sequence's references. The tail of a sequence is of less
// use to others than its head, so it is reused first; a block that never
// filled is of no use at all and is reused before anything cached.
func (p *pool) release(blocks []blockID) {
	for i := len(blocks) - 1; i >= 0; i-- {
		b := blocks[i]
		blk := &p.free.blocks[b]
		blk.refs--
		switch {
		case blk.refs > 0:
		case blk.hashed:
			p.free.pushBack(b)
		default:
			p.free.pushFront(b)
		}
	}
}

// clear forgets everything. It reports false, and does nothing, while a block
// is in use.
func (p *pool) clear() bool {
	if p.used() > 0 {
		return false
	}
	for b := range p.free.blocks {
		blk := &p.free.blocks[b]
		blk.hash, blk.hashed, blk.copies = 0, false, 0
	}
	clear(p.cached)
	return true
}
