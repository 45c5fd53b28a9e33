package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/porttest"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/memstore"
)

// TestMain lets a test run this binary as the program itself.
func TestMain(m *testing.M) {
	if program := os.Getenv("SVC_EXAMPLE_MOUNTS"); program != "" {
		os.Args = []string{os.Args[0], program}
		main()
	}
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultWriter, gin.DefaultErrorWriter = io.Discard, io.Discard
	middleware.DefaultLogger = middleware.RequestLogger(&middleware.DefaultLogFormatter{Logger: log.New(io.Discard, "", 0)})
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

const bearer = "session-of-admin"

var admin = svc.Principal{Kind: svc.KindUser, ID: "admin", Actions: []string{"iam:*", "template:*"}}

func sessions(_ context.Context, bearer string) (svc.Principal, error) {
	if bearer != "session-of-admin" {
		return svc.Principal{}, svc.ErrUnauthenticated
	}
	return admin, nil
}

// newService returns a service with a source that offers templates with these ids.
func newService(t *testing.T, store svc.Store, ids ...string) *svc.Service {
	t.Helper()
	config := newConfig(ids...)
	config.Store = store
	service := must(svc.New(config))
	t.Cleanup(func() { is.New(t).NoErr(service.Close()) })
	return service
}

// newConfig returns what all services have in common.
func newConfig(ids ...string) svc.Config {
	type entry struct {
		ID       string          `json:"id"`
		Name     string          `json:"name"`
		Manifest json.RawMessage `json:"manifest"`
	}
	entries := []entry{}
	for _, id := range ids {
		entries = append(entries, entry{id, "Name", json.RawMessage(`{"version": "1"}`)})
	}
	catalogue := must(json.Marshal(map[string]any{"templates": entries}))
	files := map[string]fs.FS{"shelf": fstest.MapFS{"templates.json": {Data: catalogue}}}
	return svc.Config{
		Sources:       svc.SourceConfig{Marketplace: must(marketplace.New(marketplace.Config{Files: files}))},
		Authenticator: svc.AuthenticatorFunc(sessions),
		Now:           func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) },
		Keys:          svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("sixteen bytes or more")}}},
		Memory:        svc.Memory{Templates: -1}, // lists come from the store
		Templates:     svc.TemplateConfig{Banks: maker{}},
	}
}

// maker makes every bank.
type maker struct{}

func (maker) MakeBank(context.Context, svc.Principal, svc.NewBank) (svc.CreatedBank, error) {
	return svc.CreatedBank{Created: true}, nil
}

// site is a running host.
type site struct {
	mount
	service *svc.Service
	client
}

func newSite(t *testing.T, m mount, ids ...string) *site {
	t.Helper()
	service := newService(t, memstore.New(), ids...)
	return &site{m, service, serve(t, m.serve(t, httpapi.New(service, httpapi.Options{Prefix: m.prefix})))}
}

// client has one connection to a server, and sends targets unchanged.
type client struct {
	t      *testing.T
	server *httptest.Server
	*conn
}

type conn struct {
	net.Conn
	reader *bufio.Reader
}

func serve(t *testing.T, host http.Handler) client {
	t.Helper()
	server := httptest.NewUnstartedServer(host)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	return client{t, server, &conn{}}
}

type answer struct {
	status       int
	header, body string
	cut          bool // off, before its end
}

// headers are the headers that the interface sets.
var headers = []string{"Content-Type", "Cache-Control", "X-Content-Type-Options", "WWW-Authenticate", "Allow", "Retry-After", "Location"}

func (c client) ask(method, target, bearer, body string) answer {
	if c.Conn == nil {
		opened := must(net.Dial("tcp", c.server.Listener.Addr().String()))
		c.t.Cleanup(func() { _ = opened.Close() })
		_ = opened.SetDeadline(time.Now().Add(5 * time.Minute))
		c.Conn, c.reader = opened, bufio.NewReader(opened)
	}
	authorization := ""
	if bearer != "" {
		authorization = "Authorization: Bearer " + bearer + "\r\n"
	}
	kind := "application/json"
	if strings.HasPrefix(body, "token=") {
		kind = "application/x-www-form-urlencoded"
	}
	fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: elsewhere.example\r\n%sContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
		method, target, authorization, kind, len(body), body)
	response, err := http.ReadResponse(c.reader, &http.Request{Method: method})
	if err != nil {
		c.Conn = nil
		return answer{cut: true}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	var header strings.Builder
	for _, name := range headers {
		fmt.Fprintf(&header, "%s: %q\n", name, response.Header.Values(name))
	}
	if err != nil || response.Close {
		c.Conn = nil
	}
	return answer{response.StatusCode, header.String(), string(text), err != nil}
}

var printed = regexp.MustCompile(`^curl -sS -H '(Authorization): (Bearer \S+)' (http://\S+)$`)

