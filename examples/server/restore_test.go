package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/examples/internal/programtest"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/postgres/pgtest/pgschema"
	"github.com/extsvc/svc/store/sqlite"
)

func (u usedDB) backUp(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "backup")
	does(t, "backup", "-db", u.db, "-keys", u.keys, file)
	return file
}

// A copy has everything, and so has what is restored from a backup, into a database of either kind.
func TestCopyAndRestore(t *testing.T) {
	t.Parallel()
	for from, source := range places {
		for to, target := range places {
			t.Run(from+" to "+to, func(t *testing.T) {
				is := parallel(t)
				u := use(t, source(t))
				file := u.backUp(t)
				db, keys := target(t), filepath.Join(t.TempDir(), "svc.keys")
				does(t, "restore", "-db", db, "-keys", keys, file)
				for _, made := range []string{file, db, keys} {
					if !isPostgres(made) {
						is.Equal(must(os.Stat(made)).Mode(), os.FileMode(0o600))
						wantFiles(t, filepath.Dir(made), filepath.Base(made))
					}
				}
				u.check(t, db, keys)
				copied := target(t)
				does(t, "copy", "-from", u.db, "-to", copied)
				u.check(t, copied, u.keys) // with the same keys file
				u.check(t, u.db, u.keys)
				if !isPostgres(copied) {
					is.Equal(must(os.Stat(copied)).Mode(), os.FileMode(0o600))
				}
			})
		}
	}
}

// wantFiles checks which files are in a directory.
func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries := must(os.ReadDir(dir))
	var have []string
	for _, entry := range entries {
		have = append(have, entry.Name())
	}
	expect.Holds(t, slices.Equal(have, want), dir, " has ", have, ", want ", want)
}

func TestBackupRefuses(t *testing.T) {
	u := use(t, newDB(t))
	folder, none := t.TempDir(), newDB(t)
	link := filepath.Join(folder, "link")
	is.New(t).NoErr(os.Symlink(u.keys, link))
	damaged := writeFile(t, "svc.keys", "{}")
	for _, c := range []struct{ db, keys, file, want string }{
		{none, u.keys, filepath.Join(folder, "b"), "no such file"},
		{u.db, none, filepath.Join(folder, "b"), "keys file " + none + " does not exist"},
		{u.db, damaged, filepath.Join(folder, "b"), "is damaged"},
		{u.db, u.keys, folder, "not a regular file"},
		{u.db, u.keys, u.db, "belongs to the database"},
		{u.db, u.keys, u.db + "-wal", "belongs to the database"},
		{u.db, u.keys, u.keys, "is what to back up"},
		{u.db, u.keys, link, "is what to back up"},
		{u.db, u.keys, writeFile(t, "letter", "Dear Sir"), "is no backup"},
		{u.db, u.keys, filepath.Join(folder, "no", "b"), "no such file"},
		{"postgres://u:Hunter2Secret@127.0.0.1:1/svc?sslmode=disable", u.keys, filepath.Join(folder, "b"), "refused"},
	} {
		fails(t, c.want, "backup", "-db", c.db, "-keys", c.keys, c.file)
	}
	wantFiles(t, folder, "link")
	u.check(t, u.db, u.keys)
}

// A list of tenants has none of their rows: its backup would be one of nothing.
func TestListOfTenantsIsNoDatabase(t *testing.T) {
	type list interface {
		svc.TenantStore
		Close() error
	}
	keys := use(t, newDB(t)).keys
	for kind, open := range map[string]func(t *testing.T) (db string, store list){
		"SQLite": func(t *testing.T) (string, list) {
			folder := t.TempDir()
			return filepath.Join(folder, "tenants.db"), must(sqlite.OpenTenants(t.Context(), folder, sqlite.Options{}))
		},
		"PostgreSQL": func(t *testing.T) (string, list) {
			url := pgtest.Database(t)
			return url, must(postgres.OpenTenants(t.Context(), url, postgres.Options{Timeout: -1}))
		},
	} {
		t.Run(kind, func(t *testing.T) {
			is := is.New(t)
			db, store := open(t)
			tenant := must(store.CreateTenant(t.Context(), "acme", svc.TenantActive, time.Now()))
			file := filepath.Join(t.TempDir(), "backup")
			fails(t, "lists tenants", "backup", "-db", db, "-keys", keys, file)
			fails(t, "lists tenants", "copy", "-from", db, "-to", newDB(t))
			own := filepath.Join(filepath.Dir(db), fmt.Sprint(tenant.Number, ".db"))
			if isPostgres(db) {
				own = pgtest.With(t, db, "search_path", fmt.Sprint("svc_t", tenant.Number))
			}
			_, leave, err := store.OpenTenant(t.Context(), tenant) // which makes its tables
			is.NoErr(err)
			is.NoErr(leave())
			is.NoErr(store.Close())
			does(t, "backup", "-db", own, "-keys", keys, file)
		})
	}
}

