package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/examples/internal/programtest"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/postgres/pgtest/pgschema"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// variable makes the binary of the tests the program itself.
const variable = "SVC_EXAMPLE_TRANSACTION"

func TestMain(m *testing.M) { programtest.Main(m, variable, main) }

func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

func TestSignUp(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, db string) {
		is := is.New(t)
		s, events := openTest(t, db, nil)
		is.Equal(must(s.service.Authenticate(t.Context(), string(must(s.signUp(t.Context(), "ada"))))).ID, "ada")
		is.Equal(receive(t, events).Target.Holder.ID, "ada")

		_, err := s.signUp(t.Context(), "ada")
		is.True(err != nil)
		is.Equal(holders(t, s), map[string]int{"ada": 1})
	})
}

func receive(t *testing.T, events <-chan svc.Event) svc.Event {
	t.Helper()
	select {
	case event := <-events:
		return event
	case <-time.After(time.Minute):
		t.Fatal("no event comes")
		panic("unreachable")
	}
}

// TestRolledBack: a sign-up that fails after the key was issued leaves nothing and sends no event.
func TestRolledBack(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, db string) {
		is := is.New(t)
		s, events := openTest(t, db, nil)
		is.NoErr(refuseAtCommit(s))
		_, err := s.signUp(t.Context(), "mallory")
		is.True(err != nil) // the commit fails
		must(s.signUp(t.Context(), "ada"))
		is.Equal(receive(t, events).Target.Holder.ID, "ada")
		is.Equal(len(events), 0)
		is.Equal(holders(t, s), map[string]int{"ada": 1})
		is.Equal(customers(t, s), []string{"ada"})
	})
}

// refuseAtCommit makes the commit of a transaction fail in which mallory signs up.
func refuseAtCommit(s shopAt) error {
	const plans = `CREATE TABLE plans (customer TEXT REFERENCES customers (id) DEFERRABLE INITIALLY DEFERRED)`
	triggers := []string{plans, `CREATE TRIGGER plan AFTER INSERT ON customers WHEN new.id = 'mallory' BEGIN INSERT INTO plans VALUES ('nobody'); END`}
	if _, is := s.counter.(*pgxShop); is {
		triggers = []string{
			plans, `CREATE FUNCTION plan() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO plans VALUES ('nobody'); RETURN NULL; END $$`,
			`CREATE TRIGGER plan AFTER INSERT ON customers FOR EACH ROW WHEN (new.id = 'mallory') EXECUTE FUNCTION plan()`,
		}
	}
	for _, statement := range triggers {
		if _, err := s.db.Exec(statement); err != nil {
			return err
		}
	}
	return nil
}

// TestLeave: with a customer go the keys, or nothing goes.
func TestLeave(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	at, _ := openTest(t, filepath.Join(t.TempDir(), "shop.db"), nil)
	s := at.counter.(*shop)
	good := func(key svc.Secret) bool {
		_, err := s.service.Authenticate(t.Context(), string(key))
		return err == nil
	}
	ada := must(s.signUp(t.Context(), "ada"))
	grace := must(s.signUp(t.Context(), "grace"))
	is.NoErr(s.leave(t.Context(), "ada"))
	is.True(!good(ada) && good(grace))
	is.Equal(customers(t, at), []string{"grace"})
	is.NoErr(s.leave(t.Context(), "ada")) // again is no error

	must(s.store.DB().Exec(`CREATE TABLE orders (customer TEXT REFERENCES customers (id) DEFERRABLE INITIALLY DEFERRED);
		INSERT INTO orders VALUES ('grace')`))
	is.True(s.leave(t.Context(), "grace") != nil) // the commit fails
	is.True(good(grace))
	is.Equal(customers(t, at), []string{"grace"})
}

// TestRefused: when the Service refuses a customer, the shop does not sign the customer up.
func TestRefused(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, db string) {
		is := is.New(t)
		s, _ := openTest(t, db, nil)
		_, err := s.signUp(t.Context(), "a/b")
		is.Equal(svc.ErrorCode(err), svc.CodeInvalid)
		is.Equal(len(customers(t, s)), 0)
	})
}

