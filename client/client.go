// Package client calls the HTTP interface that package httpapi serves.
//
//	c, err := client.New(client.Config{BaseURL: url + "/ext/svc", Token: token})
//	if err != nil {
//		log.Fatal(err)
//	}
//
// A list is read row by row:
//
//	for template, err := range c.Templates.List(ctx, svc.TemplateQuery{Tag: "work"}) {
//		if err != nil {
//			log.Fatal(err)
//		}
//		fmt.Println(template.ID, string(template.Manifest))
//	}
//
// The Client has the nouns of [svc.Service]. Each route has one method, with the name and the types
// of the method that the route calls. Fields that the interface does not show are zero, such as the
// hash of a key or the base of an installed template.
//
// # Errors
//
// The Client returns the errors of the Service: an [svc.Error], or several of them joined. Each has
// the Code, the Message and the Fields; with CodeInvalid it also has the Field. Codes that only
// HTTP has, such as "rate_limited", stay as they are. A request that cannot be sent is CodeInvalid
// without a request: for example a path without an id, or text that is not UTF-8.
//
// A failure outside the interface is CodeUnavailable if it may be temporary:
//   - the server cannot be reached, is silent, or breaks off in the middle of an answer;
//   - a proxy answers 408, 429, 502, 503 or 504;
//   - the context ends; errors.Is finds its error.
//
// Any other answer that is not one of the interface, such as a redirect or a page of HTML, is
// CodeInternal.
//
// Every error that comes from an answer wraps a [StatusError]; errors.AsType finds it. If its
// Problem is true, the request has changed nothing, unless its connection to the database broke
// during the commit (503), or it revokes many keys, some at a time. After any other error, the
// Client cannot know whether the request has changed something.
//
// No error shows the token, or an API key.
//
// # Retries
//
// The Client retries a read (GET), and a request with an IdempotencyKey, up to three times. It
// retries when the connection fails, or when the answer is 429 or 503; it does not ask a silent
// server again. It waits for the time in Retry-After, else for a random time that grows. It does
// not retry when that time is longer than half a minute or than the context lasts, or when an
// answer has begun. It never sends any other request twice, and it follows no redirect.
package client

import (
	"cmp"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/text"
)

// DefaultTimeout is the longest silence of the server unless Config sets another.
const DefaultTimeout = 2 * time.Minute

// Config is what a [Client] is built from. BaseURL is required.
type Config struct {
	// BaseURL is the address of the interface with its prefix: "https://example.com/ext/svc". With
	// plain http, everybody on the network path can read the token.
	BaseURL string
	// Token is the bearer of every request: an API key, or a credential that the server's own
	// Authenticator accepts. "": the Client sends no Authorization header; the HTTPClient may add
	// one.
	Token svc.Secret
	// HTTPClient sends the requests. The Client follows no redirect and ignores its CheckRedirect.
	// Its Timeout, if any, ends a list that takes longer. Nil: a client with its own connections
	// and the proxy of the environment.
	HTTPClient *http.Client
	// UserAgent is the User-Agent of every request. "": "extsvc-svc-client".
	UserAgent string
	// Timeout is the longest silence of the server: before an answer begins, and between two parts
	// of it. To limit a whole call, use its context. 0: DefaultTimeout. Negative: no limit.
	Timeout time.Duration
}

// Client calls the interface with one token. Build it with [New]. It is safe for concurrent use.
type Client struct {
	Templates *Templates // those of the server
	Sources   *Sources
	// MyTemplates and MySources are those of the caller; a service account has those of its owner.
	MyTemplates *Templates
	MySources   *Sources

	Keys     *Keys
	Access   *Access
	Policies *Policies
	Audit    *Audit
	Users    *Users
	Groups   *Groups
	Banks    *Banks
	// ServiceAccounts has the service accounts of all users, MyServiceAccounts the caller's own.
	ServiceAccounts, MyServiceAccounts *ServiceAccounts

	*conn
}

