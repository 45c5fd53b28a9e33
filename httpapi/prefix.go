package httpapi

import (
	"cmp"
	"net/http"
	"net/url"

	"github.com/extsvc/svc/internal/routing"
)

// astray explains a path without a route: the Handler may be mounted at a path that does not match
// its prefix. "": there is no sign of that.
func (h *Handler) astray(r *http.Request) string {
	rest, starts := h.prefix.Cut(routing.EscapedPath(r.URL))
	switch want := cmp.Or(h.prefix.String(), "/"); {
	case !starts && !rewritten(r):
		return "it does not start with the prefix " + want
	case h.routes.paths.Ends(rest):
		return "it ends like a route, but that does not follow the prefix " + want
	}
	return ""
}

// rewritten reports whether the path differs from the path that the client requested. Probably the
// host has cut a prefix off.
func rewritten(r *http.Request) bool {
	asked, err := url.ParseRequestURI(r.RequestURI)
	return err == nil && routing.EscapedPath(asked) != routing.EscapedPath(r.URL)
}
