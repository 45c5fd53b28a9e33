package main_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha512"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// The pages of docs show what follows, line by line.

func serve(service *svc.Service, addr string, mux *http.ServeMux) {
	api := httpapi.New(service, httpapi.Options{}) // at /ext/svc
	log.Fatal(httpapi.Server(addr, api.Mount(mux)).ListenAndServe())
}

// recall is a route of the host's own, behind Protect.
func recall(service *svc.Service) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, _ := httpapi.PrincipalFrom(r.Context()) // without Protect: service.Authenticate(ctx, bearer)
		at := svc.Context{Provider: "slack", Channel: "#ops"}
		d, err := service.Decide(r.Context(), who, "bank:recall", r.FormValue("bank"), at)
		if err == nil && !d.Allowed() {
			err = &svc.Error{Code: svc.CodeForbidden, Message: "you may not recall this bank"}
		}
		if err != nil { // never an allow
			httpapi.WriteError(w, r, err)
			return
		}
		limit := int64(1024) // where no policy that allowed it says so
		if tokens := d.Parameters().RecallMaxTokens; tokens != nil {
			limit = *tokens
		}
		fmt.Fprintln(w, "recalls", limit)
	}
}

// signedIn finds the sessions of a host.
type signedIn interface {
	find(ctx context.Context, bearer string) (user string, admin bool, err error)
}

var errNoSession = errors.New("no such session")

func authenticator(sessions signedIn) svc.Config {
	return svc.Config{
		Store: memstore.New(),
		Authenticator: svc.AuthenticatorFunc(func(ctx context.Context, bearer string) (svc.Principal, error) {
			user, admin, err := sessions.find(ctx, bearer)
			if errors.Is(err, errNoSession) {
				return svc.Principal{}, svc.ErrUnauthenticated
			} else if err != nil {
				return svc.Principal{}, err // answers 503, not 401
			}
			p := svc.Principal{Kind: svc.KindUser, ID: user}
			if admin {
				p.Actions = []string{"*"} // vouched for, in this request only
			}
			return p, nil
		}),
	}
}

func firstAdministrator(ctx context.Context, service *svc.Service, bundle svc.Bundle) (svc.Secret, error) {
	if err := service.Access.Apply(ctx, svc.Host, bundle); err != nil {
		return "", err
	}
	issued, err := service.Keys.Issue(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: "admin"}, svc.NewAPIKey{})
	return issued.Key, err
}

func ownHandle(ctx context.Context, file string) (*sql.DB, *sqlstore.Store, error) {
	db, err := sql.Open("sqlite", "file:"+file+
		"?_txlock=immediate&_pragma=foreign_keys(1)&_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, nil, err
	}
	store := sqlstore.New(db, db, sqlite.Dialect()) // or sql.Open("pgx", url), and postgres.Dialect()
	return db, store, store.Migrate(ctx)            // makes the tables
}

func shutDown(ctx context.Context, server *http.Server, service *svc.Service, store *sqlite.Store) error {
	err := server.Shutdown(ctx)             // no more requests; those that run end
	err = errors.Join(err, service.Close()) // ends the background work, and writes when keys were used last
	err = errors.Join(err, store.Close())   // or the handle of your own
	return err
}

func verify(ctx context.Context, service *svc.Service, known []svc.AuditPosition, keep func(svc.AuditPosition)) error {
	check, err := service.Audit.Verify(ctx, svc.Host, known...) // known are marks of earlier checks
	if err != nil {
		return err
	}
	if check.Fault != nil {
		return fmt.Errorf("record %d %s", check.Fault.Number, check.Fault.Reason)
	}
	keep(check.Newest) // where whoever can write the database cannot
	return nil
}

func imports() svc.Config {
	return svc.Config{
		Keys: svc.KeyConfig{Imports: []svc.KeyImport{
			{Prefix: "sk-"}, // kept there as SHA-256 of the whole key
			{Prefix: "old_", Hash: theirHMACSHA512},
		}},
	}
}

