package bench_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/bench/internal/measure"
)

// population returns users, each with a channel, in groups of 50.
func population(users int) (b svc.Bundle) {
	for i := range users {
		id := fmt.Sprintf("user-%06d", i)
		b.Users = append(b.Users, svc.User{ID: id, DisplayName: "Name of " + id, Channels: []svc.Channel{{Provider: "telegram", SenderID: id}}})
		if i%50 == 0 {
			b.Groups = append(b.Groups, svc.Group{ID: "of-" + id, DisplayName: "of-" + id})
		}
		g := &b.Groups[len(b.Groups)-1]
		g.Members = append(g.Members, id)
	}
	return b
}

// crowds are the sizes of bundles and groups; the large one only with SVC_BENCH_LARGE=1.
func crowds() []int {
	if os.Getenv("SVC_BENCH_LARGE") == "" {
		return []int{10_000}
	}
	return []int{10_000, 100_000}
}

// placed is an empty database with a Service, and the bare driver.
type placed struct {
	service *svc.Service
	bare    *bare
}

func placeOf(b *testing.B, e engine, name string) placed {
	b.Helper()
	if err := e.check(); err != nil {
		b.Skip(err)
	}
	ok := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	place, err := e.place(name)
	ok(err)
	store, err := e.open(place)
	ok(err)
	b.Cleanup(func() { ok(store.Close()) })
	service, err := svc.New(svc.Config{Store: store})
	ok(err)
	b.Cleanup(func() { ok(service.Close()) })
	write, read := e.connect(place, nil)
	bare, err := newBare(write, read, e.dialect)
	ok(err)
	b.Cleanup(func() { ok(bare.close()) })
	return placed{service, bare}
}

// BenchmarkBundle applies a bundle to an empty database, and again when nothing has changed. The
// floor of the first is one prepared statement for each row, in one transaction. The floor of the
// second is three statements that scan all rows.
func BenchmarkBundle(b *testing.B) {
	for _, e := range []engine{sqliteEngine, postgresEngine} {
		for _, users := range crowds() {
			bundle := population(users)
			b.Run(fmt.Sprintf("%s/%d/first", e.name, users), func(b *testing.B) {
				floor, cost, peak := time.Hour, time.Hour, uint64(0)
				for i := 0; b.Loop(); i++ {
					name := fmt.Sprintf("bundle%d_%d", users, i)
					floor = min(floor, took(b, func() error { return insertCrowd(b.Context(), placeOf(b, e, name+"_floor").bare, bundle) }))
					p := placeOf(b, e, name)
					peak = max(peak, measure.Peak(func() {
						cost = min(cost, took(b, func() error { return p.service.Access.Apply(b.Context(), svc.Host, bundle) }))
					}))
				}
				reportBundle(b, floor, cost, peak)
			})
			b.Run(fmt.Sprintf("%s/%d/again", e.name, users), func(b *testing.B) {
				p := placeOf(b, e, fmt.Sprintf("again%d", users))
				apply := func() error { return p.service.Access.Apply(b.Context(), svc.Host, bundle) }
				took(b, apply)
				floor, cost, peak := time.Hour, time.Hour, uint64(0)
				for b.Loop() {
					floor = min(floor, took(b, func() error { return scanCrowd(b.Context(), p.bare) }))
					peak = max(peak, measure.Peak(func() { cost = min(cost, took(b, apply)) }))
				}
				reportBundle(b, floor, cost, peak)
			})
		}
	}
}

func reportBundle(b *testing.B, floor, cost time.Duration, peak uint64) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(floor.Seconds(), "s-floor")
	b.ReportMetric(cost.Seconds(), "s-service")
	b.ReportMetric(float64(cost)/float64(floor), "x-floor")
	b.ReportMetric(float64(peak)/(1<<20), "MiB-peak")
}

func took(b *testing.B, do func() error) time.Duration {
	begun := time.Now()
	if err := do(); err != nil {
		b.Fatal(err)
	}
	return time.Since(begun)
}

