package adminpage

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/fairqueue"
	"github.com/extsvc/svc/internal/inbound"
	"github.com/extsvc/svc/internal/rate"
	"github.com/extsvc/svc/internal/routing"
)

// route is one address of the pages. A form posts to the address of its page.
type route struct {
	method, path string // the path after the prefix
	page         string // the name of the page; "": it has none
	serve        func(*visit) error
}

var routes = append([]route{
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
	{"GET", "/sources", "Sources", (*visit).sources},
	{"POST", "/sources", "Sources", (*visit).changeSources},
	{"GET", "/sources/{name}", "Sources", (*visit).source},
	{"POST", "/sources/{name}", "Sources", (*visit).changeSource},
	{"GET", "/keys", "Keys", (*visit).keys},
	{"POST", "/keys", "Keys", (*visit).changeKeys},
	{"GET", "/keys/{key_id}", "Keys", (*visit).key},
	{"GET", "/audit", "Audit", (*visit).audit},
}, accessRoutes()...)

// visit is a request of a caller who is signed in.
type visit struct {
	r      *http.Request
	h      *Handler
	w      http.ResponseWriter
	began  time.Time
	by     svc.Principal
	in     session // the page's own sign-in; zero: the host's session
	page   string
	params map[string]string // the parameters of the path
	form   url.Values        // of a POST
	wrong  error             // why there is no form; nil: there is one
	// wrongInputs are the inputs that an alert is about, each with the alert.
	wrongInputs map[string]string
	// names is the input that names what the form is about: it is wrong if that is not found.
	names string
	// sender is who was signed in when the form began to arrive; zero: nobody.
	sender  svc.Identity
	counted bool // by the rate of the caller's key
}

// root returns the way from a page back to the prefix, as a relative address: "" or "../…". A
// request for the prefix without a slash gets the last segment of the prefix, as the client sees it.
func (h *Handler) root(r *http.Request) string {
	if path := h.prefix.Rest(r); path != "" {
		return strings.Repeat("../", strings.Count(path, "/")-1)
	}
	public := h.prefix.String()
	if asked, err := url.ParseRequestURI(r.RequestURI); err == nil { // the host may have cut it off
		public = routing.EscapedPath(asked)
	}
	return "./" + public[strings.LastIndexByte(public, '/')+1:] + "/"
}

// ServeHTTP answers one request. A request from another site that could write is refused before
// anything else. Every path but those of the style and the script answers 401 to callers who are
// not signed in.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := &visit{r: r, h: h, w: w, began: time.Now()}
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
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src"+
		" 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
}

func (h *Handler) serve(v *visit) error {
	path := h.prefix.Rest(v.r)
	if h.sendAsset(v.w, v.r, path) {
		return nil
	}
	if err := h.options.CrossOrigin.Check(v.r); err != nil {
		return &svc.Error{Code: svc.CodeForbidden, Message: "another site sent this request"}
	}
	if path == signInPath && v.r.Method == http.MethodPost {
		if v.readForm(maxSignIn); v.wrong != nil {
			return v.wrong
		}
		if alert := wrongBearer(v.bearer()); alert != "" { // the same for tenants that do not exist
			return v.refuseSignIn(alert)
		}
		return h.in(v, true, func() error { return v.inTime(v.signIn) })
	}
	if v.r.Method == http.MethodPost {
		if ok, err := h.receive(v, path); !ok {
			return err
		}
	}
	return h.in(v, false, func() error {
		if err := v.inTime(v.authenticate); err != nil {
			return err
		}
		line := fairqueue.Flow{Owner: v.h.tenant, Kind: string(v.by.Kind), ID: v.by.ID}
		defer v.h.queue.Wait(v.r.Context(), line)()
		v.answer(func() error { return v.inTime(func() error { return v.route(path) }) })
		return nil
	})
}

// inTime calls do with a request whose work ends in time for a page about it.
func (v *visit) inTime(do func() error) error {
	ctx, cancel := inbound.InTime(v.r.Context(), v.began)
	defer cancel()
	whole := v.r
	defer func() { v.r = whole }()
	v.r = whole.WithContext(ctx)
	return do()
}

// find returns the route of a path, and the parameters in it.
func (v *visit) find(path string) (found route, params map[string]string, err error) {
	at, params, allow := v.h.paths.Match(v.r.Method, path)
	if at >= 0 {
		return v.h.routes[at], params, nil
	}
	if allow != nil {
		v.w.Header().Set("Allow", strings.Join(allow, ", "))
		return found, nil, &svc.Error{
			Code: codeMethodNotAllowed, Message: "this is not possible here"}
	}
	return found, nil, &svc.Error{Code: svc.CodeNotFound, Message: "there is no such page"}
}

// route serves the page of a path. A page that the sign-in or another site led to gets an address
// without what they added.
func (v *visit) route(path string) error {
	found, params, err := v.find(path)
	if err == nil {
		err = v.wrong
	}
	if err != nil {
		return err
	}
	if found.page != "" && (v.isMarked() || v.isForeign()) {
		return v.redirect(v.address())
	}
	v.page, v.params = found.page, params
	return found.serve(v)
}

// authenticate finds the caller by the host's session, or else by the cookie: a session of the host
// that has expired does not stand in the way of a key.
func (v *visit) authenticate() error {
	err := v.findCaller()
	if err == nil && v.sender.ID != "" && v.by.Identity() != v.sender {
		err = &svc.Error{Code: svc.CodeUnauthenticated} // it now identifies another principal
	}
	if err != nil {
		v.by, v.in = svc.Principal{}, session{}
	}
	return err
}

