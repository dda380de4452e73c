// Package radix says which instance holds how much of a prompt's beginning.
//
// It is one path-compressed tree over 64-bit block keys. A block is confirmed on
// a source (an event said so) or predicted on an instance (a request was sent
// there). A node is a run of blocks with no parting inside; each source that
// holds some of it has one word there, with its leading blocks confirmed and its
// leading blocks confirmed or predicted. A worker's hashes lead to blocks
// through one compact table for each source. docs/tree.md has a drawing.
//
// What always holds:
//   - a match counts leading blocks only: a hole ends it;
//   - a block stored n times is held until it was removed n times;
//   - a confirmed block has no prediction, and removing it leaves none;
//   - each node but the root has two children or more, or ends in a block that
//     is held; what is in memory can be reached.
//
// Concurrency: [Index.Match] takes no lock, never waits for a writer, and never
// credits an instance with more than it held at one moment of the call; in a race
// it may credit less. Writers of different instances share a lock for the tree
// itself only, which they hold for some hundred nanoseconds a run of blocks.
package radix
