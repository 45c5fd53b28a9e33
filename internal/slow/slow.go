// Package slow leaves to CI what takes long in tests.
package slow

import (
	"flag"
	"os"
	"strconv"
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

// AtOnce is how many parallel tests of a package run at once, unless the command line says it. It is
// for TestMain of tests that mostly wait.
func AtOnce(tests int) {
	if err := flag.Set("test.parallel", strconv.Itoa(tests)); err != nil {
		panic(err)
	}
}
