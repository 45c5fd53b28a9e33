// Package adminpage serves web pages that administer a [svc.Service]: why a decision was made, who
// can do something, templates, API keys, and the events that the Service keeps.
//
//	api := httpapi.New(service, httpapi.Options{})      // at /ext/svc
//	page := adminpage.New(service, adminpage.Options{}) // at /ext/svc-admin
//	handler := page.Mount(api.Mount(mux))
//
// The pages are HTML that the server renders, and work without JavaScript. Each request is
// authenticated by the bearer in a sealed cookie, or by the host's own session. The methods of the
// Service then authorize the caller: no rule lives in this package.
package adminpage

import (
	"cmp"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/defaultlog"
	"github.com/extsvc/svc/internal/fairqueue"
	"github.com/extsvc/svc/internal/rate"
	"github.com/extsvc/svc/internal/routing"
)

// DefaultPrefix is the public path of the pages unless Options set another.
const DefaultPrefix = "/ext/svc-admin"

// DefaultSessionLifetime is how long a sign-in lasts unless Options say otherwise.
const DefaultSessionLifetime = 12 * time.Hour

// DefaultActions are the actions of the page "Who can" unless Options name others.
var DefaultActions = []string{"bank:recall", "bank:retain", "bank:reflect"}

// Options configure a Handler. The zero value works.
type Options struct {
	// Prefix is the public path of the pages. "" means DefaultPrefix, "/" means no prefix. It must
	// not be below the prefix of package httpapi, or above it.
	Prefix string
	// Tenant returns the name of the tenant of a request to the Handler of [NewTenants]; "": none.
	// It must be safe for concurrent use. Nil: the segment {tenant} of Prefix.
	Tenant func(*http.Request) string
	// ReadOnly removes everything that writes, and refuses such requests with 403.
	ReadOnly bool
	// Bearer returns the bearer of a request from the host's own session. It must be safe for
	// concurrent use. "": the pages look for their own sign-in. Nil: there is no other session.
	Bearer func(*http.Request) string
	// Principal returns the caller of a request from the host's own session, as that of package
	// httpapi does. It must be safe for concurrent use. [svc.ErrUnauthenticated]: the pages look
	// for their own sign-in. Any other error is 503. Nil: there is no other session.
	Principal func(*http.Request) (svc.Principal, error)
	// Title stands at the top of each page. "" means "svc".
	Title string
	// SessionKey is the secret that seals the sign-in cookies: at least 32 random bytes. Processes
	// that serve the same pages need the same key. Nil: a random key, and every sign-in ends with
	// the process; the Logger gets a warning. New panics when a key is shorter.
	SessionKey []byte
	// OldSessionKeys are further keys, as SessionKey, whose cookies are accepted: the former ones,
	// or the next one before all processes seal with it. Nil: none.
	OldSessionKeys [][]byte
	// Secure marks the cookies Secure also where the Host of the request is a loopback address. Set
	// it behind a proxy with TLS that does not pass the Host on. false: cookies for other hosts
	// only.
	Secure bool
	// CrossOrigin refuses requests of another site that could write: 403. Add origins to trust
	// here, or where a proxy changes the Host. Nil: only the origin of the request itself.
	CrossOrigin *http.CrossOriginProtection
	// SessionLifetime is how long a sign-in lasts. 0 means DefaultSessionLifetime.
	SessionLifetime time.Duration
	// Actions are the host's: the columns of the page "Who can". When they are set, the page of a
	// policy also reports patterns that cover none of them. None: DefaultActions.
	Actions []string
	// Logger gets the failures with a status of 500 and above, as records of [slog.LevelError], or
	// of LevelWarn for a bad entry of a source ([svc.ErrBadEntry]), and no secret. New warns it
	// when there is no SessionKey. Nil: errors go to [slog.Default].
	Logger *slog.Logger
}

// Handler serves the pages of a Service. It serves requests whose path has the prefix, and requests
// whose prefix was cut off before ([http.StripPrefix]). It is safe for concurrent use.
type Handler struct {
	service  *svc.Service     // nil: that of a tenant, which each request names
	tenants  *svc.Tenants     // nil: there is one service
	tenant   string           // whose service it is; "": no tenant's
	queue    *fairqueue.Queue // of pages; nil: they begin immediately
	prefix   routing.Prefix
	options  Options  // with the defaults
	known    []string // the Actions that the host has set; nil: not known
	sessions *sessions
	rates    *rate.Limiter
	start    time.Time // of the clock of rates
	routes   []route
	paths    routing.Table // of routes
	checks   *checks
}

// New returns the pages of a service. It panics when service is nil.
func New(service *svc.Service, options Options) *Handler {
	if service == nil {
		panic("adminpage: New needs a Service: make one with svc.New")
	}
	h := newHandler(options)
	h.service = service
	return h
}

func newHandler(options Options) *Handler {
	options.Title = cmp.Or(options.Title, "svc")
	options.Logger = defaultlog.Or(options.Logger)
	options.SessionLifetime = cmp.Or(options.SessionLifetime, DefaultSessionLifetime)
	known := options.Actions
	if len(known) == 0 {
		known, options.Actions = nil, DefaultActions
	}
	if options.CrossOrigin == nil {
		options.CrossOrigin = http.NewCrossOriginProtection()
	}
	var keys [][]byte
	switch {
	case options.SessionLifetime < 0:
		panic("adminpage: SessionLifetime must not be negative")
	case slices.ContainsFunc(options.Actions, func(a string) bool { return strings.HasSuffix(a, "*") }):
		panic("adminpage: Actions must be actions, not patterns")
	case len(options.OldSessionKeys) > 0 && options.SessionKey == nil:
		panic("adminpage: OldSessionKeys needs SessionKey")
	case options.SessionKey != nil:
		keys = append([][]byte{options.SessionKey}, options.OldSessionKeys...)
	default:
		options.Logger.Warn("svc: admin page has no SessionKey: each sign-in ends with this" +
			" process, and no other process accepts it")
	}
	parsed.Do(parse)
	prefix := routing.NewPrefix(cmp.Or(options.Prefix, DefaultPrefix))
	h := &Handler{
		prefix: prefix, options: options, known: known,
		sessions: newSessions(options.SessionLifetime, keys...),
		rates:    rate.New(httpapi.RatedKeys), start: time.Now(),
		routes: routes,
		checks: &checks{of: map[int64]running{}},
	}
	for _, r := range routes {
		h.paths.Add(r.method, r.path)
	}
	h.options.Logger = defaultlog.Masked(options.Logger, h.mask)
	return h
}

// Mount serves every path under the prefix, and passes all other requests to next. Another spelling
// of the prefix is 404: a browser would take the relative addresses of its pages for the host's.
// Do not register the Handler with a mux, which redirects some paths before the caller is known.
func (h *Handler) Mount(next http.Handler) http.Handler {
	return h.prefix.Mount(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.prefix.Starts(routing.EscapedPath(r.URL)) {
			h.ServeHTTP(w, r)
			return
		}
		setSecurity(w.Header())
		http.NotFound(w, r)
	}), next)
}
