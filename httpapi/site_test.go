package httpapi_test

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/memstore"
	"github.com/extsvc/svc/svctest"
)

func TestMain(m *testing.M) {
	longtest.AtOnce(4 * runtime.GOMAXPROCS(0)) // some wait for deadlines of connections
	os.Exit(m.Run())
}

// access is who there is. Of those that the host's sessions know, vouched has no rights here at all.
//
//go:embed testdata/access.json
var access string

// begin is what the clock of every site shows first; beginText is how an answer writes it.
var begin = time.Date(2026, 1, 2, 5, 4, 5, 678901234, time.FixedZone("CEST", 2*60*60))

const beginText = "2026-01-02T03:04:05.678901Z"

var alice = svc.Identity{Kind: svc.KindUser, ID: "alice"}

// site is a running server, and all it said.
type site struct {
	t       *testing.T
	server  *httptest.Server
	prefix  string
	service *svc.Service
	store   *intercept.Planted
	market  *market
	clock   *clock
	said    *record // every answer, log line and event
	log     *record // every log line; nil: they go elsewhere

	mu       sync.Mutex
	secrets  []string       // what must never be said
	answered map[string]int // how often, by id and status
}

func (s *site) keepSecret(secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets = append(s.secrets, secret)
}

// setup is how a site differs from the usual one.
type setup struct {
	svc.Config
	httpapi.Options
	mount func(*httpapi.Handler) http.Handler // nil: ahead of a ServeMux of the host
}

func newSite(t *testing.T, changes ...func(*setup)) *site {
	t.Helper()
	s := &site{
		t: t, store: intercept.NewPlanted(memstore.New()), market: &market{}, clock: &clock{}, said: &record{}, log: &record{},
		answered: map[string]int{},
	}
	var begun atomic.Bool // the events of what each test begins with are many, and without secrets
	logger := slog.New(slog.NewMultiHandler(slog.NewJSONHandler(s.said, nil), slog.NewJSONHandler(s.log, nil)))
	u := setup{
		Config: svc.Config{
			Store: s.store, Now: s.clock.Now, Logger: logger,
			Authenticator: svc.AuthenticatorFunc(sessions),
			Events: svc.EventConfig{OnEvent: func(_ context.Context, event svc.Event) {
				if begun.Load() {
					fmt.Fprintf(s.said, "%+v\n", event)
				}
			}},
			Keys:    svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("sixteen bytes or more")}}},
			Sources: svc.SourceConfig{Marketplace: s.market, SealingKey: make([]byte, 32)},
			// Many tests plant faults into the reads of templates.
			Memory: svc.Memory{Templates: -1},
		},
		Options: httpapi.Options{Logger: logger},
	}
	for _, change := range changes {
		change(&u)
	}
	if u.Options.Logger != logger {
		s.log = nil
	}
	s.service = must(svc.New(u.Config))
	s.apply(access)
	begun.Store(true)
	s.serve(u)
	return s
}

func (s *site) serve(u setup) {
	handler := httpapi.New(s.service, u.Options)
	s.prefix = strings.TrimSuffix(cmp.Or(u.Prefix, httpapi.DefaultPrefix), "/")
	if u.mount == nil {
		u.mount = func(h *httpapi.Handler) http.Handler { return h.Mount(http.NewServeMux()) }
	}
	s.server = httptest.NewUnstartedServer(u.mount(handler))
	s.server.Config.ErrorLog = slog.NewLogLogger(slog.NewJSONHandler(s.said, nil), slog.LevelError)
	s.server.Start()
	s.t.Cleanup(func() {
		s.server.Close()
		expect.Equal(s.t, "close", s.service.Close(), nil)
		for _, leak := range s.leaks() {
			s.t.Errorf("a secret was told: …%s…", leak)
		}
		if s.log != nil {
			s.checkRecords()
		}
	})
}

// leaks are the secrets in everything that was said, with what stands around them.
func (s *site) leaks() []string {
	said := s.said.String()
	var leaks []string
	for _, secret := range s.secrets {
		if at := strings.Index(said, secret); at >= 0 {
			leaks = append(leaks, said[max(0, at-120):min(len(said), at+len(secret)+20)])
		}
	}
	return leaks
}

func (s *site) key(user string) string {
	s.t.Helper()
	return s.keyOf(svc.Identity{Kind: svc.KindUser, ID: user}, svc.NewAPIKey{})
}

func (s *site) accountKey(id string) string {
	s.t.Helper()
	return s.keyOf(svc.Identity{Kind: svc.KindServiceAccount, ID: id}, svc.NewAPIKey{})
}

func (s *site) keyOf(holder svc.Identity, in svc.NewAPIKey) string {
	s.t.Helper()
	issued := must(s.service.Keys.Issue(s.t.Context(), svc.Host, holder, in))
	s.keepSecret(string(issued.Key))
	return string(issued.Key)
}

// sessions is the host's own way to log in: "session of ID [as service account] [for ACTION …]".
func sessions(_ context.Context, bearer string) (svc.Principal, error) {
	rest, found := strings.CutPrefix(bearer, "session-of-")
	if !found {
		return svc.Principal{}, fmt.Errorf("no session: %w", svc.ErrUnauthenticated)
	}
	parts := strings.Split(rest, "+")
	p := svc.Principal{Kind: svc.KindUser, ID: parts[0]}
	for _, part := range parts[1:] {
		if part == "sa" {
			p.Kind = svc.KindServiceAccount
		} else {
			p.Actions = append(p.Actions, part)
		}
	}
	return p, nil
}

