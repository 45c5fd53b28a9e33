package e2e_test

import (
	"io/fs"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/sqlite"
)

// callers are the columns of the matrix: no bearer, a wrong one, a user without rights, two service
// accounts of the administrator (one scoped to reading users), and the administrator.
var callers = []string{"none", "bad", "plain", "narrow", "robot", "admin"}

// row is one request, with the status for each caller.
type row struct {
	target, body string // {key}: the id of one of alice's keys; {own}: of the caller's
	statuses     [6]int
}

var matrix = withPersonal(map[string]row{
	"GET /debug/resolve":   {"/debug/resolve?bank=b&user_id=alice", "", [6]int{401, 401, 403, 200, 200, 200}},
	"GET /debug/who-can":   {"/debug/who-can?bank=b", "", [6]int{401, 401, 403, 200, 200, 200}},
	"POST /debug/simulate": {"/debug/simulate", `{"bundle": {}, "query": {"bank": "b", "user_id": "alice"}}`, [6]int{401, 401, 403, 200, 200, 200}},
	"POST /decide":         {"/decide", `{"queries": [{"bank": "b", "action": "bank:recall", "user_id": "alice"}]}`, [6]int{401, 401, 403, 200, 200, 200}},
	"POST /introspect":     {"/introspect", "token=x", [6]int{401, 401, 403, 403, 200, 200}},
	"GET /me/resolve":      {"/me/resolve?bank=b", "", [6]int{401, 401, 200, 200, 200, 200}},
	"GET /me/what-can":     {"/me/what-can", "", [6]int{401, 401, 200, 200, 200, 200}},

	"GET /admin/template-sources":                  {"/admin/template-sources", "", [6]int{401, 401, 403, 403, 200, 200}},
	"POST /admin/template-sources":                 {"/admin/template-sources", `{"url": "fs://shelf", "alias": "new"}`, [6]int{401, 401, 403, 403, 201, 201}},
	"PATCH /admin/template-sources/{name}":         {"/admin/template-sources/shelf", `{"description": "x"}`, [6]int{401, 401, 403, 403, 200, 200}},
	"DELETE /admin/template-sources/{name}":        {"/admin/template-sources/shelf", "", [6]int{401, 401, 403, 403, 204, 204}},
	"POST /admin/template-sources/{name}/rebind":   {"/admin/template-sources/shelf/rebind", "", [6]int{401, 401, 403, 403, 200, 200}},
	"GET /admin/source-templates":                  {"/admin/source-templates", "", [6]int{401, 401, 403, 403, 200, 200}},
	"POST /admin/templates/check-updates":          {"/admin/templates/check-updates", "", [6]int{401, 401, 403, 403, 200, 200}},
	"GET /admin/template-sources/{name}/templates": {"/admin/template-sources/shelf/templates", "", [6]int{401, 401, 403, 403, 200, 200}},

	"GET /admin/templates":                            {"/admin/templates", "", [6]int{401, 401, 403, 403, 200, 200}},
	"POST /admin/templates":                           {"/admin/templates", `{"id": "new", "name": "n", "manifest": {"version": "1"}}`, [6]int{401, 401, 403, 403, 200, 200}},
	"GET /admin/templates/{template_id}":              {"/admin/templates/chat", "", [6]int{401, 401, 403, 403, 200, 200}},
	"PATCH /admin/templates/{template_id}":            {"/admin/templates/chat", `{"name": "n"}`, [6]int{401, 401, 403, 403, 200, 200}},
	"DELETE /admin/templates/{template_id}":           {"/admin/templates/chat", "", [6]int{401, 401, 403, 403, 204, 204}},
	"POST /admin/templates/{template_id}/install":     {"/admin/templates/chat/install", `{"source_name": "shelf", "alias_id": "new"}`, [6]int{401, 401, 403, 403, 200, 200}},
	"POST /admin/templates/{template_id}/update":      {"/admin/templates/chat/update", "", [6]int{401, 401, 403, 403, 200, 200}},
	"GET /admin/templates/{template_id}/check-update": {"/admin/templates/chat/check-update", "", [6]int{401, 401, 403, 403, 200, 200}},
	"GET /admin/templates/{template_id}/diff":         {"/admin/templates/chat/diff", "", [6]int{401, 401, 403, 403, 200, 200}},
	"GET /admin/templates/{template_id}/history":      {"/admin/templates/chat/history", "", [6]int{401, 401, 403, 403, 200, 200}},
	"POST /admin/templates/{template_id}/rollback":    {"/admin/templates/chat/rollback", `{"version": 1}`, [6]int{401, 401, 403, 403, 404, 404}},

	"GET /admin/events":          {"/admin/events", "", [6]int{401, 401, 403, 403, 200, 200}},
	"GET /admin/api-keys":        {"/admin/api-keys", "", [6]int{401, 401, 403, 403, 200, 200}},
	"POST /admin/api-keys/sweep": {"/admin/api-keys/sweep", "", [6]int{401, 401, 403, 403, 200, 200}},
	"GET /admin/access-bundle":   {"/admin/access-bundle", "", [6]int{401, 401, 403, 403, 200, 200}},
	"POST /admin/access-bundle":  {"/admin/access-bundle", `{"users": [{"id": "alice"}]}`, [6]int{401, 401, 403, 403, 204, 204}},

	"GET /users/{user_id}/api-keys":                  {"/users/alice/api-keys", "", [6]int{401, 401, 403, 200, 200, 200}},
	"POST /users/{user_id}/api-keys":                 {"/users/alice/api-keys", `{}`, [6]int{401, 401, 403, 403, 403, 201}},
	"DELETE /users/{user_id}/api-keys":               {"/users/alice/api-keys", "", [6]int{401, 401, 403, 403, 204, 204}},
	"PATCH /users/{user_id}/api-keys/{key_id}":       {"/users/alice/api-keys/{key}", `{"disabled": true}`, [6]int{401, 401, 403, 403, 403, 200}},
	"POST /users/{user_id}/api-keys/{key_id}/rotate": {"/users/alice/api-keys/{key}/rotate", `{}`, [6]int{401, 401, 403, 403, 403, 201}},
	"DELETE /users/{user_id}/api-keys/{key_id}":      {"/users/alice/api-keys/{key}", "", [6]int{401, 401, 403, 403, 204, 204}},

	"GET /me/api-keys":                  {"/me/api-keys", "", [6]int{401, 401, 200, 403, 403, 200}},
	"POST /me/api-keys":                 {"/me/api-keys", `{}`, [6]int{401, 401, 201, 403, 403, 201}},
	"DELETE /me/api-keys":               {"/me/api-keys", "", [6]int{401, 401, 204, 403, 403, 204}},
	"PATCH /me/api-keys/{key_id}":       {"/me/api-keys/{own}", `{"disabled": true}`, [6]int{401, 401, 200, 403, 403, 200}},
	"POST /me/api-keys/{key_id}/rotate": {"/me/api-keys/{own}/rotate", `{}`, [6]int{401, 401, 201, 403, 403, 201}},
	"DELETE /me/api-keys/{key_id}":      {"/me/api-keys/{own}", "", [6]int{401, 401, 204, 403, 403, 204}},

	"GET /users":                     {"/users", "", [6]int{401, 401, 403, 200, 200, 200}},
	"POST /users":                    {"/users", `{"id": "new"}`, [6]int{401, 401, 403, 403, 201, 201}},
	"GET /users/{user_id}":           {"/users/bob", "", [6]int{401, 401, 403, 200, 200, 200}},
	"PUT /users/{user_id}":           {"/users/bob", `{"display_name": "B"}`, [6]int{401, 401, 403, 403, 200, 200}},
	"DELETE /users/{user_id}":        {"/users/bob", "", [6]int{401, 401, 403, 403, 204, 204}},
	"GET /users/{user_id}/channels":  {"/users/bob/channels", "", [6]int{401, 401, 403, 200, 200, 200}},
	"POST /users/{user_id}/channels": {"/users/bob/channels", `{"provider": "p", "sender_id": "s"}`, [6]int{401, 401, 403, 403, 201, 201}},
	"DELETE /users/{user_id}/channels/{provider}/{sender_id}": {"/users/bob/channels/slack/T1%2FU7", "", [6]int{401, 401, 403, 403, 204, 204}},

	"GET /groups":                                 {"/groups", "", [6]int{401, 401, 403, 403, 200, 200}},
	"POST /groups":                                {"/groups", `{"id": "new"}`, [6]int{401, 401, 403, 403, 201, 201}},
	"GET /groups/{group_id}":                      {"/groups/crew", "", [6]int{401, 401, 403, 403, 200, 200}},
	"PUT /groups/{group_id}":                      {"/groups/crew", `{"display_name": "C"}`, [6]int{401, 401, 403, 403, 200, 200}},
	"DELETE /groups/{group_id}":                   {"/groups/crew", "", [6]int{401, 401, 403, 403, 204, 204}},
	"GET /groups/{group_id}/members":              {"/groups/crew/members", "", [6]int{401, 401, 403, 403, 200, 200}},
	"POST /groups/{group_id}/members":             {"/groups/crew/members", `{"user_id": "plain"}`, [6]int{401, 401, 403, 403, 201, 201}},
	"DELETE /groups/{group_id}/members/{user_id}": {"/groups/crew/members/bob", "", [6]int{401, 401, 403, 403, 204, 204}},

	"GET /policies":                {"/policies", "", [6]int{401, 401, 403, 403, 200, 200}},
	"POST /policies":               {"/policies", `{"id": "new", "document": {"version": "2026-03-24", "statements": []}}`, [6]int{401, 401, 403, 403, 201, 201}},
	"GET /policies/{policy_id}":    {"/policies/loose", "", [6]int{401, 401, 403, 403, 200, 200}},
	"PUT /policies/{policy_id}":    {"/policies/loose", `{"display_name": "L"}`, [6]int{401, 401, 403, 403, 200, 200}},
	"DELETE /policies/{policy_id}": {"/policies/loose", "", [6]int{401, 401, 403, 403, 204, 204}},
	"GET /policy-attachments":      {"/policy-attachments", "", [6]int{401, 401, 403, 403, 200, 200}},
	"PUT /policy-attachments":      {"/policy-attachments", `{"policy_id": "loose", "principal_type": "group", "principal_id": "crew"}`, [6]int{401, 401, 403, 403, 200, 200}},
	"DELETE /policy-attachments/{policy_id}/{principal_type}/{principal_id}": {"/policy-attachments/held/user/bob", "", [6]int{401, 401, 403, 403, 204, 204}},

	"GET /service-accounts":                               {"/service-accounts", "", [6]int{401, 401, 403, 403, 200, 200}},
	"POST /service-accounts":                              {"/service-accounts", `{"id": "new", "owner_user_id": "bob"}`, [6]int{401, 401, 403, 403, 201, 201}},
	"GET /service-accounts/{sa_id}":                       {"/service-accounts/bot", "", [6]int{401, 401, 403, 403, 200, 200}},
	"PUT /service-accounts/{sa_id}":                       {"/service-accounts/bot", `{"display_name": "A"}`, [6]int{401, 401, 403, 403, 200, 200}},
	"DELETE /service-accounts/{sa_id}":                    {"/service-accounts/bot", "", [6]int{401, 401, 403, 403, 204, 204}},
	"GET /service-accounts/{sa_id}/keys":                  {"/service-accounts/bot/keys", "", [6]int{401, 401, 403, 403, 200, 200}},
	"POST /service-accounts/{sa_id}/keys":                 {"/service-accounts/bot/keys", `{}`, [6]int{401, 401, 403, 403, 403, 201}},
	"DELETE /service-accounts/{sa_id}/keys":               {"/service-accounts/bot/keys", "", [6]int{401, 401, 403, 403, 204, 204}},
	"PATCH /service-accounts/{sa_id}/keys/{key_id}":       {"/service-accounts/bot/keys/{bot}", `{"disabled": true}`, [6]int{401, 401, 403, 403, 403, 200}},
	"DELETE /service-accounts/{sa_id}/keys/{key_id}":      {"/service-accounts/bot/keys/{bot}", "", [6]int{401, 401, 403, 403, 204, 204}},
	"POST /service-accounts/{sa_id}/keys/{key_id}/rotate": {"/service-accounts/bot/keys/{bot}/rotate", `{}`, [6]int{401, 401, 403, 403, 403, 201}},

	"POST /banks":                    {"/banks", `{"bank_id": "notes", "template": "server/chat"}`, [6]int{401, 401, 403, 403, 200, 200}},
	"GET /banks/policy":              {"/banks/policy?bank=team/a", "", [6]int{401, 401, 403, 403, 200, 200}},
	"PUT /banks/policy":              {"/banks/policy?bank=team/a", `{"document": {"version": "2026-03-24"}}`, [6]int{401, 401, 403, 403, 200, 200}},
	"DELETE /banks/policy":           {"/banks/policy?bank=team/a", "", [6]int{401, 401, 403, 403, 204, 204}},
	"GET /banks/{bank_id}/policy":    {"/banks/team%2Fa/policy", "", [6]int{401, 401, 403, 403, 200, 200}},
	"PUT /banks/{bank_id}/policy":    {"/banks/team%2Fa/policy", `{"document": {"version": "2026-03-24"}}`, [6]int{401, 401, 403, 403, 200, 200}},
	"DELETE /banks/{bank_id}/policy": {"/banks/team%2Fa/policy", "", [6]int{401, 401, 403, 403, 204, 204}},

	"GET /me":                                                {"/me", "", [6]int{401, 401, 200, 403, 403, 200}},
	"GET /me/service-accounts":                               {"/me/service-accounts", "", [6]int{401, 401, 403, 403, 200, 200}},
	"POST /me/service-accounts":                              {"/me/service-accounts", `{"id": "new"}`, [6]int{401, 401, 403, 403, 201, 201}},
	"GET /me/service-accounts/{sa_id}":                       {"/me/service-accounts/mine", "", [6]int{401, 401, 403, 403, 200, 200}},
	"PUT /me/service-accounts/{sa_id}":                       {"/me/service-accounts/mine", `{"display_name": "A"}`, [6]int{401, 401, 403, 403, 200, 200}},
	"DELETE /me/service-accounts/{sa_id}":                    {"/me/service-accounts/mine", "", [6]int{401, 401, 403, 403, 204, 204}},
	"GET /me/service-accounts/{sa_id}/keys":                  {"/me/service-accounts/mine/keys", "", [6]int{401, 401, 403, 403, 200, 200}},
	"POST /me/service-accounts/{sa_id}/keys":                 {"/me/service-accounts/mine/keys", `{}`, [6]int{401, 401, 403, 403, 403, 201}},
	"DELETE /me/service-accounts/{sa_id}/keys":               {"/me/service-accounts/mine/keys", "", [6]int{401, 401, 403, 403, 204, 204}},
	"PATCH /me/service-accounts/{sa_id}/keys/{key_id}":       {"/me/service-accounts/mine/keys/{mine}", `{"disabled": true}`, [6]int{401, 401, 403, 403, 403, 200}},
	"DELETE /me/service-accounts/{sa_id}/keys/{key_id}":      {"/me/service-accounts/mine/keys/{mine}", "", [6]int{401, 401, 403, 403, 204, 204}},
	"POST /me/service-accounts/{sa_id}/keys/{key_id}/rotate": {"/me/service-accounts/mine/keys/{mine}/rotate", `{}`, [6]int{401, 401, 403, 403, 403, 201}},
})

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
	shelf := fstest.MapFS{"templates.json": {Data: []byte(`{"templates": [{"id": "chat", "name": "Chat", "manifest": {"version": "1"}}]}`)}}
	path := filepath.Join(t.TempDir(), "svc.db")
	s := newSiteOn(t, marketplace.Config{Files: map[string]fs.FS{"shelf": shelf}}, func() (database, error) {
		return sqlite.Open(t.Context(), path, sqlite.Options{Fast: true}) // it is not about the disk
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
		_ = s.service.Users.Delete(ctx, svc.Host, id)
	}
	for _, id := range []string{"bot", "mine", "new"} {
		_ = s.service.ServiceAccounts.Delete(ctx, svc.Host, id)
	}
	for _, id := range []string{"crew", "new"} {
		_ = s.service.Groups.Delete(ctx, svc.Host, id)
	}
	for _, id := range []string{"loose", "held", "new"} {
		_ = s.service.Policies.Delete(ctx, svc.Host, id)
	}
	if err := s.service.Access.Apply(ctx, svc.Host, must(svc.ParseBundle([]byte(rows)))); err != nil {
		s.t.Fatal(err)
	}
}

