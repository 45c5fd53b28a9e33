package mount

import (
	"net/url"
	"strings"
)

// Pattern is the path of a route, split into segments. A segment in braces is a parameter, which
// matches any one segment that is not empty.
type Pattern []string

// NewPattern splits a path such as "/templates/{template_id}".
func NewPattern(path string) Pattern { return strings.Split(path, "/") }

// Segments splits an escaped path and unescapes its segments. It does not clean the path, and an
// escaped slash stays within its segment. Nil: an escape is malformed.
func Segments(escaped string) []string {
	all := strings.Split(escaped, "/")
	for i, segment := range all {
		var err error
		if all[i], err = url.PathUnescape(segment); err != nil {
			return nil
		}
	}
	return all
}

// Covers reports whether the segments of a path match the pattern.
func (p Pattern) Covers(path []string) bool {
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

// Parameters returns the values of the parameters in a path that the pattern covers. Nil: there are
// none.
func (p Pattern) Parameters(path []string) map[string]string {
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