// rewrite changes the files of a backup.
func rewrite(t *testing.T, file string, change func(name string, data []byte) []byte) string {
	t.Helper()
	from := must(zip.OpenReader(file))
	defer from.Close()
	var text bytes.Buffer
	to := zip.NewWriter(&text)
	for _, one := range from.File {
		data := must(io.ReadAll(must(one.Open())))
		if data = change(one.Name, data); data == nil {
			continue
		}
		must(must(to.Create(one.Name)).Write(data))
	}
	is.New(t).NoErr(to.Close())
	return writeFile(t, "backup", text.String())
}

// fitting returns a backup in which one file has another content, and a manifest that fits to it; fits changes that.
func fitting(t *testing.T, file, name string, data []byte, fits func(m *manifest)) string {
	t.Helper()
	return rewrite(t, file, func(have string, text []byte) []byte {
		switch have {
		case name:
			return data
		case manifestName:
			var m manifest
			is.New(t).NoErr(json.Unmarshal(text, &m))
			for i, one := range m.Files {
				if one.Name == name {
					m.Files[i], _ = memberOf(t.Context(), name, bytes.NewReader(data))
				}
			}
			fits(&m)
			text, _ = json.Marshal(m)
		}
		return text
	})
}

// Whatever is wrong with a backup, nothing is made of it.
func TestRestoreRefusesBackups(t *testing.T) {
	t.Parallel()
	u := use(t, newDB(t))
	file := u.backUp(t)
	whole := must(os.ReadFile(file))
	asIs := func(*manifest) {}
	without := func(gone string) string {
		return rewrite(t, file, func(name string, data []byte) []byte {
			if name == gone {
				return nil
			}
			return data
		})
	}
	newer := newDB(t)
	does(t, "copy", "-from", u.db, "-to", newer)
	execute(t, newer, "INSERT INTO svc_migrations VALUES (1000)")
	newerDB := must(os.ReadFile(newer))
	changed := func(of string) string {
		return rewrite(t, file, func(name string, data []byte) []byte {
			if name == of {
				data[len(data)/2] ^= 1
			}
			return data
		})
	}
	for backup, want := range map[string]string{
		filepath.Join(t.TempDir(), "none"):                "no such file",
		t.TempDir():                                       "not a whole backup",
		writeFile(t, "backup", ""):                        "not a whole backup",
		writeFile(t, "backup", strings.Repeat("x", 5000)): "not a whole backup",
		u.db: "not a whole backup",
		writeFile(t, "backup", string(whole[:len(whole)/2])):                       "not a whole backup",
		writeFile(t, "backup", string(whole[:len(whole)-1])):                       "not a whole backup",
		without(manifestName):                                                      "it has no manifest",
		without(databaseName):                                                      "it has no file svc.db",
		without(secretsName):                                                       "it has no file svc.keys",
		changed(databaseName):                                                      "svc.db is not as it was",
		changed(secretsName):                                                       "svc.keys is not as it was",
		fitting(t, file, secretsName, []byte("{}"), asIs):                          "its keys file is damaged",
		fitting(t, file, secretsName, []byte(unfinished), asIs):                    "its keys file is damaged",
		fitting(t, file, databaseName, []byte("no database"), asIs):                "cannot be used",
		fitting(t, file, databaseName, newerDB, asIs):                              "version 1000",
		fitting(t, file, "", nil, func(m *manifest) { m.Format = "x" }):            "another program",
		fitting(t, file, "", nil, func(m *manifest) { m.Version++ }):               "a newer program",
		fitting(t, file, "", nil, func(m *manifest) { m.Files = nil }):             "it has no file",
		fitting(t, file, "", nil, func(m *manifest) { m.Files[1].Size-- }):         "svc.db is not as it was",
		fitting(t, file, "", nil, func(m *manifest) { m.Files[0].Size = 1 << 40 }): "too large",
	} {
		folder := t.TempDir()
		fails(t, want, "restore", "-db", filepath.Join(folder, "svc.db"), backup)
		wantFiles(t, folder)
	}
	for i := 0; i < len(whole); i += max(1, len(whole)/longtest.Times(40, 150)) { // one bit of any part
		text := slices.Clone(whole)
		text[i] ^= 1
		folder := t.TempDir()
		args := []string{"restore", "-db", filepath.Join(folder, "svc.db"), writeFile(t, "backup", string(text))}
		err := run(t.Context(), args, io.Discard, io.Discard)
		if err != nil {
			wantFiles(t, folder)
		} else {
			wantFiles(t, folder, "svc.db", "svc.db.keys") // a date, or what a zip archive says twice
			u.check(t, filepath.Join(folder, "svc.db"), filepath.Join(folder, "svc.db.keys"))
		}
	}
}

