// Package svctest starts a whole Service for a host's tests in one line: with users, keys, a clock
// and sources of templates.
//
//	server := svctest.New(t)
//	status, answer := server.Alice.Do("GET", "/ext/svc/admin/templates", "") // 403: she has no rights
//
// It uses no mocks. A [Server] is a [svc.Service] over package memstore behind package httpapi. It
// asks its sources with the client of package marketplace. All requests use real connections on the
// loopback interface.
//
// A Server belongs to one test and ends with it. Servers share nothing, so tests may run in
// parallel. [New], [NewSource] and the methods of a Server end the test with Fatalf when it cannot
// go on: call them in the test's own goroutine.
package svctest

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/memstore"
)

// Server is a running Service with its HTTP interface. Use [New].
type Server struct {
	// URL has no final slash. The interface is under URL + [httpapi.DefaultPrefix], or the Prefix of
	// Options.HTTP.
	URL     string
	Service *svc.Service
	API     *httpapi.Handler
	// Mux serves the paths outside that prefix: the host's own routes. Add routes at any time.
	Mux   *http.ServeMux
	Clock *Clock

	Admin *Caller // user "admin": may do iam:*, template:* and bank:* on all banks
	Alice *Caller // user "alice": has a row, and no rights
	Robot *Caller // service account "robot" of admin: has the rights of admin

	t       testing.TB
	client  *http.Client
	sources web

	mu     sync.Mutex
	events []svc.Event
}

// access holds the users, service accounts and policies that every Server starts with.
const access = `{
  "users": [{"id": "admin"}, {"id": "alice"}],
  "service_accounts": [{"id": "robot", "owner_user_id": "admin"}],
  "policies": [{"id": "everything", "document": {"version": "2026-03-24", "statements": [
    {"effect": "allow", "actions": ["iam:*", "template:*", "bank:*"], "banks": ["*"]}]}}],
  "attachments": [{"policy_id": "everything", "principal_type": "user", "principal_id": "admin"}]
}`

// Options change a [Server]. The zero value changes nothing.
type Options struct {
	// Config changes the configuration of the Service: give it the host's Authenticator, a store
	// with a database, a check of manifests. A Config that sets Now disables the Clock. One that
	// sets Marketplace disables [Server.Source]: use [NewSource] instead, before
	// [New]. Nil: no change.
	Config func(*svc.Config)
	// HTTP are the options of the interface, as the host has them. Without a Logger, it logs to the
	// output of the test.
	HTTP httpapi.Options
}

// New starts a Server, which ends with the test. Its logs go to the output of the test, so a
// failing test shows them. It takes no Options or one, and calls neither OnEvent nor Users.Known of
// the Config before it returns.
func New(t testing.TB, options ...Options) *Server {
	t.Helper()
	var with Options
	if len(options) > 1 {
		t.Fatal("svctest: New takes one Options")
	} else if len(options) == 1 {
		with = options[0]
	}
	s := &Server{Mux: http.NewServeMux(), Clock: &Clock{}, t: t, sources: newWeb(t)}
	logger := slog.New(slog.NewTextHandler(newOutput(t), nil))
	config := svc.Config{
		Store:  memstore.New(),
		Logger: logger,
		Now:    s.Clock.Now,
		Keys: svc.KeyConfig{
			Peppers: []svc.Pepper{{Version: "1", Secret: []byte("the pepper of a test")}},
		},
		Sources: svc.SourceConfig{
			Marketplace: newMarket(t, s.sources.url),
			SealingKey:  make([]byte, 32),
		},
		Memory: svc.Memory{Keys: 1024},
	}
	if with.Config != nil {
		with.Config(&config)
	}
	s.populate(config)
	config.Events.OnEvent = s.record(config.Events.OnEvent)
	s.Service = s.build(config)
	if with.HTTP.Logger == nil {
		with.HTTP.Logger = config.Logger
	}
	s.API = httpapi.New(s.Service, with.HTTP)
	server := httptest.NewUnstartedServer(s.API.Mount(s.Mux))
	server.Config.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelError)
	server.Start()
	t.Cleanup(server.Close) // ends before the service
	s.URL, s.client = server.URL, server.Client()
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}
	return s
}

// build returns a Service that ends with the test.
func (s *Server) build(config svc.Config) *svc.Service {
	s.t.Helper()
	service, err := svc.New(config)
	if err != nil {
		s.t.Fatalf("svctest: %v", err)
	}
	s.t.Cleanup(func() { _ = service.Close() })
	return service
}

// populate writes the bundle access and issues the keys, with a Service that has no hooks of the
// host and may write.
func (s *Server) populate(config svc.Config) {
	s.t.Helper()
	config.Events.OnEvent, config.Users.Known = nil, nil
	config.Users.RequireKnown, config.ReadOnly = false, false
	s.Service = s.build(config)
	s.Apply(access)
	s.Admin, s.Alice = s.User("admin"), s.User("alice")
	s.Robot = s.issue(svc.Principal{Kind: svc.KindServiceAccount, ID: "robot"})
	_ = s.Service.Close()
}

// Apply writes a bundle of JSON. It adds or replaces users and policies.
func (s *Server) Apply(bundle string) {
	s.t.Helper()
	b, err := svc.ParseBundle([]byte(bundle))
	if err == nil {
		err = s.Service.Access.Apply(s.t.Context(), svc.Host, b)
	}
	if err != nil {
		s.t.Fatalf("svctest: %v", err)
	}
}

// Source starts a source that offers templates, and registers it under that name. Changes to the
// source show immediately: the Service does not use a cached catalogue here, which may be a minute
// old.
func (s *Server) Source(name string, templates ...Template) *Source {
	s.t.Helper()
	source := s.sources.add(name, templates)
	in := svc.NewSource{URL: source.URL, Alias: &name}
	if _, err := s.Service.Sources.Register(s.t.Context(), svc.Host, in); err != nil {
		s.t.Fatalf("svctest: register source %q: %v", name, err)
	}
	return source
}

// Events returns the events since New returned, in order.
func (s *Server) Events() []svc.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// record keeps events and passes them to the host.
func (s *Server) record(tell func(context.Context, svc.Event)) func(context.Context, svc.Event) {
	return func(ctx context.Context, event svc.Event) {
		s.mu.Lock()
		s.events = append(s.events, event)
		s.mu.Unlock()
		if tell != nil {
			tell(ctx, event)
		}
	}
}

// market is a client that never uses a cached catalogue.
type market struct{ *marketplace.Client }

func newMarket(t testing.TB, origin string) market {
	t.Helper()
	client, err := marketplace.New(marketplace.Config{
		AllowOrigins: []string{origin}, AllowPersonal: true,
	})
	if err != nil {
		t.Fatalf("svctest: %v", err)
	}
	return market{client}
}

func (m market) Catalog(
	ctx context.Context, from svc.Upstream, _ time.Duration,
) (svc.Catalog, error) {
	return m.Client.Catalog(ctx, from, 0)
}
