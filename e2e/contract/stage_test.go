package contract_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/e2e/contract"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/limits"
	"github.com/extsvc/svc/store/memstore"
)

// stage is a server that plays one scene after the other, each with its own Service. Its clients check the contract.
type stage struct {
	t        *testing.T
	contract *contract.Contract
	url      string
	client   *http.Client
	scene    atomic.Pointer[scene]
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, contract: contract.Ours()}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.scene.Load().api.ServeHTTP(w, r) }))
	t.Cleanup(func() {
		server.Close()
		_ = s.scene.Load().service.Close()
	})
	s.url = server.URL + httpapi.DefaultPrefix
	s.client = &http.Client{Transport: s.contract.Transport(t, server.Client().Transport)}
	return s
}

// scene is a Service with its initial rows.
type scene struct {
	setting setting
	changed bool // a request to it wrote something
	service *svc.Service
	store   *broken
	shelf   *shelf
	api     http.Handler
	wait    atomic.Bool // everybody has to wait
	key     string      // the id of one of alice's keys
	botKey  string      // the id of the key of her service account
}

// setting is the initial state of a scene: nothing; a source; everything that the document's
// examples use; that, with the source at another address; or that, where a holder has one key at
// most, templates are kept in memory, and admin and alice have as many of their own as are allowed. Sources and
// templates are those of the server, and the same again as admin's own.
type setting int

const (
	empty setting = iota
	shelved
	stocked
	moved
	crowded
	ruled  // stocked, and one user alone has every administrative right
	frozen // stocked, with a key that has expired, and then read-only
)

// rows are the principals of every scene.
const rows = `{
  "users": [{"id": "admin"}, {"id": "alice", "channels": [{"provider": "slack", "sender_id": "U7"}]}, {"id": "bob", "channels": [{"provider": "telegram", "sender_id": "1001"}]}],
  "groups": [{"id": "team", "members": ["alice"]}],
  "service_accounts": [{"id": "ci", "owner_user_id": "alice"}],
  "policies": [
    {"id": "desk", "document": {"version": "2026-03-24", "statements": [
      {"effect": "allow", "actions": ["bank:recall"], "banks": ["support"], "recall_budget": "high", "recall_max_tokens": 4096}]}},
    {"id": "makes", "document": {"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["bank:create"], "banks": ["*"]}]}},
    {"id": "spare", "document": {"version": "2026-03-24", "statements": []}},
    {"id": "reads", "document": {"version": "2026-03-24", "statements": []}}],
  "attachments": [{"policy_id": "desk", "principal_type": "group", "principal_id": "team"},
    {"policy_id": "makes", "principal_type": "user", "principal_id": "admin"},
    {"policy_id": "reads", "principal_type": "user", "principal_id": "alice"}],
  "bank_policies": [{"bank_id": "support", "document": {"version": "2026-03-24", "default_strategy": "balanced",
    "public_access": {"default": {"actions": ["bank:recall"], "recall_budget": "low"},
      "overrides": [{"scope": "channel", "value": "#internal"}]}}}]
}`

// rulers make root the only administrator, by a policy of its own and by a group.
const rulers = `{
  "users": [{"id": "root"}],
  "groups": [{"id": "rulers", "members": ["root"]}, {"id": "barred", "members": []}],
  "policies": [
    {"id": "rules", "document": {"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["iam:*"], "banks": ["*"]}]}},
    {"id": "bars", "document": {"version": "2026-03-24", "statements": [{"effect": "deny", "actions": ["iam:*"], "banks": ["*"]}]}}],
  "attachments": [{"policy_id": "rules", "principal_type": "group", "principal_id": "rulers"},
    {"policy_id": "bars", "principal_type": "group", "principal_id": "barred"}]
}`

// maxBody is the body limit in every scene.
const maxBody = 10_000

var administrator = svc.Principal{Kind: svc.KindUser, ID: "admin", Actions: []string{"iam:*", "template:*"}}

// sessions accepts the host's sessions: its administrator, a user without rights, the same with those
// over its own service accounts, and one of these without rights.
func sessions(_ context.Context, bearer string) (svc.Principal, error) {
	switch bearer {
	case "admin":
		return administrator, nil
	case "alice":
		return svc.Principal{Kind: svc.KindUser, ID: "alice"}, nil
	case "owner":
		return svc.Principal{Kind: svc.KindUser, ID: "alice", Actions: []string{
			action.AccountsRead, action.AccountsWrite, action.AccountKeysWrite,
		}}, nil
	case "ci":
		return svc.Principal{Kind: svc.KindServiceAccount, ID: "ci"}, nil
	}
	return svc.Principal{}, svc.ErrUnauthenticated
}

// resume goes on with the present scene when it still is as a new one, else it begins a new one.
func (s *stage) resume(what setting) *scene {
	s.t.Helper()
	c := s.scene.Load()
	if c == nil || c.setting != what || c.changed {
		return s.play(what)
	}
	c.store.faults.Store(&faults{})
	c.shelf.fault.Store(nil)
	return c
}

