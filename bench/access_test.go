package bench_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/bench/internal/measure"
	"github.com/extsvc/svc/httpapi"
)

// BenchmarkAttachment compares an attachment over HTTP, by a key whose rights are judged, with one
// audited mutation of the host that is not judged: a patch of a template.
func BenchmarkAttachment(b *testing.B) {
	eachEngine(b, func(b *testing.B, e engine) {
		w, ctx := newWorld(b, e, size{templates: 1}), b.Context()
		check(w.addCrowd(ctx, 10_000))
		with := config(w.store)
		with.Events.Keep = true
		service := get(svc.New(with))
		defer service.Close()
		key := get(service.Keys.Issue(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: "boss"}, svc.NewAPIKey{}))
		server := httptest.NewServer(hostOf(service))
		defer server.Close()
		calls := 0
		attach := func() error { // the call changes the priority
			calls++
			body := fmt.Sprintf(`{"policy_id":"policy-7","principal_type":"user","principal_id":%q,"priority":%d}`, userID(5000), calls)
			return send(ctx, "PUT", server.URL+httpapi.DefaultPrefix+"/policy-attachments", string(key.Key), body)
		}
		compare(b, measure.Side{Name: "mutation", Call: func() error {
			calls++
			name := fmt.Sprint("T", calls)
			return failure(service.Templates.Patch(ctx, svc.Host, templateID(0), svc.TemplatePatch{Name: &name}))
		}}, measure.Side{Name: "service", Call: attach})
	})
}

// BenchmarkRoster measures who-can by the statement that a host would write for it, which knows the
// policies that match: after one change of access, and for the first time.
func BenchmarkRoster(b *testing.B) {
	eachEngine(b, func(b *testing.B, e engine) {
		for _, users := range []int{10_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprint(users), func(b *testing.B) {
				skipLarge(b, users > 10_000)
				c := crowd{newWorld(b, e, empty), users}
				check(c.addCrowd(b.Context(), users))
				b.Run("first", c.first)
				for name, change := range crowdChanges() {
					b.Run(name, func(b *testing.B) { c.after(b, change) })
				}
			})
		}
	})
}

type crowd struct {
	*world
	users int
}

// crowdChanges are bundles that each change one row, from one call to the next.
func crowdChanges() map[string]func(i int) svc.Bundle {
	return map[string]func(i int) svc.Bundle{
		"user": func(i int) svc.Bundle {
			return svc.Bundle{Users: []svc.User{{ID: userID(2), Inactive: i%2 == 0}}}
		},
		"member": func(i int) svc.Bundle {
			return svc.Bundle{Groups: []svc.Group{{ID: "few", Members: []string{userID(2 + i%5000)}}}}
		},
		"attachment": func(i int) svc.Bundle {
			return svc.Bundle{Attachments: []svc.Attachment{attached("policy-1", "crowd-7", int64(i))}}
		},
		"policy": func(i int) svc.Bundle {
			return svc.Bundle{Policies: []svc.Policy{{ID: "policy-1", Document: crowdDocument(1, i)}}}
		},
	}
}

func whoCan(ctx context.Context, service *svc.Service) (users int, err error) {
	r, err := service.Policies.WhoCan(ctx, svc.Host, "bank:recall", crowdBank)
	return len(r.Users), err
}

// byStatement answers as whoCan does, by one statement.
func (c crowd) byStatement(ctx context.Context) (users int, err error) {
	return c.scan(ctx, `SELECT DISTINCT u.id, u.id FROM svc_attachments a
		JOIN svc_group_members m ON m.group_id = a.principal_id JOIN svc_users u ON u.id = m.user_id
		WHERE a.policy_id IN ('policy-1', 'few') AND a.principal_type = 'group' AND u.inactive = 0 ORDER BY u.id`)
}

// scan returns the number of rows of a query for two columns.
func (c crowd) scan(ctx context.Context, query string) (n int, err error) {
	rows, err := c.read.QueryContext(ctx, query)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for ; rows.Next(); n++ {
		var one, other string
		if err := rows.Scan(&one, &other); err != nil {
			return 0, err
		}
	}
	return n, rows.Err()
}

// after measures the first question after a change. The change itself is not measured.
func (c crowd) after(b *testing.B, change func(i int) svc.Bundle) {
	ctx := b.Context()
	get(whoCan(ctx, c.service))
	var questions, statements []float64
	for b.Loop() {
		c.next++ // also from one run to the next, so that every call changes something
		check(c.service.Access.Apply(ctx, svc.Host, change(c.next)))
		began := time.Now()
		got, err := whoCan(ctx, c.service)
		answered := time.Now()
		want, failed := c.byStatement(ctx)
		if err != nil || failed != nil || got != want+1 { // and boss
			b.Fatalf("%d users, %d by the statement: %v, %v", got, want, err, failed)
		}
		questions = append(questions, answered.Sub(began).Seconds())
		statements = append(statements, time.Since(answered).Seconds())
	}
	service, floor := slices.Min(questions), slices.Min(statements)
	b.ReportMetric(service*1e6, "µs-service")
	b.ReportMetric(service/floor, "x-statement")
}

// first measures the processor time of the first question of a process, by reading users and
// memberships into nothing.
func (c crowd) first(b *testing.B) {
	ctx := b.Context()
	var firsts, scans, peaks, kept []float64
	for b.Loop() {
		service := get(svc.New(config(c.store)))
		before, _ := measure.Heap()
		firsts = append(firsts, processor(b, func() (err error) {
			peaks = append(peaks, float64(measure.Peak(func() { _, err = whoCan(ctx, service) }))/(1<<20))
			return err
		}))
		after, _ := measure.Heap()
		kept = append(kept, (float64(after)-float64(before))/float64(c.users))
		check(service.Close())
		scans = append(scans, processor(b, func() error {
			_, err := c.scan(ctx, `SELECT id, inactive FROM svc_users ORDER BY id`)
			_, failed := c.scan(ctx, `SELECT group_id, user_id FROM svc_group_members ORDER BY group_id, user_id`)
			return errors.Join(err, failed)
		}))
	}
	first, scan := slices.Min(firsts), slices.Min(scans)
	b.ReportMetric(first*1e3, "ms-processor")
	b.ReportMetric(first/scan, "x-scan")
	b.ReportMetric(slices.Min(peaks), "MiB-peak")
	b.ReportMetric(slices.Min(kept), "B/user")
}

// processor returns the seconds of processor time of this process that a call takes.
func processor(b *testing.B, call func() error) float64 {
	before := get(measure.Processor())
	check(call())
	return (get(measure.Processor()) - before).Seconds()
}

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
