// Package feedback brings what vLLM workers say of their KV caches into the
// router's tree.
//
// # Words
//
// An event is one change of a worker's cache, a batch the events of one engine
// step, as vLLM sends them ([Decode]). A stream is the batches of one
// data-parallel rank of one instance. An epoch is one life of the process
// behind a stream; within it, batches are numbered from 0 without a gap (seq).
// A snapshot is a rank's whole state after a given batch. Resync is asking for
// one.
//
// # Parts
//
// [Publisher] is the worker's end: it numbers and sends batches, keeps a table
// of the live blocks and answers for snapshots. [Subscriber] is the router's
// end: one goroutine takes messages off NATS and lets each [Stream] (pure: no
// clock, no I/O) say what to do with them: apply, drop, wait, or resync. What
// is applied reaches the [radix.Index] under block keys made of token ids,
// since workers' hashes mean something in their own stream only.
//
// # Invariants
//
//   - A stream that is live has had every batch of its epoch applied, once and
//     in order, up to the one before the next it waits for; so the tree holds
//     for that rank what the worker held then.
//   - While a stream is not live, its instance's trust is not
//     [scheduler.Live], with a reason.
//   - What can't be indexed truthfully (unknown parent, no block size, a group
//     that is not full attention, another tier) is counted and left out.
//   - Nothing here blocks a worker, and no input from a network panics.
//   - All buffers are bounded.
//
// # Concurrency
//
// [Publisher]'s methods may be called from any goroutine, [Subscriber.Run] from
// one. [Stream] belongs to one goroutine.
package feedback