// play begins a scene, which ends with the next.
func (s *stage) play(what setting) *scene {
	c := &scene{setting: what, store: newBroken(memstore.New()), shelf: &shelf{}}
	keys := svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("sixteen bytes or more")}}}
	cached := -1
	if what == crowded {
		keys.MaxPerHolder, cached = 1, 1<<20
	}
	c.offer("Take notes.")
	quiet := slog.New(slog.DiscardHandler)
	config := svc.Config{
		Store: c.store, Logger: quiet, Authenticator: svc.AuthenticatorFunc(sessions),
		Users:     svc.UserConfig{Known: func(context.Context, string) (bool, error) { return what != empty, nil }},
		Now:       func() time.Time { return time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC) },
		Keys:      keys,
		Sources:   svc.SourceConfig{Marketplace: c.shelf, SealingKey: make([]byte, 32)},
		Memory:    svc.Memory{Keys: 1, Templates: cached},
		Events:    svc.EventConfig{Keep: what != empty},
		Templates: svc.TemplateConfig{Banks: maker{}},
	}
	c.service = must(svc.New(config))
	nobody := func(*http.Request) (svc.Principal, error) { return svc.Principal{}, svc.ErrUnauthenticated }
	options := httpapi.Options{Logger: quiet, MaxBody: maxBody, Principal: nobody, Limit: func(*http.Request, svc.Principal) time.Duration {
		if c.wait.Load() {
			return 1500 * time.Millisecond
		}
		return 0
	}}
	c.api = httpapi.New(c.service, options)
	c.stock(s.t.Context(), what)
	if what == frozen {
		soon := config.Now().Add(time.Hour)
		must(c.service.Keys.Issue(s.t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "bob"}, svc.NewAPIKey{ExpiresAt: soon}))
		_ = c.service.Close()
		config.ReadOnly, config.Now = true, func() time.Time { return soon.AddDate(1, 0, 0) }
		c.service = must(svc.New(config))
		c.api = httpapi.New(c.service, options)
	}
	if old := s.scene.Swap(c); old != nil {
		_ = old.service.Close()
	}
	return c
}

// stock fills a scene. The last setting has a template edited locally whose source has changed.
func (c *scene) stock(ctx context.Context, what setting) {
	must(0, c.service.Access.Apply(ctx, svc.Host, must(svc.ParseBundle([]byte(rows)))))
	if what == empty {
		return
	}
	for _, h := range c.halves() {
		h.stock(ctx, what)
	}
	if what == shelved {
		return
	}
	c.offer("Take notes, briefly.")
	c.key = must(c.service.Keys.Issue(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.NewAPIKey{})).ID
	c.botKey = must(c.service.Keys.Issue(ctx, svc.Host, svc.Identity{Kind: svc.KindServiceAccount, ID: "ci"}, svc.NewAPIKey{})).ID
	switch what {
	case stocked:
		return
	case ruled:
		must(0, c.service.Access.Apply(ctx, svc.Host, must(svc.ParseBundle([]byte(rulers)))))
		return
	}
	for _, h := range c.halves() {
		must(0, h.sources.Remove(ctx, administrator, "acme"))
		must(h.sources.Register(ctx, administrator, svc.NewSource{URL: "https://templates.example.com/acme"}))
	}
	if what == crowded {
		c.crowd(ctx)
	}
}

// half has the templates and sources of the server, or the administrator's own.
type half struct {
	templates *svc.Templates
	sources   *svc.Sources
	scope     svc.Scope
}

func (c *scene) halves() []half {
	return []half{{c.service.Templates, c.service.Sources, svc.ScopeServer}, {c.service.MyTemplates, c.service.MySources, svc.ScopePersonal}}
}

// stock adds a source, and a template from it that is edited.
func (h half) stock(ctx context.Context, what setting) {
	must(h.sources.Register(ctx, administrator, svc.NewSource{URL: "https://github.com/acme/templates"}))
	if what != shelved {
		must(h.templates.Install(ctx, administrator, svc.Install{TemplateID: "notes", SourceName: "acme", SourceScope: h.scope}))
		must(h.templates.Patch(ctx, administrator, "notes", svc.TemplatePatch{Tags: &[]string{"mine"}}))
	}
}

// crowd adds own templates and sources of the administrator, and service accounts of alice, until no
// more are allowed.
func (c *scene) crowd(ctx context.Context) {
	var bundle svc.Bundle
	for i := range limits.ServiceAccounts - 1 {
		bundle.ServiceAccounts = append(bundle.ServiceAccounts, svc.ServiceAccount{ID: fmt.Sprint("a", i), OwnerUserID: "alice"})
	}
	must(0, c.service.Access.Apply(ctx, svc.Host, bundle))
	for i := range limits.PersonalTemplates - 1 {
		must(0, c.store.FullStore.CreateTemplate(ctx, svc.Template{
			TemplateKey: svc.TemplateKey{Scope: svc.ScopePersonal, Owner: administrator.ID, ID: fmt.Sprint("t", i)},
			Content:     svc.Content{Name: "T", Manifest: []byte(`{"version":"1"}`)},
		}))
	}
	for i := range limits.PersonalSources - 1 {
		key := svc.SourceKey{Scope: svc.ScopePersonal, Owner: administrator.ID, Name: fmt.Sprint("s", i)}
		must(0, c.store.FullStore.CreateSource(ctx, svc.Source{SourceKey: key}))
	}
}

