package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/changefeed"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlstore"
)

// waits counts how often AwaitChange returns before the generation differs from since.
func waits(t *testing.T, store svc.Store, since int64) (times int) {
	t.Helper()
	for {
		is.New(t).NoErr(store.AwaitChange(t.Context(), since))
		times++
		if must(store.Changes(t.Context(), since)).Generation != since {
			return times
		}
	}
}

// A commit of one store wakes a caller that waits on another. Without the wake-up, each call would
// wait for about a second. A busy machine delays some, so that five of any number count.
func TestOneStoreWakesAnother(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	wakesAnother(t, open(t, url, postgres.Options{}), open(t, url, postgres.Options{}))
}

func wakesAnother(t *testing.T, one, two svc.Store) {
	t.Helper()
	is.New(t).NoErr(sqltest.AddUsers(t.Context(), one, "first"))
	waits(t, two, 0)
	begun := time.Now()
	for i, woken := 0, 0; woken < 5; i++ {
		since := sqltest.Generation(t, two)
		committed := make(chan time.Time, 1)
		go func() {
			time.Sleep(20 * time.Millisecond) // two waits by then
			must(0, sqltest.AddUsers(context.Background(), one, fmt.Sprint("u", i)))
			committed <- time.Now()
		}()
		waits(t, two, since)
		switch now := time.Now(); {
		case now.Sub(<-committed) < 500*time.Millisecond:
			woken++
		case now.Sub(begun) > time.Minute:
			t.Fatalf("%d commits woke %d times", i+1, woken)
		}
	}
}

// A transaction of the Store knows the generations that it has returned, and none of its own.
func TestChangesInATransaction(t *testing.T) {
	is := parallel(t)
	store := open(t, migrated(t), postgres.Options{NoNotify: true})
	is.NoErr(sqltest.AddUsers(t.Context(), store, "before"))
	since := sqltest.Generation(t, store)
	is.NoErr(sqltest.AddUsers(t.Context(), store, "after"))
	rolled := errors.New("rolled back")
	is.Equal(store.Atomically(t.Context(), func(ctx context.Context, tx svc.Store) error {
		is.Equal(len(must(tx.Changes(ctx, since)).Targets), 1)
		is.NoErr(tx.CreateSource(ctx, sqltest.NamedSource("own")))
		return rolled
	}), rolled)
	is.NoErr(store.CreateSource(t.Context(), sqltest.NamedSource("other")))
	changes := must(store.Changes(t.Context(), since))
	is.Equal(len(changes.Targets), 2)
	is.Equal(changes.Targets[1].ID, "other")
}

// Without NOTIFY or LISTEN the other store polls.
func TestChangesAreNoticedByAsking(t *testing.T) {
	longtest.Parallel(t, "changes without notifications")
	for _, options := range []postgres.Options{{NoNotify: true}, {Pooler: true}} {
		noticesByAsking(t, migrated(t), options)
	}
}

func noticesByAsking(t *testing.T, url string, options postgres.Options) {
	t.Helper()
	is := is.New(t)
	one, two := open(t, url, options), open(t, url, options)
	since := sqltest.Generation(t, two)
	is.NoErr(sqltest.AddUsers(t.Context(), one, "alice"))
	is.Equal(waits(t, two, since), 1) // it asks first
	since = sqltest.Generation(t, two)
	committed := make(chan error, 1)
	go func() {
		time.Sleep(20 * time.Millisecond)
		committed <- sqltest.AddUsers(context.Background(), one, "bob")
	}()
	began := time.Now()
	times := waits(t, two, since)
	is.True(times <= 2+int(time.Since(began)/(500*time.Millisecond))) // each takes about a second, also when the commit does
	is.NoErr(<-committed)
}

// TestNoReaderMissesAChange runs eight writers on two stores, and on each store a reader that follows the changes.
func TestNoReaderMissesAChange(t *testing.T) {
	long(t, "readers beside eight writers")
	for _, silent := range []bool{false, true} {
		url := migrated(t)
		missesNothing(t, []svc.Store{
			open(t, url, postgres.Options{SynchronousCommit: "off"}), // not what this is about
			open(t, url, postgres.Options{SynchronousCommit: "off", NoNotify: silent}),
		})
	}
}

func missesNothing(t *testing.T, stores []svc.Store) {
	t.Helper()
	const writers = 8
	each := longtest.Times(30, 500) // the rules of storetest have 10,000 changes on one store
	var writing, reading sync.WaitGroup
	last := make(chan struct{})
	for _, store := range stores {
		reading.Go(func() {
			if seen, err := follow(store, last); err != nil || len(seen) != writers*each {
				t.Errorf("%d changes were seen, want %d: %v", len(seen), writers*each, err)
			}
		})
	}
	for writer := range writers {
		writing.Go(func() {
			for i := range each {
				must(0, stores[writer%2].CreateSource(t.Context(), sqltest.NamedSource(fmt.Sprintf("%d-%d", writer, i))))
			}
		})
	}
	writing.Wait()
	close(last)
	reading.Wait()
}

// follow reads changes as a Service does, until last is closed, and then the rest.
func follow(store svc.Store, last <-chan struct{}) (map[string]bool, error) {
	ctx, _ := changefeed.With(context.Background())
	seen := map[string]bool{}
	for since, ended := int64(0), false; ; {
		select {
		case <-last:
			ended = true
		default:
		}
		changes, err := store.Changes(ctx, since)
		if err != nil || changes.Reset {
			return seen, errors.Join(err, fmt.Errorf("reset: %v", changes.Reset))
		}
		for _, target := range changes.Targets {
			if seen[target.ID] {
				return seen, fmt.Errorf("%s was seen twice", target.ID)
			}
			seen[target.ID] = true
		}
		if ended && changes.Generation == since {
			return seen, nil
		}
		since = changes.Generation
		if err := store.AwaitChange(ctx, since); err != nil {
			return seen, err
		}
	}
}

