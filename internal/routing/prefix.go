// Package routing finds out which requests of a host lead below a prefix, and to which path there.
package routing

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
)

// Prefix is the public path of a handler. The zero Prefix covers every path.
type Prefix struct {
	text     string   // without a trailing slash
	segments []string // escaped; a {wildcard} matches any one segment
}

// NewPrefix returns the prefix that a host sets. "/" and "" are no prefix. It panics when the
// prefix is an address, has an empty segment, or has a brace that is no parameter's.
func NewPrefix(option string) Prefix {
	if strings.Contains(option, "//") || strings.ContainsAny(option, "?#") ||
		strings.TrimSpace(option) != option {
		panic(fmt.Sprintf("svc: the Prefix %q is no path", option))
	}
	option = strings.Trim(option, "/")
	if option == "" {
		return Prefix{}
	}
	p := Prefix{text: "/" + option, segments: strings.Split(option, "/")}
	for i, segment := range p.segments {
		switch name := strings.TrimSuffix(strings.TrimPrefix(segment, "{"), "}"); {
		case strings.ContainsAny(name, "{}") || name != segment && segment != "{"+name+"}":
			panic(fmt.Sprintf("svc: the Prefix %q has a brace that is no parameter's", option))
		case name == segment:
			p.segments[i] = escape(segment)
		}
	}
	return p
}

// String returns the prefix as the host has set it, with one slash at the start and none at the
// end. "" is no prefix.
func (p Prefix) String() string { return p.text }

// escape escapes a segment for a URL. A segment that is escaped already stays unchanged.
func escape(segment string) string {
	plain, err := url.PathUnescape(segment)
	if err != nil {
		plain = segment
	}
	return (&url.URL{Path: plain, RawPath: segment}).EscapedPath()
}

// Cut returns the part of an escaped path after the prefix; false: the path lacks the prefix, and
// Cut returns the whole path.
func (p Prefix) Cut(escaped string) (rest string, starts bool) {
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

// Rest returns the escaped path of a request after the prefix. The host may have cut the prefix off
// already.
func (p Prefix) Rest(r *http.Request) string {
	rest, _ := p.Cut(EscapedPath(r.URL))
	return rest
}

func matches(want, have string) bool {
	if !isParameter(want) {
		return have == want || strings.Contains(want, "%") && escape(have) == want
	}
	plain, err := url.PathUnescape(have)
	return err == nil && plain != "" && plain != "." && plain != ".."
}

// Tenant is the name of the parameter for the tenant, in a prefix and of the request.
const Tenant = "tenant"

// TenantOf returns the name of a request's tenant: by a function of the host, or by the prefix, or,
// for a route of the host, by its own {tenant}, or else where the prefix has its parameter: not
// every router sets the values of a path.
func (p Prefix) TenantOf(r *http.Request, by func(*http.Request) string) string {
	if by != nil {
		return by(r)
	}
	path := EscapedPath(r.URL)
	if name := r.PathValue(Tenant); name != "" && !p.Starts(path) {
		return name
	}
	at := slices.Index(p.segments, "{"+Tenant+"}")
	if upTo := (Prefix{segments: p.segments[:at+1]}); at < 0 || !upTo.Starts(path) {
		return ""
	}
	name, _ := url.PathUnescape(strings.SplitN(path, "/", at+3)[at+1]) // Starts has read it
	return name
}

// Has reports whether the prefix has a segment for the parameter of that name.
func (p Prefix) Has(name string) bool { return slices.Contains(p.segments, "{"+name+"}") }

// Starts reports whether an escaped path starts with the prefix.
func (p Prefix) Starts(escaped string) bool {
	_, starts := p.Cut(escaped)
	return starts
}

// Covers reports whether a path leads below the prefix in any reading: as it is, cleaned, or
// unescaped and then cleaned.
func (p Prefix) Covers(u *url.URL) bool {
	escaped := EscapedPath(u)
	if p.Starts(escaped) || p.Starts(path.Clean("/"+escaped)) {
		return true
	}
	if u.Path == escaped {
		return false
	}
	unescaped := url.URL{Path: path.Clean("/" + u.Path)}
	return p.Starts(unescaped.EscapedPath())
}

// Mount passes the requests that p covers to h, and all others to next.
func (p Prefix) Mount(h, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.Covers(r.URL) {
			h.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// EscapedPath returns the path as the client sent it. [url.URL.EscapedPath] would escape a path
// again if one of its characters should have been escaped; an escaped slash would then be lost.
func EscapedPath(u *url.URL) string {
	if plain, err := url.PathUnescape(u.RawPath); err == nil && plain == u.Path && plain != "" {
		return u.RawPath
	}
	return u.EscapedPath()
}
