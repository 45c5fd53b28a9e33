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
	segments []string // escaped; a {wildcard} is any one
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

// escape is how a segment is written in a URL. One that is escaped already stays as it is.
func escape(segment string) string {
	plain, err := url.PathUnescape(segment)
	if err != nil {
		plain = segment
	}
	return (&url.URL{Path: plain, RawPath: segment}).EscapedPath()
}

// cut returns what an escaped path has behind the prefix; false: it does not start with it.
func (p prefix) cut(escaped string) (rest string, starts bool) {
	rest = escaped
	for _, want := range p.segments {
		if rest == "" || rest[0] != '/' {
			return "", false
		}
		have, _, _ := strings.Cut(rest[1:], "/")
		if !matches(want, have) {
			return "", false
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

// covers reports whether a path leads below the prefix, by one reading or another: as it is, cleaned, or unescaped and then cleaned.
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

// astray is why a path that is no route's may be none: the Handler is mounted where its prefix is not. "": it cannot be told.
func (p prefix) astray(r *http.Request) string {
	escaped := escapedPath(r.URL)
	rest, starts := p.cut(escaped)
	if !starts {
		rest = escaped
	}
	switch want := cmp.Or(p.text, "/"); {
	case !starts && !rewritten(r):
		return "it does not start with the prefix " + want
	case endsLikeARoute(rest):
		return "it ends like one, but what stands before that is not the prefix " + want
	}
	return ""
}

// rewritten reports whether the path is another than the client asked for: a prefix was cut off, probably.
func rewritten(r *http.Request) bool {
	asked, err := url.ParseRequestURI(r.RequestURI)
	return err == nil && escapedPath(asked) != escapedPath(r.URL)
}

// endsLikeARoute reports whether the end of an escaped path would be a route's.
func endsLikeARoute(escaped string) bool {
	all := segments(escaped)
	return slices.ContainsFunc(patterns, func(pattern []string) bool {
		before := len(all) - len(pattern) + 1 // patterns start with a slash
		return before > 0 && covers(pattern[1:], all[before:])
	})
}

// escapedPath is the path as it came. [url.URL.EscapedPath] escapes it anew if it holds a character that should have been escaped, and
// then an escaped slash is none any more.
func escapedPath(u *url.URL) string {
	if plain, err := url.PathUnescape(u.RawPath); err == nil && plain == u.Path && plain != "" {
		return u.RawPath
	}
	return u.EscapedPath()
}