func (v *visit) findCaller() (err error) {
	for _, way := range []func() error{v.byBearer, v.byPrincipal} {
		if err := way(); !errors.Is(err, svc.ErrUnauthenticated) {
			return err
		}
	}
	in, found := v.h.session(v.r)
	if !found {
		return &svc.Error{Code: svc.CodeUnauthenticated}
	}
	v.in = in
	v.by, err = v.admit(in.bearer)
	return err
}

// byBearer finds the caller by the bearer of the host's session.
func (v *visit) byBearer() (err error) {
	bearer := ""
	if v.h.options.Bearer != nil {
		bearer = v.h.options.Bearer(v.r)
	}
	if bearer == "" {
		return svc.ErrUnauthenticated
	}
	v.by, err = v.admit(bearer)
	return err
}

// byPrincipal finds the caller by the host's session itself.
func (v *visit) byPrincipal() (err error) {
	if v.h.options.Principal == nil {
		return svc.ErrUnauthenticated
	}
	v.by, err = v.h.options.Principal(v.r)
	if errors.Is(err, svc.ErrUnauthenticated) {
		return err
	} else if err != nil {
		return inbound.BadSession(v.r, err)
	}
	return v.h.service.Accept(v.r.Context(), v.by)
}

// admit authenticates a bearer, and counts the request by the rate of its key.
func (v *visit) admit(bearer string) (svc.Principal, error) {
	by, err := v.h.service.Authenticate(v.r.Context(), bearer)
	limit := by.Rate()
	if err != nil || limit == (svc.Rate{}) || v.counted {
		return by, err
	}
	v.counted = true
	key := rate.KeyOf(v.h.tenant, by.KeyID())
	if left := v.h.rates.Take(key, rate.Rate(limit), time.Since(v.h.start)); left.Refused {
		pause := max(1, math.Ceil(left.Next.Seconds()))
		v.w.Header().Set("Retry-After", strconv.FormatFloat(pause, 'f', 0, 64))
		err = &svc.Error{Code: codeLimited, Message: "too many requests: try again later"}
	}
	return by, err
}

// may reports whether the caller has a control-plane right. It decides what a page offers: the
// Service authorizes each call for itself.
func (v *visit) may(action string) (bool, error) {
	d, err := v.h.service.Decide(v.r.Context(), v.by, action, "*", svc.Context{})
	return d.Allowed(), err
}

// mayWrite is may for a right to change something here.
func (v *visit) mayWrite(action string) (bool, error) {
	may, err := v.may(action)
	return may && !v.h.options.ReadOnly, err
}

// mayEach reports for each of some actions whether the caller may do it.
func (v *visit) mayEach(actions ...string) ([]bool, error) {
	all := make([]bool, len(actions))
	for i, action := range actions {
		may, err := v.may(action)
		if err != nil {
			return nil, err
		}
		all[i] = may
	}
	return all, nil
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
		return &svc.Error{
			Code: svc.CodeForbidden,
			Message: "this key has no access to these pages: ask an administrator for a right" +
				" such as " + action.UsersRead,
		}
	}
	return v.redirect(links[0].Address)
}

// redirect leads to an address below the prefix, by GET, and returns nil. The answer has a relative
// address, which holds behind every proxy.
func (v *visit) redirect(address string) error {
	location := v.h.root(v.r) + address
	if path, _, _ := strings.Cut(location, "?"); path == "" {
		location = "./" + location
	}
	v.w.Header().Set("Location", location)
	v.w.WriteHeader(http.StatusSeeOther)
	return nil
}

// changes refuses a request that writes when the pages are read-only.
func (v *visit) changes() error {
	if v.h.options.ReadOnly {
		return &svc.Error{Code: svc.CodeReadOnly, Message: "these pages are read-only"}
	}
	return nil
}

// fail answers with a page about an error. Callers who are not signed in get the sign-in.
func (v *visit) fail(err error) {
	if svc.ErrorCode(err) == svc.CodeUnauthenticated {
		v.askSignIn()
		return
	}
	page := v.refusal(err)
	if page.Status == http.StatusTooManyRequests { // which come in floods
		defer v.h.queue.Wait(v.r.Context(), fairqueue.Flow{})()
	}
	page.Template, page.Title = "failed", cmp.Or(v.page, http.StatusText(page.Status))
	_ = v.render(page)
}

// once returns the idempotency key of a form that must not count twice; "" over a store that keeps
// no answers.
func (v *visit) once(key string) string {
	if !v.h.service.KeepsAnswers() {
		return ""
	}
	return key
}

// report logs an error that is not the caller's.
func (v *visit) report(status int, err error) {
	if status < http.StatusInternalServerError || inbound.Left(v.r) {
		return
	}
	level := slog.LevelError
	if errors.Is(err, svc.ErrBadEntry) { // the publisher's fault, of one template
		level = slog.LevelWarn
	}
	v.h.options.Logger.LogAttrs(v.r.Context(), level, "svc: admin page failed",
		slog.String("method", v.r.Method), slog.String("page", v.page), slog.Int("status", status),
		slog.String("request_id", v.hide(v.requestID())),
		slog.String("error", v.hide(err.Error())))
}

// hide masks the credentials of the request in a text: a panic of the host may hold them.
func (v *visit) hide(s string) string {
	return inbound.Hide(v.r, s, v.in.bearer, v.bearer())
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
	v.by = svc.Principal{} // without a navigation: what it asks may be what panics
	v.fail(fmt.Errorf("panic: %v\n%s", cause, debug.Stack()))
}