// altered returns a transaction whose statements are changed.
func altered(tx *sql.Tx, alter func(query string) string) tapped {
	return tapped{tx, func(query string) (string, error) { return alter(query), nil }}
}

// openTx is a transaction that has added a source and is not committed.
type openTx struct {
	tx    *sql.Tx
	name  string
	began int // how many were committed before
}

// lanesOf commits mutations in another order than they were made, and follows them. It returns what is wrong.
func lanesOf(t *testing.T, seed uint64, alter func(query string) string) (wrong string) {
	t.Helper()
	ctx, draw, url := t.Context(), rand.New(rand.NewPCG(seed, 35)), pgtest.With(t, migrated(t), "synchronous_commit", "off")
	// On a wrong lane a transaction waits for another one that this goroutine holds.
	db, follower := pgtest.Open(t, pgtest.With(t, url, "lock_timeout", "2s")), open(t, url, postgres.Options{NoNotify: true})
	dialect := follower.Dialect()
	var waiting []openTx
	defer func() {
		for _, w := range waiting {
			_ = w.tx.Rollback()
		}
	}()
	var committed []openTx
	followed, since, states := map[string]bool{}, int64(0), map[int64]string{}
	for step := range 120 {
		switch n := draw.IntN(10); {
		case n < 4 && len(waiting) < 6:
			tx := must(db.BeginTx(ctx, nil))
			w := openTx{tx, fmt.Sprint("s", step), len(committed)}
			waiting = append(waiting, w)
			if err := sqlstore.TxOf(altered(tx, alter), dialect).CreateSource(ctx, sqltest.NamedSource(w.name)); err != nil {
				return err.Error()
			}
		case n < 8 && len(waiting) > 0:
			i := draw.IntN(len(waiting))
			w := waiting[i]
			waiting = slices.Delete(waiting, i, i+1)
			if n == 7 {
				_ = w.tx.Rollback()
				continue
			}
			is.New(t).NoErr(w.tx.Commit())
			committed = append(committed, w)
		default:
			changes, err := follower.Changes(ctx, since)
			if err != nil || changes.Reset {
				return fmt.Sprintf("the follower is at %d: %+v, %v", since, changes, err)
			}
			for _, target := range changes.Targets {
				if followed[target.ID] {
					return target.ID + " is told twice"
				}
				followed[target.ID] = true
			}
			since = changes.Generation
			if wrong := compare(committed, followed, changes, states); wrong != "" {
				return wrong
			}
			if wrong := fromTheFirst(t, db, dialect, alter, committed); wrong != "" {
				return wrong
			}
		}
	}
	return ""
}

// compare compares what a follower has with what is committed.
func compare(committed []openTx, followed map[string]bool, changes svc.StoreChanges, states map[int64]string) string {
	var names []string
	for _, c := range committed {
		if names = append(names, c.name); !followed[c.name] {
			return fmt.Sprintf("generation %d lacks %s", changes.Generation, c.name)
		}
	}
	state := fmt.Sprint(slices.Sorted(slices.Values(names)))
	if other, known := states[changes.Generation]; known && other != state || len(followed) != len(committed) {
		return fmt.Sprintf("generation %d is %s and %s", changes.Generation, other, state)
	}
	states[changes.Generation] = state
	return ""
}

// fromTheFirst reads all changes in one transaction, and checks their order.
func fromTheFirst(
	t *testing.T, db *sql.DB, dialect sqlstore.Dialect, alter func(string) string, committed []openTx,
) string {
	tx := must(db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}))
	defer tx.Rollback()
	changes, err := sqlstore.TxOf(altered(tx, alter), dialect).Changes(t.Context(), 0)
	if err != nil || changes.Reset || len(changes.Targets) != len(committed) {
		return fmt.Sprintf("from the first: %d of %d, %v", len(changes.Targets), len(committed), err)
	}
	place := map[string]int{}
	for i, target := range changes.Targets {
		place[target.ID] = i
	}
	for i, early := range committed {
		for _, late := range committed[i+1:] {
			if late.began > i && place[late.name] < place[early.name] {
				return fmt.Sprintf("%s began when %s was committed, and is before it", late.name, early.name)
			}
		}
	}
	return ""
}

// In whatever order mutations commit that lie on several lanes: equal generations are equal states, and
// a follower is told of each mutation once.
func TestLanes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(longtest.Times(1, 40)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			if wrong := lanesOf(t, seed, func(query string) string { return query }); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

// TestWrongLanes: the test above notices lanes that are wrong.
func TestWrongLanes(t *testing.T) {
	longtest.Parallel(t, "that wrong lanes are noticed")
	for old, new := range map[string]string{
		"g.value + 1":                  "g.value",
		"VALUES ((SELECT id FROM lane": "VALUES ((SELECT MIN(1) FROM lane",
		"ORDER BY f.seq":               "ORDER BY g.id DESC",
		"AND number > ":                "AND number > 1 + ",
		"lane = g.id":                  "lane <> g.id",
	} {
		met, wrong := false, ""
		alter := func(query string) string {
			met = met || strings.Contains(query, old)
			return strings.Replace(query, old, new, 1)
		}
		for seed := uint64(0); seed < 10 && wrong == ""; seed++ {
			t.Run(fmt.Sprint(new, " seed ", seed), func(t *testing.T) { wrong = lanesOf(t, seed, alter) })
		}
		if t.Logf("%s: %s", new, wrong); wrong == "" || !met {
			t.Errorf("%q in place of %q: nobody notices", new, old)
		}
	}
}