// restock restores everything that a request may have changed, and issues keys.
func (s *site) restock() keyIDs {
	s.t.Helper()
	ctx := s.t.Context()
	admin := svc.Principal{Kind: svc.KindUser, ID: "admin"}
	for _, half := range []struct {
		*svc.Templates
		sources *svc.Sources
	}{{s.service.Templates, s.service.Sources}, {s.service.MyTemplates, s.service.MySources}} {
		for _, id := range []string{"chat", "new"} {
			_ = half.Delete(ctx, admin, id)
		}
		for _, name := range []string{"shelf", "new"} {
			_ = half.sources.Remove(ctx, admin, name)
		}
		must(half.sources.Register(ctx, admin, svc.NewSource{URL: "fs://shelf", Alias: new("shelf")}))
	}
	in := svc.Install{TemplateID: "chat", SourceName: "shelf"}
	must(s.service.Templates.Install(ctx, admin, in))
	must(s.service.MyTemplates.Install(ctx, admin, in))
	s.restockAccess()
	must(s.service.Keys.RevokeAll(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: "alice"})) // a holder has a thousand at most
	return keyIDs{
		keyID(s.key("alice")), keyID(s.keyOf(svc.KindServiceAccount, "bot")), keyID(s.keyOf(svc.KindServiceAccount, "mine")),
	}
}

// Every row also holds for a path with an extra slash, for another method, and for HEAD where there
// is GET.
func TestMatrixAroundTheRoutes(t *testing.T) {
	s := newSite(t, marketplace.Config{})
	admin, nobody := s.admin(), s.as("")
	for name, row := range matrix {
		method, _, _ := strings.Cut(name, " ")
		path, _, _ := strings.Cut(row.target, "?")
		for _, target := range []string{path + "/", "/" + path, path + "//", path + "/v/w/x/y/z"} {
			nobody.send(method, target, row.body).is(401)
			admin.send(method, target, row.body).is(404)
		}
		nobody.send("OPTIONS", path, "").is(401)
		admin.send("OPTIONS", path, "").is(405)
		if method == "GET" {
			nobody.send("HEAD", row.target, "").is(401)
			if status := admin.send("HEAD", row.target, "").status; status != admin.send("GET", row.target, "").status {
				t.Errorf("%s: HEAD answers %d", name, status)
			}
		}
	}
}
