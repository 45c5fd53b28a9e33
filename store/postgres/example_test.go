package postgres_test

import (
	"context"
	"log"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

// Open connects and makes the tables. Several processes may do so at once. The store is closed after the Service.
func ExampleOpen() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	url := os.Getenv("DATABASE_URL") // postgres://user:password@host:5432/database
	store, err := postgres.Open(ctx, url, postgres.Options{MaxOpen: 20})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	service, err := svc.New(svc.Config{Store: store, Logger: slog.Default()})
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close()
	if err := service.Ping(ctx); err != nil {
		log.Fatal(err)
	}
}

// TestExampleOpen runs the example, which go test only compiles: it has no output.
func TestExampleOpen(t *testing.T) {
	t.Setenv("DATABASE_URL", pgtest.Schema(t))
	ExampleOpen()
}
