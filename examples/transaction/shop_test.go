package main

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/matryer/is"
)

// openTest opens a shop that sends its events to a channel.
func openTest(t *testing.T) (*shop, <-chan svc.Event) {
	t.Helper()
	events := make(chan svc.Event, 100)
	s, err := open(t.Context(), filepath.Join(t.TempDir(), "shop.db"), svc.Config{
		Logger:  slog.New(slog.DiscardHandler),
		OnEvent: func(_ context.Context, event svc.Event) { events <- event },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s, events
}

func TestSignUp(t *testing.T) {
	is := is.New(t)
	s, events := openTest(t)
	key, err := s.signUp(t.Context(), "ada")
	is.NoErr(err)
	who, err := s.service.Authenticate(t.Context(), string(key))
	is.NoErr(err)
	is.Equal(who.ID, "ada")
	is.Equal(receive(t, events).Target.Holder.ID, "ada")

	_, err = s.signUp(t.Context(), "ada")
	is.True(err != nil)
	is.Equal(holders(t, s), map[string]int{"ada": 1})
}

func receive(t *testing.T, events <-chan svc.Event) svc.Event {
	t.Helper()
	select {
	case event := <-events:
		return event
	case <-time.After(20 * time.Second):
		t.Fatal("no event comes")
		panic("unreachable")
	}
}

// TestRolledBack: a sign-up that fails after the key was issued leaves nothing and sends no event.
func TestRolledBack(t *testing.T) {
	is := is.New(t)
	s, events := openTest(t)
	_, err := s.store.DB().Exec(`CREATE TABLE plans (customer TEXT REFERENCES customers (id) DEFERRABLE INITIALLY DEFERRED);
		CREATE TRIGGER plan AFTER INSERT ON customers WHEN new.id = 'mallory' BEGIN INSERT INTO plans VALUES ('nobody'); END`)
	is.NoErr(err)
	_, err = s.signUp(t.Context(), "mallory")
	is.True(err != nil) // the commit fails
	_, err = s.signUp(t.Context(), "ada")
	is.NoErr(err)
	is.Equal(receive(t, events).Target.Holder.ID, "ada")
	is.Equal(len(events), 0)
	is.Equal(holders(t, s), map[string]int{"ada": 1})
	is.Equal(customers(t, s), []string{"ada"})
}

// TestLeave: with a customer go the keys, or nothing goes.
func TestLeave(t *testing.T) {
	is := is.New(t)
	s, _ := openTest(t)
	good := func(key svc.Secret) bool {
		_, err := s.service.Authenticate(t.Context(), string(key))
		return err == nil
	}
	ada, err := s.signUp(t.Context(), "ada")
	is.NoErr(err)
	grace, err := s.signUp(t.Context(), "grace")
	is.NoErr(err)
	is.NoErr(s.leave(t.Context(), "ada"))
	is.True(!good(ada) && good(grace))
	is.Equal(customers(t, s), []string{"grace"})
	is.NoErr(s.leave(t.Context(), "ada")) // again is no error

	_, err = s.store.DB().Exec(`CREATE TABLE orders (customer TEXT REFERENCES customers (id) DEFERRABLE INITIALLY DEFERRED);
		INSERT INTO orders VALUES ('grace')`)
	is.NoErr(err)
	is.True(s.leave(t.Context(), "grace") != nil) // the commit fails
	is.True(good(grace))
	is.Equal(customers(t, s), []string{"grace"})
}

// TestRefused: when the Service refuses a customer, the shop does not sign the customer up.
func TestRefused(t *testing.T) {
	is := is.New(t)
	s, _ := openTest(t)
	_, err := s.signUp(t.Context(), "a/b")
	is.Equal(svc.ErrorCode(err), svc.CodeInvalid)
	is.Equal(len(customers(t, s)), 0)
}

// TestProgram kills the program after it has printed a key. This run or the next one reports the
// event.
func TestProgram(t *testing.T) {
	is := is.New(t)
	dir := t.TempDir()
	first, stdout := program(t, dir, "ada")
	line, err := stdout.ReadString('\n')
	is.NoErr(err)
	is.True(strings.HasPrefix(line, "ada svcu_"))
	is.NoErr(first.Process.Kill())
	_ = first.Wait() // killed
	reopen(t, dir, svc.Config{}, func(s *shop) {
		_, err = s.store.DB().Exec(`UPDATE svc_outbox SET claimed_until = 0`) // end the 30 s claim of the killed run
		is.NoErr(err)
	})

	second, _ := program(t, dir)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		log, err := os.ReadFile(filepath.Join(dir, "log"))
		is.NoErr(err)
		if strings.Contains(string(log), ": api_key.issued for ada\n") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing was told: %s", log)
		}
	}
	is.NoErr(second.Process.Signal(os.Interrupt))
	is.NoErr(second.Wait())
}

// program runs this binary as the program itself.
func program(t *testing.T, dir string, customers ...string) (command *exec.Cmd, stdout *bufio.Reader) {
	t.Helper()
	log := must(os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))
	defer log.Close()
	command = exec.CommandContext(t.Context(), os.Args[0], customers...)
	command.Dir, command.Stderr = dir, log
	command.Env = append(os.Environ(), setting+"MAIN=1")
	stdout = bufio.NewReader(must(command.StdoutPipe()))
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return command, stdout
}

// customers returns the IDs of the shop's customers.
func customers(t *testing.T, s *shop) (ids []string) {
	t.Helper()
	read(t, s, `SELECT id, 0 FROM customers ORDER BY id`, func(id string, _ int) { ids = append(ids, id) })
	return ids
}

func holders(t *testing.T, s *shop) map[string]int {
	t.Helper()
	keys := map[string]int{}
	read(t, s, `SELECT holder_id, COUNT(*) FROM svc_api_keys GROUP BY holder_id`, func(id string, n int) { keys[id] = n })
	return keys
}

func read(t *testing.T, s *shop, query string, use func(id string, n int)) {
	t.Helper()
	rows, err := s.store.DB().Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatal(err)
		}
	}()
	for rows.Next() {
		var id string
		var n int
		if err := rows.Scan(&id, &n); err != nil {
			t.Fatal(err)
		}
		use(id, n)
	}
}

// TestHostingSnippet: the function in docs/hosting.md is signUp.
func TestHostingSnippet(t *testing.T) {
	is := is.New(t)
	docs, err := os.ReadFile("../../docs/hosting.md")
	is.NoErr(err)
	code, err := os.ReadFile("shop.go")
	is.NoErr(err)
	_, function, found := strings.Cut(string(code), "// signUp adds")
	is.True(found)
	_, section, found := strings.Cut(string(docs), "## In your own transaction\n")
	is.True(found)
	_, snippet, found := strings.Cut(section, "```go\n")
	is.True(found)
	snippet, _, _ = strings.Cut(snippet, "```\n")
	is.Equal(strings.ReplaceAll(snippet, "    ", "\t"), "// signUp adds"+function)
}