func theirHMACSHA512(key string) []byte {
	mac := hmac.New(sha512.New, []byte("a secret of theirs"))
	mac.Write([]byte(key))
	return mac.Sum(nil)
}

func importKey(ctx context.Context, service *svc.Service, holder svc.Identity, hash []byte) (svc.APIKey, error) {
	key, err := service.Keys.Import(ctx, svc.Host, holder, svc.ImportedKey{Prefix: "old_", Hash: hash})
	return key, err
}

func peppers(newest, before []byte) svc.Config {
	return svc.Config{
		Keys: svc.KeyConfig{Peppers: []svc.Pepper{
			{Version: "2", Secret: newest}, // for new keys
			{Version: "1", Secret: before}, // still accepted
			{},                             // keys issued before there was a pepper
		}},
	}
}

// theHost has three sessions: of an administrator, of alice, and one that cannot be looked up just now.
type theHost struct{}

func (theHost) find(_ context.Context, bearer string) (user string, admin bool, err error) {
	switch bearer {
	case "s-admin", "s-alice":
		return bearer[2:], bearer == "s-admin", nil
	case "s-down":
		return "", false, errors.New("the sessions cannot be read")
	}
	return "", false, errNoSession
}

const mayRecall = `{
	"policies": [{"id": "p", "document": {"version": "2026-03-24", "statements": [
		{"effect": "allow", "actions": ["bank:recall"], "banks": ["support"], "recall_max_tokens": 7}]}}],
	"users": [{"id": "alice"}],
	"attachments": [{"policy_id": "p", "principal_type": "user", "principal_id": "alice"}]}`

// A denial is an answer of its own, and what is allowed comes with its parameters.
func TestProtectedRoute(t *testing.T) {
	is := is.New(t)
	service := must(svc.New(authenticator(theHost{})))
	defer service.Close()
	key := must(firstAdministrator(t.Context(), service, must(svc.ParseBundle([]byte(mayRecall)))))

	api, mux := httpapi.New(service, httpapi.Options{}), http.NewServeMux()
	mux.Handle("GET /recall", api.Protect(recall(service)))
	for bearer, want := range map[string]int{"s-alice": 200, "s-admin": 403, string(key): 403, "s-nobody": 401, "": 401, "s-down": 503} {
		is.Equal(ask(mux, bearer, "/recall?bank=support"), want)
	}
	is.Equal(ask(mux, "s-alice", "/recall?bank=other"), 403)
	is.Equal(ask(mux, "s-alice", "/recall?bank="), 400) // that bank is none
	is.Equal(ask(api, "s-admin", "/ext/svc/admin/templates"), 200)
}

func TestOwnHandle(t *testing.T) {
	is := is.New(t)
	db, store, err := ownHandle(t.Context(), filepath.Join(t.TempDir(), "host.db"))
	is.NoErr(err)
	defer db.Close()
	config := imports()
	config.Store, config.Events.Keep = store, true
	config.Keys.Peppers = peppers([]byte("the newest pepper"), []byte("the pepper before it")).Keys.Peppers
	service := must(svc.New(config))
	defer service.Close()
	alice := svc.Identity{Kind: svc.KindUser, ID: "alice"}
	must(importKey(t.Context(), service, alice, theirHMACSHA512("old_key-of-alice")))
	is.Equal(must(service.Authenticate(t.Context(), "old_key-of-alice")).Identity(), alice)
	var mark svc.AuditPosition
	is.NoErr(verify(t.Context(), service, nil, func(newest svc.AuditPosition) { mark = newest }))
	is.Equal(mark.Number, int64(1))
}

func TestShutDown(t *testing.T) {
	store := must(sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "svc.db"), sqlite.Options{}))
	service := must(svc.New(svc.Config{Store: store}))
	server := httptest.NewServer(httpapi.New(service, httpapi.Options{}))
	defer server.Close()
	is.New(t).NoErr(shutDown(t.Context(), server.Config, service, store))
}

var _ = serve // is for main

// must is the value of a call that does not fail.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
