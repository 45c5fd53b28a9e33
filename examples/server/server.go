package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/adminpage"
	"github.com/extsvc/svc/examples/server/catalogue"
	"github.com/extsvc/svc/httpapi"
)

var serveCommand = subcommand{
	about: "serve",
	setup: func(flags *flag.FlagSet, c *call) job {
		c.serveFlags(flags)
		print := flags.Bool("print-config", false,
			"print the configuration, without passwords, and do not serve")
		return func(ctx context.Context) error {
			if *print {
				return c.print(c.stdout)
			}
			return c.serve(ctx)
		}
	},
}

// serve runs the server until ctx ends.
func (c *call) serve(ctx context.Context) (err error) {
	hangUps, stop := hangUps()
	defer stop()
	server, certs, err := c.server()
	if err != nil {
		return err
	}
	listener, err := listen(ctx, c.Addr)
	if err != nil {
		return err // contains the address and the cause
	}
	defer listener.Close()
	base := c.baseURL(listener)
	h, err := openHost(ctx, c.config, base, c.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	h.progress = meter(c.stdout)
	start, err := h.prepare(ctx, c.config, c.log)
	if err != nil {
		return err
	}
	if err := greet(c.stdout, c.config, base, start); err != nil {
		c.log.Warn("cannot print the address", "error", err)
		if key := start.first.APIKey; key.ID != "" { // nobody has seen it
			err := h.service.Keys.Revoke(ctx, atStart, key.Holder, key.ID)
			if err == nil {
				c.log.Warn("revoked the first key: server key makes another")
			} else {
				c.log.Error("cannot revoke the first key", "api_key", key.ID, "error", err)
			}
		}
	}
	serving := c.newServing(h, base, certs)
	server.Handler = serving
	work, end := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { serving.follow(work, hangUps) })
	background.Go(func() { c.backUp(work, h.store) })
	err = c.serveHTTP(ctx, server, listener)
	end()
	background.Wait()
	return err
}

// baseURL returns the address at which a client on this machine reaches the listener. That of a
// socket is no URL, but -url takes it.
func (c *call) baseURL(listener net.Listener) string {
	address, is := listener.Addr().(*net.TCPAddr)
	if !is {
		return c.Addr
	}
	if !address.IP.IsLoopback() && !c.TLS.on() {
		c.log.Warn("other machines can reach this address, and requests with their keys are not"+
			" encrypted: put a TLS proxy in front of it, or set tls.cert_file and tls.key_file",
			"addr", address.String())
	}
	host := address.IP.String()
	if address.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return c.TLS.scheme() + "://" + net.JoinHostPort(host, strconv.Itoa(address.Port))
}

// handler returns the handler of all routes.
func (c *call) handler(h *host) http.Handler {
	service := h.service
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", c.welcome)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		health(w, r, service)
	})
	mux.Handle("GET /catalogue/", http.StripPrefix("/catalogue/", catalogue.Handler()))
	api := httpapi.New(service, httpapi.Options{
		Prefix: c.HTTP.Prefix, MaxBody: c.HTTP.MaxBody, Logger: c.log, PublicURL: c.HTTP.PublicURL,
		HideOpenAPI: c.HTTP.HideOpenAPI, HideAccess: c.HTTP.HideAccess,
	}).Mount(mux)
	if c.HTTP.HideAdminPage {
		return api
	}
	page := adminpage.New(service, adminpage.Options{
		Prefix: c.adminPrefix(), Logger: c.log, ReadOnly: c.ReadOnly,
		Secure:     c.TLS.on() || strings.HasPrefix(c.HTTP.PublicURL, "https:"),
		SessionKey: h.sessionKeys[0], OldSessionKeys: h.sessionKeys[1:],
	})
	return page.Mount(api)
}

// adminPrefix returns the path of the administration page.
func (c config) adminPrefix() string { return c.HTTP.Prefix + "-admin" }

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

func (c *call) welcome(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, `svc, the example server.

%-28s the interface; every request needs a bearer
%-28s the administration page, for browsers
%-28s templates to install
%-28s 204 while the database answers
`, c.HTTP.Prefix+"/", c.adminPrefix()+"/", "/catalogue/templates.json", "/healthz")
}

// server returns the HTTP server, without its handler, and its certificates; nil: without TLS.
func (c *call) server() (*http.Server, *certificates, error) {
	server := &http.Server{
		ReadHeaderTimeout: c.HTTP.ReadHeaderTimeout.value(),
		ReadTimeout:       c.HTTP.ReadTimeout.value(),
		WriteTimeout:      c.HTTP.WriteTimeout.value(), // a source can take 30 s to answer
		IdleTimeout:       c.HTTP.IdleTimeout.value(),
		MaxHeaderBytes:    min(c.HTTP.MaxHeader, math.MaxInt>>1), // net/http adds to it
		ErrorLog:          slog.NewLogLogger(c.log.Handler(), slog.LevelWarn),

		DisableGeneralOptionsHandler: true, // "OPTIONS *" gets the same checks as other requests
	}
	if !c.TLS.on() {
		return server, nil, nil
	}
	kept, err := readCertificates(c.TLS, c.log)
	if err != nil {
		return nil, nil, err
	}
	server.TLSConfig = &tls.Config{GetCertificate: kept.get, MinVersion: tls.VersionTLS12}
	return server, kept, nil
}

func (e tlsConfig) on() bool { return e.Cert != "" }

func (e tlsConfig) scheme() string {
	if e.on() {
		return "https"
	}
	return "http"
}

// serveHTTP serves until ctx ends. Then it waits for the open requests, up to the ShutdownTimeout.
func (c *call) serveHTTP(ctx context.Context, server *http.Server, listener net.Listener) error {
	failed := make(chan error, 1)
	go func() {
		if c.TLS.on() {
			failed <- server.ServeTLS(listener, "", "")
		} else {
			failed <- server.Serve(listener)
		}
	}()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	c.log.Info("stopping")
	patience := c.HTTP.ShutdownTimeout.value()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		err = fmt.Errorf("cut off the requests that took longer than %s: %w", patience, err)
		return errors.Join(err, server.Close())
	}
	return nil
}
