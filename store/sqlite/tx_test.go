package sqlite_test

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

func newHost(t *testing.T, path string) sqltest.Host {
	t.Helper()
	store := open(t, path)
	return sqltest.NewHost(t, store, store.DB(), func(tx *sql.Tx) svc.FullStore {
		return sqlstore.Tx(tx, sqlite.Dialect())
	})
}

func TestHost(t *testing.T) {
	t.Parallel()
	for name, rule := range sqltest.HostRules {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule(t, newHost(t, migrated(t)))
		})
	}
}

// A call that fails releases its savepoint, so that a long transaction does not collect them.
func TestFailedCallReleasesSavepoint(t *testing.T) {
	is := is.New(t)
	var seen []string
	db := tappedDB(t, migrated(t), &tap{run: func(_ driver.Conn, query string) error {
		if strings.Contains(query, "SAVEPOINT") {
			seen = append(seen, query)
		}
		return nil
	}})
	tx := must(db.BeginTx(t.Context(), nil))
	err := sqlstore.Tx(tx, sqlite.Dialect()).ChangeTemplate(t.Context(), svc.TemplateKey{ID: "none"}, nil)
	is.True(errors.Is(err, svc.ErrNotFound))
	is.NoErr(tx.Rollback())
	is.Equal(seen, []string{"SAVEPOINT svc", "ROLLBACK TO SAVEPOINT svc", "RELEASE SAVEPOINT svc"})
}

func TestEventsOutliveTheProcess(t *testing.T) {
	is := is.New(t)
	path := migrated(t)
	before := newHost(t, path)
	is.NoErr(before.Service.Close())
	tx, issued := before.SignUp("alice")
	is.NoErr(tx.Commit())

	after := newHost(t, path)
	is.Equal(after.AwaitEvent().Target, issued.Target())
	is.Equal(len(before.Events), 0)
}
