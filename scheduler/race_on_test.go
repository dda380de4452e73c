//go:build race

package scheduler

// raceEnabled: the race detector's pools drop entries by chance, so that
// allocations can't be counted.
const raceEnabled = true
