package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/extsvc/svc"
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
      {"effect": "allow", "actions": ["iam:*", "template:*"], "banks": ["*"]}]}},
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
	client  *http.Client
	stop    func()
}

// newSite serves a new database.
func newSite(t *testing.T, config marketplace.Config) *site {
	t.Helper()
	s := &site{t: t, path: filepath.Join(t.TempDir(), "svc.db"), config: config}
	s.start()
	if err := s.service.Apply(t.Context(), svc.Host, must(svc.ParseBundle([]byte(access)))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *site) start() {
	s.t.Helper()
	store, err := sqlite.Open(s.t.Context(), s.path, sqlite.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	market := must(marketplace.New(s.config))
	s.service = must(svc.New(svc.Config{
		Store: store, Marketplace: market, Logger: quiet,
		Keys:    svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("sixteen bytes or more")}}},
		Sources: svc.SourceConfig{SealingKey: make([]byte, 32)},
	}))
	server := httptest.NewServer(httpapi.New(s.service, httpapi.Options{Logger: quiet}).Ahead(http.NewServeMux()))
	transport := server.Client().Transport.(*http.Transport)
	transport.MaxIdleConnsPerHost = 16
	s.url, s.client = server.URL+httpapi.DefaultPrefix, &http.Client{Transport: contract.Transport(s.t, transport)}
	service := s.service
	s.stop = sync.OnceFunc(func() {
		server.Close()
		market.CloseIdleConnections()
		if err := errors.Join(service.Close(), store.Close()); err != nil {
			s.t.Error(err)
		}
	})
}

// restart closes the database and opens it again.
func (s *site) restart() {
	s.t.Helper()
	s.stop()
	s.start()
}

// key issues a key of a user.
func (s *site) key(user string) string { return s.keyOf(svc.KindUser, user) }

func (s *site) keyOf(kind svc.Kind, id string) string {
	s.t.Helper()
	issued, err := s.service.IssueAPIKey(s.t.Context(), svc.Host, svc.Identity{Kind: kind, ID: id}, svc.NewAPIKey{})
	if err != nil {
		s.t.Fatal(err)
	}
	return string(issued.Key)
}

// keyID is the id within a key.
func keyID(key string) string { return key[5:21] }

func (s *site) as(bearer string) caller { return caller{s.t, s.client, s.url, bearer} }

func (s *site) admin() caller { return s.as(s.key("admin")) }

// caller makes requests with one bearer.
type caller struct {
	t      *testing.T
	client *http.Client
	url    string
	bearer string
}

func (c caller) in(t *testing.T) caller { c.t = t; return c }

func (c caller) get(target string) answer    { c.t.Helper(); return c.send("GET", target, "") }
func (c caller) delete(target string) answer { c.t.Helper(); return c.send("DELETE", target, "") }
func (c caller) post(target, body string) answer {
	c.t.Helper()
	return c.send("POST", target, body)
}
func (c caller) patch(target, body string) answer {
	c.t.Helper()
	return c.send("PATCH", target, body)
}

func (c caller) send(method, target, body string) answer {
	c.t.Helper()
	a, err := c.try(method, target, body)
	if err != nil {
		c.t.Errorf("%s %s: %v", method, target, err)
	}
	return a
}

// try is send for a server that may go away.
func (c caller) try(method, target, body string) (answer, error) {
	a := answer{t: c.t, request: method + " " + target + " " + body}
	request, err := http.NewRequest(method, c.url+target, strings.NewReader(body))
	if err != nil {
		return a, err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.bearer != "" {
		request.Header.Set("Authorization", "Bearer "+c.bearer)
	}
	response, err := c.client.Do(request)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	a.status = response.StatusCode
	a.body, err = io.ReadAll(response.Body)
	return a, err
}

// answer is one answer; its status is 0 when there was none.
type answer struct {
	t       *testing.T
	request string
	status  int
	body    []byte
}

func (a answer) is(status int) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: answered %d, want %d: %s", a.request, a.status, status, a.body)
	}
	return a
}

// json wants a body that is this JSON value: the same keys, numbers digit for digit.
func (a answer) json(want string) {
	a.t.Helper()
	if !reflect.DeepEqual(parse(a.t, a.body), parse(a.t, []byte(want))) {
		a.t.Errorf("%s:\nhave %s\nwant %s", a.request, a.body, want)
	}
}

func (a answer) value() map[string]any {
	a.t.Helper()
	value, isObject := parse(a.t, a.body).(map[string]any)
	if !isObject {
		a.t.Fatalf("%s: not an object: %s", a.request, a.body)
	}
	return value
}

func (a answer) text(key string) string {
	a.t.Helper()
	s, _ := a.value()[key].(string)
	return s
}

func (a answer) template() template {
	a.t.Helper()
	return unmarshal[template](a.t, a.body)
}

// template is an answer's, its manifest byte by byte.
type template struct {
	ID, Name              string
	Description, Category *string
	Integrations, Tags    []string
	SourceName            *string `json:"source_name"`
	SourceRevision        *string `json:"source_revision"`
	InstalledAt           string  `json:"installed_at"`
	UpdatedAt             string  `json:"updated_at"`
	Manifest              json.RawMessage
}

func unmarshal[T any](t *testing.T, data []byte) T {
	t.Helper()
	var value T
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatalf("%v: %.300s", err, data)
	}
	return value
}

func parse(t *testing.T, data []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("not JSON: %v: %.300s", err, data)
	}
	return value
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// upstream is a web server with files that a test changes.
type upstream struct {
	*httptest.Server
	mu      sync.Mutex
	files   map[string]string
	handler http.HandlerFunc // instead of the files, when set
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

// offer makes a catalogue of entries.
func (u *upstream) offer(entries ...string) {
	u.put("templates.json", `{"templates": [`+strings.Join(entries, ",")+`]}`)
}

// trusting is a marketplace that may fetch from servers.
func trusting(servers ...*upstream) marketplace.Config {
	var config marketplace.Config
	for _, u := range servers {
		config.AllowOrigins = append(config.AllowOrigins, u.URL)
	}
	return config
}

// register trusts the server as "acme".
func (c caller) register(u *upstream) {
	c.t.Helper()
	c.post("/admin/template-sources", `{"url": "`+u.URL+`/acme"}`).is(201)
}

// marshal writes JSON without escapes for HTML.
func marshal(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return b.Bytes(), err
}
