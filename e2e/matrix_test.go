package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/e2e/hostilehttp"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/wire"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/memstore"
	"github.com/extsvc/svc/store/sqlite"
)

// callers are the columns of the matrix.
var callers = []string{"none", "bad", "plain", "narrow", "robot", "admin"}

// row is one request, with the status for each caller.
type row struct {
	target, body string // {key}: the id of one of alice's keys; {own}: of the caller's
	statuses     [6]int
}

// matrix has the rows of testdata/matrix.txt, by method and path.
var matrix = func() map[string]row {
	rows := map[string]row{}
	for line := range strings.Lines(string(must(os.ReadFile("testdata/matrix.txt")))) {
		words := append(strings.SplitN(strings.TrimSpace(line), " ", 10), "")
		if len(words) < 10 || words[0] == "#" {
			continue
		}
		r := row{target: words[2], body: words[9]}
		for i, status := range words[3:9] {
			r.statuses[i] = must(strconv.Atoi(status))
		}
		rows[words[0]+" "+words[1]] = r
	}
	return withPersonal(rows)
}()

// withPersonal adds the rows of own templates and sources, which are those of the server's: robot
// works for its owner, the administrator.
func withPersonal(rows map[string]row) map[string]row {
	for name, r := range maps.Clone(rows) {
		if strings.Contains(name, " /admin/template") || strings.Contains(name, " /admin/source") {
			r.target = strings.Replace(r.target, "/admin/", "/me/", 1)
			rows[strings.Replace(name, "/admin/", "/me/", 1)] = r
		}
	}
	return rows
}

// mismatches returns the routes without a row and the rows without a route.
func mismatches(routes []httpapi.Route, rows map[string]row) []string {
	var wrong []string
	left := maps.Clone(rows)
	for _, route := range routes {
		name := route.Method + " " + route.Path
		if _, there := left[name]; !there {
			wrong = append(wrong, name+" has no row")
		}
		delete(left, name)
	}
	for name := range left {
		wrong = append(wrong, name+" is no route")
	}
	slices.Sort(wrong)
	return wrong
}

func TestMatrixIsWhole(t *testing.T) {
	for _, wrong := range mismatches(httpapi.Routes(), matrix) {
		t.Error(wrong)
	}
}

// TestMatrix must be able to fail.
func TestMatrixNoticesWhatIsMissing(t *testing.T) {
	routes := append(httpapi.Routes()[1:], httpapi.Route{Method: "GET", Path: "/new"}, httpapi.Route{Method: "GET", Path: "/me/api-keys"})
	want := []string{"GET /debug/resolve is no route", "GET /me/api-keys has no row", "GET /new has no row"}
	if have := mismatches(routes, matrix); !slices.Equal(have, want) {
		t.Errorf("have %v, want %v", have, want)
	}
}

func TestMatrix(t *testing.T) {
	t.Parallel()
	s := newSite(t, onShelf, func(c *svc.Config) {
		if c.Store = memstore.New(); longtest.InCI() { // it is not about the store
			onFile(t, sqlite.Options{Fast: true})(c)
		}
	})
	bearers := map[string]string{
		"none": "", "bad": strings.Repeat("x", 59),
		"narrow": s.keyOf(svc.KindServiceAccount, "narrow"), "robot": s.keyOf(svc.KindServiceAccount, "robot"),
	}
	keys, changed := keyIDs{}, true // a GET changes nothing, and a refused request neither
	for name, row := range matrix {
		for i, who := range callers {
			t.Run(name+"/"+who, func(t *testing.T) {
				method, _, _ := strings.Cut(name, " ")
				if changed {
					keys = s.restock()
				}
				own := keyID(s.key("alice"))
				if who == "plain" || who == "admin" {
					own, bearers[who] = keyID(s.key(who)), s.key(who) // a new one each time: some requests revoke it
				}
				target := keys.in(row.target, own)
				caller := s.as(bearers[who])
				caller.t = t
				answer := caller.send(method, target, row.body)
				changed = method != http.MethodGet && answer.status < 300
				answer.is(row.statuses[i])
			})
		}
	}
}

// keyIDs are the ids of keys that the matrix names.
type keyIDs struct{ alice, bot, mine string }

// in returns a target of the matrix with the ids of keys; own is that of the caller's.
func (k keyIDs) in(target, own string) string {
	return strings.NewReplacer("{key}", k.alice, "{own}", own, "{bot}", k.bot, "{mine}", k.mine).Replace(target)
}

