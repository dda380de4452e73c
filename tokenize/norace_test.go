//go:build !race

package tokenize

const underRace = false
