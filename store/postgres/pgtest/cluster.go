//go:build unix

package pgtest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Cluster is a PostgreSQL server of a test's own, with its files in a temporary directory. Its superuser is postgres, who
// needs no password. Use [Start]. Its methods are not for concurrent use.
type Cluster struct {
	URL string // of the database postgres

	t        testing.TB
	bin, dir string
	port     int
	settings []string
	as       *syscall.Credential // nil: who runs the test
	server   *os.Process         // nil: it does not run
	ended    chan struct{}       // is closed when server and the processes that it made have ended
}

// patience is how long a server may take to start or to end.
const patience = 30 * time.Second

// Start makes a cluster and starts it, with settings such as "max_connections=5", until the test ends. It needs the programs of
// the server (pg_config tells where they are) and, for root, the user postgres.
func Start(t testing.TB, settings ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t, settings: settings, bin: programs(t)}
	if os.Getuid() == 0 {
		c.as = credentials(t)
	}
	c.dir = c.directory()
	t.Cleanup(func() {
		c.Stop()
		if err := os.RemoveAll(c.dir); err != nil {
			t.Error(err)
		}
	})
	out, err := c.command("initdb", "-D", c.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync").CombinedOutput()
	if err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	c.port = freePort(t)
	c.URL = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", c.port)
	c.Restart()
	return c
}

// programs returns the directory of initdb and postgres.
func programs(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("pg_config", "--bindir").Output()
	if err != nil {
		missing(t, "pg_config: %v", err)
	}
	bin := strings.TrimSpace(string(out))
	for _, program := range []string{"initdb", "postgres"} {
		if _, err := os.Stat(filepath.Join(bin, program)); err != nil {
			missing(t, "the server's programs are not installed: %v", err)
		}
	}
	return bin
}

// credentials are those of the user postgres: the server refuses to run as root.
func credentials(t testing.TB) *syscall.Credential {
	t.Helper()
	account, err := user.Lookup("postgres")
	if err != nil {
		missing(t, "PostgreSQL does not run as root: %v", err)
	}
	uid, uidErr := strconv.ParseUint(account.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(account.Gid, 10, 32)
	if uidErr != nil || gidErr != nil {
		t.Fatalf("user postgres: %v, %v", uidErr, gidErr)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// directory makes a directory for the server's user: others may not even enter one of t.TempDir.
func (c *Cluster) directory() string {
	c.t.Helper()
	dir, err := os.MkdirTemp("", "svc-pgtest-")
	if err != nil {
		c.t.Fatal(err)
	}
	if c.as != nil {
		if err := os.Chown(dir, int(c.as.Uid), int(c.as.Gid)); err != nil {
			c.t.Fatal(err)
		}
	}
	return dir
}

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

// Path is that of a file of the server, such as pg_hba.conf. It is written over, never replaced: it belongs to the server's user.
func (c *Cluster) Path(name string) string { return filepath.Join(c.data(), name) }

func freePort(t testing.TB) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func (c *Cluster) command(program string, args ...string) *exec.Cmd {
	command := exec.Command(filepath.Join(c.bin, program), args...)
	command.Dir = c.dir
	command.SysProcAttr = attributes(c.as)
	return command
}

// Restart starts the server, after ending it in good order if it runs, and returns when it answers.
func (c *Cluster) Restart() {
	c.t.Helper()
	c.end(os.Interrupt)
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if c.server == nil {
			c.launch()
		}
		err := ping(c.URL)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("PostgreSQL does not answer: %v\n%s", err, c.Log())
		}
		select {
		case <-c.ended:
			c.server = nil
		default:
		}
	}
}

func (c *Cluster) launch() {
	c.t.Helper()
	args := []string{"-D", c.data(), "-p", strconv.Itoa(c.port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="}
	for _, setting := range c.settings {
		args = append(args, "-c", setting)
	}
	log, err := os.OpenFile(c.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	command := c.command("postgres", args...)
	// Not the file itself but a pipe: Wait returns when the last of the server's processes has closed it.
	out := struct{ io.Writer }{log}
	command.Stdout, command.Stderr = out, out
	if err := command.Start(); err != nil {
		log.Close()
		c.t.Fatal(err)
	}
	ended := make(chan struct{})
	c.server, c.ended = command.Process, ended
	go func() {
		_ = command.Wait() // how it ends is asked for
		log.Close()
		close(ended)
	}()
}

func (c *Cluster) logFile() string { return filepath.Join(c.dir, "log") }

// Log is what the server has written to its log.
func (c *Cluster) Log() string {
	text, err := os.ReadFile(c.logFile())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Dump is what pg_dump writes of the database postgres.
func (c *Cluster) Dump() []byte {
	c.t.Helper()
	out, err := c.command("pg_dump", "--dbname", c.URL).Output()
	if err != nil {
		message := ""
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			message = string(exit.Stderr)
		}
		c.t.Fatalf("pg_dump: %v: %s", err, message)
	}
	return out
}

// Kill ends the server as kill -9 of its first process does: the others find that out and end without a farewell, and Kill waits for
// them. What was written is in the cache of the system, so this is a crash of PostgreSQL, not of the machine.
func (c *Cluster) Kill() { c.end(os.Kill) }

// Crash ends the server at once, in immediate mode: clients are told (SQLSTATE 57P02 or 57P01), and the next start recovers.
func (c *Cluster) Crash() { c.end(syscall.SIGQUIT) }

// Stop ends the server in good order, without waiting for its clients.
func (c *Cluster) Stop() { c.end(os.Interrupt) }

// Pid is the server's first process, 0 when it does not run.
func (c *Cluster) Pid() int {
	if c.server == nil {
		return 0
	}
	return c.server.Pid
}

// end signals the server's first process, and waits until all are gone.
func (c *Cluster) end(signal os.Signal) {
	c.t.Helper()
	if c.server == nil {
		return
	}
	_ = c.server.Signal(signal) // it may have ended by itself
	select {
	case <-c.ended:
	case <-time.After(patience):
		_ = c.server.Kill()
		c.t.Errorf("PostgreSQL does not end:\n%s", c.Log())
	}
	c.server = nil
}
