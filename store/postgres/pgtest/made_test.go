//go:build unix

package pgtest

import (
	"fmt"
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

// What an interrupted run has left goes a day later, and nothing else.
func TestSweep(t *testing.T) {
	server, used := Server(t), Schema(t)
	kept := fmt.Sprint("svc_test_kept_", os.Getpid()) // it has no time
	for _, statement := range []string{
		"CREATE SCHEMA IF NOT EXISTS svc_test_1_1_1", "CREATE SCHEMA " + kept,
	} {
		if err := execute(server, statement); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = execute(server, "DROP SCHEMA "+kept) })
	if err := sweep(server); err != nil {
		t.Fatal(err)
	}
	left := 0
	err := Open(t, server).QueryRow(`SELECT COUNT(*) FILTER (WHERE nspname = 'svc_test_1_1_1')
		+ 10 * COUNT(*) FILTER (WHERE nspname = $1) FROM pg_namespace`, kept).Scan(&left)
	if err != nil || left != 10 {
		t.Errorf("%d, %v", left, err)
	}
	if err := execute(used, "CREATE TABLE t (x INT)"); err != nil {
		t.Error(err)
	}
}
