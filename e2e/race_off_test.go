//go:build !race

package e2e_test

// raceEnabled: processes are built with the race detector as well.
const raceEnabled = false
