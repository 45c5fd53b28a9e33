package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/expect"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// crowd makes mutations that meet: all wait for one connection that writes, until release.
type crowd struct {
	store   *sqlstore.Store
	release func() error
	done    sync.WaitGroup
}

func newCrowd(t *testing.T, db *sql.DB) *crowd {
	return &crowd{store: sqlstore.New(db, db, sqlite.Dialect()), release: must(db.Begin()).Rollback}
}

// join runs do in a goroutine, and returns when the mutation of do is in the queue. It waits with
// ctx from then on, and not before.
func (c *crowd) join(ctx context.Context, do func(ctx context.Context)) {
	waits := make(chan struct{}, 1)
	c.done.Go(func() { do(announced{ctx, waits}) })
	<-waits
}

func (c *crowd) letGo(t *testing.T) {
	t.Helper()
	is.New(t).NoErr(c.release())
	c.done.Wait()
}

// announced is a context that announces the first wait for it.
type announced struct {
	context.Context
	waits chan<- struct{}
}

func (a announced) Done() <-chan struct{} {
	select {
	case a.waits <- struct{}{}:
	default:
	}
	return a.Context.Done()
}

func key(i int) svc.APIKey { return svc.APIKey{ID: fmt.Sprint("key-", i), Prefix: fmt.Sprint(i)} }

func TestWritersThatMeetShareCommits(t *testing.T) {
	for writers, commits := range map[int]int64{1: 1, 16: 1, 100: 2} {
		is := is.New(t)
		seen := &tap{}
		c := newCrowd(t, tappedDB(t, migrated(t), seen))
		for i := range writers {
			c.join(t.Context(), func(ctx context.Context) {
				must(0, c.store.CreateSource(ctx, sqltest.NamedSource(i)))
			})
		}
		c.letGo(t)
		is.Equal(seen.commits.Load(), commits)
		is.Equal(sqltest.Generation(t, c.store), int64(writers)) // each has one of its own
		is.Equal(len(must(c.store.Changes(t.Context(), 0)).Targets), writers)
	}
}

func TestNobodyIsToldBeforeTheCommit(t *testing.T) {
	is := is.New(t)
	var told sync.Map
	seen := &tap{commit: func() error {
		time.Sleep(20 * time.Millisecond)
		told.Range(func(id, _ any) bool {
			t.Errorf("%v was told", id)
			return true
		})
		return errors.New("disk failed")
	}}
	c := newCrowd(t, tappedDB(t, migrated(t), seen))
	for i := range 8 {
		c.join(t.Context(), func(ctx context.Context) {
			err := c.store.CreateSource(ctx, sqltest.NamedSource(i%4)) // half of them would be refused because of the others
			told.Store(i, true)
			expect.Holds(t, err != nil && strings.Contains(err.Error(), "disk failed"), "got ", err)
		})
	}
	c.letGo(t)
	is.Equal(sqltest.Generation(t, c.store), int64(0))
	is.Equal(seen.begun.Load(), int64(2)) // the crowd's own and one for all: nothing was tried again
}

func TestOneOfSeveralFails(t *testing.T) {
	is := is.New(t)
	seen := &tap{}
	c := newCrowd(t, tappedDB(t, migrated(t), seen))
	changeAccess := func(ctx context.Context, id string, then func()) error {
		return c.store.ChangeAccess(ctx, svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) {
			then()
			return svc.Bundle{Users: []svc.User{{ID: id}}}.Write(), nil
		})
	}
	refused := errors.New("refused")
	var panicked any
	errs := make([]error, 8)
	for _, do := range []func(ctx context.Context){
		func(ctx context.Context) { errs[0] = c.store.CreateSource(ctx, sqltest.NamedSource(1)) },
		func(ctx context.Context) { errs[1] = c.store.CreateSource(ctx, sqltest.NamedSource(1)) },
		func(ctx context.Context) {
			errs[2] = c.store.ChangeAccess(ctx, svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) { return svc.AccessWrite{}, refused })
		},
		func(ctx context.Context) {
			defer func() { panicked = recover() }()
			errs[3] = changeAccess(ctx, "panicked", func() { panic("oh") })
		},
		func(ctx context.Context) {
			errs[4] = c.store.ChangeAccess(ctx, svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) {
				return svc.Bundle{Users: []svc.User{{ID: "half"}}, Groups: []svc.Group{{ID: "g", Members: []string{"nobody"}}}}.Write(), nil
			})
		},
		func(ctx context.Context) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			errs[5] = changeAccess(ctx, "left", cancel)
		},
		func(ctx context.Context) { errs[6] = changeAccess(ctx, "alice", func() {}) },
		func(ctx context.Context) { errs[7] = c.store.ChangeAccess(ctx, svc.AccessNames{}, nothing) },
	} {
		c.join(t.Context(), do)
	}
	c.letGo(t)
	is.NoErr(errs[0])
	is.True(errors.Is(errs[1], svc.ErrExists))
	is.Equal(errs[2], refused)
	is.Equal(panicked, "oh")
	is.True(errs[4] != nil)
	is.True(errors.Is(errs[5], context.Canceled))
	is.NoErr(errs[6])
	is.NoErr(errs[7])
	is.Equal(seen.commits.Load(), int64(1))
	for _, id := range []string{"panicked", "half", "left"} {
		is.True(errors.Is(failure(sqltest.ReadUser(t.Context(), c.store, id)), svc.ErrNotFound)) // nothing is left of those that failed
	}
	changes := must(c.store.Changes(t.Context(), 0))
	is.Equal(changes.Targets, []svc.Target{sqltest.NamedSource(1).Target(), {Kind: event.TargetUser, ID: "alice"}})
}

