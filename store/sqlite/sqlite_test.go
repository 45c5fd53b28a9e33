package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/storetest"
)

func TestMain(m *testing.M) {
	longtest.Short()
	m.Run()
}

func TestStore(t *testing.T) {
	t.Parallel()
	made := migrated(t)
	storetest.Run(t, func(t *testing.T) svc.Store { return open(t, copyOf(t, made)) })
}

// copyOf copies a database that nobody has open: faster than to make its tables again.
func copyOf(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "svc.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
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
