package postgres

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

// soon is how long a test waits for an event that should take milliseconds.
const soon = time.Minute

// ear has an element for each call of a listener.
type ear chan string

func (e ear) Listening(on bool) { e <- fmt.Sprint("listening ", on) }

func (e ear) Hear(tenant int64) { e <- fmt.Sprint("hear ", tenant) }

func (e ear) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case have := <-e:
		if have != want {
			t.Fatalf("heard %q, want %q", have, want)
		}
	case <-time.After(soon):
		t.Fatalf("%q is not heard", want)
	}
}

// hears starts a listener in a schema with a table of the generation.
func hears(t *testing.T, change func(*listener)) (ear, *sql.DB) {
	t.Helper()
	url := pgtest.With(t, pgtest.Schema(t), "application_name", t.Name())
	config, err := parse(url)
	is := is.New(t)
	is.NoErr(err)
	db := pgtest.Open(t, url)
	_, err = (Options{}).migrate(t.Context(), pgtest.Open(t, url))
	is.NoErr(err)
	_, err = db.Exec(keepChannel, []byte("the same in all schemas"))
	is.NoErr(err)
	heard := make(ear, 1000)
	l := newListener(connectTo(config), db, Dialect(), heard)
	if change != nil {
		change(l)
	}
	l.start()
	t.Cleanup(l.close)
	heard.expect(t, "listening true")
	return heard, db
}

// A listener hears each commit of its own schema, and of no other.
func TestListenerHearsEachCommit(t *testing.T) {
	t.Parallel()
	heard, db := hears(t, nil)
	_, other := hears(t, nil)
	for range 3 {
		for _, db := range []*sql.DB{other, db} {
			_, err := db.Exec(notify)
			is.New(t).NoErr(err)
		}
		heard.expect(t, "hear 0")
	}
	if len(heard) > 0 {
		t.Errorf("it heard what another schema told: %q", <-heard)
	}
}

// terminate ends the listener's connection, like an administrator or a restart.
func terminate(t *testing.T, db *sql.DB) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		var ended int
		err := db.QueryRow(
			"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1 AND pid <> pg_backend_pid() AND query LIKE 'LISTEN svc_%'", t.Name()).Scan(&ended)
		if err == nil && ended == 1 {
			return
		}
		if err != nil || time.Now().After(deadline) { // it may not be connected yet
			t.Fatalf("%d connections were ended, want 1: %v", ended, err)
		}
	}
}

func TestListenerConnectsAgain(t *testing.T) {
	longtest.Parallel(t, "a listener that connects again")
	heard, db := hears(t, nil)
	for range 2 {
		terminate(t, db)
		heard.expect(t, "listening false")
		heard.expect(t, "listening true")
	}
}

func TestListenerAsksWhetherTheServerIsThere(t *testing.T) {
	longtest.Parallel(t, "the listener's question whether the server is there")
	heard, db := hears(t, func(l *listener) { l.heartbeat = 10 * time.Millisecond })
	time.Sleep(100 * time.Millisecond) // some heartbeats
	_, err := db.Exec(notify)
	is.New(t).NoErr(err)
	heard.expect(t, "hear 0")
}

func TestListenerEndsWhileItCannotConnect(t *testing.T) {
	t.Parallel()
	config, err := parse("postgres://127.0.0.1:1/db?sslmode=disable")
	is.New(t).NoErr(err)
	heard := make(ear, 10)
	l := newListener(connectTo(config), nil, Dialect(), heard).start()
	time.Sleep(3 * firstPause)
	l.close()
	if len(heard) > 0 {
		t.Errorf("heard %q", <-heard)
	}
}

// What is told is about one table, and about it or a tenant.
func TestAddressee(t *testing.T) {
	for told, want := range map[string]struct {
		tenant int64
		ours   bool
	}{
		"123":    {0, true},
		"123/17": {17, true},
		"124/17": {17, false},
		"12":     {0, false},
		"123/x":  {0, false},
		"":       {0, false},
	} {
		if tenant, ours := addressee(told, "123"); ours != want.ours || ours && tenant != want.tenant {
			t.Errorf("%q: tenant %d, %t", told, tenant, ours)
		}
	}
}

// foreign is the error of another driver.
type foreign string

func (f foreign) Error() string    { return "a fault" }
func (f foreign) SQLState() string { return string(f) }

func TestStatesMean(t *testing.T) {
	for states, want := range map[string]error{
		"08000 08001 08003 08004 08006 08P01":       svc.ErrUnavailable,
		"53000 53100 53200 53300 53400":             svc.ErrUnavailable,
		"57P01 57P02 57P03 57P05 57014 25P03 55P03": svc.ErrUnavailable,
		"25006 40003 58030":                         svc.ErrUnavailable,
		"40001 40P01":                               svc.ErrChanged,
		"23505":                                     svc.ErrExists,
		"23503 42P01 42501 22021 28P01 28000 3D000": nil,
		"40002 57P04 25P02 0A000 XX000 XX001 99999": nil,
		"53 08 5310 531000":                         nil,
	} {
		for state := range strings.FieldsSeq(states) {
			for _, err := range []error{&pgconn.PgError{Code: state}, foreign(state)} {
				if have := classify(fmt.Errorf("a statement: %w", err)); have != want {
					t.Errorf("%s means %v, want %v", state, have, want)
				}
			}
		}
	}
}

func TestBrokenConnectionsMean(t *testing.T) {
	for _, err := range []error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, pgconn.ErrConnClosed, os.ErrDeadlineExceeded,
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, &net.OpError{Op: "read", Err: syscall.ECONNRESET},
		&net.DNSError{Err: "no such host", Name: "db"},
	} {
		if have := classify(fmt.Errorf("a statement: %w", err)); have != svc.ErrUnavailable {
			t.Errorf("%v means %v", err, have)
		}
	}
	for _, err := range []error{errors.New("a fault"), os.ErrNotExist} {
		if have := classify(err); have != nil {
			t.Errorf("%v means %v", err, have)
		}
	}
}
