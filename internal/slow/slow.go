// Package slow leaves tests that take long to CI.
package slow

import (
	"os"
	"testing"
)

// Test skips the test, which shows what, unless CI is true.
func Test(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") != "true" {
		t.Skip("NOT TESTED here, because it takes long: " + what + ". CI=true has it tested")
	}
}