// TestProgram kills the program after it has printed a key. This run or the next one reports the event.
func TestProgram(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, db string) {
		is := is.New(t)
		dir := t.TempDir()
		address, awaitGone := doomedAt(t, db)
		first, stdout := program(t, dir, "-db", address, "ada")
		is.True(strings.HasPrefix(must(stdout.ReadString('\n')), "ada svcu_"))
		is.NoErr(first.Process.Kill())
		_ = first.Wait() // killed
		awaitGone()
		s := must(openAt(t.Context(), db, svc.Config{}))
		must(s.db.Exec(`UPDATE svc_outbox SET claimed_until = 0`)) // end the 30 s claim of the killed run
		is.NoErr(s.close())

		second, stdout := program(t, dir, "-db", address, "grace")
		is.True(strings.HasPrefix(must(stdout.ReadString('\n')), "grace svcu_")) // so it hears signals
		is.True(programtest.Soon(func() bool {
			return strings.Contains(string(must(os.ReadFile(filepath.Join(dir, "log")))), ": api_key.issued for ada\n")
		}))
		is.NoErr(second.Process.Signal(os.Interrupt))
		is.NoErr(second.Wait())
	})
}

// program runs this binary as the program itself.
func program(t *testing.T, dir string, args ...string) (command *exec.Cmd, stdout *bufio.Reader) {
	t.Helper()
	log := must(os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))
	defer log.Close()
	command = exec.CommandContext(t.Context(), os.Args[0], args...)
	command.Dir, command.Stderr = dir, log
	command.Env = append(os.Environ(), variable+"=1")
	stdout = bufio.NewReader(must(command.StdoutPipe()))
	is.New(t).NoErr(command.Start())
	return command, stdout
}

// shopAt is a shop in one of the databases, as tests see it.
type shopAt struct {
	counter
	db      *sql.DB
	service *svc.Service
}

// openAt opens a shop in a file of SQLite or at a URL of PostgreSQL.
func openAt(ctx context.Context, db string, config svc.Config) (shopAt, error) {
	opened, err := openCounter(ctx, db, config)
	if err != nil {
		return shopAt{}, err
	}
	if s, is := opened.(*pgxShop); is {
		return shopAt{s, s.store.DB(), s.service}, nil
	}
	s := opened.(*shop)
	return shopAt{s, s.store.DB(), s.service}, nil
}

// inEach runs a test in a new database of each kind.
func inEach(t *testing.T, test func(t *testing.T, db string)) {
	for name, db := range map[string]func(*testing.T) string{
		"sqlite": func(t *testing.T) string { return filepath.Join(t.TempDir(), "shop.db") },
		"pgx": func(t *testing.T) string {
			longtest.Test(t, "this with PostgreSQL")
			return pgschema.Migrated(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, db(t))
		})
	}
}

// openTest opens a shop that sends its events to a channel.
func openTest(t *testing.T, db string, change func(*svc.Config)) (shopAt, <-chan svc.Event) {
	t.Helper()
	events := make(chan svc.Event, 100)
	config := svc.Config{
		Logger: slog.New(slog.DiscardHandler),
		Events: svc.EventConfig{OnEvent: func(_ context.Context, event svc.Event) { events <- event }},
	}
	if change != nil {
		change(&config)
	}
	s := must(openAt(t.Context(), db, config))
	t.Cleanup(func() { is.New(t).NoErr(s.close()) })
	return s, events
}

// doomedAt returns the database for a program that a test kills, and waits, on PostgreSQL, until
// the server has noticed that it is gone.
func doomedAt(t *testing.T, db string) (address string, awaitGone func()) {
	t.Helper()
	if !strings.HasPrefix(db, "postgres://") {
		return db, func() {}
	}
	name := fmt.Sprintf("doomed_%d_%d", os.Getpid(), time.Now().UnixNano())
	server := pgtest.Open(t, db)
	return pgtest.With(t, db, "application_name", name), func() {
		t.Helper()
		const connected = `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1`
		left := 1
		if !programtest.Soon(func() bool { return server.QueryRow(connected, name).Scan(&left) == nil && left == 0 }) {
			t.Fatalf("the killed program has %d connections", left)
		}
	}
}

func customers(t *testing.T, s shopAt) (ids []string) {
	t.Helper()
	read(t, s, `SELECT id, 0 FROM customers ORDER BY id`, func(id string, _ int) { ids = append(ids, id) })
	return ids
}

func holders(t *testing.T, s shopAt) map[string]int {
	t.Helper()
	keys := map[string]int{}
	read(t, s, `SELECT holder_id, COUNT(*) FROM svc_api_keys GROUP BY holder_id`, func(id string, n int) { keys[id] = n })
	return keys
}

