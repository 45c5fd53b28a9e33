//go:build !race

package e2e_test

// raceEnabled builds processes with the race detector as well.
const raceEnabled = false
