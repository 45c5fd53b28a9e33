//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

// A database that can only be read is opened like any other, with the tables of this version. Writes are refused.
func TestOpenToRead(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	pool := func(url string) (*postgres.Store, error) {
		return postgres.New(t.Context(), newPool(t, url), postgres.Options{})
	}
	direct := func(url string) (*postgres.Store, error) {
		return postgres.Open(t.Context(), url, postgres.Options{})
	}
	tenants := must(postgres.OpenTenants(t.Context(), url, postgres.Options{}))
	is.New(t).NoErr(tenants.Close())
	tenants = must(postgres.OpenTenants(t.Context(), pgtest.With(t, url, "default_transaction_read_only", "on"), postgres.Options{}))
	is.New(t).NoErr(tenants.Close())
	for name, opens := range map[string]func(url string) (*postgres.Store, error){"Open": direct, "New": pool} {
		is := is.New(t)
		store, err := opens(pgtest.With(t, url, "default_transaction_read_only", "on"))
		if err != nil {
			t.Fatal(name, err)
		}
		must(store.Changes(t.Context(), 0))
		is.True(errors.Is(sqltest.AddUsers(t.Context(), store, "alice"), svc.ErrUnavailable))
		is.NoErr(store.Close())
	}
}

// A process on a standby follows what the primary writes. When the standby is promoted, the process writes and listens.
func TestStandby(t *testing.T) {
	longtest.Test(t, "a process on a standby")
	is := parallel(t)
	ctx := t.Context()
	primary, standby := pgtest.Start(t), pgtest.Start(t)
	writer := open(t, primary.URL, postgres.Options{})
	standby.Follow(primary)
	reader := open(t, standby.URL, postgres.Options{})
	service := sqltest.Serve(t, svc.Config{Store: reader, Events: svc.EventConfig{Keep: true}})
	known := func(id string) func() bool {
		return func() bool {
			return failure(service.Users.Read(ctx, svc.Host, id)) == nil
		}
	}
	is.NoErr(sqltest.AddUsers(ctx, writer, "alice"))
	await(t, "it never sees alice", known("alice"))
	err := service.Access.Apply(context.Background(), svc.Host, svc.Bundle{Users: []svc.User{{ID: "bob"}}})
	is.True(errors.Is(err, svc.ErrUnavailable))
	is.True(!reader.Hears())
	standby.Promote()
	await(t, "it never writes", func() bool {
		return service.Access.Apply(ctx, svc.Host, svc.Bundle{Users: []svc.User{{ID: "bob"}}}) == nil
	})
	await(t, "it never listens", reader.Hears)
}
