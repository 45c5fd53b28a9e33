// Package longtest leaves to CI what takes long in tests.
package longtest

import (
	"flag"
	"os"
	"runtime/debug"
	"strconv"
	"testing"
)

// Tests, and programs that they start, collect garbage late unless GOGC is set: that takes a fifth
// off their time of a processor.
func init() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
		_ = os.Setenv("GOGC", "400") // for these programs
	}
}

// InCI reports whether tests run in their long form: CI is "true".
func InCI() bool { return os.Getenv("CI") == "true" }

// Test skips the test, which shows what, unless CI is true.
func Test(t testing.TB, what string) {
	t.Helper()
	if !InCI() {
		t.Skip("NOT TESTED here, because it takes long: " + what + ". CI=true has it tested")
	}
}

// Parallel is Test for a test that runs in parallel with others.
func Parallel(t *testing.T, what string) {
	t.Helper()
	Test(t, what)
	t.Parallel()
}

// Times returns how often a test repeats what it does: here, or in CI.
func Times(here, ci int) int {
	if InCI() {
		return ci
	}
	return here
}

// AtOnce is how many parallel tests of a package run concurrently, unless the command line says it.
// It is for TestMain of tests that mostly wait.
func AtOnce(tests int) {
	set("test.parallel", strconv.Itoa(tests))
}

// Short makes a package's tests run as with -short, unless CI is true or the command line says it.
// It is for TestMain: storetest.Run then leaves its slow rules to CI.
func Short() {
	if !InCI() {
		set("test.short", "true")
	}
}

func set(name, value string) {
	if err := flag.Set(name, value); err != nil {
		panic(err)
	}
}
