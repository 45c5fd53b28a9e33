//go:build unix

package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/porttest"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/postgres/pgtest/pgschema"
)

// unread returns the end to write of a pipe without a reader.
func unread(t *testing.T) *os.File {
	t.Helper()
	reader, writer, err := os.Pipe()
	is.New(t).NoErr(err)
	_ = reader.Close()
	t.Cleanup(func() { _ = writer.Close() })
	return writer
}

// process starts the server as a process of its own, and waits until it serves.
func process(t *testing.T, cmd *exec.Cmd) (base string) {
	t.Helper()
	address := porttest.Free(t)
	cmd.Args = append(cmd.Args, "-addr", address)
	is.New(t).NoErr(cmd.Start())
	if !soon(func() bool { return answers("http://" + address) }) {
		t.Fatal("the server does not start")
	}
	return "http://" + address
}

func answers(base string) bool {
	answer, err := http.Get(base + "/healthz")
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusNoContent
}

// A server whose output and log nobody reads any more goes on, and ends as it should.
func TestServerWithoutReaders(t *testing.T) {
	is := is.New(t)
	cmd := command(t, "-db", newDB(t), "-bundle", writeFile(t, "b.json", smallBundle))
	cmd.Stdout, cmd.Stderr = unread(t), unread(t)
	base := process(t, cmd)
	for range 3 { // each request is a line of the log
		answer := must(http.Get(base + "/ext/svc/me/api-keys"))
		_ = answer.Body.Close()
		is.Equal(answer.StatusCode, 401)
	}
	is.NoErr(cmd.Process.Signal(syscall.SIGTERM))
	is.NoErr(cmd.Wait())
}

// A command whose reader has gone, such as head, ends without a word.
func TestCommandsWithoutReader(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	is.New(t).NoErr(startServer(t, "-db", db).stop(t))
	for _, line := range []string{"export", "keys status", "who-can -action bank:recall -bank b", "verify-audit", "key -user admin", "migrate -print -all", "-print-config", "-help"} {
		var said bytes.Buffer
		args := strings.Fields(line)
		if line != "-help" {
			args = append(args, "-db", db)
		}
		cmd := command(t, args...)
		cmd.Stdout, cmd.Stderr = unread(t), &said
		_ = cmd.Run()
		expect.Holds(t, cmd.ProcessState.ExitCode() == 141 && said.Len() == 0, line, ": ", cmd.ProcessState.ExitCode(), &said)
	}
}

// Names of files with control characters are mistakes, of the command line and of the environment.
func TestControlCharacters(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("TEST_NAME", "s.db\n")
	file := writeFile(t, "c.toml", "")
	for _, key := range []string{"db", "keys", "bundle", "addr", "http.public_url", "log.level", "tls.cert_file", "sources.user_agent"} {
		is.New(t).NoErr(os.WriteFile(file, []byte(key+` = "${TEST_NAME}"`), 0o600))
		fails(t, "c.toml:1: "+key+" must have no control characters", "-config", file)
	}
	for want, args := range map[string][]string{
		"-db must": {"-db", "s.db\n"}, "-keys must": {"-keys", "k\r"}, "-config must": {"-config", "c\n"}, "-bundle must": {"-bundle", "b\x7f"},
		"-to must": {"copy", "-from", "a", "-to", "b\n"}, "-from must": {"copy", "-from", "a\t", "-to", "b"},
		"FILE must": {"backup", "b\n"},
	} {
		exits(t, 2, want+" have no control characters", args...)
	}
	wantFiles(t, ".")
}

// Root rotates the secrets of a server that runs as another user, who must still be able to read them.
func TestKeysFileKeepsItsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED, because only root gives files to others")
	}
	is := is.New(t)
	path := filepath.Join(t.TempDir(), "svc.keys")
	must(makeSecrets(path))
	is.NoErr(os.Chown(path, 12345, 12346))
	link := filepath.Join(t.TempDir(), "link.keys")
	is.NoErr(os.Symlink(path, link))
	does(t, "keys", "rotate", "-keys", link)
	info := must(os.Stat(path))
	of := info.Sys().(*syscall.Stat_t)
	is.Equal([]uint32{of.Uid, of.Gid}, []uint32{12345, 12346})
	is.Equal(info.Mode(), os.FileMode(0o600))
	is.Equal(len(versions(t, path)), 2)
	is.True(must(os.Lstat(link)).Mode()&os.ModeSymlink != 0) // the file is replaced, and not the link
}

