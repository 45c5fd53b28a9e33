package adminpage

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/mount"
	"github.com/extsvc/svc/internal/turns"
)

// maxForm limits the body of a form, in bytes: a bundle to preview has the limit of the interface.
const maxForm = httpapi.DefaultMaxBody + 64<<10

// route is one address of the pages. A form posts to the address of its own page.
type route struct {
	method, path string // the path after the prefix
	page         string // the name of the page; "": it has none
	serve        func(*visit) error
}

var routes = []route{
	{"GET", "", "", (*visit).first},
	{"GET", "/", "", (*visit).first},
	{"POST", "/sign-out", "", (*visit).signOut},
	{"GET", "/why", "Why", (*visit).why},
	{"POST", "/why", "Why", (*visit).tryChange},
	{"GET", "/who-can", "Who can", (*visit).whoCan},
	{"GET", "/templates", "Templates", (*visit).templates},
	{"POST", "/templates", "Templates", (*visit).changeTemplates},
	{"GET", "/templates/{template_id}", "Templates", (*visit).template},
	{"POST", "/templates/{template_id}", "Templates", (*visit).changeTemplate},
	{"GET", "/keys", "Keys", (*visit).keys},
	{"POST", "/keys", "Keys", (*visit).changeKeys},
	{"GET", "/audit", "Audit", (*visit).audit},
}

// visit is a request of a caller who is signed in.
type visit struct {
	*http.Request
	h      *Handler
	w      http.ResponseWriter
	by     svc.Principal
	in     session // the page's own sign-in; zero: the host's session
	page   string
	params map[string]string // the parameters of the path
}

// relative returns the escaped path after the prefix. The host may have cut the prefix off already.
func (h *Handler) relative(r *http.Request) string {
	rest, _ := h.prefix.Cut(mount.EscapedPath(r.URL))
	return rest
}

// root returns the way from a page back to the prefix, as a relative address: "" or "../…". A
// request for the prefix without a slash gets the last segment of the prefix.
func (h *Handler) root(r *http.Request) string {
	path := h.relative(r)
	if path == "" {
		public := h.cookiePath(r)
		return public[strings.LastIndexByte(public, '/')+1:] + "/"
	}
	return strings.Repeat("../", strings.Count(path, "/")-1)
}

// ServeHTTP answers one request. A request from another site that could write is refused before
// anything else. Every path but those of the style and the script answers 401 to callers who are
// not signed in.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := &visit{Request: r, h: h, w: w}
	setSecurity(w.Header())
	v.answer(func() error { return h.serve(v) })
}

// answer calls serve, and answers with a page about its error or panic.
func (v *visit) answer(serve func() error) {
	defer v.recover()
	if err := serve(); err != nil {
		v.fail(err)
	}
}

// setSecurity sets the headers of every answer. The referrer policy keeps the Origin of forms,
// which the protection against other sites needs.
func setSecurity(header http.Header) {
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
}

func (h *Handler) serve(v *visit) error {
	path := h.relative(v.Request)
	if h.sendAsset(v.w, v.Request, path) {
		return nil
	}
	if err := h.origin.Check(v.Request); err != nil {
		return &svc.Error{Code: svc.CodeForbidden, Message: "another site sent this request"}
	}
	signsIn, limit := path == signInPath && v.Method == http.MethodPost, int64(maxForm)
	if signsIn {
		limit = maxSignIn
	}
	v.Body = http.MaxBytesReader(v.w, v.Body, limit)
	return h.in(v, signsIn, func() error {
		if signsIn {
			return v.signIn()
		}
		if err := v.authenticate(); err != nil {
			return err
		}
		line := turns.Line{Owner: v.h.tenant, Kind: string(v.by.Kind), ID: v.by.ID}
		defer v.h.turns.Pause(v.Context(), line)()
		v.answer(func() error { return v.route(path) })
		return nil
	})
}

// route serves the page of a path.
func (v *visit) route(path string) error {
	segments := mount.Segments(path)
	var allowed []string // the methods that the address takes
	for i, route := range v.h.routes {
		pattern := v.h.patterns[i]
		if !pattern.Covers(segments) {
			continue
		}
		allowed = append(allowed, route.method)
		if route.method == v.Method || route.method == "GET" && v.Method == "HEAD" {
			v.page, v.params = route.page, pattern.Parameters(segments)
			return route.serve(v)
		}
	}
	if allowed != nil {
		v.w.Header().Set("Allow", strings.Join(allowed, ", "))
		return errMethod
	}
	return &svc.Error{Code: svc.CodeNotFound, Message: "there is no such page"}
}

