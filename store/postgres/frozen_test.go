//go:build unix

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
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

// A server that does not answer, wholly or on one connection.
func TestFrozenServer(t *testing.T) {
	t.Parallel()
	cluster := pgtest.Start(t)
	for _, test := range []struct {
		name string
		run  func(t *testing.T, cluster *pgtest.Cluster)
	}{
		{"calls", frozenCalls}, {"commit", frozenCommit},
		{"commit of a caller who leaves", frozenCommitOfACallerWhoLeaves}, {"one connection", frozenConnection},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, cluster) })
	}
}

// A frozen server that keeps its connections blocks no call for longer than promised. That holds
// for calls on connections that were used just now, on idle ones, of which the driver asks whether
// they are good, and for calls that wait for a connection or open one. A later call fails at once.
func frozenCalls(t *testing.T, cluster *pgtest.Cluster) {
	stores := map[string]*postgres.Store{}
	for _, rest := range []time.Duration{1500 * time.Millisecond, 0} {
		own := open(t, cluster.URL, postgres.Options{MaxOpen: 3, Timeout: limited})
		pooled := over(t, newPool(t, cluster.URL, atMost(3)), postgres.Options{Timeout: limited})
		stores[fmt.Sprint("own connections, idle for ", rest)] = own
		stores[fmt.Sprint("pool, idle for ", rest)] = pooled
		answered(t, own)
		answered(t, pooled)
		time.Sleep(rest)
	}
	each := func(do func(name string, store *postgres.Store)) {
		var group sync.WaitGroup
		for name, store := range stores {
			group.Go(func() { do(name, store) })
		}
		group.Wait()
	}
	cluster.Freeze()
	defer cluster.Thaw()
	each(func(name string, store *postgres.Store) {
		t.Logf("%s: unanswered after %s", name, unanswered(t, store, 2, false).Round(time.Millisecond))
	})
	each(func(_ string, store *postgres.Store) { unanswered(t, store, 1, true) })
	cluster.Thaw()
	each(func(_ string, store *postgres.Store) { answered(t, store) })
}

// When the server does not answer a commit, the outcome is unknown. The commit fails within the
// same time and is not tried again.
func frozenCommit(t *testing.T, cluster *pgtest.Cluster) {
	is := is.New(t)
	defer cluster.Thaw()
	store := open(t, cluster.URL, postgres.Options{Timeout: limited})
	answered(t, store)
	runs := 0
	var began time.Time
	err := store.Atomically(context.Background(), func(ctx context.Context, tx svc.Store) error {
		runs++
		err := sqltest.AddUsers(ctx, tx, "carol")
		cluster.Freeze()
		began = time.Now()
		return err
	})
	is.True(errors.Is(err, svc.ErrUnavailable) && !errors.Is(err, context.Canceled))
	is.True(time.Since(began) < patient)
	is.Equal(runs, 1)
	cluster.Thaw()
	answered(t, store)
}

// A caller that leaves during a commit does not prolong it.
func frozenCommitOfACallerWhoLeaves(t *testing.T, cluster *pgtest.Cluster) {
	longtest.Test(t, "a caller that leaves during a commit")
	is := is.New(t)
	defer cluster.Thaw()
	store := open(t, cluster.URL, postgres.Options{Timeout: limited})
	ctx, leave := context.WithCancel(t.Context())
	var began time.Time
	err := store.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
		err := sqltest.AddUsers(ctx, tx, "carol")
		cluster.Freeze()
		began = time.Now()
		time.AfterFunc(3*time.Second, leave)
		return err
	})
	is.True(err != nil)
	is.True(time.Since(began) < patient)
	cluster.Thaw()
	answered(t, store)
}

// A call that waits too long for a lock fails alone: the server still answers others.
func TestLockedIsNotFrozen(t *testing.T) {
	t.Parallel()
	bothWaysWithin(t, limited, migrated, pgtest.Connections, lockedIsNotFrozen)
}

func lockedIsNotFrozen(t *testing.T, store *postgres.Store) {
	is := parallel(t)
	other := must(store.DB().Begin())
	must(other.Exec("LOCK TABLE svc_access_lock IN EXCLUSIVE MODE"))
	ended := make(chan error)
	go func() { ended <- sqltest.AddUsers(t.Context(), store, "alice") }()
	for n := 0; ; n++ {
		select {
		case err := <-ended:
			is.True(errors.Is(err, svc.ErrUnavailable))
			is.NoErr(store.CreateAPIKey(t.Context(), svc.APIKey{ID: "at once"}))
			is.NoErr(other.Rollback())
			answered(t, store)
			return
		case <-time.After(10 * time.Millisecond):
			is.NoErr(store.CreateAPIKey(t.Context(), svc.APIKey{ID: fmt.Sprint(n)}))
		}
	}
}

// A bundle may wait longer than a request.
func TestBundleWaitsForALock(t *testing.T) {
	is := parallel(t)
	url := migrated(t)
	store := open(t, url, postgres.Options{Timeout: limited})
	other := must(pgtest.Open(t, url).Begin())
	must(other.Exec("LOCK TABLE svc_access_lock IN EXCLUSIVE MODE"))
	var bundle svc.Bundle
	for i := range 200 {
		bundle.Users = append(bundle.Users, svc.User{ID: fmt.Sprint(i)})
	}
	service := must(svc.New(svc.Config{Store: store, Events: svc.EventConfig{Keep: true}}))
	time.AfterFunc(promised+time.Second, func() { _ = other.Rollback() })
	is.NoErr(service.Access.Apply(t.Context(), svc.Host, bundle))
	is.NoErr(service.Close())
}
