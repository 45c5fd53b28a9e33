package policytest

import (
	"maps"
	"slices"
	"testing"

	"github.com/extsvc/svc/internal/longtest"
)

// TestFaultsAreFound: the comparison finds every planted fault, in the rules and in the code around
// the engine. With the race detector only some faults are planted.
func TestFaultsAreFound(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	most := 0
	for _, name := range planted(ruleFaults) {
		t.Run("rule/"+name, func(t *testing.T) {
			l := newLaw()
			ruleFaults[name](l)
			most = max(most, mustDiffer(t, newEngine(), l))
		})
	}
	for _, name := range planted(engineFaults) {
		t.Run("engine/"+name, func(t *testing.T) {
			most = max(most, mustDiffer(t, engineFaults[name](newEngine()), law))
		})
	}
	t.Logf("%d faults in the rules and %d around the engine, each found by the %dth question", len(ruleFaults), len(engineFaults), most)
}

func planted[F any](faults map[string]F) []string {
	names := slices.Sorted(maps.Keys(faults))
	if longtest.Raced {
		return names[:len(names)/4]
	}
	return names
}

func mustDiffer(t *testing.T, e engine, l *rules) int {
	c := compare(e, l, 50_000)
	if c.difference == "" {
		t.Errorf("not found in %d questions", c.asked)
	}
	t.Logf("found after %d questions", c.asked)
	return c.asked
}
