package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
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
	is.Equal(must(os.Stat(path)).Mode(), os.FileMode(0o600))
	is.Equal(len(must(os.ReadDir(filepath.Dir(path)))), 1) // no draft is left
}

func TestDamagedKeysFileIsAnError(t *testing.T) {
	is := is.New(t)
	dir, silent := t.TempDir(), slog.New(slog.DiscardHandler)
	path := filepath.Join(dir, "svc.keys")
	_, _, err := ensureSecrets(path, silent)
	is.NoErr(err)
	whole := must(os.ReadFile(path))
	flipped := strings.Replace(string(whole), `"sealing_key": "`, `"sealing_key": "////`, 1)
	flipped = flipped[:strings.Index(flipped, "////")+4] + flipped[strings.Index(flipped, "////")+8:]
	for _, text := range []string{"", "{}", "null", "hello", string(whole[:len(whole)/2]), flipped, string(whole) + "{}"} {
		is.NoErr(os.WriteFile(path, []byte(text), 0o600))
		_, made, err := ensureSecrets(path, silent)
		if err == nil || !strings.Contains(err.Error(), "is damaged") || made {
			t.Errorf("%q: got %v, %v", text, made, err)
		}
		is.Equal(string(must(os.ReadFile(path))), text) // and it is not replaced
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

// A changed prefix of keys is warned of at the start, with the number of the keys that it ends, until
// it is among the earlier ones.
func TestChangedPrefixIsWarnedOf(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, flags []string) {
		is := is.New(t)
		first := startServer(t, flags...)
		key := first.key()
		is.NoErr(first.stop(t))
		for earlier, want := range map[string]int{"[]": 401, "['older_', 'svcu_']": 200} {
			config := writeFile(t, "c.toml", "[api_keys]\nuser_prefix = 'acme_'\nearlier_user_prefixes = "+earlier)
			s := startServer(t, append(flags, "-config", config)...)
			status, _ := s.get(t, key, "/ext/svc/me/api-keys")
			is.Equal(status, want)
			is.Equal(strings.Contains(s.stderr.String(), "prefix=svcu_ keys=1"), want == 401)
			is.NoErr(s.stop(t))
		}
	})
}

// issueKey runs the command key, which must print a key and nothing else.
func issueKey(t *testing.T, args ...string) string {
	t.Helper()
	is := is.New(t)
	var stdout, stderr output
	is.NoErr(run(t.Context(), append([]string{"key"}, args...), &stdout, &stderr))
	is.True(regexp.MustCompile(`^svc[us]_[0-9A-Za-z]{54}\n$`).MatchString(stdout.String()))
	is.Equal(stderr.String(), "")
	return strings.TrimSuffix(stdout.String(), "\n")
}
