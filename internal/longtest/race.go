//go:build race

package longtest

// Raced reports whether the race detector runs. Then sync.Pool forgets at random, and what is
// allocated means nothing.
const Raced = true
