//go:build unix

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Cluster is a PostgreSQL server of one test. Its superuser is postgres, without a password. Use
// [Start].
type Cluster struct {
	Process
	URL string // of the database postgres

	bin string
}

// socketPort is the port in the name of a server's socket. Each server has its own directory, so no
// other server can have the same address.
const socketPort = 5432

// Start creates a cluster and runs it until the test ends, with settings such as
// "max_connections=5". It listens on a Unix socket only, in its own directory. It needs the
// programs of the server, which it finds through pg_config. When root runs the test, the user
// postgres must exist.
func Start(t testing.TB, settings ...string) *Cluster {
	t.Helper()
	bin := programs(t)
	c := &Cluster{Process: newProcess(t, "PostgreSQL", os.Interrupt), bin: bin}
	t.Cleanup(c.remove)
	c.create()
	c.start = []string{c.program("postgres"), "-D", c.data(), "-p", strconv.Itoa(socketPort),
		"-c", "listen_addresses=", "-c", "unix_socket_directories=" + c.dir}
	for _, setting := range settings {
		c.start = append(c.start, "-c", setting)
	}
	c.URL = socketURL(c.dir, socketPort, "postgres")
	c.ping = func() error { return execute(c.URL, "SELECT 1") }
	c.Restart()
	return c
}

// socketURL returns the URL of a database of the server with a socket in dir.
func socketURL(dir string, port int, database string) string {
	return fmt.Sprintf("postgres://postgres@/%s?host=%s&port=%d&sslmode=disable",
		database, dir, port)
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

func (c *Cluster) program(name string) string { return filepath.Join(c.bin, name) }

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

// Path returns the path of a file of the server, such as pg_hba.conf. Overwrite the file, never
// replace it: it belongs to the server's user.
func (c *Cluster) Path(name string) string { return filepath.Join(c.data(), name) }

// Dump returns the output of pg_dump for the database postgres.
func (c *Cluster) Dump() []byte {
	c.t.Helper()
	return c.output(c.program("pg_dump"), "--dbname", c.URL)
}

// Follow makes the server a standby of primary, with a copy of its data. A running server is shut
// down first. The primary does not wait for it until [Cluster.Synchronous].
func (c *Cluster) Follow(primary *Cluster) {
	c.t.Helper()
	c.Stop()
	if err := os.RemoveAll(c.data()); err != nil {
		c.t.Fatal(err)
	}
	c.output(c.program("pg_basebackup"),
		"-D", c.data(), "-d", primary.URL, "-R", "-c", "fast", "--no-sync")
	settings, err := os.OpenFile(c.Path("postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	_, err = settings.WriteString(
		"synchronous_standby_names = ''\nwal_retrieve_retry_interval = '100ms'\n",
	)
	if err := errors.Join(err, settings.Close()); err != nil {
		c.t.Fatal(err)
	}
	c.Restart()
}

// Synchronous makes every commit wait for a standby. It restarts the server, so that no commit
// misses the setting, and returns when a standby streams.
func (c *Cluster) Synchronous() {
	c.t.Helper()
	c.query("ALTER SYSTEM SET synchronous_standby_names = '*'")
	c.Restart()
	const standbys = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
	for deadline := time.Now().Add(patience); c.query(standbys) == "0"; {
		if time.Now().After(deadline) {
			c.t.Fatalf("no standby streams from %s:\n%s", c.name, c.Log())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Promote makes a standby the primary.
func (c *Cluster) Promote() {
	c.t.Helper()
	c.output(c.program("pg_ctl"), "promote", "-D", c.data(), "-t", "600")
}

// Primary returns the URL of whichever of the clusters is the primary.
func Primary(clusters ...*Cluster) string {
	var hosts, ports []string
	for _, c := range clusters {
		hosts, ports = append(hosts, c.dir), append(ports, strconv.Itoa(socketPort))
	}
	return fmt.Sprintf("postgres://postgres@/postgres?host=%s&port=%s"+
		"&sslmode=disable&target_session_attrs=read-write",
		strings.Join(hosts, ","), strings.Join(ports, ","))
}

// query returns the first value of a query, "" for none.
func (c *Cluster) query(statement string) string {
	c.t.Helper()
	ctx := context.Background()
	conn, err := pgconn.Connect(ctx, c.URL)
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close(ctx) // the answer is here
	results, err := conn.Exec(ctx, statement).ReadAll()
	if err != nil {
		c.t.Fatalf("%s: %v", statement, err)
	}
	if rows := results[0].Rows; len(rows) > 0 {
		return string(rows[0][0])
	}
	return ""
}

// Crash ends the server immediately, in immediate mode. Clients get SQLSTATE 57P02 or 57P01, and
// the next start recovers.
func (c *Cluster) Crash() { c.end(syscall.SIGQUIT) }
