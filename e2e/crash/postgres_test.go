//go:build linux

package crash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
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
			killCluster(cluster)
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

// killCluster kills the first process of a cluster and all its children, so that none can still write.
func killCluster(cluster *pgtest.Cluster) {
	children := got(os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cluster.Pid())))
	for _, process := range append([]string{strconv.Itoa(cluster.Pid())}, strings.Fields(string(children))...) {
		_ = syscall.Kill(got(strconv.Atoi(process)), syscall.SIGKILL) // may have ended
	}
	cluster.Kill() // returns when it has ended
}

var failoverClients = longtest.Times(8, 32)

const standbyFrozen = 100 * time.Millisecond // at least, before the end of the primary

// A synchronous standby takes over from its primary, which is killed and shut down in turns. The worker goes on, and
// nothing acknowledged is lost. Another process, which knows the keys from before, refuses what was revoked.
func TestFailover(t *testing.T) {
	n := failovers.count()
	if n == 0 {
		longtest.Test(t, "a standby that takes over")
	}
	failoverLoop(t, sound, n).holds(t)
}

func failoverLoop(t testing.TB, planted fault, failovers int) *result {
	primary, standby := startCluster(t, failovers), startCluster(t, failovers)
	j := job{Driver: "postgres", Address: pgtest.Primary(primary, standby), Run: "1", Clients: failoverClients}
	var slowest time.Duration
	r := loop(t, planted, failovers, func(l *ledger, left int) (done int) {
		p := l.start(t, j)
		defer p.kill()
		l.mayFail = true
		must(t, p.awaitReady())
		l.awaitRevocation(t)
		other := got(j.reopen(background))
		defer func() { must(t, other.close()) }()
		for ; done < left && l.sound(); done++ {
			standby.Follow(primary)
			if planted != asyncStandby {
				primary.Synchronous()
			}
			l.awaitAck(t, "before the failover")
			time.Sleep(rand.N(clusterLoad))
			l.remember(t, other.service)
			if done%2 == 0 {
				l.killLagging(t, primary, standby, planted == asyncStandby)
			} else {
				primary.Stop()
			}
			start := time.Now()
			standby.Promote()
			primary, standby = standby, primary
			l.awaitAck(t, "after the failover")
			slowest = max(slowest, time.Since(start))
			must(t, p.checkPaused(j))
			l.awaitRefusals(t, other.service)
		}
		return done
	})
	t.Logf("the worker went on at most %v after the start of a promotion", slowest.Round(time.Millisecond))
	return r
}

// killLagging kills a primary whose standby lags, and the standby. What the standby has not read is lost: else it
// reads, after the death of the primary, what its socket still has.
func (l *ledger) killLagging(t testing.TB, primary, standby *pgtest.Cluster, asynchronous bool) {
	t.Helper()
	standby.Freeze()
	if time.Sleep(standbyFrozen); asynchronous {
		l.awaitAck(t, "while the standby stood still")
	}
	killCluster(primary)
	killCluster(standby)
	standby.Restart()
}

func (l *ledger) awaitAck(t testing.TB, when string) {
	t.Helper()
	acks := l.count(&l.acks)
	l.await(t, "nothing was acknowledged "+when, func() bool { return l.count(&l.acks) > acks })
}

func (l *ledger) tokens(state string) (tokens []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.objects {
		if e.token != "" && e.attempt == nil && e.state == state && len(tokens) < mostTokens {
			tokens = append(tokens, e.token)
		}
	}
	return tokens
}

// mostTokens is how many keys of a state another process is asked about: any of them, each time.
const mostTokens = 200

// remember lets a service know the good keys.
func (l *ledger) remember(t testing.TB, service *svc.Service) {
	t.Helper()
	for _, token := range l.tokens(stateGood) {
		l.await(t, "a key is neither accepted nor refused", func() bool {
			_, err := service.Authenticate(background, token)
			return err == nil || errors.Is(err, svc.ErrUnauthenticated) // it may be revoked meanwhile
		})
	}
}

// awaitRefusals waits until a service refuses every revoked key.
func (l *ledger) awaitRefusals(t testing.TB, service *svc.Service) {
	t.Helper()
	for _, token := range l.tokens(stateRevoked) {
		l.await(t, "a key that was revoked is still accepted", func() bool {
			return errors.Is(failure(service.Authenticate(background, token)), svc.ErrUnauthenticated)
		})
	}
}
