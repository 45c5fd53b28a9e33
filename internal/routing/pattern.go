package routing

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// pattern is the path of a route, such as "/templates/{template_id}", split into segments. A segment
// in braces is a parameter, which matches any one segment that is not empty.
type pattern []string

// segmentsOf splits an escaped path and unescapes its segments. It does not clean the path, and an
// escaped slash stays within its segment. Nil: an escape is malformed.
func segmentsOf(escaped string) []string {
	all := strings.Split(escaped, "/")
	for i, segment := range all {
		var err error
		if all[i], err = url.PathUnescape(segment); err != nil {
			return nil
		}
	}
	return all
}

// covers reports whether the segments of a path match the pattern.
func (p pattern) covers(path []string) bool {
	if len(p) != len(path) {
		return false
	}
	for i, want := range p {
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

// parameters returns the values of the parameters in a path that the pattern covers. Nil: there are
// none.
func (p pattern) parameters(path []string) map[string]string {
	var values map[string]string
	for i, name := range p {
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

// Table finds routes by their path and method.
type Table struct {
	methods  []string
	patterns []pattern
}

// Add adds a route with parameters as {name} in its path. Its index is the number of those before.
func (t *Table) Add(method, path string) {
	t.methods = append(t.methods, method)
	t.patterns = append(t.patterns, strings.Split(path, "/"))
}

// Match returns the index of the route of an escaped path, and the values of its parameters. -1:
// there is none; allow then has the methods, in order, that the path takes. It does not clean the
// path, so it never redirects, and an escaped slash stays within its segment. GET takes HEAD.
func (t *Table) Match(
	method, escaped string,
) (route int, parameters map[string]string, allow []string) {
	path := segmentsOf(escaped)
	for i, takes := range t.methods {
		if !t.patterns[i].covers(path) {
			continue
		}
		if takes == method || takes == http.MethodGet && method == http.MethodHead {
			return i, t.patterns[i].parameters(path), nil
		}
		if allow = append(allow, takes); takes == http.MethodGet {
			allow = append(allow, http.MethodHead)
		}
	}
	slices.Sort(allow)
	return -1, nil, allow
}

// Ends reports whether the end of an escaped path matches a route.
func (t *Table) Ends(escaped string) bool {
	all := segmentsOf(escaped)
	return slices.ContainsFunc(t.patterns, func(p pattern) bool {
		before := len(all) - len(p) + 1 // patterns start with a slash
		return before > 0 && p[1:].covers(all[before:])
	})
}