// A restore replaces nothing.
func TestRestoreRefusesPlaces(t *testing.T) {
	t.Parallel()
	u := use(t, newDB(t))
	file := u.backUp(t)
	for _, name := range []string{"svc.db", "svc.db.keys", "svc.db-wal", "svc.db-shm", "svc.db-journal"} {
		folder := t.TempDir()
		path := filepath.Join(folder, name)
		is.New(t).NoErr(os.WriteFile(path, []byte("mine"), 0o600))
		fails(t, path+" exists", "restore", "-db", filepath.Join(folder, "svc.db"), file)
		wantFiles(t, folder, name)
		expect.Equal(t, name, string(must(os.ReadFile(path))), "mine")
	}
	longtest.Test(t, "this with PostgreSQL")
	full, folder := use(t, pgschema.Migrated(t)), t.TempDir()
	keys := filepath.Join(folder, "svc.keys")
	before := contents(t, full.db)
	fails(t, "the target is not empty", "restore", "-db", full.db, "-keys", keys, file)
	is.New(t).Equal(contents(t, full.db), before)
	wantFiles(t, folder)
	full.check(t, full.db, full.keys)
	fails(t, full.keys+" exists", "restore", "-db", pgtest.Schema(t), "-keys", full.keys, file)
}

// Of commands that make one database at once, one makes it, and the others leave it alone.
func TestOneOfSeveralMakesAFile(t *testing.T) {
	t.Parallel()
	u := use(t, newDB(t))
	file, want := u.backUp(t), contents(t, u.db)
	for _, command := range []string{"copy -from " + u.db + " -to DB", "restore -keys DB.keys -db DB " + file} {
		for range longtest.Times(2, 50) {
			is, db := is.New(t), newDB(t)
			var made atomic.Int64
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					if run(t.Context(), strings.Fields(strings.ReplaceAll(command, "DB", db)), io.Discard, io.Discard) == nil {
						made.Add(1)
					}
				})
			}
			all.Wait()
			is.Equal(made.Load(), int64(1))
			is.Equal(contents(t, db), want)
			_, err := os.Stat(db + ".keys")
			is.Equal(err == nil, strings.HasPrefix(command, "restore"))
			is.Equal(len(must(filepath.Glob(filepath.Join(filepath.Dir(db), draftsPrefix+"*")))), 0)
		}
	}
}

// In the middle of a restore, no server starts, whatever is there of the database. The next restore
// removes what one has left that was killed.
func TestUnfinishedRestore(t *testing.T) {
	t.Parallel()
	u := use(t, newDB(t))
	file := u.backUp(t)
	for _, withDB := range []bool{false, true} {
		folder := t.TempDir()
		db := filepath.Join(folder, "svc.db")
		if withDB {
			does(t, "copy", "-from", u.db, "-to", db)
		}
		is.New(t).NoErr(os.WriteFile(db+".keys", []byte(unfinished), 0o600))
		is.New(t).NoErr(os.Mkdir(filepath.Join(folder, draftsPrefix+"12"), 0o700))
		is.New(t).NoErr(os.WriteFile(filepath.Join(folder, draftsPrefix+"12", databaseName), nil, 0o600))
		before := must(os.ReadDir(folder))
		refused := [][]string{
			{"-addr", "127.0.0.1:0", "-db", db},
			{"backup", "-db", u.db, "-keys", db + ".keys", filepath.Join(folder, "backup")},
		}
		if withDB {
			refused = append(refused, []string{"restore", "-db", db, file})
		}
		for _, args := range refused {
			fails(t, "did not finish", args...)
		}
		expect.Equal(t, folder, len(must(os.ReadDir(folder))), len(before))
		if !withDB {
			does(t, "restore", "-db", db, file)
			wantFiles(t, folder, "svc.db", "svc.db.keys")
			u.check(t, db, db+".keys")
		}
	}
}

