//go:build unix

package pgtest

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Bouncer is a PgBouncer of a test's own, before a server. Use [StartBouncer].
type Bouncer struct {
	Process
	port int
}

const bouncerConfig = `[databases]
* = host=%s port=%s user=%s

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
admin_users = postgres
%s
`

// StartBouncer starts PgBouncer before a server, as which it is asked for any database, with settings such as "pool_mode=session",
// until the test ends. For root it needs the user postgres.
//
// Where there is no PgBouncer the reason may stand in SVC_NO_PGBOUNCER: its tests are then skipped, whatever is required.
func StartBouncer(t testing.TB, server string, settings ...string) *Bouncer {
	t.Helper()
	program := bouncerProgram(t)
	b := &Bouncer{Process: newProcess(t, "PgBouncer", os.Kill), port: freePort(t)}
	t.Cleanup(b.remove)
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(b.dir, "pgbouncer.ini")
	text := fmt.Sprintf(bouncerConfig, to.Hostname(), to.Port(), to.User.Username(), b.port, strings.Join(settings, "\n"))
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	b.start = []string{program, config}
	b.ping = func() error { return b.console("SHOW VERSION") }
	b.Restart()
	return b
}

// bouncerProgram looks where Debian installs it, too, which need not be in everybody's PATH.
func bouncerProgram(t testing.TB) string {
	t.Helper()
	for _, program := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(program); err == nil {
			return path
		}
	}
	if reason := os.Getenv("SVC_NO_PGBOUNCER"); reason != "" {
		t.Skip("NOT TESTED: there is no PgBouncer: " + reason)
	}
	missing(t, "there is no PgBouncer")
	return ""
}

// BouncerPrepares reports whether the PgBouncer that is installed has the setting max_prepared_statements, which came with 1.21.
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

// URL is that of a database, through PgBouncer.
func (b *Bouncer) URL(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", b.port, database)
}

// Console runs a command of the administrator, such as PAUSE.
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
