// Package httpapi serves a [svc.Service] over HTTP. It translates requests and decides nothing.
//
//	api := httpapi.New(service, httpapi.Options{}) // at /ext/svc
//
// Serve api.Mount(mux) with a [Server], which has all four timeouts.
//
// The Handler authenticates every request by its bearer first, even before it looks up the path.
// With [Options].Principal, a session of the host stands for a bearer. Only the OpenAPI
// documents, openapi.json and openapi-3.0.json, need neither. Answers are JSON. Every failure is
// application/problem+json (RFC 9457) with a stable code.
package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/defaultlog"
	"github.com/extsvc/svc/internal/fairqueue"
	"github.com/extsvc/svc/internal/inbound"
	"github.com/extsvc/svc/internal/rate"
	"github.com/extsvc/svc/internal/routing"
)

// DefaultPrefix is the public path of the interface unless Options set another.
const DefaultPrefix = "/ext/svc"

// DefaultMaxBody limits the body of a request, in bytes, unless Options set another limit.
const DefaultMaxBody = 1 << 20

// Options configure a Handler. The zero value works.
type Options struct {
	// Prefix is the public path of the interface. "" means DefaultPrefix, "/" means no prefix. A
	// segment in braces, as in "/t/{tenant}/ext/svc", matches any one segment.
	Prefix string
	// Tenant returns the name of the tenant of a request to the Handler of [NewTenants]; "": none.
	// The Handler calls it from several goroutines concurrently. Nil: the segment {tenant} of
	// Prefix.
	Tenant func(r *http.Request) string
	// TenantRate is how many requests of one tenant begin in a second while other tenants are busy.
	// Only requests to the interface that overlap count, once their caller is authenticated.
	// Further ones wait up to 2 seconds, and then get 429. 0: 500 for each processor that Go uses.
	// Negative: any number, and requests with a wrong key do not wait either.
	TenantRate int
	// MaxBody limits the body of a request, in bytes. 0 or less means [DefaultMaxBody].
	MaxBody int64
	// Logger gets one record for each request that was answered or cut off, and for each request
	// that [Handler.Protect] or [Handler.Require] refuses. The record is "svc: request" at
	// [slog.LevelInfo]. For a status of 500 and above, and for an answer that was cut off, it is
	// "svc: request failed" with the error at [slog.LevelError], at LevelWarn for a bad entry of a
	// source ([svc.ErrBadEntry]), or at LevelInfo if the client has left. No record holds a secret,
	// the path, a header or a body. Nil: records at LevelError go to [slog.Default],
	// the others are dropped.
	Logger *slog.Logger
	// Limit returns how long the caller must wait before the next try; 0 or less lets the request
	// through. The Handler calls it for every authenticated request that the rate of its key
	// allows, before any other work, from several goroutines concurrently. Nil: no limit.
	Limit func(r *http.Request, by svc.Principal) time.Duration
	// KeyRate counts a request of a key that has a rate ([svc.Rate]), and returns what the rate
	// allows. Set it to count the requests of several processes together. The Handler calls it once
	// for each request of such a key, before Limit, from several goroutines concurrently. keyID is
	// the id of the key, which is no secret.
	//
	// When KeyRate fails, the Handler counts the request in memory and logs the error: a rate gives
	// no rights, so a failure must neither lock keys out nor lift their limits. A KeyRate that
	// hangs delays the request, so it should have a timeout. Package postgres has a KeyRate.
	//
	// Nil: each Handler counts in memory, for itself. A key may then use its rate once in each
	// Handler of each process, and has its whole burst again after a restart.
	KeyRate func(r *http.Request, keyID string, rate svc.Rate) (svc.Allowance, error)
	// Bearer returns the bearer of a request that has it elsewhere than in its Authorization
	// header, such as in X-Api-Key. The Handler masks it in the log. "": the bearer is that of
	// Authorization. The Handler calls it from several goroutines concurrently, several times for a
	// request. Do not read it from a cookie: [Options].CrossOrigin guards sessions only. Nil: only
	// Authorization counts.
	Bearer func(r *http.Request) string
	// Principal returns the caller of a request without a bearer and without an Authorization
	// header, from a session in a cookie for example. A request with either never reaches it.
	//
	// The principal is as that of an [svc.Authenticator]: a user or a service account, with
	// Actions for this request only. [svc.ErrUnauthenticated] means that nobody is signed in: 401.
	// Any other error is 503, and the log shows it with the cookies of the request masked.
	//
	// The Handler calls it from several goroutines concurrently, twice for a request with a body.
	// It must not read the body. Nil: every request needs a bearer.
	Principal func(r *http.Request) (svc.Principal, error)
	// CrossOrigin refuses requests that a page of another origin sends: 403 with the code
	// cross_origin. The Handler checks each request without an Authorization header that is not a
	// GET, HEAD or OPTIONS, before it calls Principal. Add origins to trust here. Nil: only the
	// origin of the request itself. Without Principal it is not used.
	CrossOrigin *http.CrossOriginProtection
	// PublicURL is the address of the interface in the OpenAPI documents: a URL such as
	// "https://api.example.com/memory", or a path. Set it when a proxy changes the path. "": the
	// path of the request for the document.
	PublicURL string
	// Observer gets an Observation of every request that was answered or cut off, also of those to
	// routes of the host behind [Handler.Protect] and [Handler.Require]. Nil: no observations, at
	// no cost.
	Observer Observer
	// HideOpenAPI removes the OpenAPI documents. Without it, anybody can read them at openapi.json
	// and openapi-3.0.json under the prefix, without a bearer.
	HideOpenAPI bool
	// HideAccess removes the administration of access: users, groups, policies, service accounts
	// and the policies of banks, /me, /me/service-accounts, and POST /banks. Their paths answer
	// 404, and the OpenAPI documents leave them out. Set it when the host owns identity. The
	// methods of the Service still work.
	HideAccess bool
}