// clock shows the same time until it is moved.
type clock struct{ svctest.Clock }

func (c *clock) Now() time.Time {
	return c.Clock.Now().Add(begin.Sub(new(svctest.Clock).Now())).In(begin.Location())
}

// tick moves the clock by a second and returns how an answer writes the new time.
func (c *clock) tick() string {
	c.Advance(time.Second)
	return c.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
}

// record is a writer that keeps everything.
type record struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// sites are those of scripts, by name: as mounts has them as well.
var sites = map[string]func(*testing.T, ...func(*setup)) *site{
	"":             newSite,
	"rows":         withRows,
	"stocked":      func(t *testing.T, _ ...func(*setup)) *site { s, _ := stocked(t); return s },
	"rated":        func(t *testing.T, _ ...func(*setup)) *site { return rated(t, httpapi.Options{}) },
	"cookies":      func(t *testing.T, _ ...func(*setup)) *site { s, _ := newCookieSite(t); return s },
	"keeping":      changed(keeping),
	"hidden":       changed(func(u *setup) { u.HideAccess = true }),
	"undocumented": changed(func(u *setup) { u.HideOpenAPI = true }),
	"unsealed":     changed(func(u *setup) { u.Sources.SealingKey = nil }),
	"known":        changed(func(u *setup) { u.Users.Known = known }),
	"trusting": func(t *testing.T, _ ...func(*setup)) *site {
		protection := http.NewCrossOriginProtection()
		expect.Equal(t, "origin", protection.AddTrustedOrigin("https://admin.example.com"), nil)
		s, _ := newCookieSite(t, func(u *setup) { u.CrossOrigin = protection })
		return s
	},
	"small": changed(func(u *setup) {
		u.MaxBody, u.Sources.Marketplace, u.Authenticator = 100, nil, nil
		u.Templates.ValidateManifest = func(manifest json.RawMessage) error {
			if strings.Contains(string(manifest), "forbidden") {
				return errors.New("must not hold what is forbidden")
			}
			return nil
		}
	}),
}

func init() {
	for name, mount := range mounts {
		sites[name] = changed(mount)
	}
}

func changed(change func(*setup)) func(*testing.T, ...func(*setup)) *site {
	return func(t *testing.T, _ ...func(*setup)) *site { return newSite(t, change) }
}

// known is of a host that knows admin and alice, and of "broken" not even that.
func known(_ context.Context, id string) (bool, error) {
	if id == "broken" {
		return false, errors.New("the user database is on fire")
	}
	return id == "admin" || id == "alice", nil
}

// market is a Marketplace in memory.
type market struct {
	mu        sync.Mutex
	entries   map[string]svc.Content // by id, whatever the source
	err       error
	bad       []svc.CatalogProblem // of the catalogue
	remembers bool                 // the catalogue, while there is an err
	asked     []svc.Upstream
	before    func(method string)
}

// ask notes a request to a source, and returns how it fails. before may panic.
func (m *market) ask(method string, from svc.Upstream) error {
	if m.before != nil {
		m.before(method)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, from)
	return m.err
}

func (m *market) CheckURL(url string) error {
	if m.before != nil {
		m.before("CheckURL")
	}
	if !strings.HasPrefix(url, "https://") {
		return fmt.Errorf("must be https")
	}
	return nil
}

func (m *market) Template(_ context.Context, from svc.Upstream, id string) (svc.Content, error) {
	err := m.ask("Template", from)
	m.mu.Lock()
	defer m.mu.Unlock()
	content, there := m.entries[id]
	if err != nil {
		return svc.Content{}, err
	}
	if !there {
		return svc.Content{}, &svc.Error{Code: svc.CodeNotFound, Message: fmt.Sprintf("source %q has no template %q", from.Source.Name, id)}
	}
	return content, nil
}

func (m *market) Catalog(_ context.Context, from svc.Upstream, _ time.Duration) (svc.Catalog, error) {
	err := m.ask("Catalog", from)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil && !m.remembers {
		return svc.Catalog{}, err
	}
	catalog := svc.Catalog{Problems: m.bad, FetchedAt: begin, Failure: m.err}
	for _, id := range slices.Sorted(maps.Keys(m.entries)) {
		catalog.Entries = append(catalog.Entries, svc.CatalogEntry{Index: len(catalog.Entries), ID: id, Content: m.entries[id]})
	}
	return catalog, nil
}

func (m *market) Manifest(_ context.Context, from svc.Upstream, entry svc.CatalogEntry) (json.RawMessage, error) {
	err := m.ask("Manifest", from)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entries[entry.ID].Manifest, err
}

func (m *market) offer(id, name, manifest string) {
	m.put(id, svc.Content{Name: name, Manifest: json.RawMessage(manifest)})
}

func (m *market) put(id string, content svc.Content) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries == nil {
		m.entries = map[string]svc.Content{}
	}
	m.entries[id] = content
}

// sourceFaults are those of scripts, by name. Nothing of what is "internal" may be told.
var sourceFaults = map[string]error{
	"failed":   &svc.Error{Code: svc.CodeSourceFailed, Message: `source "acme": its catalogue is bad`, Err: errors.New("internal")},
	"timeout":  &svc.Error{Code: svc.CodeSourceTimeout, Message: `source "acme": its catalogue did not arrive in time`},
	"any":      errors.New("dial tcp 10.0.0.7:443: internal"),
	"deadline": fmt.Errorf("internal: %w", context.DeadlineExceeded),
}

func (m *market) withdraw(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, id)
}

func (m *market) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *market) requests() []svc.Upstream {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]svc.Upstream(nil), m.asked...)
}
