package client_test

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/memstore"
	"github.com/extsvc/svc/svctest"
)

// access is who there is.
const access = `{
  "users": [{"id": "alice", "channels": [{"provider": "telegram", "sender_id": "1001"}]}, {"id": "bob"}],
  "groups": [{"id": "staff", "members": ["alice"]}],
  "service_accounts": [{"id": "robot", "owner_user_id": "alice", "scoping_policy_id": "recalls"}],
  "policies": [
    {"id": "recalls", "document": {"version": "2026-03-24", "statements": [
      {"effect": "allow", "actions": ["bank:recall"], "banks": ["support"], "recall_budget": "low", "recall_max_tokens": 1024,
       "recall_tag_groups": [{"any": ["<a>", 1.50]}], "retain_roles": []},
      {"effect": "deny", "actions": ["bank:delete"], "banks": ["*"]}]}},
    {"id": "more", "document": {"version": "2026-03-24", "statements": [
      {"effect": "allow", "actions": ["bank:*"], "banks": ["*"], "recall_budget": "high", "llm_model": "big", "exclude_providers": ["x"]}]}}
  ],
  "attachments": [
    {"policy_id": "recalls", "principal_type": "group", "principal_id": "staff"},
    {"policy_id": "more", "principal_type": "user", "principal_id": "alice", "priority": -3}
  ],
  "bank_policies": [{"bank_id": "support", "document": {"version": "2026-03-24", "default_strategy": "balanced",
    "public_access": {"default": {"actions": ["bank:recall"]}, "overrides": [{"scope": "topic", "value": "billing", "actions": []}]}}}]
}`

// token is the bearer of an administrator: it must never be seen in what is said.
const token = "session-of-admin/for+tests-only=="

var (
	admin = svc.Principal{Kind: svc.KindUser, ID: "admin", Actions: []string{"iam:*", "template:*"}}
	alice = svc.Identity{Kind: svc.KindUser, ID: "alice"}
)

// site is a running server, and a client of it.
type site struct {
	*svc.Service
	t      *testing.T
	store  *intercept.Planted
	market *market
	server *httptest.Server
	client *client.Client // of an administrator
	files  string         // the directory of the source fs://acme

	clocks *svctest.Clock
	mu     sync.Mutex
	asked  []string // the method and route of each request; "" is none of the routes
}

// setup is how a site differs from the usual one.
type setup struct {
	service svc.Config
	api     httpapi.Options
	client  client.Config
	wrap    func(w http.ResponseWriter, r *http.Request, next http.Handler) // nil: the interface is served as it is
}

func newSite(t *testing.T, changes ...func(*setup)) *site {
	t.Helper()
	s := &site{t: t, store: intercept.NewPlanted(memstore.New()), files: t.TempDir(), clocks: &svctest.Clock{}}
	s.clocks.Advance(678901234)
	files := must(marketplace.New(marketplace.Config{Files: map[string]fs.FS{"acme": os.DirFS(s.files)}}))
	s.market = &market{Marketplace: files}
	u := setup{service: svc.Config{
		Store: s.store, Authenticator: svc.AuthenticatorFunc(sessions), Now: s.clock,
		Logger:  slog.New(slog.DiscardHandler),
		Keys:    svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("sixteen bytes or more")}}},
		Sources: svc.SourceConfig{Marketplace: s.market, SealingKey: make([]byte, 32)},
	}, api: httpapi.Options{Logger: slog.New(slog.DiscardHandler)}, client: client.Config{Token: token}}
	for _, change := range changes {
		change(&u)
	}
	s.Service = must(svc.New(u.service))
	expect.Holds(t, s.Access.Apply(t.Context(), svc.Host, must(svc.ParseBundle([]byte(access)))) == nil, "access")
	var handler http.Handler = s.record(httpapi.New(s.Service, u.api))
	if u.wrap != nil {
		served := handler
		handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { u.wrap(w, r, served) })
	}
	s.server = serve(t, handler)
	t.Cleanup(func() { _ = s.Close() })
	u.client.BaseURL = s.server.URL + "/ext/svc/"
	s.client = must(client.New(u.client))
	return s
}

func serve(t *testing.T, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	return server
}

func dial(t *testing.T, handler http.HandlerFunc) *client.Client {
	t.Helper()
	return must(client.New(client.Config{BaseURL: serve(t, handler).URL, Token: token}))
}

func (s *site) record(next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.asked = append(s.asked, strings.Replace(r.Pattern, "/ext/svc", "", 1))
		}()
		next.ServeHTTP(w, r)
	}
}

// requests returns the routes that were asked for since the last call.
func (s *site) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

func (s *site) clock() time.Time { return s.clocks.Now() }

func (s *site) tick() { s.clocks.Advance(time.Minute) }

// offer writes the catalogue of acme.
func (s *site) offer(catalogue string) {
	s.t.Helper()
	expect.Holds(s.t, os.WriteFile(filepath.Join(s.files, "templates.json"), []byte(catalogue), 0o600) == nil, "offer")
}

func (s *site) create(id string, change ...func(*svc.NewTemplate)) svc.Template {
	s.t.Helper()
	in := svc.NewTemplate{ID: id, Content: svc.Content{Name: id, Manifest: []byte(`{"version":"1"}`)}}
	for _, c := range change {
		c(&in)
	}
	return must(s.Templates.Create(s.t.Context(), svc.Host, in))
}

// sessions is how the host knows people: "session-of-ID/anything". Its administrator may do everything, and owner is alice with the
// rights over service accounts of her own.
func sessions(_ context.Context, bearer string) (svc.Principal, error) {
	session, found := strings.CutPrefix(bearer, "session-of-")
	if !found {
		return svc.Principal{}, svc.ErrUnauthenticated
	}
	id, _, _ := strings.Cut(session, "/")
	switch id {
	case admin.ID:
		return admin, nil
	case "owner":
		return svc.Principal{Kind: svc.KindUser, ID: "alice", Actions: []string{"iam:service_accounts:*", "iam:service_account_keys:write"}}, nil
	}
	return svc.Principal{Kind: svc.KindUser, ID: id}, nil
}

// market is a marketplace that can be made to fail.
type market struct {
	svc.Marketplace
	mu  sync.Mutex
	err error
}

func (m *market) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *market) Template(ctx context.Context, from svc.Upstream, id string) (svc.Content, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return svc.Content{}, m.err
	}
	return m.Marketplace.Template(ctx, from, id)
}

func (m *market) Catalog(ctx context.Context, from svc.Upstream, maxAge time.Duration) (svc.Catalog, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	catalog, err := m.Marketplace.Catalog(ctx, from, maxAge)
	catalog.Failure = m.err
	return catalog, err
}

func all[T any](rows iter.Seq2[T, error]) ([]T, error) {
	list := []T{}
	for row, err := range rows {
		if err != nil {
			return list, err
		}
		list = append(list, row)
	}
	return list, nil
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func errorOf[T any](_ T, err error) error { return err }
