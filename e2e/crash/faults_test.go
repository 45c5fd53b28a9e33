//go:build linux

package crash

import (
	"testing"

	"github.com/extsvc/svc/internal/longtest"
)

// A loop must find a fault within so many crashes.
const (
	killsToFind = 200
	cutsToFind  = 100
	fillsToFind = 4

	clusterKillsToFind = 10
)

// Each kind of loop finds the faults that are planted for it.
func TestLoopsFindFaults(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	lost := []string{"lost", "order"} // a lost commit also loses its generation
	for _, c := range []struct {
		crash   string
		loop    func(t testing.TB, planted fault, crashes int) *result
		planted fault
		crashes int
		kinds   []string // of problems, one of which is found; none: the loop finds nothing
	}{
		{"kills", killLoop, ackEarly, killsToFind, lost},
		{"kills", killLoop, tornRows, killsToFind, []string{"torn"}},
		{"kills", killLoop, tornRecord, killsToFind, []string{"torn"}},
		{"kills", killLoop, tornHost, killsToFind, []string{"torn"}},
		{"kills", killLoop, tornUser, killsToFind, []string{"torn"}},
		{"kills", killLoop, syncNormal, 10, nil}, // killing processes is not enough: the kernel keeps what they wrote
		{"cuts", cutLoop, ackEarly, cutsToFind, lost},
		{"cuts", cutLoop, syncNormal, cutsToFind, lost},
		{"cuts", cutLoop, syncOff, cutsToFind, []string{"lost", "order", "torn"}},
		{"cuts", cutLoop, tornFile, 2 * cutsToFind, []string{"torn"}}, // pages written back in another order, not only missing ones
		{"full disks", fillLoop, ackFailed, fillsToFind, lost},
		{"killed clusters", clusterLoop, asyncWAL, clusterKillsToFind, lost},
		{"failovers", failoverLoop, asyncStandby, clusterKillsToFind, lost},
	} {
		t.Run(c.crash+", "+string(c.planted), func(t *testing.T) {
			if r := c.loop(t, c.planted, c.crashes); c.kinds == nil {
				r.holds(t)
			} else {
				r.finds(t, c.kinds...)
			}
		})
	}
}
