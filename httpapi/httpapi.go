// Package httpapi serves a [svc.Service] over HTTP: it translates, and decides nothing.
//
//	api := httpapi.New(service, httpapi.Options{}) // at /ext/svc
//	log.Fatal(http.ListenAndServe(addr, api.Ahead(mux)))
//
// Every request is authenticated by its bearer before anything else, its path included; only the OpenAPI document, openapi.json,
// is for everybody. Answers are JSON; every failure is application/problem+json (RFC 9457) with a stable code.
package httpapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/errorlog"
)

// DefaultPrefix is where the interface is mounted unless Options say otherwise.
const DefaultPrefix = "/ext/svc"

// DefaultMaxBody is the limit of a request's body in bytes unless Options say otherwise.
const DefaultMaxBody = 1 << 20

// Options are how a Handler is mounted. The zero value works.
type Options struct {
	// Prefix is the public path of the interface; "" means DefaultPrefix, "/" none. A segment in braces, as
	// in "/t/{tenant}/ext/svc", stands for any one.
	Prefix string
	// MaxBody is the limit of a request's body in bytes; 0 means DefaultMaxBody.
	MaxBody int64
	// Logger gets one record of each request that is answered, or cut off, and of each that [Handler.Protect] refuses: "svc: request" at
	// [slog.LevelInfo], or "svc: request failed" with the error at [slog.LevelError], for 500 and above and what is cut off, at
	// LevelInfo if the client has left. None holds a secret, nor the path, a header or a body. Nil: records of
	// LevelError go to [slog.Default], the others are dropped.
	Logger *slog.Logger
	// Limit is asked about every request whose caller is known, before anything else is done for it: how long the caller has
	// to wait before the next try, or 0 or less to go on. It is called concurrently. Nil: nobody has to wait.
	Limit func(r *http.Request, by svc.Principal) time.Duration
	// PublicURL is where callers find the interface, for the OpenAPI document: "https://api.example.com/memory", or a path. Set
	// it where a proxy changes the path. "": the path that the request for the document came by.
	PublicURL string
	// Observer is told of every request that was answered, or that [Handler.Protect] refused. Nil: nobody is, and it costs nothing.
	Observer Observer
	// HideOpenAPI keeps the OpenAPI document back, which anybody can read at openapi.json behind the prefix, without a bearer.
	HideOpenAPI bool
}

// Handler is the HTTP interface of a Service. It serves requests whose path has the prefix, and as well those whose
// prefix was cut off before ([http.StripPrefix]). It is safe for concurrent use.
type Handler struct {
	service *svc.Service
	prefix  prefix
	maxBody int64
	logger  *slog.Logger
	limit   func(r *http.Request, by svc.Principal) time.Duration

	observer  Observer
	publicURL string
	openAPI   bool // the document is there
}

// New returns the HTTP interface of a service.
func New(service *svc.Service, options Options) *Handler {
	h := &Handler{
		service: service, prefix: newPrefix(options.Prefix), maxBody: DefaultMaxBody, logger: errorlog.Or(options.Logger), limit: options.Limit,
		publicURL: options.PublicURL, openAPI: !options.HideOpenAPI, observer: options.Observer,
	}
	if options.MaxBody > 0 {
		h.maxBody = options.MaxBody
	}
	return h
}

