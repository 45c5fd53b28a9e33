// Package slow leaves to CI what takes long in tests.
package slow

import (
	"os"
	"testing"
)

func inCI() bool { return os.Getenv("CI") == "true" }

// Test skips the test, which shows what, unless CI is true.
func Test(t testing.TB, what string) {
	t.Helper()
	if !inCI() {
		t.Skip("NOT TESTED here, because it takes long: " + what + ". CI=true has it tested")
	}
}

// Times returns how often a test repeats what it does: here, or in CI.
func Times(here, ci int) int {
	if inCI() {
		return ci
	}
	return here
}
