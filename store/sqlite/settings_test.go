package sqlite

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/matryer/is"
)

func TestConnectionsAreSetUp(t *testing.T) {
	for fast, synchronous := range map[bool]int{false: 2, true: 1} {
		store, err := Open(t.Context(), filepath.Join(t.TempDir(), "svc.db"), Options{Fast: fast})
		is.New(t).NoErr(err)
		check := func(db *sql.DB, pragma string, want int) {
			t.Helper()
			var got int
			if err := db.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
				t.Errorf("%s is %d, want %d (%v)", pragma, got, want, err)
			}
		}
		check(store.write, "synchronous", synchronous)
		check(store.write, "foreign_keys", 1)
		check(store.write, "busy_timeout", 5000)
		check(store.read, "query_only", 1)
		check(store.read, "busy_timeout", 5000)
		if n := store.write.Stats().MaxOpenConnections; n != 1 {
			t.Errorf("%d connections write", n)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}