// offer sets the template that the source offers.
func (c *scene) offer(prompt string) {
	c.shelf.content.Store(&svc.Content{Name: "Notes", Manifest: []byte(`{"version":"1","prompt":"` + prompt + `"}`)})
}

// maker makes all banks but one.
type maker struct{}

func (maker) MakeBank(_ context.Context, _ svc.Principal, bank svc.NewBank) (svc.CreatedBank, error) {
	if bank.ID == "taken" {
		return svc.CreatedBank{}, &svc.Error{Code: svc.CodeExists, Message: "a bank with this id already exists"}
	}
	return svc.CreatedBank{Created: true, ImportResult: []byte(`{"config_applied":true}`)}, nil
}

// entitled returns a caller with the rights for an operation. For its own keys that is alice.
func entitled(target string) string {
	switch {
	case strings.HasPrefix(target, ownAccounts):
		return "owner"
	case strings.HasPrefix(target, "/me/") && !ofTemplates(target):
		return "alice"
	}
	return "admin"
}

const ownAccounts = "/me/service-accounts"

// barred returns a caller without the rights. "": every caller has them.
func barred(target string) string {
	switch {
	case strings.HasPrefix(target, "/me/api-keys") || target == "/me":
		return "ci"
	case strings.HasPrefix(target, ownAccounts):
		return "alice"
	case strings.HasPrefix(target, "/me/") && !ofTemplates(target):
		return ""
	}
	return "alice"
}

// ofTemplates reports whether an operation is about own templates or sources.
func ofTemplates(target string) bool {
	return strings.HasPrefix(target, "/me/template") || strings.HasPrefix(target, "/me/source-templates")
}

type answer struct {
	t       *testing.T
	request string
	status  int
	header  http.Header
	body    []byte
}

// send sends a request to the present scene. A body is of the documented type unless a header says otherwise.
func (s *stage) send(bearer, method, target, body string, headers ...contract.Value) answer {
	s.t.Helper()
	request := must(http.NewRequest(method, s.url+target, strings.NewReader(body)))
	if body != "" {
		request.Header.Set("Content-Type", s.contract.BodyType(method, target))
	}
	if bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	for _, header := range headers {
		request.Header.Set(header.Name, header.Text)
	}
	response := must(s.client.Do(request))
	defer response.Body.Close()
	if method != http.MethodGet && response.StatusCode < 400 { // a failed request has changed nothing
		s.scene.Load().changed = true
	}
	asked := fmt.Sprintf("%s %.300s %.300s %v", method, target, body, headers)
	return answer{s.t, asked, response.StatusCode, response.Header, must(io.ReadAll(response.Body))}
}

func (a answer) is(status int) {
	a.t.Helper()
	if a.status != status {
		a.t.Errorf("%s: answered %d, want %d: %s", a.request, a.status, status, a.body)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// broken is a store that fails on request, in every method that requests use.
type broken struct {
	*intercept.Store
	faults atomic.Pointer[faults]
}

// faults are the errors of a store; nil: it works.
type faults struct{ reads, writes error }

func newBroken(good svc.FullStore) *broken {
	b := &broken{}
	b.faults.Store(&faults{})
	b.Store = &intercept.Store{FullStore: good, Around: func(_ context.Context, call intercept.Call) error {
		fault := b.faults.Load().reads
		if call.Writes {
			fault = b.faults.Load().writes
		}
		if fault != nil && call.Method != "ChainAudit" { // reads of the records call it
			return fault
		}
		return call.Do()
	}}
	return b
}

// shelf is a marketplace with one template at any address. It fails on request.
type shelf struct {
	content atomic.Pointer[svc.Content]
	fault   atomic.Pointer[error]
}

func (s *shelf) CheckURL(string) error { return nil }

func (s *shelf) Template(_ context.Context, _ svc.Upstream, id string) (svc.Content, error) {
	if fault := s.fault.Load(); fault != nil {
		return svc.Content{}, *fault
	}
	if id != "notes" {
		return svc.Content{}, &svc.Error{Code: svc.CodeNotFound, Message: "the source has no such template"}
	}
	return *s.content.Load(), nil
}

func (s *shelf) Manifest(context.Context, svc.Upstream, svc.CatalogEntry) (json.RawMessage, error) {
	if fault := s.fault.Load(); fault != nil {
		return nil, *fault
	}
	return json.RawMessage(`{"version":"1"}`), nil
}

func (s *shelf) Catalog(context.Context, svc.Upstream, time.Duration) (svc.Catalog, error) {
	if fault := s.fault.Load(); fault != nil {
		return svc.Catalog{}, *fault
	}
	return svc.Catalog{
		Entries: []svc.CatalogEntry{
			{ID: "notes", Content: *s.content.Load()}, {Index: 1, ID: "support", Content: svc.Content{Name: "Support"}, ManifestFile: "support.json"},
		},
		Problems:  []svc.CatalogProblem{{Index: 2, Reason: "it must be an object"}},
		FetchedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}, nil
}
