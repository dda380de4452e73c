// Package e2e holds the end-to-end tests: real processes of the router and of
// simulated workers, a real NATS server and real HTTP, on free ports.
package e2e
