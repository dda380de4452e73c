//go:build race

package tokenize

// underRace: the race detector makes pools forget at random, and heaps grow.
const underRace = true
