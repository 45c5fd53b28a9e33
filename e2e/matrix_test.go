package e2e_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/longtest"
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
