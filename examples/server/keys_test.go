package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/matryer/is"
)

// versions returns the versions of a keys file, the first one first.
func versions(t *testing.T, path string) (all []string) {
	for _, p := range must(readSecrets(path, slog.New(slog.DiscardHandler))).accepted() {
		all = append(all, p.Version)
	}
	return all
}

// A sign-in at the administration page holds after a restart, at another server of the database, and
// while the secrets are rotated. It ends when its secrets are retired.
func TestSignInsOutliveAServer(t *testing.T) {
	is := parallel(t)
	db, file := newDB(t), writeFile(t, "c.toml", "http.public_url = 'https://svc.example/ext/svc'")
	server := startServer(t, "-db", db, "-config", file)
	answer := must(client.PostForm(server.base+"/ext/svc-admin/sign-in", url.Values{"key": {server.key()}}))
	answer.Body.Close()
	is.True(len(answer.Cookies()) == 1 && answer.Cookies()[0].Secure)
	holds := func(s *running) int {
		r := must(http.NewRequest("GET", s.base+"/ext/svc-admin/keys", nil))
		r.AddCookie(answer.Cookies()[0])
		answer := must(client.Do(r))
		answer.Body.Close()
		return answer.StatusCode
	}
	is.True(holds(server) == 200 && holds(startServer(t, "-db", db, "-config", file)) == 200)
	is.NoErr(server.stop(t))
	old := versions(t, db+".keys")[0]
	does(t, "keys", "rotate", "-db", db)
	is.Equal(holds(startServer(t, "-db", db, "-config", file)), 200)
	does(t, "keys", "retire", "-force", "-db", db, old)
	is.Equal(holds(startServer(t, "-db", db, "-config", file)), 401)
}

// Several servers know new secrets before one of them uses them: nobody is refused in between.
func TestSecretsOfSeveralServersAreRotated(t *testing.T) {
	is := parallel(t)
	db := newDB(t)
	log := slog.New(slog.DiscardHandler)
	is.NoErr(startServer(t, "-db", db).stop(t))
	files := [2]string{db + ".keys", filepath.Join(t.TempDir(), "two.keys")}
	give := func() {
		t.Helper()
		is.NoErr(os.WriteFile(files[1], must(os.ReadFile(files[0])), 0o600))
	}
	give()
	two := startServer(t, "-db", db, "-keys", files[1])
	does(t, "keys", "prepare", "-db", db)
	fails(t, "prepared already", "keys", "prepare", "-db", db)
	is.True(regexp.MustCompile(` current +1 +0\n\S+ +next +0 +0\n`).MatchString(does(t, "keys", "status", "-db", db)))
	prepared := versions(t, files[0])
	one := startServer(t, "-db", db) // with the prepared secrets, which it does not use
	bob := issueKey(t, "-db", db, "-user", "bob")
	for _, s := range []*running{one, two} {
		s.wants(t, 200, bob, "GET", "/ext/svc/me/api-keys", "")
	}
	is.NoErr(two.stop(t))
	give()
	two = startServer(t, "-db", db, "-keys", files[1])

	does(t, "keys", "rotate", "-db", db)
	is.Equal(versions(t, files[0]), []string{prepared[1], prepared[0]})
	is.NoErr(one.stop(t))
	one = startServer(t, "-db", db)
	alice := issueKey(t, "-db", db, "-user", "alice") // under the new secrets
	for _, s := range []*running{one, two} {
		for _, key := range []string{alice, bob} {
			s.wants(t, 200, key, "GET", "/ext/svc/me/api-keys", "")
		}
	}
	is.True(must(readSecrets(files[1], log)).Next != nil)
}

// Of rotations at the same time, each one happens whole or not at all.
func TestRotationsMeet(t *testing.T) {
	is := is.New(t)
	path := filepath.Join(t.TempDir(), "svc.keys")
	must(makeSecrets(path))
	const rotations = 8
	done := make(chan error, rotations)
	for range rotations {
		go func() { done <- run(t.Context(), []string{"keys", "rotate", "-keys", path}, &output{}, &output{}) }()
	}
	good := 0
	for range rotations {
		if err := <-done; err == nil {
			good++
		} else if !strings.Contains(err.Error(), "another command changes it") {
			t.Error(err)
		}
	}
	is.True(good >= 1)
	is.Equal(len(versions(t, path)), 1+good)
	is.Equal(must(os.Stat(path)).Mode(), os.FileMode(0o600))
}

// What the keys file says of the order of secrets is checked as well.
func TestReorderedKeysFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "svc.keys")
	must(makeSecrets(path))
	silent := slog.New(slog.DiscardHandler)
	does(t, "keys", "rotate", "-keys", path)
	s := must(readSecrets(path, silent))
	s.Pairs[0], s.Pairs[1] = s.Pairs[1], s.Pairs[0]
	_, err := parseSecrets(must(json.Marshal(s)))
	is.New(t).True(err != nil)
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A new key that cannot be printed is revoked: of commands on the database or over HTTP, and of the first start.
func TestUnprintedKeys(t *testing.T) {
	is := is.New(t)
	db := newDB(t)
	ctx, stop := context.WithCancel(t.Context())
	var log output
	go func() {
		if soon(func() bool { return strings.Contains(log.String(), "revoked the first key") }) {
			stop()
		}
	}()
	is.NoErr(run(ctx, []string{"-db", db, "-addr", "127.0.0.1:0"}, full{}, &log))
	is.True(!strings.Contains(does(t, "key", "list", "-db", db), "svcu_"))
	server := startServer(t, "-db", db)
	t.Setenv("SVC_KEY", strings.TrimSpace(does(t, "key", "-user", "admin", "-db", db)))
	is.Equal(strings.Count(does(t, "key", "list", "-db", db), "svcu_"), 1)
	for _, command := range []string{
		"key -user alice -db " + db, "key issue -user alice -db " + db, "key issue -user alice -json -db " + db,
		"key issue -user alice -url " + server.base + "/ext/svc",
	} {
		err := run(t.Context(), strings.Fields(command), full{}, &output{})
		if !errors.Is(err, syscall.ENOSPC) || !strings.HasSuffix(err.Error(), "is revoked, because nobody has seen it") {
			t.Errorf("%s: %v", command, err)
		}
	}
	is.Equal(strings.Count(does(t, "key", "list", "-db", db), "svcu_"), 1)
	for _, overlap := range []string{"", "-overlap 1h"} {
		for _, at := range []string{"-db " + db, "-url " + server.base + "/ext/svc"} {
			key := issueKey(t, "-db", db, "-user", "alice")
			err := run(t.Context(), strings.Fields("key rotate "+key[:len("svcu_")+16]+" "+overlap+" "+at), full{}, &output{})
			if !errors.Is(err, syscall.ENOSPC) || !strings.HasSuffix(err.Error(), "the old key "+key[:len("svcu_")+16]+" stays valid") {
				t.Errorf("%s %s: %v", overlap, at, err)
			}
			server.wants(t, 200, key, "GET", "/ext/svc/me", "")
			is.Equal(strings.Count(does(t, "key", "list", "-user", "alice", "-db", db), "never"), 1)
			does(t, "key", "revoke", key[:len("svcu_")+16], "-db", db)
		}
	}
}

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
