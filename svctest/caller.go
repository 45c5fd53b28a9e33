package svctest

import (
	"io"
	"net/http"
	"strings"

	"github.com/extsvc/svc"
)

// Caller is a caller of a [Server], with a bearer.
type Caller struct {
	Principal svc.Principal // for methods of the Service; zero for callers of [Server.Bearer]
	Key       svc.Secret    // the bearer that Do sends; "" sends none
	server    *Server
}

// User issues a key to a user. The user needs no row without Config.Users.RequireKnown.
func (s *Server) User(id string) *Caller {
	s.t.Helper()
	return s.issue(svc.Principal{Kind: svc.KindUser, ID: id})
}

// Bearer returns a caller that sends token: a token of the host's own Authenticator, or a key that
// the test issued. "" sends none.
func (s *Server) Bearer(token svc.Secret) *Caller { return &Caller{Key: token, server: s} }

func (s *Server) issue(to svc.Principal) *Caller {
	s.t.Helper()
	issued, err := s.Service.Keys.Issue(s.t.Context(), svc.Host, to.Identity(), svc.NewAPIKey{})
	if err != nil {
		s.t.Fatalf("svctest: issue a key to %q: %v", to.ID, err)
	}
	return &Caller{Principal: to, Key: issued.Key, server: s}
}

// Do sends a request to the server and returns the status and body of the answer. The path is the
// whole path ("/ext/svc/me/api-keys"), so Do also reaches routes on the server's Mux. It begins
// with a slash and may have a query. A body is JSON; "" sends none. Do does not follow redirects.
// Without an answer the test fails and the status is 0. Any goroutine may call it.
func (c *Caller) Do(method, path, body string) (status int, answer string) {
	t := c.server.t
	t.Helper()
	status, answer, err := c.send(method, path, body)
	if err != nil && t.Context().Err() == nil { // otherwise the test has ended
		t.Errorf("svctest: %v", err)
	}
	return status, answer
}

func (c *Caller) send(method, path, body string) (status int, answer string, err error) {
	request, err := http.NewRequestWithContext(
		c.server.t.Context(), method, c.server.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if c.Key != "" {
		request.Header.Set("Authorization", "Bearer "+string(c.Key))
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.server.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, "", err
	}
	return response.StatusCode, string(text), nil
}
