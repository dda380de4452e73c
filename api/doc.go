// Package api is Warmroute's HTTP: the OpenAI routes, the native routes that
// are wire-compatible with Amazon SageMaker Runtime, the admin routes, and the
// proxy to the workers.
//
// # One request, in order
//
//	serve      read the body, bounded           request.go
//	parse      model, stream, prefix id …       request.go
//	prompt     text → tokens → block keys       prompt.go
//	forward    acquire, send, retry             forward.go
//	answer     copy, flush, observe             answer.go
//	           release, exactly once            forward.go
//
// # What must hold
//
//   - The body that goes to the worker is the body that came, byte for byte.
//   - Every lease is released once, whatever happens.
//   - After the first byte of an answer nothing is retried, and an answer that
//     breaks off never looks complete.
//   - No prompt, key or credential is in a log, a metric or an error.
//
// # Concurrency
//
// A [Server] serves any number of requests at once. What is of one request
// belongs to its goroutine.
package api