func nothing(svc.Bundle) (svc.AccessWrite, error) { return svc.Bundle{}.Write(), nil }

// TestAllFailWhenTheTransactionDies makes the database roll back a whole transaction in the middle of a batch.
func TestAllFailWhenTheTransactionDies(t *testing.T) {
	is := is.New(t)
	var dying bool
	seen := &tap{}
	seen.run = func(conn driver.Conn, query string) error {
		if !dying || !strings.Contains(query, "INSERT INTO svc_sources") {
			return nil
		}
		stmt, err := conn.Prepare("ROLLBACK")
		if err == nil {
			_, err = stmt.(driver.StmtExecContext).ExecContext(context.Background(), nil)
			err = errors.Join(err, stmt.Close(), driver.ErrBadConn)
		}
		return fmt.Errorf("disk is full: %w", err)
	}
	c := newCrowd(t, tappedDB(t, migrated(t), seen))
	dying = true
	for i := range 8 {
		c.join(t.Context(), func(ctx context.Context) {
			var err error
			if i == 4 {
				err = c.store.CreateSource(ctx, svc.Source{})
			} else {
				err = c.store.CreateSource(ctx, sqltest.NamedSource(i))
			}
			expect.Holds(t, errors.Is(err, svc.ErrUnavailable), i, ": got ", err)
		})
	}
	c.letGo(t)
	dying = false
	is.Equal(seen.commits.Load(), int64(0))
	is.Equal(sqltest.Generation(t, c.store), int64(0))
	is.NoErr(c.store.CreateSource(t.Context(), sqltest.NamedSource(4))) // it goes on
}

func TestWaitingWritersMayLeave(t *testing.T) {
	is := is.New(t)
	before := runtime.NumGoroutine()
	seen := &tap{}
	c := newCrowd(t, tappedDB(t, migrated(t), seen))
	ctx, cancel := context.WithCancel(t.Context())
	leave := func(ctx context.Context) {
		if err := c.store.CreateSource(ctx, sqltest.NamedSource(1)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	for range 8 {
		c.join(ctx, leave)
	}
	cancel()
	c.done.Wait() // though nobody has let go of the connection
	is.Equal(seen.begun.Load(), int64(1))
	c.join(t.Context(), func(ctx context.Context) {
		must(0, c.store.CreateSource(ctx, sqltest.NamedSource(2)))
	})
	c.letGo(t)
	is.Equal(sqltest.Generation(t, c.store), int64(1))
	// Nobody leads. database/sql has some goroutines of its own.
	expect.Soon(t, "goroutines go on", func() bool { return runtime.NumGoroutine() <= before+2 })
}

func TestFunctionThatEndsItsGoroutine(t *testing.T) {
	is := is.New(t)
	store := open(t, migrated(t))
	err := store.ChangeAccess(t.Context(), svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) {
		runtime.Goexit()
		return svc.Bundle{}.Write(), nil
	})
	is.True(err != nil)
	is.NoErr(store.CreateSource(t.Context(), sqltest.NamedSource(1)))
	is.Equal(sqltest.Generation(t, store), int64(1))
}

func TestWritersOverwhelm(t *testing.T) {
	store := open(t, migrated(t))
	var done sync.WaitGroup
	for i := range 200 {
		done.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond/4)
			defer cancel()
			err := store.CreateAPIKey(ctx, key(i))
			expect.Holds(t, err == nil || errors.Is(err, context.DeadlineExceeded), err)
			_, readErr := sqltest.ReadKey(t.Context(), store, key(i).ID)
			if (err == nil) != (readErr == nil) {
				t.Errorf("%d: created: %v, read: %v", i, err, readErr) // what was said is what is there
			}
		})
	}
	done.Wait()
	changes := must(store.Changes(t.Context(), 0))
	is.New(t).Equal(int64(len(changes.Targets)), changes.Generation)
}

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

// beforeKeys does something before each statement that writes a key.
func beforeKeys(do func() error) func(driver.Conn, string) error {
	return func(_ driver.Conn, query string) error {
		if strings.HasPrefix(query, "INSERT INTO svc_api_keys") {
			return do()
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
				seen := &tap{commit: c.commits(), run: beforeKeys(c.statements())}
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
	seen := &tap{run: beforeKeys(func() error { time.AfterFunc(0, cancel); return errConflict })}
	err := conflicting(t, seen, false).CreateAPIKey(ctx, key(1))
	is.True(errors.Is(err, context.Canceled) || errors.Is(err, svc.ErrChanged))
	is.True(seen.begun.Load() < 5)
}

func TestConflictsInTransactionsOfTheHostAreNot(t *testing.T) {
	is := is.New(t)
	db := tappedDB(t, migrated(t), &tap{run: beforeKeys(failing(1, errConflict))})
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