func TestProgramRuns(t *testing.T) {
	for name := range hosts {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			address := porttest.Free(t)
			program := exec.CommandContext(t.Context(), os.Args[0])
			program.Env = append(os.Environ(), "SVC_EXAMPLE_MOUNTS="+name, "ADDR="+address, "GIN_MODE=release")
			stdout := must(program.StdoutPipe())
			is.NoErr(program.Start())
			defer func() { _, _ = program.Process.Kill(), program.Wait() }()
			lines := bufio.NewScanner(stdout)
			for _, part := range []string{"user ada\n", `"api_key_prefix":"svcu_`} {
				is.True(lines.Scan())
				line := printed.FindStringSubmatch(lines.Text())
				is.Equal(len(line), 4)
				is.True(strings.Contains(body(t, line[3], line[1], line[2]), part))
			}
		})
	}
}

// body repeats a request until the server answers.
func body(t *testing.T, url, header, value string) string {
	t.Helper()
	request := must(http.NewRequestWithContext(t.Context(), "GET", url, nil))
	request.Header.Set(header, value)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			defer answer.Body.Close()
			return string(must(io.ReadAll(answer.Body)))
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// The host serves its own pages; one of them is only for callers that svc knows.
func TestPages(t *testing.T) {
	for name, with := range hosts {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s := newSite(t, mount{host: with})
			for target, want := range map[string]string{"/": "the host's own page\n", "/whoami": "user admin\n"} {
				got := s.ask("GET", target, bearer, "")
				is.Equal(got.status, 200)
				is.Equal(got.body, want)
			}
			is.Equal(s.ask("GET", "/", "", "").status, 200)
			is.Equal(s.ask("GET", "/whoami", "", "").status, 401)
			is.Equal(s.ask("GET", "/nothing", "", "").status, 404)
			is.Equal(s.ask("GET", "/ext/svcs", "", "").status, 404)
		})
	}
}

// newTenants makes two tenants, each with a template and a key.
func newTenants(t *testing.T) (tenants *svc.Tenants, keys map[string]string) {
	tenants = must(svc.NewTenants(svc.TenantsConfig{Store: memstore.NewTenants(), Config: newConfig()}))
	t.Cleanup(func() { _ = tenants.Close() })
	keys = map[string]string{}
	for _, tenant := range []string{"acme", "ä b"} {
		must(tenants.Create(t.Context(), tenant))
		must(0, tenants.Use(t.Context(), tenant, func(service *svc.Service) error {
			ada := svc.Identity{Kind: svc.KindUser, ID: "ada"}
			keys[tenant] = string(must(service.Keys.Issue(t.Context(), svc.Host, ada, svc.NewAPIKey{})).Key)
			must(service.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: "t", Content: svc.Content{
				Name: "Of " + tenant, Manifest: []byte(`{"version":"1"}`),
			}}))
			return nil
		}))
	}
	return tenants, keys
}

func check(t *testing.T, host http.Handler, keys map[string]string) {
	t.Helper()
	is := is.New(t)
	c := serve(t, host)
	for tenant, spellings := range map[string][]string{"acme": {"acme", "%61cme"}, "ä b": {"%C3%A4%20b", "%c3%a4%20b"}} {
		for _, escaped := range spellings {
			got := c.ask("GET", "/t/"+escaped+"/ext/svc/admin/templates/t", bearer, "")
			is.Equal(got.status, 200)
			is.True(strings.Contains(got.body, `"name":"Of `+tenant+`"`))
			for whose, key := range keys {
				want := map[bool]int{true: 200, false: 401}[whose == tenant]
				is.Equal(c.ask("GET", "/t/"+escaped+"/ext/svc/me/api-keys", key, "").status, want)
			}
		}
	}
	is.Equal(c.ask("GET", "/t/nobody/ext/svc/me/api-keys", bearer, "").status, 404)
	is.Equal(c.ask("GET", "/t/nobody/ext/svc/me/api-keys", "", "").status, 401)
	is.Equal(c.ask("GET", "/", "", "").body, "the host's own page\n")
}

// Two tenants in one process answer with their own templates, and accept only their own keys.
func TestTenants(t *testing.T) {
	tenants, keys := newTenants(t)
	pattern := "GET /t/{tenant}/ext/svc/me/api-keys"
	before := count(pattern)
	check(t, withTenants(tenants), keys)
	is.New(t).True(count(pattern) > before)
}

// Every router that can have a tenant in its prefix serves all tenants with one Handler.
func TestTenantsOfRouters(t *testing.T) {
	for _, m := range mounts {
		if m.prefix != "/t/{tenant}/ext/svc" {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			tenants, keys := newTenants(t)
			check(t, m.serve(t, httpapi.NewTenants(tenants, httpapi.Options{Prefix: m.prefix})), keys)
		})
	}
}
