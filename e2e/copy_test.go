package e2e_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/e2e/dbcopy"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// A server's database is copied while requests change it, to PostgreSQL and back. The copies are one
// state: equal, and with a chain of records that holds.
func TestCopyUnderRequests(t *testing.T) {
	s, ctx := newSite(t, marketplace.Config{}), t.Context()
	admin := s.admin()
	enough, copied := make(chan struct{}), make(chan struct{})
	var requests sync.WaitGroup
	requests.Go(func() {
		for n := 0; ; n++ {
			if err := admin.create(fmt.Sprint("t", n), "n"); err != nil {
				t.Error(err)
			}
			if n < 100 { // a user has at most 1,000
				s.key("alice")
			}
			if n == 20 {
				close(enough)
			}
			select {
			case <-copied:
				if n >= 20 {
					return
				}
			default:
			}
		}
	})
	source := must(sqlite.Open(ctx, s.path, sqlite.Options{}))
	server := must(postgres.Open(ctx, pgtest.Schema(t), postgres.Options{}))
	back := must(sqlite.Open(ctx, filepath.Join(t.TempDir(), "back.db"), sqlite.Options{}))
	defer func() { fails(t, errors.Join(source.Close(), server.Close(), back.Close()), "") }()
	<-enough
	err := errors.Join(sqlstore.Copy(ctx, source, server), sqlstore.Copy(ctx, server, back))
	close(copied)
	requests.Wait()
	fails(t, err, "")

	tables := dbcopy.Tables(t, back.DB())
	if difference := dbcopy.Difference(dbcopy.Rows(t, server.DB(), tables), dbcopy.Rows(t, back.DB(), tables)); difference != "" {
		t.Error(difference)
	}
	for name, store := range map[string]svc.Store{"PostgreSQL": server, "back": back} {
		service := must(svc.New(svc.Config{
			Store:  store,
			Keys:   svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("sixteen bytes or more")}}},
			Events: svc.EventConfig{Keep: true},
		}))
		check := must(service.Audit.Verify(ctx, svc.Host))
		if check.Fault != nil || check.Newest.Number < 40 {
			t.Errorf("%s: %+v", name, check)
		}
		fails(t, service.Close(), "")
	}
}
