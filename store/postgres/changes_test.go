package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/changefeed"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
)

// waits counts how often AwaitChange returns before the generation differs from since.
func waits(t *testing.T, store svc.Store, since int64) (times int) {
	t.Helper()
	for {
		is.New(t).NoErr(store.AwaitChange(t.Context(), since))
		times++
		changes := must(store.Changes(t.Context(), since))
		if changes.Generation != since {
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
	is := is.New(t)
	is.NoErr(sqltest.AddUsers(t.Context(), one, "first"))
	waits(t, two, 0)
	begun := time.Now()
	for i, woken := 0, 0; woken < 5; i++ {
		since := sqltest.Generation(t, two)
		committed := make(chan time.Time, 1)
		go func() {
			time.Sleep(20 * time.Millisecond) // two waits by then
			if err := sqltest.AddUsers(context.Background(), one, fmt.Sprint("u", i)); err != nil {
				t.Error(err)
			}
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
		changes := must(tx.Changes(ctx, since))
		is.Equal(len(changes.Targets), 1)
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
	t.Parallel()
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

// TestNoReaderMissesAChange runs eight writers on two stores, and on each store a reader that
// follows the changes.
func TestNoReaderMissesAChange(t *testing.T) {
	t.Parallel()
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
				if err := stores[writer%2].CreateSource(t.Context(), sqltest.NamedSource(fmt.Sprintf("%d-%d", writer, i))); err != nil {
					t.Error(err)
					return
				}
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
