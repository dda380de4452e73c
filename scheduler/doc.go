// Package scheduler decides which instance serves a request.
//
// # Words
//
// An endpoint serves one model through production variants; a variant is a
// group of instances with one routing configuration. A lease is one request's
// place on an instance: it is in flight from [Scheduler.Acquire] until
// [Lease.Done]. An instance is eligible for a request when it is ready, has the
// request's adapter and is not excluded. Overflow is a request that went
// elsewhere because the best match was at its concurrency threshold.
//
// # One request
//
//	Acquire: match (no lock) → pick and reserve (one lock, no I/O) → predict
//	   Lease in flight ──FirstToken──▶ its prefill no longer counts as load
//	      └──Done──▶ released; a failed request's predictions are withdrawn
//
// # Invariants
//
//   - Pick and reserve are one step under the endpoint's lock: no two requests
//     both take the last slot under a threshold.
//   - No instance is chosen at or over its threshold while an eligible one of
//     the variant is under it (PREFIX_AWARE).
//   - An instance's in-flight count is the number of its leases not yet done.
//   - Two prefix ids never share a match.
//
// # Concurrency
//
// All methods may be called from any goroutine. Readers see one configuration
// whole; a lease outlives the configuration that it was taken under.
package scheduler
