package e2e_test

import (
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/marketplace"
)

// callers are the columns of the matrix: no bearer, a wrong one, a user without rights, two service
// accounts of the administrator (one scoped to reading users), and the administrator.
var callers = []string{"none", "bad", "plain", "narrow", "robot", "admin"}

// row is one request, with the status for each caller.
type row struct {
	target, body string // {key}: the id of one of alice's keys; {own}: of the caller's
	statuses     [6]int
}

var matrix = map[string]row{
	"GET /debug/resolve":   {"/debug/resolve?bank=b&user_id=alice", "", [6]int{401, 401, 403, 200, 200, 200}},
	"GET /debug/who-can":   {"/debug/who-can?bank=b", "", [6]int{401, 401, 403, 200, 200, 200}},
	"POST /debug/simulate": {"/debug/simulate", `{"bundle": {}, "query": {"bank": "b", "user_id": "alice"}}`, [6]int{401, 401, 403, 200, 200, 200}},
	"POST /decide":         {"/decide", `{"queries": [{"bank": "b", "action": "bank:recall", "user_id": "alice"}]}`, [6]int{401, 401, 403, 200, 200, 200}},
	"GET /me/resolve":      {"/me/resolve?bank=b", "", [6]int{401, 401, 200, 200, 200, 200}},
	"GET /me/what-can":     {"/me/what-can", "", [6]int{401, 401, 200, 200, 200, 200}},

	"GET /admin/template-sources":                  {"/admin/template-sources", "", [6]int{401, 401, 403, 403, 200, 200}},
	"POST /admin/template-sources":                 {"/admin/template-sources", `{"url": "fs://shelf", "alias": "new"}`, [6]int{401, 401, 403, 403, 201, 201}},
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

	"GET /admin/events": {"/admin/events", "", [6]int{401, 401, 403, 403, 200, 200}},

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
	shelf := fstest.MapFS{"templates.json": {Data: []byte(`{"templates": [{"id": "chat", "name": "Chat", "manifest": {"version": "1"}}]}`)}}
	s := newSite(t, marketplace.Config{Files: map[string]fs.FS{"shelf": shelf}})
	bearers := map[string]string{
		"none": "", "bad": strings.Repeat("x", 59),
		"narrow": s.keyOf(svc.KindServiceAccount, "narrow"), "robot": s.keyOf(svc.KindServiceAccount, "robot"),
	}
	for name, row := range matrix {
		for i, who := range callers {
			t.Run(name+"/"+who, func(t *testing.T) {
				key := s.restock()
				own := keyID(s.key("alice"))
				if who == "plain" || who == "admin" {
					own, bearers[who] = keyID(s.key(who)), s.key(who) // a new one each time: some requests revoke it
				}
				target := strings.NewReplacer("{key}", key, "{own}", own).Replace(row.target)
				method, _, _ := strings.Cut(name, " ")
				caller := s.as(bearers[who])
				caller.t = t
				caller.send(method, target, row.body).is(row.statuses[i])
			})
		}
	}
}

// restock restores everything that a request may have changed. It returns the id of a key of
// alice's.
func (s *site) restock() string {
	s.t.Helper()
	ctx := s.t.Context()
	for _, id := range []string{"chat", "new"} {
		_ = s.service.Templates.Delete(ctx, svc.Host, id)
	}
	for _, name := range []string{"shelf", "new"} {
		_ = s.service.Sources.Remove(ctx, svc.Host, name)
	}
	must(s.service.Sources.Register(ctx, svc.Host, svc.NewSource{URL: "fs://shelf", Alias: new("shelf")}))
	must(s.service.Templates.Install(ctx, svc.Host, svc.Install{TemplateID: "chat", SourceName: "shelf"}))
	return keyID(s.key("alice"))
}

// Every row also holds for a path with an extra slash, for another method, and for HEAD where there
// is GET.
func TestMatrixAroundTheRoutes(t *testing.T) {
	s := newSite(t, marketplace.Config{})
	admin, nobody := s.admin(), s.as("")
	for name, row := range matrix {
		method, _, _ := strings.Cut(name, " ")
		path, _, _ := strings.Cut(row.target, "?")
		for _, target := range []string{path + "/", "/" + path, path + "//", path + "/x/y/z"} {
			nobody.send(method, target, row.body).is(401)
			admin.send(method, target, row.body).is(404)
		}
		nobody.send("PUT", path, "").is(401)
		admin.send("PUT", path, "").is(405)
		if method == "GET" {
			nobody.send("HEAD", row.target, "").is(401)
			if status := admin.send("HEAD", row.target, "").status; status != admin.send("GET", row.target, "").status {
				t.Errorf("%s: HEAD answers %d", name, status)
			}
		}
	}
}
