// Package client calls the HTTP interface that package httpapi serves.
//
//	c, err := client.New(client.Config{BaseURL: url + "/ext/svc", Token: token})
//	if err != nil {
//		log.Fatal(err)
//	}
//
// A list is read row by row:
//
//	for template, err := range c.Templates(ctx, svc.TemplateFilter{Tag: "work"}) {
//		if err != nil {
//			log.Fatal(err)
//		}
//		fmt.Println(template.ID, string(template.Manifest))
//	}
//
// There is one method for each route, named as that of [svc.Service] that the route calls, with the same types. What a type holds
// beyond what the interface tells (a key's hash, what was installed of a template) is zero.
//
// # Errors
//
// Errors are those of the Service: an [svc.Error], several of them joined for one request, with its Code and Message, with its Field
// where the code is CodeInvalid, and its Fields. The codes that only HTTP has, such as "rate_limited", come as they are. What cannot be
// sent as it is asked for, a path without an id or a text that is not UTF-8, is CodeInvalid without a request.
//
// What is no answer of the interface is CodeUnavailable when it may pass: the server cannot be reached, is silent, breaks off in the
// middle, or something in between answers 408, 429, 502, 503 or 504; and when the context ends, which errors.Is finds. Everything
// else that is none, a redirect or a page of HTML, is CodeInternal.
//
// Behind every error that was an answer there is a [StatusError], for errors.AsType to find. Where its Problem is true nothing was
// changed. After any other error nobody knows whether a request that changes something did so.
//
// No error shows the token.
//
// # Retries
//
// A read (GET), or what has an IdempotencyKey, is tried again up to three times when the connection fails or the answer is 429 or 503: after the time that Retry-After
// says, else after a random one that grows; not when that is longer than half a minute or than the context lasts, and not
// once an answer has begun. Nothing else is ever sent twice, and no redirect is followed.
package client

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/extsvc/svc"
)

// DefaultTimeout is how long a server may be silent unless Config says otherwise.
const DefaultTimeout = 2 * time.Minute

// Config is what a [Client] is built from. BaseURL is required.
type Config struct {
	// BaseURL is where the interface is mounted, its prefix included: "https://example.com/ext/svc". Over plain http everybody on
	// the way can read the token.
	BaseURL string
	// Token is the bearer of every request: an API key, or what the server's own Authenticator accepts. "": no Authorization header
	// is sent, for an HTTPClient that adds one.
	Token svc.Secret
	// HTTPClient sends the requests; its CheckRedirect is not asked, since no redirect is followed. A Timeout of its own
	// ends lists that take longer. Nil: a client with its own connections, and the proxy of the environment.
	HTTPClient *http.Client
	// UserAgent is sent with every request. "": "extsvc-svc-client".
	UserAgent string
	// Timeout is how long the server may be silent: until it begins to answer, and between two parts of an answer. How long a
	// call takes in all is for its context to say. 0: DefaultTimeout. Negative: for ever.
	Timeout time.Duration
}

// Client calls the interface with one token. Use [New]. It is safe for concurrent use.
type Client struct {
	base      string // without a trailing slash
	token     func() svc.Secret
	refused   error // what every call answers; nil: it is sent
	http      http.Client
	userAgent string
	timeout   time.Duration
}

// New returns a Client, or an error that names the field that is wrong. It contacts nobody.
func New(config Config) (*Client, error) {
	base, err := checkBase(config.BaseURL)
	if err != nil {
		return nil, err
	}
	c := &Client{base: base, http: http.Client{Transport: transport()}, userAgent: "extsvc-svc-client", timeout: DefaultTimeout}
	if !printable(string(config.Token)) {
		return nil, errors.New("client: Config.Token must be printable ASCII without spaces")
	}
	c.token = func() svc.Secret { return config.Token }
	if config.HTTPClient != nil {
		c.http = *config.HTTPClient
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if config.UserAgent != "" {
		c.userAgent = config.UserAgent
	}
	if !printable(strings.ReplaceAll(c.userAgent, " ", "")) {
		return nil, errors.New("client: Config.UserAgent must be printable ASCII")
	}
	if config.Timeout != 0 {
		c.timeout = config.Timeout
	}
	return c, nil
}

// As returns a Client that acts for whoever has that token, over the same connections. Without one, all its calls fail with
// CodeUnauthenticated: the token of c is never used instead.
func (c *Client) As(token svc.Secret) *Client {
	as := *c
	as.token, as.refused = func() svc.Secret { return token }, nil
	if token == "" {
		as.refused = &svc.Error{Code: svc.CodeUnauthenticated, Message: "a bearer token is required"}
	} else if !printable(string(token)) {
		as.refused = &svc.Error{Code: svc.CodeInvalid, Field: "token", Message: "must be printable ASCII without spaces"}
	}
	return &as
}

// checkBase returns an address without its trailing slashes. Its errors do not repeat it: there may be a password in it.
func checkBase(address string) (string, error) {
	u, err := url.Parse(address)
	switch {
	case address == "":
		return "", errors.New("client: Config.BaseURL is required")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Opaque != "":
		return "", errors.New("client: Config.BaseURL must be an http or https URL")
	case u.User != nil:
		return "", errors.New("client: Config.BaseURL must hold no user or password: set Token")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(address, "#"):
		return "", errors.New("client: Config.BaseURL must have no query or fragment")
	}
	return strings.TrimRight(u.String(), "/"), nil
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// transport keeps more connections to its one server than the default one does.
func transport() *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 32,
		IdleConnTimeout:     90 * time.Second,
	}
}
