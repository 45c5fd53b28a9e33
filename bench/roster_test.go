package bench_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/bench/internal/measure"
)

// BenchmarkRoster measures who-can by the statement that a host would write for it, which knows the
// policies that match: after one change of access, and for the first time.
func BenchmarkRoster(b *testing.B) {
	for _, e := range []engine{sqliteEngine, postgresEngine} {
		for _, users := range []int{10_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/%d", e.name, users), func(b *testing.B) {
				if users > 100_000 && os.Getenv("SVC_BENCH_LARGE") == "" {
					b.Skip("NOT MEASURED: large sizes need SVC_BENCH_LARGE=1")
				}
				c := crowd{ownSite(b, e, "roster"), users}
				if err := c.fillAccess(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.Run("first", c.first)
				for name, change := range c.changes() {
					b.Run(name, func(b *testing.B) { c.after(b, change) })
				}
			})
		}
	}
}

// crowd is a site with many users. Each is in two groups of about 400 members. Groups have four
// policies of ten statements each. One in 60 users may do what is asked.
type crowd struct {
	*site
	users int
}

const crowdPolicies = 500

func crowdDocument(i, version int) string {
	var statements []string
	for n := range 10 {
		statements = append(statements, fmt.Sprintf(
			`{"effect":"allow","actions":["bank:recall","bank:retain"],"banks":["bank-%d::%d::*"],"recall_max_tokens":%d}`, i, n, version))
	}
	return `{"version":"2026-03-24","statements":[` + strings.Join(statements, ",") + `]}`
}

func (c crowd) fillAccess(ctx context.Context) error {
	groups := max(c.users/400, 10)
	for _, st := range []struct {
		n         int
		statement string
	}{
		{c.users, `INSERT INTO svc_users (id, display_name, inactive) SELECT 'user-' || (20000000000 + n.i), 'User', 0 FROM {n}`},
		{groups, `INSERT INTO svc_access_groups (id, display_name) SELECT 'crowd-' || n.i, 'Group' FROM {n}`},
		{c.users, `INSERT INTO svc_group_members (group_id, user_id) SELECT 'crowd-' || (n.i % {groups} + 1), 'user-' || (20000000000 + n.i) FROM {n}`},
		{c.users, `INSERT INTO svc_group_members (group_id, user_id) SELECT 'crowd-' || ((n.i + 1 + n.i / {groups} % ({groups} - 1)) % {groups} + 1), 'user-' || (20000000000 + n.i) FROM {n}`},
	} {
		if err := c.fill(ctx, st.n, strings.ReplaceAll(st.statement, "{groups}", strconv.Itoa(groups))); err != nil {
			return err
		}
	}
	bundle := svc.Bundle{Groups: []svc.Group{{ID: "few", Members: []string{"user-20000000001"}}}}
	for i := range crowdPolicies {
		bundle.Policies = append(bundle.Policies, svc.Policy{ID: fmt.Sprint("policy-", i), Document: []byte(crowdDocument(i, 0))})
	}
	for i := range groups {
		for n := range 4 {
			bundle.Attachments = append(bundle.Attachments, attached(fmt.Sprint("policy-", (i*4+n)%crowdPolicies), fmt.Sprint("crowd-", i+1), 0))
		}
	}
	bundle.Attachments = append(bundle.Attachments, attached("policy-1", "few", 0))
	if err := c.service.Access.Apply(ctx, svc.Host, bundle); err != nil {
		return err
	}
	_, err := c.bare.write.ExecContext(ctx, c.settle)
	return err
}

func attached(policy, group string, priority int64) svc.Attachment {
	return svc.Attachment{PolicyID: policy, Principal: svc.GrantedTo{Type: svc.GrantedToGroup, ID: group}, Priority: priority}
}