// authenticate finds the caller by the host's session, or else by the cookie: a session of the host
// that has expired does not stand in the way of a key.
func (v *visit) authenticate() error {
	if v.h.options.Bearer != nil {
		if bearer := v.h.options.Bearer(v.Request); bearer != "" {
			by, err := v.h.service.Authenticate(v.Context(), bearer)
			if svc.ErrorCode(err) != svc.CodeUnauthenticated {
				v.by = by
				return err
			}
		}
	}
	in, found := v.h.session(v.Request)
	if !found {
		return &svc.Error{Code: svc.CodeUnauthenticated}
	}
	by, err := v.h.service.Authenticate(v.Context(), in.bearer)
	if err == nil {
		v.by, v.in = by, in
	}
	return err
}

// may reports whether the caller has a control-plane right. It decides what a page offers: the
// Service authorizes each call for itself.
func (v *visit) may(action string) (bool, error) {
	d, err := v.h.service.Decide(v.Context(), v.by, action, "*", svc.Context{})
	return d.Allowed(), err
}

// need refuses a caller without a right, for a page that has nothing to ask the Service yet.
func (v *visit) need(action string) error {
	may, err := v.may(action)
	if err == nil && !may {
		const message = "your key does not have the right for this page"
		err = &svc.Error{Code: svc.CodeForbidden, Message: message}
	}
	return err
}

// first leads to the first page that the caller may see.
func (v *visit) first() error {
	links, err := v.navigation()
	if err != nil {
		return err
	}
	if len(links) == 0 {
		return &svc.Error{Code: svc.CodeForbidden, Message: "your key may see none of these pages"}
	}
	v.redirect(links[0].Address)
	return nil
}

// redirect leads to an address below the prefix, by GET. The answer has a relative address, which
// holds behind every proxy.
func (v *visit) redirect(address string) {
	v.w.Header().Set("Location", cmp.Or(v.h.root(v.Request)+address, "./"))
	v.w.WriteHeader(http.StatusSeeOther)
}

// changes refuses a request that writes when the pages are read-only.
func (v *visit) changes() error {
	if v.h.options.ReadOnly {
		return &svc.Error{Code: svc.CodeForbidden, Message: "these pages are read-only"}
	}
	return nil
}

// fail answers with a page about an error. Callers who are not signed in get the sign-in.
func (v *visit) fail(err error) {
	if svc.ErrorCode(err) == svc.CodeUnauthenticated {
		v.showSignIn(false)
		return
	}
	status := statusOf(err)
	title := cmp.Or(v.page, http.StatusText(status))
	v.render(status, view{Template: "failed", Title: title, Alerts: v.problems(err)})
}

// report logs an error that is not the caller's.
func (v *visit) report(status int, err error) {
	if status < http.StatusInternalServerError || v.Context().Err() != nil {
		return
	}
	v.h.options.Logger.LogAttrs(v.Context(), slog.LevelError, "svc: admin page failed",
		slog.String("method", v.Method), slog.String("page", v.page), slog.Int("status", status),
		slog.String("error", v.h.mask(err.Error())))
}

// problems returns what an error says to the caller, a sentence for each fault. It logs the rest.
func (v *visit) problems(err error) (lines []string) {
	v.report(statusOf(err), err)
	for _, e := range svc.Errors(err) {
		line := e.Message
		if e.Field != "" {
			line = e.Field + " " + line
		}
		lines = append(lines, v.h.mask(line)+".")
	}
	switch {
	case errors.Is(err, errMethod), errors.Is(err, errTooLarge):
		return []string{err.Error() + "."}
	case lines == nil:
		return []string{"an unexpected fault: see the server's log."}
	}
	return lines
}

// recover answers with 500 after a panic.
func (v *visit) recover() {
	cause := recover()
	if cause == nil {
		return
	}
	if cause == http.ErrAbortHandler {
		panic(cause)
	}
	v.fail(fmt.Errorf("panic: %v\n%s", cause, debug.Stack()))
}