// The nouns of the interface, as those of [svc.Service].
type (
	// Templates is the catalogue of templates of one half: of the server, or of the caller.
	Templates struct {
		*conn
		half
	}
	// Sources are the trusted marketplace sources of one half: of the server, or of the caller.
	Sources struct {
		*conn
		half
	}
	// Keys issues, lists, changes and revokes API keys.
	Keys struct{ *conn }
	// Access writes and reads the rows that decide access as a whole.
	Access struct{ *conn }
	// Policies manages access policies and answers questions about access.
	Policies struct{ *conn }
	// Audit lists the events that the server keeps.
	Audit struct{ *conn }
	// Users manages users, and the senders that are mapped to them.
	Users struct{ *conn }
	// Groups manages groups and their members.
	Groups struct{ *conn }
	// ServiceAccounts manages the service accounts of all users, or the caller's own.
	ServiceAccounts struct {
		*conn
		half
	}
	// Banks manages the policies of banks, and makes banks where the server can.
	Banks struct{ *conn }
)

// half is one of the halves of a noun, as the beginning of its paths.
type half string

const (
	server   half = "/admin"
	personal half = "/me"
	all      half = "" // service accounts of all users
)

// at returns a request of a route, whose path begins behind that of the half.
func (h half) at(route string, ids ...string) request {
	method, path, _ := strings.Cut(route, " ")
	return at(method+" "+string(h)+path, ids...)
}

// scope returns the scope of the half's sources.
func (h half) scope() string {
	if h == personal {
		return string(svc.ScopePersonal)
	}
	return string(svc.ScopeServer)
}

// conn sends requests with one token.
type conn struct {
	base      string // without a trailing slash
	token     func() svc.Secret
	hidden    string // a token in the body, which no error shows; "": none
	refused   error  // every call returns it without a request; nil: calls are sent
	http      http.Client
	userAgent string
	timeout   time.Duration
}

func newClient(c *conn) *Client {
	return &Client{
		Templates: &Templates{c, server}, Sources: &Sources{c, server},
		MyTemplates: &Templates{c, personal}, MySources: &Sources{c, personal},
		Keys: &Keys{c}, Access: &Access{c}, Policies: &Policies{c}, Audit: &Audit{c},
		Users: &Users{c}, Groups: &Groups{c}, Banks: &Banks{c},
		ServiceAccounts: &ServiceAccounts{c, all}, MyServiceAccounts: &ServiceAccounts{c, personal},
		conn: c,
	}
}

// New returns a Client, or an error that names the wrong field. It does not contact the server.
func New(config Config) (*Client, error) {
	base, err := checkBase(config.BaseURL)
	if err != nil {
		return nil, err
	}
	c := &conn{
		base: base, http: http.Client{Transport: transport()},
		token:     func() svc.Secret { return config.Token },
		userAgent: cmp.Or(config.UserAgent, "extsvc-svc-client"),
		timeout:   cmp.Or(config.Timeout, DefaultTimeout),
	}
	if !text.Visible(string(config.Token)) {
		return nil, errors.New("client: Config.Token must be printable ASCII without spaces")
	}
	if config.HTTPClient != nil {
		c.http = *config.HTTPClient
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}
	if !text.Visible(strings.ReplaceAll(c.userAgent, " ", "")) {
		return nil, errors.New("client: Config.UserAgent must be printable ASCII")
	}
	return newClient(c), nil
}

// As returns a Client with another token over the same connections. With the token "", all its
// calls fail with CodeUnauthenticated; it never uses the token of c instead.
func (c *Client) As(token svc.Secret) *Client {
	as := *c.conn
	as.token, as.refused = func() svc.Secret { return token }, nil
	if token == "" {
		as.refused = &svc.Error{
			Code: svc.CodeUnauthenticated, Message: "a bearer token is required",
		}
	} else if !text.Visible(string(token)) {
		as.refused = svc.Invalid("token", "must be printable ASCII without spaces")
	}
	return newClient(&as)
}

// checkBase returns an address without its trailing slashes. Its errors do not repeat the address,
// which may hold a password.
func checkBase(address string) (string, error) {
	u, err := url.Parse(address)
	switch {
	case address == "":
		return "", errors.New("client: Config.BaseURL is required")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" ||
		u.Host == "" || u.Opaque != "":
		return "", errors.New("client: Config.BaseURL must be an http or https URL")
	case u.User != nil:
		return "", errors.New("client: Config.BaseURL must hold no user or password: set Token")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" ||
		strings.HasSuffix(address, "#"):
		return "", errors.New("client: Config.BaseURL must have no query or fragment")
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// transport returns a transport that keeps more idle connections to one server than the default.
func transport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 32,
		IdleConnTimeout:     90 * time.Second,
	}
}
