package main

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"

	"github.com/alexedwards/scs/v2"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/sqlite"
)

// administrator is the id of the one user.
const administrator = "admin"

// host is the application around a Service. It owns the store, the users and their sessions.
type host struct {
	store    *sqlite.Store
	service  *svc.Service
	sessions *scs.SessionManager
	password string // of the administrator, a new one at each start
}

// openHost opens the database, and creates it if it does not exist.
func openHost(ctx context.Context, file string, log *slog.Logger) (*host, error) {
	market, err := marketplace.New(marketplace.Config{})
	if err != nil {
		return nil, err
	}
	store, err := sqlite.Open(ctx, file, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	service, err := svc.New(svc.Config{ // in production add peppers and a sealing key
		Store: store, Sources: svc.SourceConfig{Marketplace: market}, Logger: log,
		Events: svc.EventConfig{Keep: true},
	})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	h := &host{store: store, service: service, sessions: newSessions(), password: rand.Text()}
	if err := h.prepare(ctx); err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

// firstRows give the administrator the rights of two built-in policies.
const firstRows = `{"users": [{"id": "admin", "display_name": "Administrator"}], "attachments": [
	{"policy_id": "iam:admin", "principal_type": "user", "principal_id": "admin"},
	{"policy_id": "template:admin", "principal_type": "user", "principal_id": "admin"}]}`

// prepare writes the administrator's rows into a new database. It changes nothing later: what
// administrators do over the interface must stay.
func (h *host) prepare(ctx context.Context) error {
	_, err := h.service.Users.Read(ctx, svc.Host, administrator)
	if svc.ErrorCode(err) != svc.CodeNotFound {
		return err
	}
	bundle, err := svc.ParseBundle([]byte(firstRows))
	if err != nil {
		return err
	}
	return h.service.Access.Apply(ctx, svc.Host.As("first start"), bundle)
}

// handler serves the interface and the host's own pages. protection guards both: sessions in
// cookies need it.
func (h *host) handler(protection *http.CrossOriginProtection, log *slog.Logger) http.Handler {
	api := httpapi.New(h.service, httpapi.Options{
		Principal:   h.signedIn,
		CrossOrigin: protection,
		Logger:      log,
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", h.home)
	mux.HandleFunc("GET /me.js", script)
	mux.HandleFunc("POST /sign-in", h.signIn)
	mux.HandleFunc("POST /sign-out", h.signOut)
	return api.Mount(protection.Handler(mux))
}

// close ends the background work and closes the database. Requests must have ended before.
func (h *host) close() error {
	return errors.Join(h.service.Close(), h.store.Close())
}
