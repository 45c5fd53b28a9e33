package sqlite_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

var (
	errConflict = errors.New("could not serialize access")
	errCut      = errors.New("connection cut")
)

// conflicting opens a store whose database reports conflicts, and whose dialect recognizes them.
func conflicting(t *testing.T, seen *tap, oneWriter bool) *sqlstore.Store {
	db := tappedDB(t, migrated(t), seen)
	return sqlstore.New(db, db, sqlstore.Dialect{OneWriter: oneWriter, Classify: func(err error) error {
		switch {
		case errors.Is(err, errConflict):
			return svc.ErrChanged
		case errors.Is(err, errCut):
			return svc.ErrUnavailable
		}
		return sqlite.Dialect().Classify(err)
	}})
}

// failing returns a function that fails the first times with err.
func failing(times int, err error) func() error {
	return func() error {
		if times--; times >= 0 {
			return fmt.Errorf("driver: %w", err)
		}
		return nil
	}
}

func TestConflictsAreTriedAgain(t *testing.T) {
	t.Parallel()
	none := func() func() error { return failing(0, nil) }
	times := func(n int, err error) func() func() error { return func() func() error { return failing(n, err) } }
	for name, c := range map[string]struct {
		statements, commits func() func() error
		begun               int64
		want                error
	}{
		"none":                         {none, none, 1, nil},
		"four in statements":           {times(4, errConflict), none, 5, nil},
		"five in statements":           {times(5, errConflict), none, 5, svc.ErrChanged},
		"four in commits":              {none, times(4, errConflict), 5, nil},
		"five in commits":              {none, times(5, errConflict), 5, svc.ErrChanged},
		"a statement that is cut":      {times(1, errCut), none, 1, svc.ErrUnavailable},
		"a commit of unknown outcome":  {none, times(1, errCut), 1, svc.ErrUnavailable},
		"a commit on a bad connection": {none, times(1, driver.ErrBadConn), 1, svc.ErrUnavailable},
	} {
		for _, oneWriter := range []bool{false, true} {
			t.Run(fmt.Sprint(name, oneWriter), func(t *testing.T) {
				is := is.New(t)
				statements := c.statements()
				seen := &tap{commit: c.commits(), run: func(_ driver.Conn, query string) error {
					if !strings.HasPrefix(query, "INSERT INTO svc_api_keys") {
						return nil
					}
					return statements()
				}}
				store := conflicting(t, seen, oneWriter)
				err := store.CreateAPIKey(t.Context(), key(1))
				is.True(c.want == nil && err == nil || c.want != nil && errors.Is(err, c.want))
				is.Equal(seen.begun.Load(), c.begun)
				row := must(store.Access(t.Context(), svc.AccessQuery{KeyID: key(1).ID}))
				is.Equal(row.Key != nil, c.want == nil)
			})
		}
	}
}

func TestContextEndsTheWaitBetweenTries(t *testing.T) {
	is := is.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	seen := &tap{run: func(_ driver.Conn, query string) error {
		if !strings.HasPrefix(query, "INSERT INTO svc_api_keys") {
			return nil
		}
		time.AfterFunc(0, cancel)
		return errConflict
	}}
	err := conflicting(t, seen, false).CreateAPIKey(ctx, key(1))
	is.True(errors.Is(err, context.Canceled) || errors.Is(err, svc.ErrChanged))
	is.True(seen.begun.Load() < 5)
}

func TestConflictsInTransactionsOfTheHostAreNot(t *testing.T) {
	is := is.New(t)
	fail := failing(1, errConflict)
	seen := &tap{run: func(_ driver.Conn, query string) error {
		if !strings.HasPrefix(query, "INSERT INTO svc_api_keys") {
			return nil
		}
		return fail()
	}}
	db := tappedDB(t, migrated(t), seen)
	tx := must(db.Begin())
	inside := sqlstore.Tx(tx, sqlstore.Dialect{Classify: func(error) error { return svc.ErrChanged }})
	is.True(errors.Is(inside.CreateAPIKey(t.Context(), key(1)), svc.ErrChanged))
	is.NoErr(inside.CreateAPIKey(t.Context(), key(1)))
	is.NoErr(tx.Rollback())
}

func TestNotifyIsRunByMutationsAlone(t *testing.T) {
	is := is.New(t)
	notified := 0
	seen := &tap{run: func(_ driver.Conn, query string) error {
		if query == "SELECT 'told'" {
			notified++
		}
		return nil
	}}
	tx := must(tappedDB(t, migrated(t), seen).BeginTx(t.Context(), nil))
	defer tx.Rollback()
	store := sqlstore.Tx(tx, sqlstore.Dialect{Notify: "SELECT 'told'", OneWriter: true, Classify: sqlite.Dialect().Classify})
	is.NoErr(store.CreateSource(t.Context(), sqltest.NamedSource(1)))
	is.Equal(notified, 1)
	notified = 0
	is.NoErr(store.CreateAPIKey(t.Context(), key(1)))
	is.True(errors.Is(store.CreateSource(t.Context(), sqltest.NamedSource(1)), svc.ErrExists))
	is.NoErr(store.ChangeAccess(t.Context(), svc.AccessNames{}, nothing))
	is.NoErr(store.AddEvents(t.Context(), nil))
	is.Equal(notified, 0)
}
