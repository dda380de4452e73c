// Package replica lets any number of routers in front of one fleet act as one.
//
// Each router tells the others, over NATS, how many requests it has in flight
// on each instance, and which prompts it sent where. It tells absolute counts
// and only its own, so that a message that comes twice or late does no harm,
// one that is lost is mended by the next full state, and a router that is heard
// no more can be taken out of the sum. There is no leader and nothing is
// stored: a router that starts asks the others, and knows all within one
// exchange.
//
// No clock is compared with another machine's.
//
// [Outbox] may be used from any goroutine; the rest belongs to [Replicas.Run].
package replica
