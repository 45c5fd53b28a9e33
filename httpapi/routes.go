package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/extsvc/svc"
)

// Route is one endpoint.
type Route struct {
	Method string
	Path   string // behind the prefix, parameters as {name}
}

type route struct {
	Route
	serve func(*Handler, http.ResponseWriter, *request) error
}

// routes are all endpoints there are.
var routes = []route{
	{Route{"GET", "/debug/resolve"}, (*Handler).resolve},
	{Route{"GET", "/debug/who-can"}, (*Handler).whoCan},
	{Route{"POST", "/debug/simulate"}, (*Handler).simulate},

	{Route{"GET", "/admin/template-sources"}, (*Handler).listSources},
	{Route{"POST", "/admin/template-sources"}, (*Handler).registerSource},
	{Route{"DELETE", "/admin/template-sources/{name}"}, (*Handler).removeSource},

	{Route{"GET", "/admin/templates"}, (*Handler).listTemplates},
	{Route{"POST", "/admin/templates"}, (*Handler).createTemplate},
	{Route{"GET", "/admin/templates/{template_id}"}, (*Handler).template},
	{Route{"PATCH", "/admin/templates/{template_id}"}, (*Handler).patchTemplate},
	{Route{"DELETE", "/admin/templates/{template_id}"}, (*Handler).deleteTemplate},
	{Route{"POST", "/admin/templates/{template_id}/install"}, (*Handler).installTemplate},
	{Route{"POST", "/admin/templates/{template_id}/update"}, (*Handler).updateTemplate},
	{Route{"GET", "/admin/templates/{template_id}/check-update"}, (*Handler).checkUpdate},

	{Route{"GET", "/users/{user_id}/api-keys"}, (*Handler).listUserKeys},
	{Route{"POST", "/users/{user_id}/api-keys"}, (*Handler).issueUserKey},
	{Route{"DELETE", "/users/{user_id}/api-keys"}, (*Handler).revokeUserKeys},
	{Route{"PATCH", "/users/{user_id}/api-keys/{key_id}"}, (*Handler).patchUserKey},
	{Route{"DELETE", "/users/{user_id}/api-keys/{key_id}"}, (*Handler).revokeUserKey},
	{Route{"POST", "/users/{user_id}/api-keys/{key_id}/rotate"}, (*Handler).rotateUserKey},

	{Route{"GET", "/me/api-keys"}, (*Handler).listMyKeys},
	{Route{"POST", "/me/api-keys"}, (*Handler).issueMyKey},
	{Route{"DELETE", "/me/api-keys"}, (*Handler).revokeMyKeys},
	{Route{"PATCH", "/me/api-keys/{key_id}"}, (*Handler).patchMyKey},
	{Route{"DELETE", "/me/api-keys/{key_id}"}, (*Handler).revokeMyKey},
	{Route{"POST", "/me/api-keys/{key_id}/rotate"}, (*Handler).rotateMyKey},
}

// Routes returns every endpoint there is, in the order of the documentation. GET answers HEAD as well.
func Routes() []Route {
	all := make([]Route, len(routes))
	for i, r := range routes {
		all[i] = r.Route
	}
	return all
}

// match finds the route of an escaped path, segment by segment: nothing is cleaned, so nothing is redirected, and an
// escaped slash stays within its segment.
func match(method, escaped string) (route, map[string]string, error) {
	var allow []string
	for _, r := range routes {
		params, matches := r.match(escaped)
		if !matches {
			continue
		}
		if r.Method == method || r.Method == http.MethodGet && method == http.MethodHead {
			return r, params, nil
		}
		if allow = append(allow, r.Method); r.Method == http.MethodGet {
			allow = append(allow, http.MethodHead)
		}
	}
	if allow != nil {
		slices.Sort(allow)
		methods := strings.Join(allow, ", ")
		return route{}, nil, &withHeader{
			err:  &svc.Error{Code: codeMethodNotAllowed, Message: "this path takes " + methods + " only"},
			name: "Allow", value: methods,
		}
	}
	return route{}, nil, &svc.Error{Code: svc.CodeNotFound, Message: "there is no such path"}
}

func (r Route) match(escaped string) (params map[string]string, matches bool) {
	want, have := strings.Split(r.Path, "/"), strings.Split(escaped, "/")
	if len(want) != len(have) {
		return nil, false
	}
	for i, segment := range have {
		value, err := url.PathUnescape(segment)
		if err != nil {
			return nil, false
		}
		name, isParam := strings.CutPrefix(want[i], "{")
		switch {
		case !isParam && value != want[i], isParam && value == "":
			return nil, false
		case isParam:
			if params == nil {
				params = map[string]string{}
			}
			params[strings.TrimSuffix(name, "}")] = value
		}
	}
	return params, true
}
