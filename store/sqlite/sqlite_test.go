package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	tables, err := os.ReadFile(migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	storetest.Run(t, func(t *testing.T) svc.Store {
		path := filepath.Join(t.TempDir(), "svc.db")
		if err := os.WriteFile(path, tables, 0o600); err != nil { // faster than to make them
			t.Fatal(err)
		}
		return open(t, path)
	})
}

// open opens a store that is closed when the test ends.
func open(t *testing.T, path string) *sqlite.Store {
	t.Helper()
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}