// Handler is the HTTP interface of a Service. It serves requests whose path has the prefix, and
// requests whose prefix was cut off before ([http.StripPrefix]). It is safe for concurrent use.
type Handler struct {
	service *svc.Service     // nil: that of a tenant, which each request names
	tenants *svc.Tenants     // nil: there is one service
	tenant  string           // whose service it is; "": no tenant's
	served  context.Context  // ends when a tenant is no longer served; nil: no tenant
	queue   *fairqueue.Queue // of requests; nil: they begin immediately
	refused *fairqueue.Queue // of requests that are not admitted; nil: as queue
	prefix  routing.Prefix
	options Options // with the defaults of MaxBody and Logger
	routes  *table
	whole   *wholeList // nil: none is kept
	// documents are the OpenAPI documents, with the parameters of the service.
	documents documentSet
	rates     *rate.Limiter
	start     time.Time // of the clock of rates
}

// New returns the HTTP interface of a service. It panics when service is nil.
func New(service *svc.Service, options Options) *Handler {
	if service == nil {
		panic("httpapi: New needs a Service: make one with svc.New")
	}
	h := newHandler(options)
	h.service, h.whole = service, &wholeList{}
	h.documents = documentsWith(service.Parameters())
	return h
}

func newHandler(options Options) *Handler {
	if options.MaxBody <= 0 {
		options.MaxBody = DefaultMaxBody
	}
	options.Logger = defaultlog.Or(options.Logger)
	h := &Handler{
		prefix:  routing.NewPrefix(cmp.Or(options.Prefix, DefaultPrefix)),
		options: options, routes: &everything, rates: rate.New(RatedKeys), start: time.Now(),
	}
	if options.CrossOrigin == nil {
		h.options.CrossOrigin = http.NewCrossOriginProtection()
	}
	if options.HideAccess {
		h.routes = &withoutAccess
	}
	return h
}

// Server returns an HTTP server of a handler with all four timeouts: 5 seconds for the header of a
// request, 20 for the whole request, a minute for the answer, two minutes for an idle connection.
// Without them, a client that sends slowly keeps its request for as long as it likes. Change the
// server before you start it.
func Server(addr string, handler http.Handler) *http.Server {
	return &http.Server{
		Addr: addr, Handler: handler,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 20 * time.Second,
		WriteTimeout: answerTime, IdleTimeout: 2 * time.Minute,
	}
}

// answerTime is how long an answer may take, also to be sent.
const answerTime = time.Minute

// Mount serves every path under the prefix, in any spelling, and passes all other requests to next.
// Use it to mount a Handler in front of an [http.ServeMux] or of another router, or as a middleware
// of a router that runs it for every path; gorilla/mux runs it for its own routes only.
// Do not register the Handler with a mux: the mux answers a path with "//" or ".." with a redirect,
// before the Handler can authenticate the caller.
func (h *Handler) Mount(next http.Handler) http.Handler {
	return h.prefix.Mount(h, next)
}

// Pattern returns the pattern of the route of a request, such as
// "GET /ext/svc/admin/templates/{template_id}". It returns "" when the path has no route or does
// not have the prefix. ServeHTTP sets r.Pattern to the pattern once the caller is authenticated.
// Call Pattern before that, or when ServeHTTP got only a copy of r: from [http.StripPrefix],
// [http.TimeoutHandler], or a middleware that changes the context.
func (h *Handler) Pattern(r *http.Request) string {
	if !h.prefix.Starts(routing.EscapedPath(r.URL)) {
		return "" // a path of the host, which may look like a route without the prefix
	}
	route, _, err := h.match(r, h.prefix.Rest(r))
	if err != nil {
		return ""
	}
	return h.pattern(route)
}

func (h *Handler) pattern(route route) string {
	return route.Method + " " + h.prefix.String() + route.Path
}