// When a backup is killed, the one before is there, or the new one.
func TestKilledBackup(t *testing.T) {
	longtest.Test(t, "a backup that is killed")
	u := use(t, newDB(t))
	large(t, u.db)
	file := u.backUp(t)
	longest := timed(t, "backup", "-db", u.db, "-keys", u.keys, file)
	died := 0
	for range killings {
		if killed(t, longest, "backup", "-db", u.db, "-keys", u.keys, file) {
			died++
		}
		db := newDB(t)
		does(t, "restore", "-db", db, "-keys", db+".keys", file)
		if got, want := contents(t, db), contents(t, u.db); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
	t.Logf("killed %d of %d", died, killings)
}

// When a restore is killed, the server does not start, or it starts on all of the backup.
func TestKilledRestore(t *testing.T) {
	longtest.Test(t, "a restore that is killed")
	for kind, place := range places {
		t.Run(kind, func(t *testing.T) {
			u := use(t, newDB(t))
			large(t, u.db)
			file := u.backUp(t)
			db, keys := place(t), filepath.Join(t.TempDir(), "svc.keys")
			longest := timed(t, "restore", "-db", db, "-keys", keys, file)
			outcomes := map[string]int{}
			for range killings {
				db, keys := place(t), filepath.Join(t.TempDir(), "svc.keys")
				killed(t, longest, "restore", "-db", db, "-keys", keys, file)
				left := u.outcome(t, db, keys)
				outcomes[left]++
				if left != "all" && isNew(contents(t, db)) { // it can be repeated
					does(t, "restore", "-db", db, "-keys", keys, file)
					wantFiles(t, filepath.Dir(keys), filepath.Base(keys))
				}
			}
			t.Log(outcomes)
			u.check(t, db, keys)
		})
	}
}

// outcome checks what a restore has left.
func (u usedDB) outcome(t *testing.T, db, keys string) string {
	t.Helper()
	text, err := os.ReadFile(keys)
	switch rows := contents(t, db); {
	case errors.Is(err, fs.ErrNotExist):
		expect.Holds(t, isNew(rows), "a database without its keys file: ", rows)
		return "nothing"
	case err != nil:
		t.Fatal(err)
	case string(text) == unfinished:
		expect.Holds(t, isNew(rows) || rows == contents(t, u.db), "half a database: ", rows)
		return "unfinished"
	}
	u.check(t, db, keys)
	return "all"
}

// The commands of docs/howto/backup.md work as they stand there: the backup on two nights, and the
// restore into a new place.
func TestDocumentedServerCommands(t *testing.T) {
	longtest.Parallel(t, "the commands of the documentation")
	for kind, place := range places {
		t.Run(kind, func(t *testing.T) {
			is := parallel(t)
			backup, restore := commands(t, "backup with the server"), commands(t, "restore with the server")
			u := use(t, place(t))
			dir := t.TempDir()
			program := filepath.Join(t.TempDir(), "server")
			script := "#!/bin/sh\nSVC_EXAMPLE_SERVER=1 exec '" + os.Args[0] + "' \"$@\"\n"
			is.NoErr(os.WriteFile(program, []byte(script), 0o700))
			path := "PATH=" + filepath.Dir(program) + ":" + os.Getenv("PATH")
			for range 2 {
				programtest.Shell(t, dir, backup, path, "DATABASE="+u.db, "KEYS="+u.keys)
			}
			db, keys := place(t), filepath.Join(t.TempDir(), "svc.keys")
			programtest.Shell(t, dir, restore, path, "DATABASE="+db, "KEYS="+keys)
			u.check(t, db, keys)
		})
	}
}

// A restore that is killed when all is in place has left its draft, a second name of the database.
func TestServerAfterARestoreThatWasKilledAtItsEnd(t *testing.T) {
	is, u := is.New(t), use(t, newDB(t))
	drafts := filepath.Join(filepath.Dir(u.db), draftsPrefix+"12")
	is.NoErr(os.Mkdir(drafts, 0o700))
	is.NoErr(os.Link(u.db, filepath.Join(drafts, databaseName)))
	u.check(t, u.db, u.keys)
}
