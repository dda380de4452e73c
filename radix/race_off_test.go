//go:build !race

package radix

const underRace = false