// Ahead serves whatever lies under the prefix, however it is spelled, and hands everything else to next. It is the way to
// mount a Handler beside an [http.ServeMux], and a middleware for any other router: registered with a mux, a request whose path
// holds "//" or ".." is answered by the mux, with a redirect, before anybody is authenticated.
func (h *Handler) Ahead(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.prefix.covers(r.URL) {
			h.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Pattern returns the pattern of the route that a request leads to whose path has the prefix, such as
// "GET /ext/svc/admin/templates/{template_id}"; "" when there is none. ServeHTTP sets r.Pattern to it, once the caller is known. Ask
// Pattern before that, or where r is out of reach because only a copy got here: from [http.StripPrefix],
// [http.TimeoutHandler], or whatever adds to the context.
func (h *Handler) Pattern(r *http.Request) string {
	if !h.prefix.starts(escapedPath(r.URL)) {
		return "" // another's, though it may look like one of ours whose prefix was cut off
	}
	route, _, err := h.match(r, h.relative(r))
	if err != nil {
		return ""
	}
	return h.pattern(route)
}

func (h *Handler) pattern(route route) string { return route.Method + " " + h.prefix.text + route.Path }

// request is one authenticated request on its way to its handler.
type request struct {
	*http.Request
	by     svc.Principal
	params map[string]string // of the path
	query  query
}

// ServeHTTP answers one request. It sets r.Pattern to the route's, for the host's access log. The answer's X-Request-Id is what the host
// has set before, else the request's if it is 1 to 128 letters, digits and -_.:/+=@~, else a new one; answers of 401, which are all
// alike, have none but the host's.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := &answer{ResponseWriter: w}
	defer h.tell(a, r, time.Now())
	defer h.recover(a, r)
	h.identify(a, r)
	a.Header().Set("Cache-Control", "no-store")
	a.Header().Set("X-Content-Type-Options", "nosniff")
	if err := h.serve(a, r); err != nil {
		h.fail(a, r, err)
	}
}

func (h *Handler) serve(a *answer, r *http.Request) error {
	path := h.relative(r)
	if h.asksOpenAPI(r.Method, path) {
		h.sendOpenAPI(a, r)
		return nil
	}
	by, err := h.admit(r)
	if err != nil {
		return err
	}
	a.caller = by.Identity()
	if h.openAPI && path == openAPIPath {
		return methodNotAllowed("GET, HEAD")
	}
	route, params, err := h.match(r, path)
	if err != nil {
		return err
	}
	a.route = h.pattern(route)
	r.Pattern = a.route
	query, err := parseQuery(r.URL.RawQuery)
	if err == nil {
		err = query.check(route.query, h.clip)
	}
	if err != nil {
		return err
	}
	return route.serve(h, a, &request{Request: r, by: by, params: params, query: query})
}

// answer knows whether it was begun: what fails after that can only be cut off. What else it knows is for the Logger and the Observer.
type answer struct {
	http.ResponseWriter
	begun bool

	status int
	bytes  int64
	caller svc.Identity
	route  string
	code   svc.Code
	err    error

	requestID string
	named     bool // requestID is not the host's
}

func (a *answer) WriteHeader(status int) {
	a.begun, a.status = true, status
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	n, err := a.ResponseWriter.Write(p)
	a.bytes += int64(n)
	return n, err
}

// Unwrap is for [http.ResponseController].
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// relative is the escaped path behind the prefix, which may have been cut off already.
func (h *Handler) relative(r *http.Request) string {
	escaped := escapedPath(r.URL)
	if rest, starts := h.prefix.cut(escaped); starts {
		return rest
	}
	return escaped
}

// match finds the route of a request by its relative path.
func (h *Handler) match(r *http.Request, relative string) (route, map[string]string, error) {
	found, params, err := match(r.Method, relative)
	if svc.ErrorCode(err) == svc.CodeNotFound {
		err = noRoute(h.prefix.astray(r))
	}
	return found, params, err
}

// recover answers for a handler that panicked. [http.ErrAbortHandler] cuts the connection, and is meant to.
func (h *Handler) recover(a *answer, r *http.Request) {
	cause := recover()
	if cause == nil {
		return
	}
	if cause == http.ErrAbortHandler {
		if a.err == nil {
			a.err = http.ErrAbortHandler
		}
		panic(cause)
	}
	told := fmt.Sprintf("panic: %v\n%s", cause, debug.Stack()) // by the host's Authenticator, perhaps, with the bearer in it
	h.fail(a, r, &svc.Error{
		Code: svc.CodeInternal, Message: "an unexpected fault, see the server's log",
		Err: errors.New(svc.Secret(bearerOf(r)).Hide(told)),
	})
}
