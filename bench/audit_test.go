package bench_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/extsvc/svc"
)

// The records are a year old to now. Every third one is 20 seconds older than its place.
const (
	auditActors  = 1000
	auditTargets = 10_000
	auditBegan   = 1_700_000_000_000_000
	auditYear    = 31_536_000_000_000
)

// auditLog is the audit log of a site.
type auditLog struct {
	*site
	records int64
	audit   *svc.Audit
}

// newAuditLog returns a generated log of 100,000 records, or of 10,000,000.
func newAuditLog(b *testing.B, e engine) *auditLog {
	s := ownSite(b, e, "audit")
	l := &auditLog{site: s, records: 100_000, audit: s.keeping(b).Audit}
	if os.Getenv("SVC_BENCH_LARGE") != "" {
		l.records = 10_000_000
	}
	step := auditYear / l.records
	err := s.fill(b.Context(), int(l.records), fmt.Sprintf(`INSERT INTO svc_audit
		SELECT n.i, '00000000-0000-7000-8000-' || substr('00000000000' || n.i, length('00000000000' || n.i) - 11),
		%[1]d + n.i * %[2]d - (n.i %% 3 / 2) * 20000000, 'user', 'u-' || n.i %% %[3]d, '', 'api_key.issued',
		'api_key', 'k-' || n.i * 7919 %% %[4]d, '', '', 'user', 'holder', {hash}, {hash},
		%[1]d + ((n.i - 1) / 2048 * 2048 + 1) * %[2]d - 20000000, %[1]d + n.i * %[2]d, '', '' FROM (SELECT CAST(i AS BIGINT) AS i FROM {n}) n`,
		auditBegan, step, auditActors, auditTargets))
	_, failed := s.bare.write.Exec(s.settle)
	if err := errors.Join(err, failed); err != nil {
		b.Fatal(err)
	}
	return l
}

// keeping returns a Service over the same store that keeps events.
func (s *site) keeping(b *testing.B) *svc.Service {
	c := config(s.store)
	c.Events.Keep = true
	service, err := svc.New(c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := service.Close(); err != nil {
			b.Error(err)
		}
	})
	return service
}

// time returns when a part of the log had been written.
func (l *auditLog) time(part float64) time.Time {
	return time.UnixMicro(auditBegan + int64(part*auditYear)).UTC()
}

// BenchmarkAudit compares lists of 100 records with the bare statement for the same records, which
// knows their numbers. It also compares issuing a key with and without its record.
func BenchmarkAudit(b *testing.B) {
	for _, e := range allEngines {
		b.Run(e.name, func(b *testing.B) {
			l := newAuditLog(b, e)
			for _, list := range []struct {
				name string
				svc.AuditQuery
			}{
				{"newest", svc.AuditQuery{}},
				{"since", svc.AuditQuery{Since: l.time(0.997)}},
				{"until", svc.AuditQuery{Until: l.time(0.1)}},
				{"until-of-actor", svc.AuditQuery{Until: l.time(0.1), ActorID: "u-7"}},
				{"until-of-target", svc.AuditQuery{Until: l.time(0.5), TargetID: "k-7"}},
				{"between", svc.AuditQuery{Since: l.time(0.1), Until: l.time(0.5)}},
				{"between-of-both", svc.AuditQuery{Since: l.time(0.1), Until: l.time(0.5), ActorID: "u-7", TargetID: "k-5433"}},
				{"before-all-of-them", svc.AuditQuery{Until: l.time(0)}},
			} {
				b.Run(list.name, func(b *testing.B) { l.compare(b, list.AuditQuery) })
			}
			b.Run("issue", l.issue)
		})
	}
}

func (l *auditLog) compare(b *testing.B, q svc.AuditQuery) {
	q.Limit = 100
	list := func() (numbers []int64, err error) {
		for record, failed := range l.audit.Records(b.Context(), svc.Host, q) {
			numbers, err = append(numbers, record.Number), errors.Join(err, failed)
		}
		return numbers, err
	}
	want, err := list()
	if err != nil {
		b.Fatal(err)
	}
	floor, err := l.floor(b.Context(), q, want)
	if err != nil {
		b.Fatal(err)
	}
	if got, err := floor(); err != nil || !slices.Equal(got, want) {
		b.Fatal(err, equal(want, got))
	}
	compareApart(b, side{name: "floor", call: func() error {
		_, err := floor()
		return err
	}}, side{name: "service", call: func() error {
		_, err := list()
		return err
	}})
}

// floor returns the bare statement for records whose numbers are known: by the same index.
func (l *auditLog) floor(ctx context.Context, q svc.AuditQuery, want []int64) (func() ([]int64, error), error) {
	statement, args := `SELECT * FROM svc_audit WHERE happened_at < $1 AND number <= $2 AND number >= $3`, []any{int64(1 << 62), 0, 1}
	if !q.Until.IsZero() {
		args[0] = q.Until.UnixMicro()
	}
	if len(want) > 0 {
		args[1], args[2] = want[0], want[len(want)-1]
	}
	for column, id := range map[string]string{"actor_id": q.ActorID, "target_id": q.TargetID} {
		if id != "" {
			args = append(args, id)
			statement += fmt.Sprint(" AND ", column, " = $", len(args))
		}
	}
	prepared, err := l.bare.read.PrepareContext(ctx, statement+" ORDER BY number DESC")
	return func() (numbers []int64, err error) {
		rows, err := prepared.QueryContext(ctx, args...)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		var number int64
		var texts [13]string
		var previous, hash []byte
		columns := []any{&number}
		for i := range 12 {
			columns = append(columns, &texts[i])
		}
		for columns = append(columns, &previous, &hash, &texts[12], &texts[12]); rows.Next(); {
			if err := rows.Scan(columns...); err != nil {
				return nil, err
			}
			numbers = append(numbers, number)
		}
		return numbers, rows.Err()
	}, err
}

// issue compares an issue that writes a record with one that writes none.
func (l *auditLog) issue(b *testing.B) {
	issuing := func(name string, service *svc.Service) side {
		i := 0
		return side{name: name, call: func() error {
			i++
			_, err := service.Keys.Issue(b.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: fmt.Sprint(name, i/100)}, svc.NewAPIKey{})
			return err
		}}
	}
	compare(b, issuing("unkept", l.service), issuing("service", l.keeping(b)))
}
