package httpapi

import (
	"cmp"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
)

// prefix is the public path of the interface.
type prefix struct {
	text     string   // without a trailing slash
	segments []string // escaped; a {wildcard} matches any one segment
}

func newPrefix(option string) prefix {
	if option == "" {
		option = DefaultPrefix
	}
	option = strings.Trim(option, "/")
	if option == "" {
		return prefix{}
	}
	p := prefix{text: "/" + option, segments: strings.Split(option, "/")}
	for i, segment := range p.segments {
		if !isParameter(segment) {
			p.segments[i] = escape(segment)
		}
	}
	return p
}

// escape escapes a segment for a URL. A segment that is escaped already stays unchanged.
func escape(segment string) string {
	plain, err := url.PathUnescape(segment)
	if err != nil {
		plain = segment
	}
	return (&url.URL{Path: plain, RawPath: segment}).EscapedPath()
}

// cut returns the part of an escaped path after the prefix; false: the path lacks the prefix, and
// cut returns the whole path.
func (p prefix) cut(escaped string) (rest string, starts bool) {
	rest = escaped
	for _, want := range p.segments {
		if rest == "" || rest[0] != '/' {
			return escaped, false
		}
		have, _, _ := strings.Cut(rest[1:], "/")
		if !matches(want, have) {
			return escaped, false
		}
		rest = rest[1+len(have):]
	}
	return rest, rest == "" || rest[0] == '/'
}

func matches(want, have string) bool {
	if !isParameter(want) {
		return have == want || strings.Contains(want, "%") && escape(have) == want
	}
	plain, err := url.PathUnescape(have)
	return err == nil && plain != "" && plain != "." && plain != ".."
}

func (p prefix) starts(escaped string) bool {
	_, starts := p.cut(escaped)
	return starts
}

// covers reports whether a path leads below the prefix in any reading: as it is, cleaned, or
// unescaped and then cleaned.
func (p prefix) covers(u *url.URL) bool {
	escaped := escapedPath(u)
	if p.starts(escaped) || p.starts(path.Clean("/"+escaped)) {
		return true
	}
	if u.Path == escaped {
		return false
	}
	unescaped := url.URL{Path: path.Clean("/" + u.Path)}
	return p.starts(unescaped.EscapedPath())
}

// astray explains a path without a route: the Handler may be mounted at a path that does not match
// its prefix. "": there is no sign of that.
func (p prefix) astray(r *http.Request, routes *table) string {
	rest, starts := p.cut(escapedPath(r.URL))
	switch want := cmp.Or(p.text, "/"); {
	case !starts && !rewritten(r):
		return "it does not start with the prefix " + want
	case routes.end(rest):
		return "it ends like a route, but does not start with the prefix " + want
	}
	return ""
}

// rewritten reports whether the path differs from the path that the client requested. Probably the
// host has cut a prefix off.
func rewritten(r *http.Request) bool {
	asked, err := url.ParseRequestURI(r.RequestURI)
	return err == nil && escapedPath(asked) != escapedPath(r.URL)
}

// end reports whether the end of an escaped path matches a route.
func (t *table) end(escaped string) bool {
	all := segments(escaped)
	return slices.ContainsFunc(t.patterns, func(pattern []string) bool {
		before := len(all) - len(pattern) + 1 // patterns start with a slash
		return before > 0 && covers(pattern[1:], all[before:])
	})
}

// escapedPath returns the path as the client sent it. [url.URL.EscapedPath] would escape a path
// again if one of its characters should have been escaped; an escaped slash would then be lost.
func escapedPath(u *url.URL) string {
	if plain, err := url.PathUnescape(u.RawPath); err == nil && plain == u.Path && plain != "" {
		return u.RawPath
	}
	return u.EscapedPath()
}
