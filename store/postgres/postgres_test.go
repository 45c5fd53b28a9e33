package postgres_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/storetest"
)

func TestMain(m *testing.M) {
	longtest.AtOnce(pgtest.AtOnce)
	longtest.Short()
	m.Run()
	if err := unused.drop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The suites do not wait for the disk, which is not what they are about.

// Nothing listens here: the suite checks the wake-ups itself. The short form leaves out the rule that writes
// 2,000 files: SQLite has it, with the same statements.
func TestStore(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	db, store := pgtest.Open(t, url), open(t, url, postgres.Options{SynchronousCommit: "off", NoNotify: true})
	storetest.Run(t, func(t *testing.T) svc.Store {
		if strings.Contains(t.Name(), "limits.SourceFiles") {
			longtest.Test(t, "how many files a source keeps")
		}
		empty(t, db, store)
		return store
	})
}

// await returns when something is so. Otherwise it fails the test.
func await(t *testing.T, otherwise string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Error(otherwise)
			return
		}
	}
}

// limited is the Timeout of tests that are about it. In the others a call waits for an answer of the server, which a busy
// machine may delay by more than the 4 s of a default Store. After one late answer a limit also fails the calls that follow.
const limited = 30 * time.Second

func patiently(options postgres.Options) postgres.Options {
	if options.Timeout == 0 {
		options.Timeout = -1
	}
	return options
}

// fewer gives a pool few connections, unless options have a number.
func fewer(options postgres.Options) postgres.Options {
	if options.MaxOpen == 0 {
		options.MaxOpen = pgtest.Connections
	}
	return options
}

// open opens a store that is closed when the test ends. Its calls wait as long as it takes, unless options have a Timeout.
func open(t *testing.T, url string, options postgres.Options) *postgres.Store {
	t.Helper()
	store, err := postgres.Open(t.Context(), url, fewer(patiently(options)))
	is.New(t).NoErr(err)
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}
