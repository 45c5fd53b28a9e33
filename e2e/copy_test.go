package e2e_test

import (
	"errors"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/e2e/barrage"
	"github.com/extsvc/svc/e2e/moving"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// A server's database is copied while random requests change it, to PostgreSQL and back. The copies
// are one state: equal, and with a chain of records that holds.
func TestCopyUnderRandomRequests(t *testing.T) {
	s, ctx := newSite(t, marketplace.Config{}), t.Context()
	key, alice := s.key("admin"), s.key("alice")
	var requests sync.WaitGroup
	requests.Go(func() { barrage.Run(t, http.DefaultClient, s.url, key, alice, "") })
	source := must(sqlite.Open(ctx, s.path, sqlite.Options{}))
	server := must(postgres.Open(ctx, pgtest.Schema(t), postgres.Options{}))
	back := must(sqlite.Open(ctx, filepath.Join(t.TempDir(), "back.db"), sqlite.Options{}))
	defer func() { fails(t, errors.Join(source.Close(), server.Close(), back.Close()), "") }()
	copied := errors.Join(sqlstore.Copy(ctx, source, server), sqlstore.Copy(ctx, server, back))
	requests.Wait()
	fails(t, copied, "")

	tables := moving.Tables(t, back.DB())
	if difference := moving.Difference(moving.Rows(t, server.DB(), tables), moving.Rows(t, back.DB(), tables)); difference != "" {
		t.Error(difference)
	}
	for name, store := range map[string]svc.Store{"PostgreSQL": server, "back": back} {
		service := must(svc.New(svc.Config{
			Store:  store,
			Keys:   svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("sixteen bytes or more")}}},
			Events: svc.EventConfig{Keep: true},
		}))
		check := must(service.Audit.Verify(ctx, svc.Host))
		if check.Fault != nil || check.Newest.Number == 0 {
			t.Errorf("%s: %+v", name, check)
		}
		fails(t, service.Close(), "")
	}
}
