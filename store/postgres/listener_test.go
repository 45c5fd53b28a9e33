package postgres

import (
	"testing"
	"time"

	"github.com/extsvc/svc/store/postgres/pgtest"
)

// soon is how long a test waits for an event that should take milliseconds.
const soon = 20 * time.Second

// hears starts a listener, and returns a channel with an element for each wake-up.
func hears(t *testing.T, change func(*listener)) <-chan struct{} {
	t.Helper()
	config, err := parse(pgtest.With(t, pgtest.Server(t), "application_name", t.Name()))
	if err != nil {
		t.Fatal(err)
	}
	woken := make(chan struct{}, 1000)
	l := newListener(config, func() { woken <- struct{}{} })
	if change != nil {
		change(l)
	}
	l.start()
	t.Cleanup(l.close)
	wakes(t, woken) // it listens
	return woken
}

func wakes(t *testing.T, woken <-chan struct{}) {
	t.Helper()
	select {
	case <-woken:
	case <-time.After(soon):
		t.Fatal("nobody is woken")
	}
}

// quiet drops wake-ups from tests that run on the same server.
func quiet(woken <-chan struct{}) {
	for len(woken) > 0 {
		<-woken
	}
}

func TestListenerWakesForEachCommit(t *testing.T) {
	woken := hears(t, nil)
	db := pgtest.Open(t, pgtest.Server(t))
	for range 3 {
		quiet(woken)
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(Dialect().Notify); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		wakes(t, woken)
	}
}

// terminate ends the listener's connection, like an administrator or a restart.
func terminate(t *testing.T) {
	t.Helper()
	db := pgtest.Open(t, pgtest.Server(t))
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var ended int
		err := db.QueryRow(
			"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1", t.Name()).Scan(&ended)
		if err == nil && ended == 1 {
			return
		}
		if err != nil || time.Now().After(deadline) { // it may not be connected yet
			t.Fatalf("%d connections were ended, want 1: %v", ended, err)
		}
	}
}

func TestListenerConnectsAgainAndWakes(t *testing.T) {
	woken := hears(t, nil)
	for range 2 {
		quiet(woken)
		terminate(t)
		wakes(t, woken) // though nothing was notified
	}
}

func TestListenerAsksWhetherTheServerIsThere(t *testing.T) {
	woken := hears(t, func(l *listener) { l.heartbeat = 10 * time.Millisecond })
	time.Sleep(100 * time.Millisecond) // some heartbeats
	quiet(woken)
	db := pgtest.Open(t, pgtest.Server(t))
	if _, err := db.Exec(Dialect().Notify); err != nil {
		t.Fatal(err)
	}
	wakes(t, woken)
}

func TestListenerEndsWhileItCannotConnect(t *testing.T) {
	config, err := parse("postgres://127.0.0.1:1/db?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	l := listen(config, func() { t.Error("woke somebody") })
	time.Sleep(3 * firstPause)
	l.close()
}