// Only folders with the names of drafts are looked at: to open a pipe of another user would wait for ever.
func TestWhatLooksLikeDraftsStays(t *testing.T) {
	is, folder := is.New(t), t.TempDir()
	is.NoErr(syscall.Mkfifo(filepath.Join(folder, draftsPrefix+"1"), 0o600))
	is.NoErr(os.Mkdir(filepath.Join(folder, draftsPrefix+"notes"), 0o700))
	_, remove, err := makeDrafts(filepath.Join(folder, "new"))
	is.NoErr(err)
	remove()
	wantFiles(t, folder, draftsPrefix+"1", draftsPrefix+"notes")
}

// readers are the commands that only read, with a database in place of DB.
var readers = append(lists(),
	"export -db DB", "lint -db DB", "who-can -bank b -db DB", "verify-audit -db DB", "diff -db DB BUNDLE", "migrate -print -db DB",
	"keys status -db DB -keys KEYS", "backup -db DB -keys KEYS OUT/b", "backup -db DB -keys KEYS -", "copy -from DB -to OUT/copy.db",
	"user show admin -db DB", "why -user admin -action iam:users:read -bank b -db DB", "what-can -user admin -db DB", "audit -db DB",
)

func lists() (lines []string) {
	for _, c := range subcommands {
		if strings.HasSuffix(c.name, " list") && c.name != "tenant list" {
			lines = append(lines, c.name+" -db DB")
		}
	}
	return lines
}

// stranger is a process of a user who may change nothing: nobody, when root runs the tests.
func stranger(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, args...)
	cmd.Path = program
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	return cmd
}

// reachable returns a folder that every user may enter, with the program in it.
func reachable(t *testing.T) (folder, program string) {
	t.Helper()
	folder = t.TempDir()
	program = filepath.Join(folder, "server")
	for _, dir := range []string{folder, filepath.Dir(folder)} {
		is.New(t).NoErr(os.Chmod(dir, 0o755))
	}
	if os.Link(os.Args[0], program) != nil {
		is.New(t).NoErr(os.WriteFile(program, must(os.ReadFile(os.Args[0])), 0o755))
	}
	return folder, program
}

// Commands that only read work on a copy that they may not change, and leave it alone.
func TestReadersOfAReadOnlyCopy(t *testing.T) {
	longtest.Test(t, "readers of a copy")
	is := parallel(t)
	folder, program := reachable(t)
	kept, out := filepath.Join(folder, "kept"), filepath.Join(folder, "out")
	is.NoErr(os.Mkdir(kept, 0o755))
	is.NoErr(os.Mkdir(out, 0o755))
	is.NoErr(os.Chmod(out, 0o777))
	db, bundle := filepath.Join(kept, "svc.db"), filepath.Join(folder, "b.json")
	is.NoErr(startServer(t, "-db", db).stop(t))
	is.NoErr(os.WriteFile(bundle, []byte("{}"), 0o644))
	is.NoErr(os.Chmod(db, 0o444))
	is.NoErr(os.Chmod(db+".keys", 0o440)) // as Kubernetes mounts a secret
	root := os.Chown(db+".keys", 0, 65534) == nil
	is.NoErr(os.Chmod(kept, 0o555))
	t.Cleanup(func() { _ = os.Chmod(kept, 0o755) })
	names := strings.NewReplacer("DB", db, "KEYS", db+".keys", "OUT", out, "BUNDLE", bundle)
	for _, line := range readers {
		cmd := stranger(t, program, strings.Fields(names.Replace(line))...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if said, err := cmd.Output(); err != nil || root && strings.Contains(stderr.String(), "chmod 600") {
			t.Errorf("%s: %v: %s%.100s", line, err, &stderr, said)
		}
	}
	is.NoErr(os.Chmod(db, 0o666)) // and not its folder
	must(stranger(t, program, "export", "-db", db).Output())
	for _, line := range []string{"apply -db DB BUNDLE", "key -user admin -db DB"} {
		said, err := stranger(t, program, strings.Fields(names.Replace(line))...).CombinedOutput()
		expect.Holds(t, err != nil && strings.Contains(string(said), "needs the right to write to the file and to its folder"), line, ": ", err, string(said))
	}
	wantFiles(t, kept, "svc.db", "svc.db.keys")
	// An empty write-ahead log that came with a copy holds nothing.
	is.NoErr(os.Chmod(kept, 0o755))
	is.NoErr(os.WriteFile(db+"-wal", nil, 0o444))
	is.NoErr(os.Chmod(kept, 0o555))
	said := must(stranger(t, program, "export", "-db", db).CombinedOutput())
	is.True(strings.HasPrefix(string(said), `{"users":`))
	// With a write-ahead log that nobody may read, the newest rows would be missing.
	is.NoErr(os.Chmod(kept, 0o755))
	is.NoErr(os.Chmod(db+"-wal", 0o600))
	is.NoErr(os.WriteFile(db+"-wal", []byte("x"), 0o600))
	is.NoErr(os.Chmod(kept, 0o555))
	said, err := stranger(t, program, "export", "-db", db).CombinedOutput()
	is.True(err != nil && strings.Contains(string(said), "to read its -wal and -shm files as well"))
	// With one that all may read, SQLite would open a file that may not be written, and fail each write.
	is.NoErr(os.Chmod(kept, 0o755))
	is.NoErr(os.Remove(db + "-wal"))
	is.NoErr(os.Chmod(db, 0o644))
	running := startServer(t, "-db", db)
	for _, file := range must(filepath.Glob(db + "-*")) {
		is.NoErr(os.Chmod(file, 0o644))
	}
	said, err = stranger(t, program, "key", "-user", "admin", "-db", db, "-keys", db+".keys").CombinedOutput()
	is.True(err != nil && strings.Contains(string(said), "needs the right to write to the file"))
	is.NoErr(running.stop(t))
}

// The same commands write nothing to PostgreSQL: a standby, or a role that may only read, suffices.
func TestReadersOfAStandby(t *testing.T) {
	longtest.Parallel(t, "that no reader writes to PostgreSQL")
	u := use(t, pgschema.Migrated(t))
	standby := pgtest.With(t, u.db, "default_transaction_read_only", "on")
	names := strings.NewReplacer("DB", standby, "KEYS", u.keys, "OUT", t.TempDir(), "BUNDLE", writeFile(t, "b.json", "{}"))
	for _, line := range readers {
		does(t, strings.Fields(names.Replace(line))...)
	}
	fails(t, "", "key", "-user", "admin", "-db", standby, "-keys", u.keys)
}

// They upgrade no tables, and say so.
func TestReadersOfOldTables(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, flags []string) {
		is, u := parallel(t), use(t, flags[1])
		execute(t, u.db, "DELETE FROM svc_migrations WHERE version > 1")
		names := strings.NewReplacer("DB", u.db, "KEYS", u.keys, "OUT", t.TempDir(), "BUNDLE", writeFile(t, "b.json", "{}"))
		before := contents(t, u.db)
		for _, line := range readers {
			if args := strings.Fields(names.Replace(line)); args[0] == "migrate" {
				does(t, args...) // it prints what is missing
			} else {
				fails(t, "older version", args...)
			}
		}
		is.Equal(contents(t, u.db), before)
	})
}