func read(t *testing.T, s shopAt, query string, use func(id string, n int)) {
	t.Helper()
	rows := must(s.db.Query(query))
	defer func() { is.New(t).NoErr(errors.Join(rows.Err(), rows.Close())) }()
	for rows.Next() {
		var id string
		var n int
		is.New(t).NoErr(rows.Scan(&id, &n))
		use(id, n)
	}
}

// TestKnownUser: the shop tells svc which users exist, by its own table and on another connection.
// That connection does not see a transaction, and SQLite has no other one that writes. Yet all that
// the shop does with keys works in the transaction in which the customer begins to exist.
func TestKnownUser(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, db string) {
		is := is.New(t)
		var s shopAt
		s, _ = openTest(t, db, func(c *svc.Config) {
			c.Keys.Peppers = []svc.Pepper{{Version: "1", Secret: make([]byte, 32)}}
			c.Keys.Imports = []svc.KeyImport{{Prefix: "old_"}}
			c.Users.Known = func(ctx context.Context, id string) (known bool, err error) {
				err = s.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM customers WHERE id = $1)`, id).Scan(&known)
				return known, err
			}
		})
		for name, host := range map[string]svc.Principal{"ada": svc.Host, "grace": svc.Host.As("sign-up")} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			customer := svc.Identity{Kind: svc.KindUser, ID: name}
			var kept svc.IssuedKey
			is.NoErr(inTransaction(ctx, s, func(exec func(string, ...any) error, inTx *svc.Service) (err error) {
				is.NoErr(exec(`INSERT INTO customers (id) VALUES ($1)`, customer.ID))
				kept = useKeys(ctx, is, inTx, host, customer)
				return nil
			}))
			is.Equal(must(s.service.Authenticate(ctx, string(kept.Key))).Identity(), customer)
		}
		nobody := svc.Principal{Kind: svc.KindUser, ID: "nobody"}
		_, err := s.service.Keys.Issue(t.Context(), nobody, svc.Me, svc.NewAPIKey{}) // Users.Known is asked about others
		is.Equal(svc.ErrorCode(err), svc.CodeForbidden)
	})
}

// useKeys calls every method of keys that a host may call in its transaction. It returns a key that is good.
func useKeys(ctx context.Context, is *is.I, inTx *svc.Service, host svc.Principal, customer svc.Identity) svc.IssuedKey {
	is.Helper()
	first := must(inTx.Keys.Issue(ctx, host, customer, svc.NewAPIKey{IdempotencyKey: "once-" + customer.ID}))
	hash := sha256.Sum256([]byte("old_" + customer.ID))
	imported := must(inTx.Keys.Import(ctx, host, customer, svc.ImportedKey{Prefix: "old_", Hash: hash[:]}))
	later, off, on := time.Now().Add(time.Hour), true, false
	for _, patch := range []svc.APIKeyPatch{{Disabled: &off}, {Disabled: &on}, {ExpiresAt: &later}} {
		must(inTx.Keys.Patch(ctx, host, customer, first.ID, patch))
	}
	must(inTx.Keys.Rotate(ctx, host, customer, first.ID, svc.Rotation{Overlap: time.Minute}))
	is.NoErr(inTx.Keys.Revoke(ctx, host, customer, imported.ID))
	is.True(must(inTx.Keys.RevokeAll(ctx, host, customer)) > 0)
	kept := must(inTx.Keys.Issue(ctx, host, customer, svc.NewAPIKey{}))
	listed := 0
	for _, err := range inTx.Keys.List(ctx, host, customer, svc.KeyQuery{}) {
		is.NoErr(err)
		listed++
	}
	is.True(listed > 0)
	return kept
}

// inTransaction runs work in a transaction of the shop.
func inTransaction(
	ctx context.Context, s shopAt, work func(exec func(string, ...any) error, inTx *svc.Service) error,
) error {
	if of, is := s.counter.(*pgxShop); is {
		return pgx.BeginFunc(ctx, of.pool, func(tx pgx.Tx) error {
			return work(func(statement string, args ...any) error {
				_, err := tx.Exec(ctx, statement, args...)
				return err
			}, s.service.WithTx(postgres.Tx(tx)))
		})
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	err = work(func(statement string, args ...any) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	}, s.service.WithTx(sqlstore.Tx(tx, sqlite.Dialect())))
	if err != nil {
		return err
	}
	return tx.Commit()
}
