package e2e_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
	"github.com/extsvc/svc/e2e/contract"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/sqlite"
)

const access = `{
  "users": [{"id": "admin"}, {"id": "plain"}, {"id": "alice"}],
  "service_accounts": [
    {"id": "robot", "owner_user_id": "admin"},
    {"id": "narrow", "owner_user_id": "admin", "scoping_policy_id": "reads-users"}
  ],
  "policies": [
    {"id": "all", "document": {"version": "2026-03-24", "statements": [
      {"effect": "allow", "actions": ["iam:*", "template:*", "bank:create"], "banks": ["*"]}]}},
    {"id": "reads-users", "document": {"version": "2026-03-24", "statements": [
      {"effect": "allow", "actions": ["iam:users:read"], "banks": ["*"]}]}}
  ],
  "attachments": [{"policy_id": "all", "principal_type": "user", "principal_id": "admin"}]
}`

// site is a server over a database file.
type site struct {
	t       *testing.T
	path    string // of the database
	config  marketplace.Config
	url     string // of the interface
	service *svc.Service
	http    *http.Client
	stop    func()

	open func() (database, error) // nil: the file at path
}

// database is a store that has to be closed.
type database interface {
	svc.Store
	Close() error
}

// newSite serves a new database.
func newSite(t *testing.T, config marketplace.Config) *site {
	t.Helper()
	return newSiteOn(t, config, nil)
}

// newSiteOn serves the database that open opens.
func newSiteOn(t *testing.T, config marketplace.Config, open func() (database, error)) *site {
	t.Helper()
	s := &site{t: t, path: filepath.Join(t.TempDir(), "svc.db"), config: config, open: open}
	s.start()
	if err := s.service.Access.Apply(t.Context(), svc.Host, must(svc.ParseBundle([]byte(access)))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *site) start() {
	s.t.Helper()
	open := s.open
	if open == nil {
		open = func() (database, error) { return sqlite.Open(s.t.Context(), s.path, sqlite.Options{}) }
	}
	store := must(open())
	market := must(marketplace.New(s.config))
	s.service = must(svc.New(svc.Config{
		Store:     store,
		Keys:      svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("sixteen bytes or more")}}},
		Sources:   svc.SourceConfig{Marketplace: market, SealingKey: make([]byte, 32)},
		Events:    svc.EventConfig{Keep: true},
		Templates: svc.TemplateConfig{Banks: maker{}},
	}))
	server := httptest.NewServer(httpapi.New(s.service, httpapi.Options{}).Mount(http.NewServeMux()))
	transport := server.Client().Transport.(*http.Transport)
	transport.MaxIdleConnsPerHost = 16
	s.url, s.http = server.URL+httpapi.DefaultPrefix, &http.Client{Transport: contract.Transport(s.t, transport)}
	service := s.service
	s.stop = sync.OnceFunc(func() {
		server.Close()
		market.CloseIdleConnections()
		if err := errors.Join(service.Close(), store.Close()); err != nil {
			s.t.Error(err)
		}
	})
}

// maker makes every bank.
type maker struct{}

func (maker) MakeBank(context.Context, svc.Principal, svc.NewBank) (svc.CreatedBank, error) {
	return svc.CreatedBank{Created: true}, nil
}

// restart closes the database and opens it again.
func (s *site) restart() {
	s.t.Helper()
	s.stop()
	s.start()
}

// key issues a key to a user.
func (s *site) key(user string) string { return s.keyOf(svc.KindUser, user) }

func (s *site) keyOf(kind svc.Kind, id string) string {
	return string(must(s.service.Keys.Issue(s.t.Context(), svc.Host, svc.Identity{Kind: kind, ID: id}, svc.NewAPIKey{})).Key)
}

// keyID returns the id in a key.
func keyID(key string) string { return key[5:21] }

func (s *site) as(bearer string) caller { return newCaller(s.t, s.http, s.url, bearer) }

func (s *site) admin() caller { return s.as(s.key("admin")) }

// caller is the Go client with one bearer. It can also send requests that the client never sends.
type caller struct {
	*client.Client
	t      *testing.T
	http   *http.Client
	url    string
	bearer string
}

func newCaller(t *testing.T, http *http.Client, url, bearer string) caller {
	return caller{must(client.New(client.Config{BaseURL: url, Token: svc.Secret(bearer), HTTPClient: http})), t, http, url, bearer}
}

// try returns the error of a request with the bearer, or nil.
func (c caller) try() error {
	return failure(all(c.Keys.List(c.t.Context(), svc.Me, svc.KeyQuery{})))
}

// install installs a template of "acme" under its own id.
func (c caller) install(id string) error {
	return failure(c.Templates.Install(c.t.Context(), svc.Install{TemplateID: id, SourceName: "acme"}))
}

// update is UpdateTemplate without its result.
func (c caller) update(id string, force bool) error {
	return failure(c.Templates.Update(c.t.Context(), id, svc.UpdateRequest{LocalEdits: map[bool]svc.LocalEdits{true: svc.TakeTheirs}[force]}))
}

// templates returns the ids of a list.
func (c caller) templates(filter svc.TemplateQuery) []string {
	ids := []string{}
	for template, err := range c.Templates.List(c.t.Context(), filter) {
		fails(c.t, err, "")
		ids = append(ids, template.ID)
	}
	return ids
}

// all returns the elements of a list.
func all[T any](list iter.Seq2[T, error]) (elements []T, err error) {
	for element, err := range list {
		if err != nil {
			return nil, err
		}
		elements = append(elements, element)
	}
	return elements, nil
}

// failure returns the error of a call without its result.
func failure[T any](_ T, err error) error { return err }

// fails checks that an error has this code; "" expects no error.
func fails(t *testing.T, err error, code svc.Code) {
	t.Helper()
	if svc.ErrorCode(err) != code {
		t.Fatalf("error %v, want %q", err, code)
	}
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

// upstream is a web server whose files a test changes.
type upstream struct {
	*httptest.Server
	mu      sync.Mutex
	files   map[string]string
	handler http.HandlerFunc // if set, replaces the files
}

func newUpstream(t *testing.T, files map[string]string) *upstream {
	t.Helper()
	u := &upstream{files: files}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		handler := u.handler
		file, there := u.files[strings.TrimPrefix(r.URL.Path, "/acme/")]
		u.mu.Unlock()
		switch {
		case handler != nil:
			handler(w, r)
		case !there:
			http.NotFound(w, r)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, file)
		}
	}))
	u.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(func() {
		u.CloseClientConnections()
		u.Close()
	})
	return u
}

func (u *upstream) put(name, text string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.files[name] = text
}

func (u *upstream) answer(handler http.HandlerFunc) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.handler = handler
}

// offer publishes a catalogue of entries.
func (u *upstream) offer(entries ...string) {
	u.put("templates.json", `{"templates": [`+strings.Join(entries, ",")+`]}`)
}

// trusting returns the configuration of a marketplace that may fetch from servers.
func trusting(servers ...*upstream) marketplace.Config {
	var config marketplace.Config
	for _, u := range servers {
		config.AllowOrigins = append(config.AllowOrigins, u.URL)
	}
	return config
}

// register registers the server as the source "acme".
func (c caller) register(u *upstream) {
	c.t.Helper()
	fails(c.t, failure(c.Sources.Register(c.t.Context(), svc.NewSource{URL: u.URL + "/acme"})), "")
}
