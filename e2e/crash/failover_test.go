//go:build linux

package crash

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

var failoverClients = longtest.Times(8, 32)

const standbyFrozen = 100 * time.Millisecond // at least, before the end of the primary

// A synchronous standby takes over from its primary, which is killed and shut down in turns. The
// worker goes on, and nothing acknowledged is lost. Another process, which knows the keys from
// before, refuses what was revoked.
func TestFailover(t *testing.T) {
	failoverLoop(t, sound, failovers.count()).holds(t)
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
		other, err := j.reopen(background)
		must(t, err)
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
	must(t, killCluster(primary))
	must(t, killCluster(standby))
	standby.Restart()
}

func (l *ledger) awaitAck(t testing.TB, when string) {
	t.Helper()
	acks := l.count(&l.acks)
	l.await(t, "nothing was acknowledged "+when, func() bool { return l.count(&l.acks) > acks })
}

// tokens returns keys in a state.
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
			_, err := service.Authenticate(background, token)
			return errors.Is(err, svc.ErrUnauthenticated)
		})
	}
}
