package main

import (
	"archive/zip"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/matryer/is"
)

// diagnosed returns the files of the archive that a command line writes.
func diagnosed(t *testing.T, args ...string) (parts map[string]string, whole []byte) {
	t.Helper()
	var out bytes.Buffer
	is.New(t).NoErr(run(t.Context(), append(args, "diagnose", "-"), &out, io.Discard))
	archive := must(zip.NewReader(bytes.NewReader(out.Bytes()), int64(out.Len())))
	parts = map[string]string{}
	for _, file := range archive.File {
		parts[file.Name] = string(must(io.ReadAll(must(file.Open()))))
	}
	return parts, out.Bytes()
}

// The archive has figures, and no secret, key, pepper or token in any of its bytes.
func TestDiagnosis(t *testing.T) {
	inEach(t, func(t *testing.T, flags []string) {
		is, db, keys := is.New(t), flags[1], flags[3]
		s := startServer(t, flags...)
		key := s.key()
		s.wants(t, 201, key, "POST", "/ext/svc/admin/template-sources",
			`{"url":"`+s.base+`/catalogue","alias":"a","auth_token":"token-of-a-source"}`)
		if isPostgres(db) {
			address := must(url.Parse(db))
			address.User = url.UserPassword(address.User.Username(), "password-of-the-database")
			db = address.String()
		}
		t.Setenv("SVC_KEY", key)
		t.Setenv("PGPASSWORD", "password-of-the-environment")
		t.Setenv("SVC_SOURCES_USER_AGENT", "agent password-of-the-environment "+key)
		parts, whole := diagnosed(t, "-db", db, "-keys", keys, "-addr", strings.TrimPrefix(s.base, "http://"))
		var figures struct {
			Rows      map[string]int64
			Migration int
			Service   string
		}
		is.NoErr(json.Unmarshal([]byte(parts["database.json"]), &figures))
		is.Equal([]int64{figures.Rows["svc_users"], figures.Rows["svc_api_keys"]}, []int64{3, 1})
		is.True(figures.Migration > 1 && figures.Service == "ok")
		is.True(strings.Contains(parts["server.json"], `"health": "ok"`))
		is.True(strings.Contains(parts["config.toml"], "[postgres]"))
		is.True(strings.Contains(parts["program.json"], `"version"`))
		is.True(strings.Contains(parts["goroutines.txt"], "goroutine 1"))

		secrets := must(readSecrets(keys, nil))
		hidden := []string{
			key, key[len(key)-40:], "token-of-a-source", "password-of-the-database", "password-of-the-environment",
		}
		for _, p := range secrets.Pairs {
			for _, secret := range [][]byte{p.Pepper, p.SealingKey} {
				hidden = append(hidden, string(secret), hex.EncodeToString(secret), base64.StdEncoding.EncodeToString(secret))
			}
		}
		for name, text := range parts {
			for _, secret := range hidden {
				if strings.Contains(text, secret) || bytes.Contains(whole, []byte(secret)) {
					t.Errorf("%s has a secret", name)
				}
			}
		}
		is.NoErr(s.stop(t))
	})
}

// A diagnosis also helps where nothing works. It is for its owner alone, and replaces no file.
func TestDiagnosisOfNothing(t *testing.T) {
	is := is.New(t)
	t.Chdir(t.TempDir())
	does(t, "diagnose", "d.zip")
	is.Equal(must(os.Stat("d.zip")).Mode(), os.FileMode(0o600))
	is.True(run(t.Context(), []string{"diagnose", "d.zip"}, io.Discard, io.Discard) != nil)
	wantFiles(t, ".", "d.zip")
	parts, _ := diagnosed(t, "-db", "postgres://nobody:secret-word@127.0.0.1:1/none")
	is.True(strings.Contains(parts["database.json"], "127.0.0.1"))
	is.True(!strings.Contains(parts["database.json"], "secret-word"))
}

// A file that cannot be written whole does not stay: the next try makes it.
func TestNoPartOfAFileStays(t *testing.T) {
	is := is.New(t)
	path := filepath.Join(t.TempDir(), "d.zip")
	for _, disk := range []error{syscall.ENOSPC, nil} {
		err := writeWhole(path, func(file *os.File) error {
			_, err := file.WriteString("a part")
			return errors.Join(err, disk)
		})
		is.Equal(errors.Is(err, syscall.ENOSPC), disk != nil)
		_, missing := os.Stat(path)
		is.Equal(missing == nil, disk == nil)
	}
}
