package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
)

var lookCommits = longtest.Times(600, 3000)

// Each commit that another process, or another store of this process, has acknowledged shows in the next look.
func TestNoCommitIsMissed(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"index", "data_version"} {
		t.Run(way, func(t *testing.T) {
			is := is.New(t)
			path := filepath.Join(t.TempDir(), "svc.db")
			store, other := openFast(t, path), openFast(t, path)
			seen, err := store.Look(t.Context())
			is.NoErr(err)
			is.True(seen != 0) // 0 means that the store cannot tell
			if way == "data_version" {
				store.looker.index = nil
			} else if store.looker.index == nil {
				if os.Getenv("CI") == "true" {
					t.Fatal("the index cannot be read")
				}
				t.Skip("NOT TESTED: the index cannot be read here")
			}
			next := anotherProcess(t, path)
			missed := 0
			for i := range lookCommits {
				if i%2 == 0 {
					next()
				} else {
					is.NoErr(other.CreateAPIKey(t.Context(), svc.APIKey{ID: fmt.Sprint("own", i)}))
				}
				now, err := store.Look(t.Context())
				is.NoErr(err)
				if now == seen {
					missed++
				}
				seen = now
				for range 2 {
					now, err = store.Look(t.Context())
					is.NoErr(err)
					is.Equal(now, seen) // nothing was committed
				}
			}
			is.Equal(missed, 0)
		})
	}
}

// When another program cuts the index short, a look asks SQLite, and the process goes on.
func TestLookAtAnIndexThatWasCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "svc.db")
	store := openFast(t, path)
	for range 3 {
		_, _ = store.Look(t.Context()) // SQLite may fail
		is.New(t).NoErr(os.Truncate(path+"-shm", 0))
	}
	is.New(t).True(store.looker.index == nil)
}

func TestLookAfterClose(t *testing.T) {
	is := is.New(t)
	path := filepath.Join(t.TempDir(), "svc.db")
	store := openFast(t, path)
	_, err := store.Look(t.Context())
	is.NoErr(err)
	is.NoErr(store.Close())
	_, err = store.Look(t.Context())
	is.True(err != nil)
	_, err = os.Stat(path + "-wal")
	is.True(errors.Is(err, fs.ErrNotExist)) // no connection is left
}

// A broken connection counts as a commit, and the look after it works.
func TestLookConnectsAgain(t *testing.T) {
	is := is.New(t)
	store := openFast(t, filepath.Join(t.TempDir(), "svc.db"))
	first, err := store.Look(t.Context())
	is.NoErr(err)
	is.NoErr(store.looker.hangUp())
	second, err := store.Look(t.Context())
	is.NoErr(err)
	is.True(first != second)
}

func openFast(t *testing.T, path string) *Store {
	t.Helper()
	store, err := Open(t.Context(), path, Options{Fast: true})
	is.New(t).NoErr(err)
	t.Cleanup(func() { store.Close() })
	return store
}

// anotherProcess returns a function that makes another process commit, and waits until it has.
func anotherProcess(t *testing.T, path string) func() {
	t.Helper()
	process := exec.Command(os.Args[0], "-test.run=^TestCommitter$")
	process.Env = append(os.Environ(), "SVC_TEST_COMMITTER="+path)
	to, err := process.StdinPipe()
	is.New(t).NoErr(err)
	from, err := process.StdoutPipe()
	if err == nil {
		err = process.Start()
	}
	is.New(t).NoErr(err)
	t.Cleanup(func() {
		to.Close()
		process.Wait()
	})
	answers := bufio.NewReader(from)
	return func() {
		t.Helper()
		if _, err := io.WriteString(to, "\n"); err != nil {
			t.Fatal(err)
		}
		if answer, err := answers.ReadString('\n'); err != nil || answer != "done\n" {
			t.Fatal(answer, err)
		}
	}
}

// TestCommitter is the other process: it commits once for each line of its input.
func TestCommitter(t *testing.T) {
	path := os.Getenv("SVC_TEST_COMMITTER")
	if path == "" {
		return // this is not that process
	}
	store, err := Open(context.Background(), path, Options{Fast: true})
	is.New(t).NoErr(err)
	defer store.Close()
	lines := bufio.NewScanner(os.Stdin)
	for i := 0; lines.Scan(); i++ {
		is.New(t).NoErr(store.CreateAPIKey(context.Background(), svc.APIKey{ID: fmt.Sprint("other", i)}))
		fmt.Println("done")
	}
}

func BenchmarkLook(b *testing.B) {
	store, err := Open(b.Context(), filepath.Join(b.TempDir(), "svc.db"), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	look := func(b *testing.B) {
		for b.Loop() {
			if _, err := store.Look(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("index", look)
	store.looker.index = nil
	b.Run("data_version", look)
}
