package linearizability_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/internal/longtest"
)

// A deletion during which a call of the store fails, any one, leaves everything as it was.
func TestAFailedDeletionChangesNothing(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"memory", "SQLite", "PostgreSQL"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "PostgreSQL" {
				longtest.Test(t, "deletions that fail in PostgreSQL")
			}
			var s saboteur
			town := settle(t, stores[name](t), func(store svc.FullStore) svc.Store { return failing{store, &s, true} })
			for _, deletion := range slices.Sorted(maps.Keys(calls["deletions"])) {
				for _, late := range []bool{false, true} {
					s.late = late
					if wrong := town.fail(&s, deletion); wrong != "" {
						t.Fatal(wrong)
					}
				}
			}
		})
	}
}

// That finds a deletion whose calls are no transaction.
func TestPartialDeletionsAreFound(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	for _, name := range []string{"SQLite", "PostgreSQL"} {
		var s saboteur
		town := settle(t, stores[name](t), func(store svc.FullStore) svc.Store { return failing{store, &s, false} })
		wrong := town.fail(&s, "the user")
		if wrong == "" {
			t.Fatal("not found: " + name)
		}
		t.Log("found: ", wrong)
	}
}

// fail runs a deletion whose nth call of the store fails, for each n until it succeeds. It returns what is wrong.
func (w *town) fail(s *saboteur, deletion string) string {
	w.t.Helper()
	w.number++
	w.reset()
	g := guest{Service: w.services[0], ctx: w.t.Context(), admin: root, issued: func(svc.IssuedKey) {}}
	g.self, g.key = w.login(alice)
	g.bot, _ = w.login(account)
	all := maps.Clone(calls["own"])
	if deletion != "the policy" && deletion != "all but admins" { // a policy in use stays
		maps.Copy(all, calls["administrative"])
	}
	delete(all, "rotate a user's key") // self still needs it
	for i, name := range slices.Sorted(maps.Keys(all)) {
		g.serial = fmt.Sprint("f-", w.number, "-", i)
		if err := g.do(all[name]); err != nil {
			w.t.Fatalf("%s: %v", name, err)
		}
	}
	return w.failEach(s, deletion, g)
}

// failEach runs a deletion again and again, and makes another call of the store fail each time.
func (w *town) failEach(s *saboteur, deletion string, g guest) string {
	w.t.Helper()
	before := w.state()
	for n := 1; ; n++ {
		s.calls, s.at = 0, n
		err := g.do(calls["deletions"][deletion])
		failed := s.calls >= n
		s.at = 0
		after := w.state()
		switch {
		case !failed && err != nil:
			return fmt.Sprintf("delete %s: %v", deletion, err)
		case !failed && reflect.DeepEqual(before, after):
			return fmt.Sprintf("delete %s deletes nothing", deletion)
		case !failed:
			w.t.Logf("delete %s: %d calls", deletion, n-1)
			return ""
		case svc.ErrorCode(err) != svc.CodeUnavailable:
			return fmt.Sprintf("delete %s, call %d fails: %v", deletion, n, err)
		case !reflect.DeepEqual(before, after):
			return fmt.Sprintf("delete %s, call %d fails (late: %t): before %+v, after %+v", deletion, n, s.late, before, after)
		}
		if _, err := g.Authenticate(g.ctx, string(g.key.Key)); err != nil {
			return fmt.Sprintf("delete %s, call %d fails: %v", deletion, n, err)
		}
	}
}

// townState is everything that a deletion may change.
type townState struct {
	rows       svc.Bundle
	keys       []svc.APIKey
	personal   []string
	generation int64
	audit      []svc.AuditRecord // the newest
}

func (w *town) state() townState {
	w.t.Helper()
	keys := w.keys()
	for i := range keys {
		keys[i].LastUsedAt = time.Time{}
	}
	var newest []svc.AuditRecord
	for record, err := range w.services[0].Audit.Records(w.t.Context(), svc.Host, svc.AuditQuery{Limit: 1}) {
		newest = append(newest, must(record, err)) // events that wait are chained first
	}
	return townState{
		w.rows(), keys, w.personal(aliceID), must(w.store.Changes(w.t.Context(), 0)).Generation, newest,
	}
}

// saboteur makes one call of a transaction fail: before it is carried out, or late.
type saboteur struct {
	calls, at int // at 0: none
	late      bool
}

func (s *saboteur) do(call func() error) error {
	if s.at == 0 {
		return call()
	}
	if s.calls++; s.calls != s.at {
		return call()
	}
	if s.late {
		if err := call(); err != nil {
			return err
		}
	}
	return svc.ErrUnavailable
}

// failing is a store with a saboteur. Unless it is joined, a transaction's calls are transactions of their own.
type failing struct {
	svc.FullStore
	*saboteur
	joined bool
}

func (s failing) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	if !s.joined {
		return fn(ctx, s.plant(s.FullStore))
	}
	return s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
		err := fn(ctx, s.plant(tx.(svc.FullStore)))
		if err != nil {
			return err
		}
		return s.do(func() error { return nil }) // the commit
	})
}

func (s *saboteur) plant(tx svc.FullStore) svc.Store {
	return &intercept.Store{FullStore: tx, Around: func(_ context.Context, call intercept.Call) error { return s.do(call.Do) }}
}
