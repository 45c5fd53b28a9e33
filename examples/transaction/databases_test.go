package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/examples/internal/programtest"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

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
		"pgx":    func(t *testing.T) string { return pgtest.Schema(t) },
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
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
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

// customers returns the IDs of the shop's customers.
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