// rows are those of access that requests of the matrix change.
const rows = `{
  "users": [{"id": "bob", "channels": [{"provider": "slack", "sender_id": "T1/U7"}]}],
  "groups": [{"id": "crew", "members": ["bob"]}],
  "service_accounts": [{"id": "bot", "owner_user_id": "bob"}, {"id": "mine", "owner_user_id": "admin", "scoping_policy_id": "held"}],
  "policies": [{"id": "loose", "document": {"version": "2026-03-24", "statements": []}}, {"id": "held", "document": {"version": "2026-03-24", "statements": []}}],
  "attachments": [{"policy_id": "held", "principal_type": "user", "principal_id": "bob"}],
  "bank_policies": [{"bank_id": "team/a", "document": {"version": "2026-03-24"}}]
}`

// restockAccess restores the rows of access.
func (s *site) restockAccess() {
	s.t.Helper()
	ctx := s.t.Context()
	for _, id := range []string{"bob", "new"} {
		_ = s.Service.Users.Delete(ctx, svc.Host, id)
	}
	for _, id := range []string{"bot", "mine", "new"} {
		_ = s.Service.ServiceAccounts.Delete(ctx, svc.Host, id)
	}
	for _, id := range []string{"crew", "new"} {
		_ = s.Service.Groups.Delete(ctx, svc.Host, id)
	}
	for _, id := range []string{"loose", "held", "new"} {
		_ = s.Service.Policies.Delete(ctx, svc.Host, id)
	}
	s.Apply(rows)
}

// restock restores everything that a request may have changed, and issues keys.
func (s *site) restock() keyIDs {
	s.t.Helper()
	ctx := s.t.Context()
	admin := svc.Principal{Kind: svc.KindUser, ID: "admin"}
	for _, half := range []struct {
		*svc.Templates
		sources *svc.Sources
	}{{s.Service.Templates, s.Service.Sources}, {s.Service.MyTemplates, s.Service.MySources}} {
		for _, id := range []string{"chat", "new"} {
			_ = half.Delete(ctx, admin, id)
		}
		for _, name := range []string{"shelf", "new"} {
			_ = half.sources.Remove(ctx, admin, name)
		}
		must(half.sources.Register(ctx, admin, svc.NewSource{URL: "fs://shelf", Alias: new("shelf")}))
	}
	in := svc.Install{TemplateID: "chat", SourceName: "shelf"}
	must(s.Service.Templates.Install(ctx, admin, in))
	must(s.Service.MyTemplates.Install(ctx, admin, in))
	s.restockAccess()
	must(s.Service.Keys.RevokeAll(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: "alice"})) // a holder has a thousand at most
	return keyIDs{
		keyID(s.key("alice")), keyID(s.keyOf(svc.KindServiceAccount, "bot")), keyID(s.keyOf(svc.KindServiceAccount, "mine")),
	}
}

// A request that is malformed is refused as such, also for a caller without rights: it says nothing
// about rows, and no text that a database refuses reaches the store.
func TestMalformedBeforeForbidden(t *testing.T) {
	t.Parallel()
	s := newSite(t, onShelf, func(c *svc.Config) { c.Store = memstore.New() })
	plain, keys := s.as(s.key("plain")), s.restock()
	for name, row := range matrix {
		method, path, _ := strings.Cut(name, " ")
		target := keys.in(row.target, "")
		if row.statuses[2] != http.StatusForbidden {
			continue
		}
		for i, name := range strings.Split(path, "/") {
			if strings.HasPrefix(name, "{") {
				where, query, _ := strings.Cut(target, "?")
				segments := strings.Split(where, "/")
				segments[i] = "a%00b"
				plain.send(method, strings.Join(segments, "/")+"?"+query, row.body).is(http.StatusBadRequest)
			}
		}
		var body map[string]any
		if json.Unmarshal([]byte(row.body), &body) != nil {
			continue
		}
		for field, value := range body {
			if _, isText := value.(string); isText {
				wrong := maps.Clone(body)
				wrong[field] = "a\x00b"
				plain.send(method, target, string(must(json.Marshal(wrong)))).is(http.StatusBadRequest)
			}
		}
	}
}

// left is the context of a caller that leaves when it has been looked at so many times.
type left struct {
	context.Context
	leave context.CancelFunc
	looks atomic.Int32
}

func (l *left) Err() error {
	if l.looks.Add(-1) < 0 {
		l.leave()
	}
	return l.Context.Err()
}