// "-" is the standard output of a backup, and the standard input of a restore.
func TestBackupThroughAPipe(t *testing.T) {
	is := is.New(t)
	u := use(t, newDB(t))
	t.Chdir(t.TempDir())
	from := command(t, "backup", "-db", u.db, "-keys", u.keys, "-")
	to := command(t, "restore", "-db", "new.db", "-")
	to.Stdin = must(from.StdoutPipe())
	is.NoErr(from.Start())
	said, err := to.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	is.NoErr(from.Wait())
	wantFiles(t, ".", "new.db", "new.db.keys")
	u.check(t, "new.db", "new.db.keys")
	cut := command(t, "restore", "-db", "cut.db", "-")
	cut.Stdin = io.LimitReader(strings.NewReader("PK"), 2)
	said, err = cut.CombinedOutput()
	is.True(err != nil && strings.Contains(string(said), "not a whole backup"))
	for _, args := range [][]string{{"-db", "-"}, {"export", "-db", "-"}, {"-keys", "-"}, {"copy", "-from", "-", "-to", "x"}, {"copy", "-from", "x", "-to", "-"}} {
		is.Equal(exitCode(run(t.Context(), args, &output{}, &output{}), &output{}), 2)
	}
	wantFiles(t, ".", "new.db", "new.db.keys")
}

// The first signal ends each command that waits for its standard input, and nothing is left or changed.
func TestSignalWhileWaitingForInput(t *testing.T) {
	is := is.New(t)
	db, folder := newDB(t), t.TempDir()
	does(t, "tenant", "create", "acme", "-db", filepath.Join(folder, "tenants"))
	is.NoErr(startServer(t, "-db", db).stop(t))
	t.Chdir(folder)
	before := contents(t, db)
	for _, line := range []string{
		"apply -", "diff -", "lint -", "test -", "policy set staff-reads -", "bank set support -",
		"restore - -db new.db", "tenant drop acme -db tenants",
	} {
		args := strings.Fields(line)
		if !strings.Contains(line, "-db") {
			args = append(args, "-db", db)
		}
		cmd := command(t, args...)
		reader, writer, err := os.Pipe()
		is.NoErr(err)
		var said output
		cmd.Stdin, cmd.Stderr = reader, &said
		is.NoErr(cmd.Start())
		must(writer.Write(make([]byte, 1<<17))) // more than a pipe holds: it is being read
		is.NoErr(cmd.Process.Signal(syscall.SIGTERM))
		err = cmd.Wait()
		expect.Holds(t, err != nil && strings.Contains(said.String(), "server: stopped by a signal: "), line, ": ", err, said.String())
		_, _ = reader.Close(), writer.Close()
	}
	is.Equal(contents(t, db), before)
	wantFiles(t, ".", "tenants")
}

