package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"
)

func TestKeysFileIsMadeOnce(t *testing.T) {
	is := is.New(t)
	path := filepath.Join(t.TempDir(), "svc.keys")
	silent := slog.New(slog.DiscardHandler)
	const starters = 8
	var (
		all    [starters]secrets
		made   [starters]bool
		errs   [starters]error
		starts sync.WaitGroup
	)
	for i := range starters {
		starts.Go(func() { all[i], made[i], errs[i] = ensureSecrets(path, silent) })
	}
	starts.Wait()
	makers := 0
	for i := range starters {
		is.NoErr(errs[i])
		is.Equal(all[i], all[0])
		if made[i] {
			makers++
		}
	}
	is.Equal(makers, 1)
	info, err := os.Stat(path)
	is.NoErr(err)
	is.Equal(info.Mode(), os.FileMode(0o600))
	files, err := os.ReadDir(filepath.Dir(path))
	is.NoErr(err)
	is.Equal(len(files), 1) // no draft is left
}

func TestDamagedKeysFileIsAnError(t *testing.T) {
	is := is.New(t)
	dir, silent := t.TempDir(), slog.New(slog.DiscardHandler)
	path := filepath.Join(dir, "svc.keys")
	_, _, err := ensureSecrets(path, silent)
	is.NoErr(err)
	whole, err := os.ReadFile(path)
	is.NoErr(err)
	flipped := strings.Replace(string(whole), `"sealing_key": "`, `"sealing_key": "////`, 1)
	flipped = flipped[:strings.Index(flipped, "////")+4] + flipped[strings.Index(flipped, "////")+8:]
	for _, text := range []string{"", "{}", "null", "hello", string(whole[:len(whole)/2]), flipped, string(whole) + "{}"} {
		is.NoErr(os.WriteFile(path, []byte(text), 0o600))
		_, made, err := ensureSecrets(path, silent)
		if err == nil || !strings.Contains(err.Error(), "is damaged") || made {
			t.Errorf("%q: got %v, %v", text, made, err)
		}
		left, err := os.ReadFile(path)
		is.NoErr(err)
		is.Equal(string(left), text) // and it is not replaced
	}
	_, _, err = ensureSecrets(dir, silent)
	is.True(strings.Contains(err.Error(), "must be a regular file"))
	_, _, err = ensureSecrets(filepath.Join(dir, "no", "such", "directory"), silent)
	is.True(err != nil)
}

func TestKeysFileOfOthersIsWarnedOf(t *testing.T) {
	is := is.New(t)
	path := filepath.Join(t.TempDir(), "svc.keys")
	var log output
	_, _, err := ensureSecrets(path, slog.New(slog.NewTextHandler(&log, nil)))
	is.NoErr(err)
	is.Equal(log.String(), "")
	is.NoErr(os.Chmod(path, 0o644))
	_, _, err = ensureSecrets(path, slog.New(slog.NewTextHandler(&log, nil)))
	is.NoErr(err)
	is.True(strings.Contains(log.String(), "level=WARN") && strings.Contains(log.String(), "chmod 600"))
}

func TestLostKeysFileIsWarnedOf(t *testing.T) {
	is := is.New(t)
	db := newDB(t)
	first := startServer(t, "-db", db)
	key := first.key()
	is.True(!strings.Contains(first.stderr.String(), "keys file")) // the database is new as well
	is.NoErr(first.stop(t))
	is.NoErr(os.Remove(db + ".keys"))

	second := startServer(t, "-db", db)
	is.True(strings.Contains(second.stderr.String(), "cannot find the keys file"))
	status, _ := second.get(t, key, "/ext/svc/me/api-keys")
	is.Equal(status, 401)
	status, _ = second.get(t, issueKey(t, "-db", db, "-user", "admin"), "/ext/svc/me/api-keys")
	is.Equal(status, 200)
}

func TestServerWithDamagedKeysFileDoesNotStart(t *testing.T) {
	is := is.New(t)
	db := newDB(t)
	is.NoErr(os.WriteFile(db+".keys", []byte("{"), 0o600))
	err := run(t.Context(), []string{"-addr", "127.0.0.1:0", "-db", db}, &output{}, &output{})
	is.True(err != nil)
	is.Equal(exitCode(err, &output{}), 1)
	is.True(strings.Contains(err.Error(), "svc.db.keys is damaged"))
}