// A caller that leaves, at any moment of any request, is no fault of the store or of a source.
func TestCallersThatLeave(t *testing.T) {
	t.Parallel()
	var failing atomic.Int32
	s := newSite(t, onShelf, func(c *svc.Config) {
		c.Store = memstore.New()
		c.Events.OnEvent = func(_ context.Context, e svc.Event) {
			if e.Action == event.SourceFailing {
				failing.Add(1)
			}
		}
	})
	api, ended := httpapi.New(s.Service, httpapi.Options{}), 0
	admin := svc.Identity{Kind: svc.KindUser, ID: "admin"}
	for name, row := range matrix {
		method, _, _ := strings.Cut(name, " ")
		for looks := range longtest.Times(4, 12) {
			must(s.Service.Keys.RevokeAll(t.Context(), svc.Host, admin))
			keys, bearer := s.restock(), s.key("admin")
			target := httpapi.DefaultPrefix + keys.in(row.target, keyID(bearer))
			request := httptest.NewRequest(method, target, strings.NewReader(row.body))
			request.Header.Set("Content-Type", kindOf(row.target))
			request.Header.Set("Authorization", "Bearer "+bearer)
			ctx := &left{}
			ctx.Context, ctx.leave = context.WithCancel(t.Context())
			ctx.looks.Store(int32(looks))
			answer := httptest.NewRecorder()
			api.ServeHTTP(answer, request.WithContext(ctx))
			ctx.leave()
			if answer.Code == row.statuses[5] {
				continue
			}
			var problem wire.Problem
			err := json.Unmarshal(answer.Body.Bytes(), &problem)
			ended++
			if err != nil || answer.Code != http.StatusServiceUnavailable ||
				!strings.HasPrefix(problem.Detail, "the call was canceled") {
				t.Errorf("%s, after %d looks: %d %s", name, looks, answer.Code, answer.Body)
			}
		}
	}
	if failing.Load() > 0 || ended < len(matrix) {
		t.Errorf("%d sources are failing; %d calls have ended early", failing.Load(), ended)
	}
}

// anywhere has the same files in every directory.
type anywhere struct{ fs.FS }

func (a anywhere) Open(name string) (fs.File, error) { return a.FS.Open(path.Base(name)) }

// sessions are those of a host: the ID of a user, or "ID+sa" of a service account.
func sessions(_ context.Context, bearer string) (svc.Principal, error) {
	if account, is := strings.CutSuffix(bearer, "+sa"); is {
		return svc.Principal{Kind: svc.KindServiceAccount, ID: account}, nil
	}
	return svc.Principal{Kind: svc.KindUser, ID: bearer}, nil
}

// Random requests go to a database in a file. All sources are files: random requests must not leave this machine.
func TestRandomRequestsToAFile(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	shop := fstest.MapFS{"templates.json": {Data: []byte(`{"templates": [
		{"id": "chat", "name": "Chat", "category": "talk", "tags": ["t"], "manifest": {"version": "1", "n": 1.0}}]}`)}}
	s := newSite(t, func(c *svc.Config) {
		c.Logger, c.Authenticator, c.Memory.Templates = logger, svc.AuthenticatorFunc(sessions), 1<<20
		c.Events.Keep, c.Templates.Banks = false, nil
		c.Sources.Marketplace = must(marketplace.New(marketplace.Config{Files: map[string]fs.FS{"any": anywhere{shop}}}))
	})
	must(s.Service.Sources.Register(t.Context(), svc.Host, svc.NewSource{URL: "fs://any/acme"}))
	server := httptest.NewUnstartedServer(s.API.Mount(http.NewServeMux()))
	server.Config.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelError)
	server.Start()
	defer server.Close()
	hostilehttp.Run(t, server.Client(), server.URL+httpapi.DefaultPrefix,
		"admin", "admin", "plain", "alice", "robot+sa", "narrow+sa", s.key("admin"), "svcu_wrong", "")
	admin := s.as("admin")
	for _, list := range []string{
		"/admin/template-sources", "/admin/templates",
		"/users/alice/api-keys", "/users/admin/api-keys",
	} {
		if all := string(admin.send("GET", list, "").is(200).body); strings.Contains(all, "\ufffd") {
			t.Errorf("a replaced character is stored: %s", all)
		}
	}
	var list struct{ Templates []struct{ ID string } }
	must(0, json.Unmarshal(admin.send("GET", "/admin/templates", "").is(200).body, &list))
	for _, template := range list.Templates {
		admin.send("GET", "/admin/templates/"+url.PathEscape(template.ID), "").is(200)
	}
	for _, fault := range []string{"panic", "superfluous", "level=ERROR"} {
		if _, text, found := strings.Cut(log.String(), fault); found {
			t.Errorf("%s%.600s", fault, text)
		}
	}
}
