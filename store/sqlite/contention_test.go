package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
)

// How the tests of contention write.
const contenders = 4

var eachWrites = longtest.Times(20, 100)

// contend writes with several goroutines, and reads with twice as many until all are done.
func contend(ctx context.Context, name string, stores ...svc.Store) error {
	ctx, stop := context.WithCancelCause(ctx)
	var writers, readers sync.WaitGroup
	for i := range contenders {
		writers.Go(func() {
			for n := range eachWrites {
				id := fmt.Sprintf("%s-%d-%d", name, i, n)
				if err := stores[i%len(stores)].CreateAPIKey(ctx, svc.APIKey{ID: id, Holder: svc.Identity{Kind: svc.KindUser}}); err != nil {
					stop(fmt.Errorf("write %s: %w", id, err))
					return
				}
			}
		})
	}
	reading, done := context.WithCancel(ctx)
	for i := range 2 * contenders {
		readers.Go(func() {
			for n := 0; reading.Err() == nil; n++ {
				time.Sleep(100 * time.Microsecond)
				id := fmt.Sprintf("%s-%d-%d", name, i%contenders, n%eachWrites)
				_, err := sqltest.ReadKey(ctx, stores[i%len(stores)], id)
				if err != nil && !errors.Is(err, svc.ErrNotFound) {
					stop(fmt.Errorf("read %s: %w", id, err))
				}
			}
		})
	}
	writers.Wait()
	done()
	readers.Wait()
	err := context.Cause(ctx)
	stop(nil)
	return err
}

func TestContention(t *testing.T) {
	is := parallel(t)
	path := migrated(t)
	one, two := open(t, path), open(t, path)
	childEnded := make(chan error, 1)
	go func() { childEnded <- runChild("TestContendingChild", "SVC_TEST_CONTENDED="+path) }()
	is.NoErr(contend(t.Context(), "parent", one, two))
	is.NoErr(<-childEnded)
	now := must(one.Access(t.Context(), svc.AccessQuery{KeysOf: svc.Identity{Kind: svc.KindUser}, Most: math.MaxInt32}))
	is.Equal(now.Keys, 2*contenders*eachWrites)
	checkIntegrity(t, path)
}

// TestContendingChild is the other process of TestContention.
func TestContendingChild(t *testing.T) {
	is.New(t).NoErr(contend(t.Context(), "child", open(t, ofChild(t, "SVC_TEST_CONTENDED"))))
}

// TestNobodyIsStarved writes once in a while, while another Store writes without pause.
func TestNobodyIsStarved(t *testing.T) {
	is := parallel(t)
	path := migrated(t)
	busy, rare := open(t, path), open(t, path)
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for i := range 16 {
		writers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := busy.CreateSource(ctx, sqltest.NamedSource(i*1_000_000+n)); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	for sqltest.Generation(t, rare) < 100 {
		time.Sleep(time.Millisecond)
	}
	var longest time.Duration
	for n := range longtest.Times(4, 20) {
		begun := time.Now()
		is.NoErr(rare.CreateAPIKey(t.Context(), svc.APIKey{ID: fmt.Sprint("rare-", n)}))
		longest = max(longest, time.Since(begun))
	}
	t.Logf("waited for %v at most, during %d writes", longest, sqltest.Generation(t, rare))
	stop()
	writers.Wait()
}

func TestWaitForTheLockIsBounded(t *testing.T) {
	is := parallel(t)
	path := migrated(t)
	store := open(t, path)
	tx := must(raw(t, path, "_txlock=immediate").Begin())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	is.True(errors.Is(store.CreateAPIKey(ctx, key(1)), context.DeadlineExceeded)) // while the lock is held

	written := make(chan error, 1)
	go func() { written <- store.CreateAPIKey(t.Context(), key(1)) }()
	select {
	case err := <-written:
		t.Fatalf("it did not wait for the lock: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	is.NoErr(tx.Rollback())
	is.NoErr(<-written) // a caller with time gets its turn
}

func TestStoresOnOneFileAwaitEachOther(t *testing.T) {
	is := parallel(t)
	path := migrated(t)
	one, two := open(t, path), open(t, path)
	is.NoErr(one.CreateSource(t.Context(), sqltest.NamedSource(1)))
	atOnce(t, func() { is.NoErr(two.AwaitChange(t.Context(), 0)) }) // it asks the file first
	atOnce(t, func() {
		woken := make(chan error, 1)
		go func() { woken <- two.AwaitChange(t.Context(), 1) }()
		wake := time.NewTicker(10 * time.Millisecond)
		defer wake.Stop()
		for {
			select {
			case <-wake.C:
				two.Wake()
				continue
			case err := <-woken:
				is.NoErr(err)
			}
			break
		}
	})
	is.NoErr(one.Close())
	is.NoErr(two.Close())
	is.NoErr(two.AwaitChange(t.Context(), 1)) // a wake-up, which proves nothing: Changes says what is wrong
	is.True(failure(two.Changes(t.Context(), 1)) != nil)
}

// atOnce fails when do always waits for a poll, which takes about a second. A busy machine delays some calls.
func atOnce(t *testing.T, do func()) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		begun := time.Now()
		if do(); time.Since(begun) < 500*time.Millisecond {
			return
		}
	}
	t.Error("it waits for the poll")
}
