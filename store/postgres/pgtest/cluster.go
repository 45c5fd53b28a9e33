//go:build unix

package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
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
// "max_connections=5". It listens on a Unix socket only, in a directory of its own. It needs the
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
	c.ping = func() error { return ping(c.URL) }
	c.Restart()
	return c
}

// socketURL returns the URL of a database of the server with a socket in dir.
func socketURL(dir string, port int, database string) string {
	return fmt.Sprintf("postgres://postgres@/%s?host=%s&port=%d&sslmode=disable", database, dir, port)
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

// Crash ends the server at once, in immediate mode. Clients get SQLSTATE 57P02 or 57P01, and the
// next start recovers.
func (c *Cluster) Crash() { c.end(syscall.SIGQUIT) }
