package postgres_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
)

// Stats of a Service say whether its store listens, and count the outbox.
func TestStats(t *testing.T) {
	is := is.New(t)
	store := open(t, migrated(t), postgres.Options{})
	service := newHost(t, store).Service
	for end := time.Now().Add(time.Minute); !service.Stats().Listening; {
		if time.Now().After(end) {
			t.Fatal("the store does not listen")
		}
		time.Sleep(time.Millisecond)
	}
	service.Close()
	is.NoErr(store.AddEvents(t.Context(), []svc.Event{{ID: uuid.New()}, {ID: uuid.New()}}))
	n := must(store.CountEvents(t.Context(), 1))
	is.Equal(n, 1) // at most
	n = must(store.CountEvents(t.Context(), 9))
	is.Equal(n, 2)
	deaf := open(t, migrated(t), postgres.Options{NoNotify: true})
	is.True(!newHost(t, deaf).Service.Stats().Listening)
}

// Tenants share an outbox, and each counts all of it.
func TestStatsOfTenants(t *testing.T) {
	is := is.New(t)
	in := openTenants(t, listURL(t), postgres.Options{})
	a, b := tenantStore(t, in, made(t, in, "a")), tenantStore(t, in, made(t, in, "b"))
	is.NoErr(a.AddEvents(t.Context(), []svc.Event{{ID: uuid.New(), Tenant: "a"}}))
	n := must(b.CountEvents(t.Context(), 9))
	is.Equal(n, 1)
	for end := time.Now().Add(time.Minute); !b.Hears(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the tenants do not listen")
		}
	}
}
