//go:build unix

package pgtest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Bouncer is a PgBouncer of one test, in front of a server. Use [StartBouncer].
type Bouncer struct{ Process }

// bouncerPort is the port in the name of the socket.
const bouncerPort = 6432

const bouncerConfig = `[databases]
* = host=%s port=%d user=%s

[pgbouncer]
listen_addr =
listen_port = %d
unix_socket_dir = %s
auth_type = any
admin_users = postgres
%s
`

// StartBouncer starts PgBouncer in front of a server, until the test ends. It connects to every
// database as the user in the server's URL, and takes settings such as "pool_mode=session". When
// root runs the test, the user postgres must exist.
//
// Where PgBouncer is not available, the reason may be in SVC_NO_PGBOUNCER. Its tests are then
// skipped, even with SVC_REQUIRE_POSTGRES=1.
func StartBouncer(t testing.TB, server string, settings ...string) *Bouncer {
	t.Helper()
	program := bouncerProgram(t)
	b := &Bouncer{Process: newProcess(t, "PgBouncer", os.Kill)}
	t.Cleanup(b.remove)
	to, err := pgconn.ParseConfig(server)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(b.dir, "pgbouncer.ini")
	text := fmt.Sprintf(bouncerConfig,
		to.Host, to.Port, to.User, bouncerPort, b.dir, strings.Join(settings, "\n"))
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	b.start = []string{program, config}
	b.ping = func() error { return b.console("SHOW VERSION") }
	b.Restart()
	return b
}

// Pooled is [Database] behind a PgBouncer of its own.
func Pooled(t testing.TB) string {
	t.Helper()
	address := Database(t)
	config, err := pgconn.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	return StartBouncer(t, address).URL(config.Database)
}

// bouncerProgram finds PgBouncer in PATH or where Debian installs it.
func bouncerProgram(t testing.TB) string {
	t.Helper()
	for _, program := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(program); err == nil {
			return path
		}
	}
	if reason := os.Getenv("SVC_NO_PGBOUNCER"); reason != "" {
		t.Skip("NOT TESTED: PgBouncer is not installed: " + reason)
	}
	missing(t, "PgBouncer is not installed")
	return ""
}

// BouncerPrepares reports whether the installed PgBouncer has the setting max_prepared_statements
// (1.21 and later).
func BouncerPrepares(t testing.TB) bool {
	t.Helper()
	out, err := exec.Command(bouncerProgram(t), "--version").Output()
	if err != nil {
		t.Fatalf("pgbouncer --version: %v", err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(out), "PgBouncer %d.%d", &major, &minor); err != nil {
		t.Fatalf("pgbouncer --version: %v: %s", err, out)
	}
	return major > 1 || minor >= 21
}

// URL returns the URL of a database through PgBouncer.
func (b *Bouncer) URL(database string) string {
	return socketURL(b.dir, bouncerPort, database)
}

// Console runs an administrator's command, such as PAUSE.
func (b *Bouncer) Console(command string) {
	b.t.Helper()
	if err := b.console(command); err != nil {
		b.t.Fatalf("%s: %v", command, err)
	}
}

func (b *Bouncer) console(command string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgconn.Connect(ctx, b.URL("pgbouncer"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, command).ReadAll()
	return cmp.Or(err, conn.Close(ctx))
}
