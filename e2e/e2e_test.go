package e2e_test

import (
	"context"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/e2e/contract"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/svctest"
)

// more are principals besides those of svctest.
const more = `{
  "users": [{"id": "plain"}],
  "service_accounts": [{"id": "narrow", "owner_user_id": "admin", "scoping_policy_id": "reads-users"}],
  "policies": [{"id": "reads-users", "document": {"version": "2026-03-24", "statements": [
    {"effect": "allow", "actions": ["iam:users:read"], "banks": ["*"]}]}}]
}`

// site is a server over a database. Its clients check the contract.
type site struct {
	*svctest.Server
	t    *testing.T
	url  string // of the interface
	http *http.Client
}

// newSite serves a new SQLite file, unless a change sets another Store.
func newSite(t *testing.T, changes ...func(*svc.Config)) *site {
	t.Helper()
	server := svctest.New(t, svctest.Options{Config: func(c *svc.Config) {
		c.Logger, c.Events.Keep, c.Templates.Banks = slog.New(slog.DiscardHandler), true, maker{}
		for _, change := range append([]func(*svc.Config){onFile(t, sqlite.Options{})}, changes...) {
			change(c)
		}
	}})
	server.Apply(more)
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	return &site{server, t, server.URL + httpapi.DefaultPrefix, &http.Client{Transport: contract.Transport(t, transport)}}
}

// onFile sets a store over a new SQLite file.
func onFile(t *testing.T, options sqlite.Options) func(*svc.Config) {
	return func(c *svc.Config) {
		store := must(sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "svc.db"), options))
		t.Cleanup(func() { _ = store.Close() })
		c.Store = store
	}
}

// onShelf sets a marketplace with a source at fs://shelf, which offers the template "chat".
func onShelf(c *svc.Config) {
	catalogue := `{"templates": [{"id": "chat", "name": "Chat", "manifest": {"version": "1"}}]}`
	shelf := fstest.MapFS{"templates.json": {Data: []byte(catalogue)}}
	c.Sources.Marketplace = must(marketplace.New(marketplace.Config{Files: map[string]fs.FS{"shelf": shelf}}))
}

// maker makes every bank.
type maker struct{}

func (maker) MakeBank(context.Context, svc.Principal, svc.NewBank) (svc.CreatedBank, error) {
	return svc.CreatedBank{Created: true}, nil
}

func (s *site) key(user string) string { return s.keyOf(svc.KindUser, user) }

func (s *site) keyOf(kind svc.Kind, id string) string {
	return string(must(s.Service.Keys.Issue(s.t.Context(), svc.Host, svc.Identity{Kind: kind, ID: id}, svc.NewAPIKey{})).Key)
}

func keyID(key string) string { return key[5:21] }

func (s *site) as(bearer string) caller { return caller{s.t, s.http, s.url, bearer} }

func (s *site) admin() caller { return s.as(s.key("admin")) }

// caller sends requests with one bearer.
type caller struct {
	t      *testing.T
	http   *http.Client
	url    string
	bearer string
}

// kindOf returns the Content-Type of bodies that a route takes.
func kindOf(target string) string {
	if strings.HasPrefix(target, "/introspect") {
		return "application/x-www-form-urlencoded"
	}
	return "application/json"
}

func (c caller) send(method, target, body string) answer {
	c.t.Helper()
	a := answer{t: c.t, request: method + " " + target + " " + body}
	request := must(http.NewRequest(method, c.url+target, strings.NewReader(body)))
	if body != "" {
		request.Header.Set("Content-Type", kindOf(target))
	}
	if c.bearer != "" {
		request.Header.Set("Authorization", "Bearer "+c.bearer)
	}
	response, err := c.http.Do(request)
	if err != nil {
		c.t.Errorf("%s: %v", a.request, err)
		return a
	}
	defer response.Body.Close()
	a.status, a.header = response.StatusCode, response.Header
	if a.body, err = io.ReadAll(response.Body); err != nil {
		c.t.Errorf("%s: %v", a.request, err)
	}
	return a
}

// answer is an answer; status 0 means that there was none.
type answer struct {
	t       *testing.T
	request string
	status  int
	header  http.Header
	body    []byte
}

func (a answer) is(status int) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: answered %d, want %d: %s", a.request, a.status, status, a.body)
	}
	return a
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
