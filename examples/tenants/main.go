// Command tenants serves svc for many tenants, all in one PostgreSQL database or in one folder of
// SQLite files. Each tenant has its own rows, keys and catalogue.
//
//	go run ./examples/tenants -tenants 3
//	go run ./examples/tenants -tenants 1000 -db postgres://user@host:5432/database
//	go run ./examples/tenants -move t1 -to postgres://user@host:5432/database
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/adminpage"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/sqlite"
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // the collector delays all tenants: docs/howto/tenants.md
	}
	signal.Ignore(syscall.SIGPIPE) // a log without a reader ends no server: the write fails
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "tenants:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends, or only migrates, or only moves a tenant.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("tenants", flag.ContinueOnError)
	count := flags.Int("tenants", 3, "make the `N` tenants t1 to tN, unless they are there")
	db := flags.String("db", "tenants", "a `DATABASE`: a folder for SQLite files, or postgres://…")
	addr := flags.String("addr", "127.0.0.1:8082", "the `HOST:PORT` to listen on")
	migrate := flags.Bool("migrate", false, "only upgrade the tables of all tenants")
	tenant := flags.String("move", "",
		"only copy the tenant `NAME` to the database -to, and suspend it here")
	to := flags.String("to", "", "another `DATABASE`, for -move")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *count < 0 || flags.NArg() > 0 || (*tenant == "") != (*to == "") {
		return errors.New("-tenants is not negative, -move needs -to, and there are no arguments")
	}
	store, err := open(ctx, *db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	warnings := &slog.HandlerOptions{Level: slog.LevelWarn}
	tenants, err := svc.NewTenants(svc.TenantsConfig{Store: store, Config: svc.Config{
		Logger: slog.New(slog.NewTextHandler(os.Stderr, warnings)),
	}})
	if err != nil {
		return err
	}
	defer tenants.Close()
	if *migrate {
		return migrateAll(ctx, tenants, out)
	}
	if *tenant != "" {
		there, err := open(ctx, *to)
		if err != nil {
			return err
		}
		return errors.Join(move(ctx, tenants, store, there, *tenant), there.Close())
	}
	if err := makeAll(ctx, tenants, *count, out); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	for i := range min(2, *count) {
		if err := printKey(ctx, tenants, name(i), out); err != nil {
			return errors.Join(err, listener.Close())
		}
	}
	fmt.Fprintf(out, "serving http://%s/t/{tenant}/ext/svc\n", listener.Addr())
	if *count > 0 {
		at := fmt.Sprintf("http://%s/t/t1/ext", listener.Addr())
		fmt.Fprintf(out, `try: curl -H "Authorization: Bearer KEY" %[1]s/svc/me/api-keys
or sign in with the key at %[1]s/svc-admin/
`, at)
	}
	return serve(ctx, listener, handler(tenants))
}

// database is a [svc.TenantStore] that this command has opened.
type database interface {
	svc.TenantStore
	Close() error
}

func open(ctx context.Context, db string) (database, error) {
	if strings.HasPrefix(db, "postgres://") || strings.HasPrefix(db, "postgresql://") {
		return postgres.OpenTenants(ctx, db, postgres.Options{})
	}
	if strings.Contains(db, "://") {
		return nil, fmt.Errorf("-db %s: neither a folder nor postgres://…", db)
	}
	return sqlite.OpenTenants(ctx, db, sqlite.Options{})
}

func name(i int) string { return "t" + strconv.Itoa(i+1) }

// makeAll makes the tenants that are missing, four at a time.
func makeAll(ctx context.Context, tenants *svc.Tenants, count int, out io.Writer) error {
	there := map[string]bool{}
	for tenant, err := range tenants.List(ctx) {
		if err != nil {
			return err
		}
		there[tenant.Name] = true
	}
	making, stop := context.WithCancelCause(context.WithoutCancel(ctx)) // ends with the first failure
	defer stop(nil)
	names := make(chan string)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for name := range names {
				_, err := tenants.Create(ctx, name)
				if err != nil && svc.ErrorCode(err) != svc.CodeExists {
					stop(err)
				}
			}
		})
	}
	began, made := time.Now(), 0
	for i := 0; i < count && making.Err() == nil; i++ {
		if !there[name(i)] {
			names <- name(i)
			made++
		}
	}
	close(names)
	all.Wait()
	if making.Err() != nil {
		return context.Cause(making)
	}
	took := time.Since(began).Round(time.Millisecond)
	fmt.Fprintf(out, "made %d tenants in %s, %d were there\n", made, took, len(there))
	return nil
}

// migrateAll upgrades the tables of all tenants. Started again after an interruption, it goes on
// where it was.
func migrateAll(ctx context.Context, tenants *svc.Tenants, out io.Writer) error {
	var last svc.Migration
	err := tenants.Migrate(ctx, func(m svc.Migration) {
		if m.Err != nil {
			fmt.Fprintf(out, "%s failed: %v\n", m.Tenant.Name, m.Err)
		}
		if m.Done%100 == 0 {
			fmt.Fprintf(out, "%d tenants, %d failed\n", m.Done, m.Failed)
		}
		last = m
	})
	fmt.Fprintf(out, "%d tenants, %d failed\n", last.Done, last.Failed)
	return err
}

// administrator is the user admin, with the rights to administer access and templates.
var administrator = svc.Bundle{
	Users: []svc.User{{ID: "admin"}},
	Attachments: []svc.Attachment{
		{PolicyID: svc.PolicyIAMAdmin, Principal: toAdmin},
		{PolicyID: svc.PolicyTemplateAdmin, Principal: toAdmin},
	},
}

var toAdmin = svc.GrantedTo{Type: svc.GrantedToUser, ID: "admin"}

// printKey makes the administrator of a tenant, and prints a new key.
func printKey(ctx context.Context, tenants *svc.Tenants, name string, out io.Writer) error {
	return tenants.Use(ctx, name, func(service *svc.Service) error {
		if err := service.Access.Apply(ctx, svc.Host, administrator); err != nil {
			return err
		}
		admin := svc.Identity{Kind: svc.KindUser, ID: "admin"}
		key, err := service.Keys.Issue(ctx, svc.Host, admin, svc.NewAPIKey{})
		if err == nil { // without a reader the key is lost, and the server starts all the same
			_, _ = fmt.Fprintf(out, "admin key of %s: %s\n", name, string(key.Key))
		}
		return err
	})
}

// handler serves the interface and the pages of all tenants, and the host's own page.
func handler(tenants *svc.Tenants) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "the host's own page\n")
	})
	api := httpapi.NewTenants(tenants, httpapi.Options{Prefix: "/t/{tenant}/ext/svc"})
	page := adminpage.NewTenants(tenants, adminpage.Options{Prefix: "/t/{tenant}/ext/svc-admin"})
	return page.Mount(api.Mount(mux))
}

// serve answers requests until ctx ends, and lets the running ones finish.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := httpapi.Server("", handler)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return server.Shutdown(grace)
}