// A database that is a mount of its own loses its write-ahead log.
func TestMountedFile(t *testing.T) {
	is := is.New(t)
	dir := must(filepath.EvalSymlinks(t.TempDir()))
	t.Chdir(dir)
	is.NoErr(os.Mkdir("a b", 0o700))
	for _, name := range []string{"svc.db", "a b/svc.db"} {
		is.NoErr(os.WriteFile(name, nil, 0o600))
	}
	is.NoErr(os.Symlink("svc.db", "link"))
	mounts := "22 1 0:21 / /proc rw - proc proc rw\n30 22 8:1 /x " + dir + "/svc.db rw - ext4 /dev/sda rw\n31 22 8:1 /y " + dir + `/a\040b/svc.db rw - ext4 /dev/sda rw`
	for name, want := range map[string]bool{"svc.db": true, "link": true, "a b/svc.db": true, "a b": false, "other.db": false, "svc.db-wal": false} {
		is.Equal(isMounted(mounts, name), want)
	}
	if os.Geteuid() != 0 || exec.Command("unshare", "-m", "true").Run() != nil {
		return
	}
	is.NoErr(os.Symlink(os.Args[0], "server"))
	cmd := exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-c", "mount --bind svc.db svc.db && exec ./server -db svc.db -bundle none.json -addr 127.0.0.1:0")
	cmd.Env = append(os.Environ(), "SVC_EXAMPLE_SERVER=1")
	said, _ := cmd.CombinedOutput()
	is.True(strings.Contains(string(said), "mounted alone"))
}

// The printed line for another key works for each way to start the program, in each directory.
func TestPrintedKeyCommandWorksAsPrinted(t *testing.T) {
	root := must(filepath.Abs("../.."))
	program := must(os.ReadFile(os.Args[0]))
	binary := filepath.Join(t.TempDir(), "my server")
	is.New(t).NoErr(os.WriteFile(binary, program, 0o700))
	t.Setenv("SVC_EXAMPLE_SERVER", "1") // the test binary is the server
	for name, c := range map[string]struct {
		dir     string
		started []string
		printed string
	}{
		"go run at the root":     {root, []string{"go", "run", "./examples/server"}, "KEY=$(go run ./examples/server key -db "},
		"go run in its folder":   {".", []string{"go", "run", "."}, "KEY=$(go run github.com/extsvc/svc/examples/server key -db "},
		"a binary":               {t.TempDir(), []string{binary}, "KEY=$('" + binary + "' key -db "},
		"a binary nearby":        {filepath.Dir(binary), []string{"./my server"}, "KEY=$('./my server' key -db "},
		"with a file of secrets": {filepath.Dir(binary), []string{"./my server", "-keys", "my keys"}, "KEY=$('./my server' key -db "},
	} {
		t.Run(name, func(t *testing.T) {
			if c.started[0] == "go" {
				longtest.Test(t, "the lines that go run prints")
			}
			is := is.New(t)
			args := append(c.started[1:], "-addr", "127.0.0.1:0", "-db", filepath.Join(t.TempDir(), "my.db"))
			printed, stdout := &output{}, ""
			cmd := exec.Command(c.started[0], args...)
			cmd.Dir, cmd.Stdout, cmd.SysProcAttr = c.dir, printed, &syscall.SysProcAttr{Setpgid: true}
			is.NoErr(cmd.Start())
			defer func() {
				_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) // go run does not hand it on
				_ = cmd.Wait()
			}()
			is.True(soon(func() bool { stdout = printed.String(); return strings.Contains(stdout, "KEY=$(") }))
			line := linesWith(stdout, "KEY=$(")[0]
			is.True(strings.HasPrefix(line, c.printed))
			shell := exec.CommandContext(t.Context(), "sh", "-c", line+` && printf %s "$KEY"`)
			shell.Dir = c.dir
			key := must(shell.CombinedOutput())
			server := running{base: listensOn.FindStringSubmatch(stdout)[1]}
			server.wants(t, 200, string(key), "GET", "/ext/svc/me/api-keys", "")
		})
	}
}
