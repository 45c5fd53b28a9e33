package httpapi

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"

	"github.com/extsvc/svc/internal/mount"
)

// astray explains a path without a route: the Handler may be mounted at a path that does not match
// its prefix. "": there is no sign of that.
func (h *Handler) astray(r *http.Request) string {
	rest, starts := h.prefix.Cut(mount.EscapedPath(r.URL))
	switch want := cmp.Or(h.prefix.String(), "/"); {
	case !starts && !rewritten(r):
		return "it does not start with the prefix " + want
	case h.routes.end(rest):
		return "it ends like a route, but does not start with the prefix " + want
	}
	return ""
}

// rewritten reports whether the path differs from the path that the client requested. Probably the
// host has cut a prefix off.
func rewritten(r *http.Request) bool {
	asked, err := url.ParseRequestURI(r.RequestURI)
	return err == nil && mount.EscapedPath(asked) != mount.EscapedPath(r.URL)
}

// end reports whether the end of an escaped path matches a route.
func (t *table) end(escaped string) bool {
	all := mount.Segments(escaped)
	return slices.ContainsFunc(t.patterns, func(pattern mount.Pattern) bool {
		before := len(all) - len(pattern) + 1 // patterns start with a slash
		return before > 0 && pattern[1:].Covers(all[before:])
	})
}