// insertCrowd writes a bundle row by row.
func insertCrowd(ctx context.Context, s *bare, bundle svc.Bundle) error {
	return s.mutate(ctx, svc.Target{Kind: svc.TargetAccess}, func(tx *sql.Tx) (err error) {
		insert := func(query string) func(args ...any) {
			var stmt *sql.Stmt
			if err == nil {
				stmt, err = tx.PrepareContext(ctx, query)
			}
			return func(args ...any) {
				if err == nil {
					_, err = stmt.ExecContext(ctx, args...)
				}
			}
		}
		user := insert(`INSERT INTO svc_users (id, display_name, email, inactive) VALUES ($1, $2, $3, 0)`)
		channel := insert(`INSERT INTO svc_channels (provider, sender_id, user_id) VALUES ($1, $2, $3)`)
		group := insert(`INSERT INTO svc_access_groups (id, display_name) VALUES ($1, $2)`)
		member := insert(`INSERT INTO svc_group_members (group_id, user_id) VALUES ($1, $2)`)
		for _, u := range bundle.Users {
			user(u.ID, u.DisplayName, u.Email)
			for _, c := range u.Channels {
				channel(c.Provider, c.SenderID, u.ID)
			}
		}
		for _, g := range bundle.Groups {
			group(g.ID, g.DisplayName)
			for _, m := range g.Members {
				member(g.ID, m)
			}
		}
		return err
	})
}

// scanCrowd reads all rows of a bundle.
func scanCrowd(ctx context.Context, s *bare) error {
	for _, query := range []string{
		`SELECT u.id, u.display_name, c.sender_id FROM svc_users u LEFT JOIN svc_channels c ON c.user_id = u.id ORDER BY u.id`,
		`SELECT id, display_name, '' FROM svc_access_groups ORDER BY id`,
		`SELECT group_id, user_id, '' FROM svc_group_members ORDER BY group_id, user_id`,
	} {
		rows, err := s.read.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		for rows.Next() {
			var a, b string
			var c *string
			if err := rows.Scan(&a, &b, &c); err != nil {
				return err
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkMember adds one member to a group and removes it. The floor reads the group, the user and
// the membership, and writes the membership.
func BenchmarkMember(b *testing.B) {
	for _, e := range []engine{sqliteEngine, postgresEngine} {
		for _, members := range append([]int{2_000}, crowds()[1:]...) {
			b.Run(fmt.Sprintf("%s/%d", e.name, members), func(b *testing.B) {
				p := placeOf(b, e, fmt.Sprintf("members%d", members))
				bundle := svc.Bundle{Users: population(members + 1).Users}
				last := bundle.Users[members].ID
				bundle.Groups = []svc.Group{{ID: "g", Members: []string{}}}
				for _, u := range bundle.Users[:members] {
					bundle.Groups[0].Members = append(bundle.Groups[0].Members, u.ID)
				}
				if err := p.service.Access.Apply(b.Context(), svc.Host, bundle); err != nil {
					b.Fatal(err)
				}
				const add, remove = `INSERT INTO svc_group_members (group_id, user_id) VALUES ($1, $2)`, `DELETE FROM svc_group_members WHERE group_id = $1 AND user_id = $2`
				groups := p.service.Groups
				compare(b, side{name: "floor", call: func() error {
					if err := changeMember(b.Context(), p.bare, add, "g", last); err != nil {
						return err
					}
					return changeMember(b.Context(), p.bare, remove, "g", last)
				}}, side{name: "service", call: func() error {
					if err := groups.AddMembers(b.Context(), svc.Host, "g", last); err != nil {
						return err
					}
					return groups.RemoveMembers(b.Context(), svc.Host, "g", last)
				}})
			})
		}
	}
}

func changeMember(ctx context.Context, s *bare, write, group, user string) error {
	target := svc.Target{Kind: svc.TargetMember, ID: group, Holder: svc.Identity{Kind: svc.KindUser, ID: user}}
	return s.mutate(ctx, target, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE svc_locks SET name = name WHERE name = 'access'`); err != nil {
			return err
		}
		var a, b string
		var n int
		if err := tx.QueryRowContext(ctx, `SELECT id, display_name FROM svc_users WHERE id = $1`, user).Scan(&a, &b); err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, `SELECT id, display_name FROM svc_access_groups WHERE id = $1`, group).Scan(&a, &b); err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM svc_group_members WHERE group_id = $1 AND user_id = $2`, group, user).Scan(&n); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, write, group, user)
		return err
	})
}
