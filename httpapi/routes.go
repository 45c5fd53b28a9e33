package httpapi

import (
	"net/http"
	"slices"

	"github.com/extsvc/svc/internal/routing"
)

// Route is one endpoint.
type Route struct {
	Method string
	Path   string // the path after the prefix, with parameters as {name}
}

type route struct {
	Route
	serve func(*Handler, http.ResponseWriter, *request) error
	query []string // the keys that it reads; a request with another key, or one twice, is refused
}

// filters are the keys of a query for the templates of sources.
var filters = []string{"category", "tag", "q"}

// routes is the list of the endpoints in the order of the documentation, without accessRoutes.
var routes = slices.Concat(
	[]route{
		{Route{"GET", "/debug/resolve"}, (*Handler).resolve, []string{
			"bank", "action", "sa_id", "user_id", "sender", "channel", "topic", "scoping_policy_id",
		}},
		{Route{"GET", "/debug/who-can"}, (*Handler).whoCan, []string{"bank", "action"}},
		{Route{"POST", "/debug/simulate"}, (*Handler).simulate, nil},
		{Route{"POST", "/decide"}, (*Handler).decide, nil},
		{Route{"POST", "/introspect"}, (*Handler).introspect, []string{"inactive"}},
		{Route{"GET", "/me/resolve"}, (*Handler).resolve, []string{
			"bank", "action", "channel", "topic",
		}},
		{Route{"GET", "/me/what-can"}, (*Handler).whatCanI, nil},
	},
	halfRoutes("/admin"),
	[]route{
		{Route{"GET", "/admin/events"}, (*Handler).listEvents, []string{
			"actor", "actor_kind", "target", "target_kind", "since", "until", "limit", "cursor",
		}},
		{Route{"GET", "/admin/api-keys"}, (*Handler).listAllKeys, []string{
			"expires_before", "unused_since", "limit", "cursor",
		}},
		{Route{"POST", "/admin/api-keys/sweep"}, (*Handler).sweepKeys, nil},
	},
	keyRoutes("/users/{user_id}/api-keys"),
	keyRoutes("/me/api-keys"),
	halfRoutes("/me"),
)

// halfRoutes are the endpoints of the sources and templates of the server ("/admin"), or of the
// caller ("/me").
func halfRoutes(at string) []route {
	return []route{
		{Route{"GET", at + "/template-sources"}, (*Handler).listSources, []string{"view"}},
		{Route{"POST", at + "/template-sources"}, (*Handler).registerSource, []string{"view"}},
		{Route{"PATCH", at + "/template-sources/{name}"}, (*Handler).patchSource, []string{"view"}},
		{Route{"DELETE", at + "/template-sources/{name}"}, (*Handler).removeSource, nil},
		{Route{"GET", at + "/template-sources/{name}/templates"}, (*Handler).sourceTemplates, filters},
		{Route{"POST", at + "/template-sources/{name}/rebind"}, (*Handler).rebindSource, nil},
		{Route{"GET", at + "/source-templates"}, (*Handler).searchSources, filters},

		{Route{"GET", at + "/templates"}, (*Handler).listTemplates, []string{
			"category", "tag", "limit", "cursor",
		}},
		{Route{"POST", at + "/templates"}, (*Handler).createTemplate, nil},
		{Route{"POST", at + "/templates/check-updates"}, (*Handler).checkUpdates, nil},
		{Route{"GET", at + "/templates/{template_id}"}, (*Handler).template, nil},
		{Route{"PATCH", at + "/templates/{template_id}"}, (*Handler).patchTemplate, nil},
		{Route{"DELETE", at + "/templates/{template_id}"}, (*Handler).deleteTemplate, nil},
		{Route{"POST", at + "/templates/{template_id}/install"}, (*Handler).installTemplate, nil},
		{Route{"POST", at + "/templates/{template_id}/update"}, (*Handler).updateTemplate, []string{
			"force", "local_edits", "resolution", "revision",
		}},
		{Route{"GET", at + "/templates/{template_id}/check-update"}, (*Handler).checkUpdate, nil},
		{Route{"GET", at + "/templates/{template_id}/diff"}, (*Handler).diffTemplate, nil},
		{Route{"GET", at + "/templates/{template_id}/history"}, (*Handler).templateHistory, nil},
		{Route{"POST", at + "/templates/{template_id}/rollback"}, (*Handler).rollbackTemplate, nil},
	}
}

// keyRoutes are the endpoints of the keys of one holder.
func keyRoutes(at string) []route {
	return []route{
		{Route{"GET", at}, (*Handler).listKeys, []string{"view", "limit", "cursor"}},
		{Route{"POST", at}, (*Handler).issueKey, []string{"view"}},
		{Route{"DELETE", at}, (*Handler).revokeKeys, nil},
		{Route{"PATCH", at + "/{key_id}"}, (*Handler).patchKey, nil},
		{Route{"DELETE", at + "/{key_id}"}, (*Handler).revokeKey, nil},
		{Route{"POST", at + "/{key_id}/rotate"}, (*Handler).rotateKey, []string{"view"}},
	}
}

// Routes returns all endpoints in the order of the documentation. An endpoint with GET also answers
// HEAD.
func Routes() []Route {
	all := make([]Route, len(everything.routes))
	for i, r := range everything.routes {
		all[i] = r.Route
	}
	return all
}

// table is the endpoints that a Handler serves.
type table struct {
	routes []route
	paths  routing.Table
}

func newTable(routes ...route) table {
	t := table{routes: routes}
	for _, r := range routes {
		t.paths.Add(r.Method, r.Path)
	}
	return t
}

var (
	everything    = newTable(slices.Concat(routes, accessRoutes)...)
	withoutAccess = newTable(routes...)
)

func methodNotAllowed(methods string) error {
	message := "this path takes " + methods + " only"
	return refuse(codeMethodNotAllowed, message, "Allow", methods)
}
