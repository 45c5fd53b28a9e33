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

func TestKillsFindEarlyAcknowledgements(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	killLoop(t, ackEarly, killsToFind).finds(t, "lost")
}

func TestKillsFindTornRows(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	killLoop(t, tornRows, killsToFind).finds(t, "torn")
}

func TestKillsFindTornRecords(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	killLoop(t, tornRecord, killsToFind).finds(t, "torn")
}

func TestKillsFindTornHosts(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	killLoop(t, tornHost, killsToFind).finds(t, "torn")
}

func TestKillsFindTornDeletions(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	killLoop(t, tornUser, killsToFind).finds(t, "torn")
}

// TestKillsFindNoMissingSync shows why killing processes is not enough: the kernel keeps what they
// wrote.
func TestKillsFindNoMissingSync(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	killLoop(t, syncNormal, 10).holds(t)
}

func TestCutsFindEarlyAcknowledgements(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	cutLoop(t, ackEarly, cutsToFind).finds(t, "lost")
}

func TestCutsFindNormalSync(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	cutLoop(t, syncNormal, cutsToFind).finds(t, "lost")
}

func TestCutsFindNoSync(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	cutLoop(t, syncOff, cutsToFind).finds(t, "lost")
}

// TestCutsFindTornFiles shows that cuts find pages written back in another order, not only missing
// ones.
func TestCutsFindTornFiles(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	cutLoop(t, tornFile, 2*cutsToFind).finds(t, "torn")
}

func TestFullDisksFindFalseAcknowledgements(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	fillLoop(t, ackFailed, fillsToFind).finds(t, "lost")
}

func TestClusterKillsFindAsynchronousCommits(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	clusterLoop(t, asyncWAL, clusterKillsToFind).finds(t, "lost", "order") // a lost commit also loses its generation
}
