package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

// A commit that waits for a standby is no success when its caller leaves: the standby lacks it.
func TestCallerLeavesWhileTheStandbyIsAway(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	cluster := pgtest.Start(t)
	store := open(t, cluster.URL, postgres.Options{})
	stores := map[string]*postgres.Store{
		"own connections": store, "pool": over(t, newPool(t, cluster.URL), postgres.Options{}),
	}
	_, err := store.DB().Exec("ALTER SYSTEM SET synchronous_standby_names = 'away'")
	is.NoErr(err)
	_, err = store.DB().Exec("SELECT pg_reload_conf()")
	is.NoErr(err)
	time.Sleep(100 * time.Millisecond)
	for kind, store := range stores {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		err := store.CreateAPIKey(ctx, svc.APIKey{ID: kind})
		is.True(errors.Is(err, context.DeadlineExceeded))
	}
}
