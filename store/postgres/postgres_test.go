package postgres_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/storetest"
)

// TestMain runs more tests at once than there are processors, because most wait for the server. A
// test rarely has more than five connections, of the hundred that a server has by default.
func TestMain(m *testing.M) {
	longtest.AtOnce(3 * runtime.GOMAXPROCS(0))
	longtest.Short()
	m.Run()
	if err := unused.drop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The suites do not wait for the disk, which is not what they are about.

// Nothing listens here: the suite checks the wake-ups itself.
func TestStore(t *testing.T) {
	t.Parallel()
	url, options := migrated(t), postgres.Options{SynchronousCommit: "off", NoNotify: true}
	db, store := pgtest.Open(t, url), unlimited(open(t, url, options), options)
	storetest.Run(t, func(t *testing.T) svc.Store {
		empty(t, db, store)
		return store
	})
}

// unlimited returns a store for the rules of storetest, which are not about time. Its calls wait for
// the server without a limit: after one late answer the limit also fails the calls of later rules.
func unlimited(store *postgres.Store, options postgres.Options) *postgres.Store {
	dialect := postgres.Dialect()
	dialect.Silence = 0
	if options.NoNotify {
		dialect.Notify = ""
	}
	return postgres.WithDialect(store, dialect)
}

// open opens a store that is closed when the test ends.
func open(t *testing.T, url string, options postgres.Options) *postgres.Store {
	t.Helper()
	store, err := postgres.Open(t.Context(), url, options)
	is.New(t).NoErr(err)
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}
