package bench_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
)

const (
	changesUsers = 10_000 // all of them are active, and so in the cache
	changesPhase = time.Second
	changesEach  = 64 // of so many decisions one is timed
)

// BenchmarkChanges measures decisions of 10,000 active users while access changes, by those while
// nothing does. Two goroutines decide as fast as they can.
func BenchmarkChanges(b *testing.B) {
	for _, c := range []struct {
		name  string
		every time.Duration
		write func(n int) svc.Bundle
	}{
		{"user-10-times-a-second", time.Second / 10, func(n int) svc.Bundle {
			return svc.Bundle{Users: []svc.User{{ID: userID(n % changesUsers), Inactive: n/changesUsers%2 == 0}}}
		}},
		{"name-10-times-a-second", time.Second / 10, func(n int) svc.Bundle {
			return svc.Bundle{Users: []svc.User{{ID: userID(n % changesUsers), DisplayName: fmt.Sprint("name ", n)}}}
		}},
		{"policy-of-100-once-a-second", time.Second, func(n int) svc.Bundle {
			return svc.Bundle{Policies: []svc.Policy{{ID: "few", Document: crowdDocument(1, n+1)}}}
		}},
		{"policy-of-100-10-times-a-second", time.Second / 10, func(n int) svc.Bundle {
			return svc.Bundle{Policies: []svc.Policy{{ID: "few", Document: crowdDocument(1, n+1)}}}
		}},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkChanges(b, c.every, c.write) })
	}
}

func benchmarkChanges(b *testing.B, every time.Duration, write func(n int) svc.Bundle) {
	w := newWorld(b, sqliteEngine, empty)
	service := w.service
	check(w.addCrowd(b.Context(), changesUsers))
	writes := 0
	phase := func(change bool) decided {
		return decideFor(b, service, changesPhase, func(ctx context.Context) {
			for tick := time.NewTicker(every); change; writes++ {
				if err := service.Access.Apply(ctx, svc.Host, write(writes)); err != nil && ctx.Err() == nil {
					b.Error(err)
				}
				select {
				case <-ctx.Done():
					tick.Stop()
					return
				case <-tick.C:
				}
			}
		})
	}
	phase(false) // everybody is cached
	var quiet, changing decided
	for b.Loop() {
		q, c := phase(false), phase(true)
		quiet.add(q)
		changing.add(c)
	}
	b.ReportMetric(changing.rate()/quiet.rate(), "x-quiet")
	b.ReportMetric(changing.p99()/quiet.p99(), "x-p99")
	b.ReportMetric(1e9/quiet.rate(), "ns-quiet")
}

// decided says how many decisions were made, and how long some of them took.
type decided struct {
	n     int64
	took  time.Duration
	times []time.Duration
}

func (d *decided) add(other decided) {
	d.n, d.took, d.times = d.n+other.n, d.took+other.took, append(d.times, other.times...)
}

func (d *decided) rate() float64 { return float64(d.n) / d.took.Seconds() }

func (d *decided) p99() float64 {
	slices.Sort(d.times)
	return float64(d.times[len(d.times)*99/100])
}

// decideFor decides for users at random, while meanwhile runs.
func decideFor(b *testing.B, service *svc.Service, long time.Duration, meanwhile func(context.Context)) (all decided) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var deciders, writer sync.WaitGroup
	var stop atomic.Bool
	parts := make([]decided, 2)
	began := time.Now()
	writer.Go(func() { meanwhile(ctx) })
	for i := range parts {
		deciders.Go(func() {
			part := &parts[i]
			users := rand.Perm(changesUsers)
			for ; !stop.Load(); part.n++ {
				var start time.Time
				if part.n%changesEach == 0 {
					start = time.Now()
				}
				user := svc.Principal{Kind: svc.KindUser, ID: userID(users[part.n%changesUsers])}
				if _, err := service.Decide(ctx, user, action.Recall, crowdBank, svc.Context{}); err != nil {
					b.Error(err)
					return
				}
				if part.n%changesEach == 0 {
					part.times = append(part.times, time.Since(start))
				}
			}
		})
	}
	time.Sleep(long)
	stop.Store(true)
	deciders.Wait()
	all.took = time.Since(began)
	cancel()
	writer.Wait()
	for _, part := range parts {
		all.n, all.times = all.n+part.n, append(all.times, part.times...)
	}
	return all
}