// changes are bundles that each change one row, from one call to the next.
func (c crowd) changes() map[string]func(i int) svc.Bundle {
	inactive := false
	return map[string]func(i int) svc.Bundle{
		"user": func(int) svc.Bundle {
			inactive = !inactive
			return svc.Bundle{Users: []svc.User{{ID: "user-20000000002", Inactive: inactive}}}
		},
		"member": func(i int) svc.Bundle {
			return svc.Bundle{Groups: []svc.Group{{ID: "few", Members: []string{fmt.Sprint("user-", 20000000002+i%5000)}}}}
		},
		"attachment": func(i int) svc.Bundle {
			return svc.Bundle{Attachments: []svc.Attachment{attached("policy-1", "crowd-7", int64(i))}}
		},
		"policy": func(i int) svc.Bundle {
			return svc.Bundle{Policies: []svc.Policy{{ID: "policy-1", Document: []byte(crowdDocument(1, i))}}}
		},
	}
}

func (c crowd) whoCan(ctx context.Context) (int, error) {
	r, err := c.service.Policies.WhoCan(ctx, svc.Host, "bank:recall", "bank-1::3::notes")
	return len(r.Users), err
}

// byStatement answers as whoCan does, by one statement.
func (c crowd) byStatement(ctx context.Context) (users int, err error) {
	rows, err := c.bare.read.QueryContext(ctx, `SELECT DISTINCT u.id FROM svc_attachments a
		JOIN svc_group_members m ON m.group_id = a.principal_id JOIN svc_users u ON u.id = m.user_id
		WHERE a.policy_id = 'policy-1' AND a.principal_type = 'group' AND u.inactive = 0 ORDER BY u.id`)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return 0, err
		}
		users++
	}
	return users, rows.Err()
}

// after measures the first question after a change. The change itself is not measured.
func (c crowd) after(b *testing.B, change func(i int) svc.Bundle) {
	ctx := b.Context()
	if _, err := c.whoCan(ctx); err != nil {
		b.Fatal(err)
	}
	var questions, statements []float64
	for b.Loop() {
		c.next++ // also from one run to the next, so that every call changes something
		if err := c.service.Access.Apply(ctx, svc.Host, change(c.next)); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		got, err := c.whoCan(ctx)
		answered := time.Now()
		want, failed := c.byStatement(ctx)
		if err != nil || failed != nil || got != want || got == 0 {
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
		service, err := svc.New(config(c.store))
		if err != nil {
			b.Fatal(err)
		}
		other := crowd{&site{service: service}, c.users}
		before, _ := measure.Heap()
		firsts = append(firsts, processor(b, func() error {
			peaks = append(peaks, float64(measure.Peak(func() { _, err = other.whoCan(ctx) }))/(1<<20))
			return err
		}))
		after, _ := measure.Heap()
		kept = append(kept, float64(after-before)/float64(c.users))
		if err := service.Close(); err != nil {
			b.Fatal(err)
		}
		scans = append(scans, processor(b, func() error { return c.scan(ctx) }))
	}
	first, scan := slices.Min(firsts), slices.Min(scans)
	b.ReportMetric(first*1e3, "ms-processor")
	b.ReportMetric(first/scan, "x-scan")
	b.ReportMetric(slices.Min(peaks), "MiB-peak")
	b.ReportMetric(slices.Min(kept), "B/user")
}

// processor returns the seconds of processor time of this process that a call takes.
func processor(b *testing.B, call func() error) float64 {
	before, err := measure.Processor()
	if err == nil {
		err = call()
	}
	after, failed := measure.Processor()
	if err != nil || failed != nil {
		b.Fatal(err, failed)
	}
	return (after - before).Seconds()
}

// scan reads users and memberships.
func (c crowd) scan(ctx context.Context) error {
	for _, query := range []string{`SELECT id, inactive FROM svc_users ORDER BY id`, `SELECT group_id, user_id FROM svc_group_members ORDER BY group_id, user_id`} {
		rows, err := c.bare.read.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		for rows.Next() {
			var one, other string
			if err := rows.Scan(&one, &other); err != nil {
				return err
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
	}
	return nil
}
