package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/examples/server/catalogue"
	"github.com/extsvc/svc/httpapi"
)

// drainTime is the time that open requests have after the stop signal.
const drainTime = 10 * time.Second

var serveCommand = subcommand{
	about: "serve",
	setup: func(flags *flag.FlagSet, c *call) action {
		c.serveFlags(flags)
		return c.serve
	},
}

// serve runs the server until ctx ends.
func (c *call) serve(ctx context.Context) (err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Addr)
	if err != nil {
		return err // contains the address and the cause
	}
	defer listener.Close()
	base := baseURL(listener, c.log)
	h, err := openHost(ctx, c.config, base, c.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	h.progress = meter(c.stdout)
	start, err := h.prepare(ctx, c.Bundle)
	if err != nil {
		return err
	}
	if err := greet(c.stdout, c.config, base, start); err != nil {
		return err
	}
	return serveHTTP(ctx, listener, h.handler(c.log), c.log)
}

// baseURL returns the address at which a client on this machine reaches the listener.
func baseURL(listener net.Listener, log *slog.Logger) string {
	address := listener.Addr().(*net.TCPAddr)
	if !address.IP.IsLoopback() {
		log.Warn("other machines can reach this address, and requests with their keys are not"+
			" encrypted: put a TLS proxy in front of it", "addr", address.String())
	}
	host := address.IP.String()
	if address.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(address.Port))
}

// handler returns the handler of all routes.
func (h *host) handler(log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", welcome)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		health(w, r, h.service)
	})
	mux.Handle("GET /catalogue/", http.StripPrefix("/catalogue/", catalogue.Handler()))
	return httpapi.New(h.service, httpapi.Options{Logger: log}).Ahead(mux)
}

// health answers 204 if the Service can read the store, and 503 otherwise. It needs no bearer and
// shows nothing else.
func health(w http.ResponseWriter, r *http.Request, service *svc.Service) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	status := http.StatusNoContent
	if service.Ping(ctx) != nil {
		status = http.StatusServiceUnavailable
	}
	w.WriteHeader(status)
}

func welcome(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, `svc, the example server.

%-28s the interface; every request needs a bearer
%-28s templates to install
%-28s 204 while the database answers
`, httpapi.DefaultPrefix+"/", "/catalogue/templates.json", "/healthz")
}

// serveHTTP serves until ctx ends. Then it waits up to drainTime for the open requests.
func serveHTTP(
	ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger,
) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       20 * time.Second,
		WriteTimeout:      60 * time.Second, // a source can take 30 s to answer
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),

		DisableGeneralOptionsHandler: true, // "OPTIONS *" gets the same checks as other requests
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	log.Info("stopping")
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		err = fmt.Errorf("cut off the requests that took longer than %s: %w", drainTime, err)
		return errors.Join(err, server.Close())
	}
	return nil
}
