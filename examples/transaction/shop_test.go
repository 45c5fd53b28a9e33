package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/examples/internal/programtest"
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
		key := must(s.signUp(t.Context(), "ada"))
		is.Equal(must(s.service.Authenticate(t.Context(), string(key))).ID, "ada")
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

// TestProgram kills the program after it has printed a key. This run or the next one reports the
// event.
func TestProgram(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, db string) {
		is := is.New(t)
		dir := t.TempDir()
		address, awaitGone := doomedAt(t, db)
		first, stdout := program(t, dir, "-db", address, "ada")
		line := must(stdout.ReadString('\n'))
		is.True(strings.HasPrefix(line, "ada svcu_"))
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
