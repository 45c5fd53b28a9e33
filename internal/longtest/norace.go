//go:build !race

package longtest

// Raced reports whether the race detector runs.
const Raced = false
