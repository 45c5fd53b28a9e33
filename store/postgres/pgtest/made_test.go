//go:build unix

package pgtest

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Processes that keep a directory at the same time leave one, and it is whole.
func TestKeptAtOnce(t *testing.T) {
	data, made := t.TempDir(), filepath.Join(t.TempDir(), "cache", "one")
	for _, name := range []string{"PG_VERSION", "base/1/112"} {
		path := filepath.Join(data, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if err := keep(data, made); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	left, err := os.ReadDir(filepath.Dir(made))
	if err != nil || len(left) != 1 {
		t.Errorf("the cache has %v, %v", left, err)
	}
	if text, err := os.ReadFile(filepath.Join(made, "base/1/112")); string(text) != "base/1/112" {
		t.Errorf("%q, %v", text, err)
	}
}
