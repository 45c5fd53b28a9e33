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
	{Route{"GET", "/admin/template-sources/{name}/templates"}, (*Handler).sourceTemplates},
	{Route{"POST", "/admin/template-sources/{name}/rebind"}, (*Handler).rebindSource},
	{Route{"GET", "/admin/source-templates"}, (*Handler).searchSources},

	{Route{"GET", "/admin/templates"}, (*Handler).listTemplates},
	{Route{"POST", "/admin/templates"}, (*Handler).createTemplate},
	{Route{"POST", "/admin/templates/check-updates"}, (*Handler).checkUpdates},
	{Route{"GET", "/admin/templates/{template_id}"}, (*Handler).template},
	{Route{"PATCH", "/admin/templates/{template_id}"}, (*Handler).patchTemplate},
	{Route{"DELETE", "/admin/templates/{template_id}"}, (*Handler).deleteTemplate},
	{Route{"POST", "/admin/templates/{template_id}/install"}, (*Handler).installTemplate},
	{Route{"POST", "/admin/templates/{template_id}/update"}, (*Handler).updateTemplate},
	{Route{"GET", "/admin/templates/{template_id}/check-update"}, (*Handler).checkUpdate},
	{Route{"GET", "/admin/templates/{template_id}/diff"}, (*Handler).diffTemplate},
	{Route{"GET", "/admin/templates/{template_id}/history"}, (*Handler).templateHistory},
	{Route{"POST", "/admin/templates/{template_id}/rollback"}, (*Handler).rollbackTemplate},

	{Route{"GET", "/admin/events"}, (*Handler).listEvents},

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

// patterns are the segments of the paths of routes.
var patterns = func() [][]string {
	all := make([][]string, len(routes))
	for i, r := range routes {
		all[i] = strings.Split(r.Path, "/")
	}
	return all
}()

// match finds the route of an escaped path, segment by segment: nothing is cleaned, so nothing is redirected, and an
// escaped slash stays within its segment.
func match(method, escaped string) (route, map[string]string, error) {
	var allow []string
	path := segments(escaped)
	for i, r := range routes {
		if !covers(patterns[i], path) {
			continue
		}
		if r.Method == method || r.Method == http.MethodGet && method == http.MethodHead {
			return r, parameters(patterns[i], path), nil
		}
		if allow = append(allow, r.Method); r.Method == http.MethodGet {
			allow = append(allow, http.MethodHead)
		}
	}
	if allow != nil {
		slices.Sort(allow)
		return route{}, nil, methodNotAllowed(strings.Join(allow, ", "))
	}
	return route{}, nil, noRoute("")
}

// noRoute is the answer to a path that is no route's, and why it is none, where that can be told.
func noRoute(why string) error {
	message := "there is no such path"
	if why != "" {
		message += ": " + why
	}
	return &svc.Error{Code: svc.CodeNotFound, Message: message}
}

func methodNotAllowed(methods string) error {
	return &withHeader{
		err:  &svc.Error{Code: codeMethodNotAllowed, Message: "this path takes " + methods + " only"},
		name: "Allow", value: methods,
	}
}

// segments are those of an escaped path, unescaped; nil: one of them cannot be.
func segments(escaped string) []string {
	all := strings.Split(escaped, "/")
	for i, segment := range all {
		var err error
		if all[i], err = url.PathUnescape(segment); err != nil {
			return nil
		}
	}
	return all
}

// covers reports whether a path is one of a pattern's: its parameters are not empty.
func covers(pattern, path []string) bool {
	if len(pattern) != len(path) {
		return false
	}
	for i, want := range pattern {
		if isParameter(want) {
			if path[i] == "" {
				return false
			}
		} else if path[i] != want {
			return false
		}
	}
	return true
}

// parameters returns the values that a path which a pattern covers has for its parameters.
func parameters(pattern, path []string) map[string]string {
	var values map[string]string
	for i, name := range pattern {
		if isParameter(name) {
			if values == nil {
				values = map[string]string{}
			}
			values[strings.Trim(name, "{}")] = path[i]
		}
	}
	return values
}

func isParameter(segment string) bool { return strings.HasPrefix(segment, "{") }