// request is an authenticated request.
type request struct {
	*http.Request
	by     svc.Principal
	path   string            // the path of the route
	params map[string]string // the parameters of the path
	query  query
	full   bool // the query asks for the full view
}

// own reports whether the route is about what belongs to the caller.
func (r *request) own() bool { return strings.HasPrefix(r.path, "/me/") }

// ServeHTTP answers one request. It sets r.Pattern to the pattern of the route, for the host's
// access log. The X-Request-Id of the answer is the id that the host has set before. Otherwise it
// is the id of the request, if that is 1 to 128 letters, digits and -_.:/+=@~, else a new id.
// Answers of 401, and those about tokens that are not accepted, are all the same: they have only an
// id that the host has set. No answer has a header of CORS. Work that takes so long that its answer
// would come after the WriteTimeout of the [http.Server] ends with a 503, 5 seconds before at most.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := &answer{ResponseWriter: w, Observation: Observation{Began: time.Now()}}
	defer h.report(a, r)
	defer h.recover(a, r)
	h.identify(a, r)
	a.Header().Set("Cache-Control", "no-store")
	a.Header().Set("X-Content-Type-Options", "nosniff")
	ctx, cancel := inbound.InTime(r.Context(), a.Began)
	defer cancel()
	timed := r.WithContext(ctx)
	defer func() { r.Pattern = timed.Pattern }() // also after a panic
	err := h.serve(a, timed)
	if r.Pattern = timed.Pattern; err != nil {
		h.fail(a, r, err)
	}
}

func (h *Handler) serve(a *answer, r *http.Request) error {
	path := h.prefix.Rest(r)
	_, document := documents[path]
	document = document && !h.options.HideOpenAPI
	if document && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		h.sendOpenAPI(a, r, path)
		return nil
	}
	if h.bySession(r) { // no page of another origin may embed the answer
		a.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
	}
	return h.in(a, r, func(h *Handler) error { return h.serveCaller(a, r, path, document) })
}

// serveCaller authenticates the caller, and serves the route of a path.
func (h *Handler) serveCaller(a *answer, r *http.Request, path string, document bool) error {
	by, err := h.admit(a, r)
	if err != nil {
		return err
	}
	leave, err := h.takeTurn(r.Context(), a.Caller)
	if err != nil {
		return err
	}
	defer leave()
	if document {
		return methodNotAllowed("GET, HEAD")
	}
	route, params, err := h.match(r, path)
	if err != nil {
		return err
	}
	a.Route = h.pattern(route)
	r.Pattern = a.Route
	values, err := inbound.Query(r.URL.RawQuery)
	given := query(values)
	if err == nil {
		err = given.check(route.query, h.clip)
	}
	if err == nil {
		err = checkConditions(r, route.Path)
	}
	full := false
	if err == nil {
		full, err = given.is("view", "full")
	}
	if err != nil {
		return err
	}
	if h.served != nil {
		r = r.WithContext(h.served)
	}
	return route.serve(h, a, &request{
		Request: r, by: by, path: route.Path, params: params, query: given, full: full,
	})
}

// answer is an answer, and what the Logger and the Observer get of it. It records whether it has
// begun: after a failure, such an answer can only be cut off.
type answer struct {
	http.ResponseWriter
	Observation
	begun    bool
	named    bool // the Handler has set RequestID, not the host
	rated    bool // the header has the rate of the caller's key
	admitted bool // the caller may use the interface
}

func (a *answer) WriteHeader(status int) {
	a.begun, a.Status = true, status
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	n, err := a.ResponseWriter.Write(p)
	a.Bytes += int64(n)
	return n, err
}

// Unwrap returns the ResponseWriter of the host, for [http.ResponseController].
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// match finds the route of a request by its relative path.
func (h *Handler) match(
	r *http.Request, relative string,
) (found route, params map[string]string, err error) {
	at, params, allow := h.routes.paths.Match(r.Method, relative)
	switch {
	case at >= 0:
		return h.routes.routes[at], params, nil
	case allow != nil:
		return found, nil, methodNotAllowed(strings.Join(allow, ", "))
	}
	message := "there is no such path"
	if why := h.astray(r); why != "" {
		message += ": " + why
	}
	return found, nil, &svc.Error{Code: svc.CodeNotFound, Message: message}
}

// recover answers with 500 after a panic. It passes [http.ErrAbortHandler] on, which cuts the
// connection on purpose.
func (h *Handler) recover(a *answer, r *http.Request) {
	cause := recover()
	if cause == nil {
		return
	}
	if cause == http.ErrAbortHandler {
		if a.Err == nil {
			a.Err = http.ErrAbortHandler
		}
		panic(cause)
	}
	// The panic may come from a function of the host and hold the bearer or a cookie.
	trace := fmt.Sprintf("panic: %v\n%s", cause, debug.Stack())
	h.fail(a, r, errors.New(h.hideCredentials(r, trace)))
}
