//go:build unix

package e2e_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/e2e/contract"
	"github.com/extsvc/svc/e2e/program"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
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

// atMost is how long a request may take while the database does not answer: the 5 s that are promised, and what a machine may add to
// them that is busy, or stands still twice. Without the promise, a request takes 30 s.
const atMost = 25 * time.Second

// frozen returns the routes that are asked: all in CI, else one for each way to use the store.
func frozen() map[string]row {
	if longtest.InCI() {
		return matrix
	}
	rows := map[string]row{}
	for _, name := range []string{
		"GET /me/resolve", "POST /introspect", "POST /banks", "GET /admin/templates", "POST /admin/templates/{template_id}/install",
		"POST /me/api-keys", "DELETE /users/{user_id}/api-keys", "GET /users", "PUT /users/{user_id}", "DELETE /policies/{policy_id}",
		"POST /admin/access-bundle", "GET /admin/events",
	} {
		rows[name] = matrix[name]
	}
	return rows
}

// TestFrozenDatabase stops PostgreSQL where it stands: every request is answered in time, whatever it was about to do.
func TestFrozenDatabase(t *testing.T) {
	longtest.Parallel(t, "a server that stands still")
	cluster := pgtest.Start(t)
	s := newSite(t, onShelf, func(c *svc.Config) {
		store := must(postgres.Open(t.Context(), cluster.URL, postgres.Options{MaxOpen: 4}))
		t.Cleanup(func() { _ = store.Close() })
		c.Store = store
	})
	routes, keys, seen := frozen(), s.restock(), s.admin()
	seen.send("GET", "/me/api-keys", "").is(200)
	unseen := map[string]string{}
	for name := range routes {
		unseen[name] = s.key("admin")
	}
	cluster.Freeze()
	distrusted := time.Now().Add(5 * time.Second) // from then on, no copy is used
	for _, moment := range []string{"when it happens", "later"} {
		if moment == "later" {
			time.Sleep(time.Until(distrusted))
		}
		var group sync.WaitGroup
		for name, row := range routes {
			for who, caller := range map[string]caller{"seen": seen, "unseen": s.as(unseen[name])} {
				group.Go(func() {
					method, _, _ := strings.Cut(name, " ")
					began := time.Now()
					answer := caller.send(method, keys.in(row.target, keyID(caller.bearer)), row.body)
					took := time.Since(began)
					fromCopies := who == "seen" && answer.status == row.statuses[5] && moment != "later" && (method == "GET" || name == "POST /banks" || name == "POST /introspect")
					if took > atMost || answer.status != 503 && !fromCopies {
						t.Errorf("%s, %s, %s: answered %d after %s", moment, name, who, answer.status, took)
					}
				})
			}
		}
		group.Wait()
	}
	cluster.Thaw()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if seen.send("GET", "/me/api-keys", "").status == 200 {
			break
		}
	}
	changed := true
	for name, row := range routes {
		if changed {
			keys = s.restock()
		}
		method, _, _ := strings.Cut(name, " ")
		changed = method != "GET"
		admin := s.admin()
		admin.send(method, keys.in(row.target, keyID(admin.bearer)), row.body).is(row.statuses[5])
	}
}

// steps are the lines that typescript/drive.ts prints on success.
const steps = `a source is registered
what it offers is listed
a template is installed
and patched, null clears
If-Match is heeded
an update is noticed
problems are told by their codes
the update is forced
a key is issued, once
and used
and refused once it is revoked
access is decided
a list is read by pages
`

// TestTypeScript generates a client from the document that the server serves, and runs the main
// tasks with it. A caller's mistakes are type errors.
//
// Without Node.js or its packages the test is skipped; with SVC_REQUIRE_NODE=1 it fails instead.
func TestTypeScript(t *testing.T) {
	longtest.Test(t, "a generated client")
	p := program.New(t, "typescript")
	p.GetPackages()
	files := program.Catalogue(t)
	s := newSite(t, func(c *svc.Config) {
		c.Sources.Marketplace = must(marketplace.New(marketplace.Config{AllowOrigins: []string{files}}))
	})
	p.Write("openapi.json", s.as("").send("GET", "/openapi.json", "").is(200).body)
	p.Run("node_modules/.bin/openapi-typescript", "openapi.json", "-o", "svc.ts")
	compile(t, p)
	p.Environment = append(p.Environment, "SVC_URL="+s.url, "SVC_KEY="+s.key("admin"), "SVC_CATALOGUE="+files+"/acme")
	if out := p.Run("node", "out/drive.js"); out != steps {
		t.Errorf("have\n%swant\n%s", out, steps)
	}
}

var (
	reported  = regexp.MustCompile(`^(\S+)\((\d+),\d+\): error (TS\d+): .*`)
	announced = regexp.MustCompile(`// (TS\d+): `)
)

// compile checks that the compiler reports exactly the errors that mistakes.ts announces, each in its line.
func compile(t *testing.T, p *program.Program) {
	t.Helper()
	missed := map[string]bool{}
	for i, line := range strings.Split(string(must(os.ReadFile(filepath.Join(p.Dir, "mistakes.ts")))), "\n") {
		if found := announced.FindStringSubmatch(line); found != nil {
			missed[fmt.Sprintf("mistakes.ts line %d: %s", i+1, found[1])] = true
		}
	}
	if len(missed) == 0 {
		t.Fatal("no mistake is announced")
	}
	out, err := p.Try("node_modules/.bin/tsc", "--pretty", "false")
	for line := range strings.Lines(out) {
		found := reported.FindStringSubmatch(line)
		if found == nil {
			continue // the error goes on from the line before
		}
		at := fmt.Sprintf("%s line %s: %s", found[1], found[2], found[3])
		if !missed[at] {
			t.Error(found[0])
		}
		delete(missed, at)
	}
	for at := range missed {
		t.Errorf("%s is not reported", at)
	}
	if err == nil || t.Failed() {
		t.Fatalf("tsc: %v", err)
	}
}
