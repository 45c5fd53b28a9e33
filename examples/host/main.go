// Command host is a host whose users sign in on its form. Their sessions are in a cookie, and
// its pages call the interface with that cookie. It has one user, the administrator.
//
//	go run ./examples/host -addr 127.0.0.1:8080 -db host.db
//
// The tests of this folder show more of what a host does: its mux, its files, its database.
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
	"syscall"
	"time"

	"github.com/extsvc/svc/httpapi"
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // a log without a reader ends no server: the write fails
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process immediately
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(ctx, os.Args[1:], os.Stdout, log); err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Error("host: cannot serve", "error", err)
		os.Exit(1)
	}
}

// run serves until ctx ends. It prints its address and a session of the administrator.
func run(ctx context.Context, args []string, stdout io.Writer, log *slog.Logger) (err error) {
	flags := flag.NewFlagSet("host", flag.ContinueOnError)
	addr := flags.String("addr", "127.0.0.1:8080",
		"the address to listen on; port 0 takes a free one")
	db := flags.String("db", "host.db", "the SQLite file")
	protection := http.NewCrossOriginProtection()
	flags.Func("trust", "the origin of the pages, where a proxy changes the Host header",
		protection.AddTrustedOrigin)
	if err := flags.Parse(args); err != nil {
		return err
	}
	h, err := openHost(ctx, *db, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *addr)
	if err != nil {
		return err
	}
	defer listener.Close()
	session, err := h.begin(ctx, administrator)
	if err != nil {
		return err
	}
	// This is for trying the program out. No other host should print a session or a password.
	// Without a reader they are lost, and the host serves all the same.
	_, _ = fmt.Fprintf(stdout, "listening on http://%s\npassword of %s: %s\nsession of %s: %s=%s\n",
		listener.Addr(), administrator, h.password, administrator, cookieName, session)
	return serve(ctx, listener, h.handler(protection, log))
}

// serve serves until ctx ends. Then it waits up to 10 seconds for the open requests.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := httpapi.Server("", handler)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		return errors.Join(err, server.Close())
	}
	return nil
}
