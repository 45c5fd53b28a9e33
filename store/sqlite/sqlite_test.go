package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) svc.Store { return open(t, filepath.Join(t.TempDir(), "svc.db")) })
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
