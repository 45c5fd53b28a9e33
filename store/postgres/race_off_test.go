//go:build !race

package postgres_test

// raceEnabled: the race detector watches.
const raceEnabled = false
