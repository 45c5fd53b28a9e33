// Package expect has assertions that name what they are about, for tables and loops.
package expect

import (
	"fmt"
	"reflect"
	"testing"
	"time"
)

// Equal wants a value of something.
func Equal[T any](t testing.TB, of any, have, want T) {
	t.Helper()
	if !reflect.DeepEqual(have, want) {
		t.Errorf("%.300s: %.1000s, want %.1000s", fmt.Sprint(of), fmt.Sprint(have), fmt.Sprint(want))
	}
}

// Holds wants a condition, about what is shown when it fails.
func Holds(t testing.TB, is bool, about ...any) {
	t.Helper()
	if !is {
		t.Errorf("not so: %.2000q", fmt.Sprint(about...))
	}
}

// Soon waits until a condition holds, and fails the test with otherwise after a minute.
func Soon(t testing.TB, otherwise string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Error(otherwise)
			return
		}
	}
}
