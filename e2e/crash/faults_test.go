//go:build linux

package crash

import "testing"

// A fault must be found within so many crashes.
const (
	killsToFind = 200
	cutsToFind  = 100
	fillsToFind = 4

	clusterKillsToFind = 10
)

func TestKillsFindEarlyAcknowledgements(t *testing.T) {
	killLoop(t, ackEarly, killsToFind).finds(t, "lost")
}

func TestKillsFindTornRows(t *testing.T) { killLoop(t, tornRows, killsToFind).finds(t, "torn") }

func TestKillsFindTornRecords(t *testing.T) {
	killLoop(t, tornRecord, killsToFind).finds(t, "torn")
}

func TestKillsFindTornHosts(t *testing.T) { killLoop(t, tornHost, killsToFind).finds(t, "torn") }

// TestKillsFindNoMissingSync shows why processes that are killed are not enough: what they wrote is in the kernel.
func TestKillsFindNoMissingSync(t *testing.T) {
	killLoop(t, syncNormal, 10).holds(t)
}

func TestCutsFindEarlyAcknowledgements(t *testing.T) {
	cutLoop(t, ackEarly, cutsToFind).finds(t, "lost")
}

func TestCutsFindNormalSync(t *testing.T) { cutLoop(t, syncNormal, cutsToFind).finds(t, "lost") }

func TestCutsFindNoSync(t *testing.T) { cutLoop(t, syncOff, cutsToFind).finds(t, "lost") }

// TestCutsFindTornFiles shows that cuts find what is written back in another order, beside what is not written at all.
func TestCutsFindTornFiles(t *testing.T) { cutLoop(t, tornFile, 2*cutsToFind).finds(t, "torn") }

func TestFullDisksFindFalseAcknowledgements(t *testing.T) {
	fillLoop(t, ackFailed, fillsToFind).finds(t, "lost")
}

func TestClusterKillsFindAsynchronousCommits(t *testing.T) {
	clusterLoop(t, asyncWAL, clusterKillsToFind).finds(t, "lost", "order") // a lost commit takes its generation along
}
