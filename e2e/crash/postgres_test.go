//go:build linux

package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/extsvc/svc/store/postgres/pgtest"
)

const (
	clusterLoad = 400 * time.Millisecond
	clusterDown = 100 * time.Millisecond
)

func TestKilledClusters(t *testing.T) {
	clusterLoop(t, sound, clusterKills.count()).holds(t)
}

// clusterLoop kills all processes of a PostgreSQL cluster under a worker. The worker goes on when
// the cluster runs again.
func clusterLoop(t testing.TB, planted fault, kills int) *result {
	cluster := startCluster(t, kills)
	var slowest time.Duration
	r := loop(t, planted, kills, func(l *ledger, left int) (killed int) {
		p := l.start(t, job{Driver: "postgres", Address: cluster.URL, Run: "1", Clients: clients, Fault: planted})
		defer p.kill()
		l.mayFail = true
		must(t, p.awaitReady())
		l.awaitRevocation(t)
		for killed < left && l.sound() {
			time.Sleep(rand.N(clusterLoad))
			failed := l.failures("unavailable")
			must(t, killCluster(cluster))
			killed++
			l.await(t, "no operation failed without a database", func() bool { return l.failures("unavailable") > failed })
			time.Sleep(rand.N(clusterDown))
			cluster.Restart()
			start := time.Now()
			l.awaitAck(t, "after the restart")
			slowest = max(slowest, time.Since(start))
			must(t, p.checkPaused(job{Driver: "postgres", Address: cluster.URL}))
		}
		return killed
	})
	t.Logf("the worker went on at most %v after a restart", slowest.Round(time.Millisecond))
	return r
}

// startCluster starts a cluster, or skips the test where there is no PostgreSQL.
func startCluster(t testing.TB, kills int) *pgtest.Cluster {
	t.Helper()
	if inCI {
		t.Setenv("SVC_REQUIRE_POSTGRES", "1")
	}
	defer func() {
		if t.Skipped() {
			skipped += kills
		}
	}()
	return pgtest.Start(t)
}

// killCluster kills the first process of a cluster and all its children, so that none can still
// write.
func killCluster(cluster *pgtest.Cluster) error {
	children, err := childrenOf(cluster.Pid())
	if err != nil {
		return err
	}
	for _, pid := range append([]int{cluster.Pid()}, children...) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // may have ended
	}
	cluster.Kill() // returns when it has ended
	return nil
}

func childrenOf(parent int) (pids []int, err error) {
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		var pid, itsParent int
		var state string
		_, behind, _ := strings.Cut(string(text), ") ")
		_, noPid := fmt.Sscan(string(text), &pid)
		_, noParent := fmt.Sscan(behind, &state, &itsParent)
		if noPid == nil && noParent == nil && itsParent == parent {
			pids = append(pids, pid)
		}
	}
	return pids, err
}
