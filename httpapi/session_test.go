package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/inbound"
)

// cookies is the host's way to find the session of a request: in a cookie, behind a long secret.
type cookies struct {
	asked  atomic.Int64 // how many answers there were
	closed atomic.Bool  // all sessions have ended
	others atomic.Bool  // all sessions are of another user
	fail   func(cookie string) (svc.Principal, error)
}

// secretly makes the value of a cookie, whose length makes it a secret.
func secretly(session string) string { return "s%3A0123456789abcdef." + session }

func (c *cookies) principal(r *http.Request) (svc.Principal, error) {
	defer c.asked.Add(1)
	cookie, err := r.Cookie("session")
	if err != nil || c.closed.Load() {
		return svc.Principal{}, fmt.Errorf("no cookie: %w", svc.ErrUnauthenticated)
	}
	if c.fail != nil {
		return c.fail(cookie.Value)
	}
	_, session, _ := strings.Cut(cookie.Value, ".")
	if c.others.Load() {
		session = "session-of-writer"
	}
	return sessions(r.Context(), session)
}

func newCookieSite(t *testing.T, changes ...func(*setup)) (*site, *cookies) {
	t.Helper()
	c := &cookies{}
	s := newSite(t, append([]func(*setup){func(u *setup) { u.Principal = c.principal }}, changes...)...)
	s.keepSecret("0123456789abcdef")
	return s, c
}

func cookie(session string) func(*http.Request) {
	return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "session", Value: secretly(session)}) }
}

func withHeaders(session string, lines ...string) func(*http.Request) {
	return func(r *http.Request) {
		cookie(session)(r)
		for _, line := range lines {
			if name, value, is := strings.Cut(line, ": "); is {
				r.Header.Set(name, value)
			}
		}
	}
}

// A session neither saves a wrong credential, nor does it take the place of a good one.
func TestBearerGoesBeforeTheSession(t *testing.T) {
	s, c := newCookieSite(t)
	for _, authorization := range []string{
		"Bearer nonsense", "Bearer", "", "Basic YWxpY2U6YQ==", "Bearer svcu_x", s.key("alice"), "Bearer " + s.key("ghost"),
	} {
		a := s.as("").sendWith("GET", "/me", "", func(r *http.Request) {
			cookie("session-of-admin")(r)
			r.Header["Authorization"] = []string{authorization}
		}).fails(401, "unauthenticated")
		expect.Equal(t, authorization, a.header.Get("WWW-Authenticate"), badToken)
	}
	key := s.key("alice")
	foreign := []string{"Origin: https://evil.example", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: cors"}
	a := s.as(key).sendWith("GET", "/me", "", withHeaders("session-of-admin", foreign...)).is(200)
	expect.Equal(t, a.request, a.text("id")+a.header.Get("Cross-Origin-Resource-Policy"), "alice")
	s.as(key).sendWith("POST", "/me/api-keys", `{}`, withHeaders("session-of-admin", foreign...)).is(201) // from anywhere
	s.as("").get("/openapi.json").is(200)
	expect.Equal(t, "questions to the host", c.asked.Load(), 0)
}

// originOf returns the lines as they are for a server.
func originOf(s *site, lines []string) []string {
	host := s.server.Listener.Addr().String()
	return strings.Split(strings.NewReplacer("{own}", "http://"+host, "{host}", host).Replace(strings.Join(lines, "\n")), "\n")
}

// A page of another origin gets nowhere with the cookies of its visitor, on no route.
func TestCrossOrigin(t *testing.T) {
	t.Parallel()
	s, c := newCookieSite(t)
	var requests [][2]string // method and target
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "BREW", "get"} {
		requests = append(requests, [2]string{method, "/me/api-keys"}, [2]string{method, "/nothing"}, [2]string{method, "/me"})
	}
	for _, route := range httpapi.Routes() {
		if route.Method != "GET" {
			requests = append(requests, [2]string{route.Method, route.Path})
		}
	}
	for _, line := range raw("origins", nil) {
		name, in := line[1], line[0] == "in"
		lines := originOf(s, strings.Split(name, " | ")[1:])
		change, nobody := withHeaders("session-of-alice", lines...), withHeaders("nonsense", lines...)
		for _, request := range requests {
			asked := c.asked.Load()
			a := s.as("").sendWith(request[0], request[1], "", change)
			expect.Equal(t, name+a.request, strings.Contains(string(a.body), `"cross_origin"`), !in)
			if !in {
				a.fails(403, "cross_origin")
				s.as("").sendWith(request[0], request[1], "", nobody).fails(403, "cross_origin") // before 401
				expect.Holds(t, c.asked.Load() == asked && a.header.Get("Access-Control-Allow-Origin") == "", name, a.request)
			}
		}
		s.as("").sendWith("GET", "/me", "", change).is(200) // which no page of another origin can read
		expect.Equal(t, name, s.as("").sendWith("OPTIONS", "/me", "", change).is(405).header.Get("Access-Control-Allow-Methods"), "")
	}
}

// What the host returns of a session and of a bearer is judged alike, and its errors show neither.
func TestFaultyHosts(t *testing.T) {
	var c *cookies
	var s *site
	s, c = newCookieSite(t, func(u *setup) {
		u.Authenticator = svc.AuthenticatorFunc(func(_ context.Context, bearer string) (svc.Principal, error) { return c.fail(bearer) })
	})
	key := s.key("alice")
	hostile := "\r\n{\"level\":\"INFO\"}\n\x00\x1b[31m\x7f\xff\u2028\u202e\"\\" + key // breaks no record
	failing := func(how func(cookie string) error) func(string) (svc.Principal, error) {
		return func(cookie string) (svc.Principal, error) { return svc.Principal{}, how(cookie) }
	}
	for name, f := range map[string]struct {
		status int
		code   string
		logged string
		fail   func(cookie string) (svc.Principal, error)
	}{
		"the host itself": {500, "internal", "of kind", func(string) (svc.Principal, error) { return svc.Host, nil }},
		"odd actions": {500, "internal", "templates*", func(string) (svc.Principal, error) {
			return svc.Principal{Kind: svc.KindUser, ID: "a", Actions: []string{"templates*"}}, nil
		}},
		"a key": {500, "internal", "API key", func(string) (svc.Principal, error) { return s.service.Authenticate(t.Context(), key) }},
		"down": {503, "unavailable", "is gone", failing(func(cookie string) error {
			return fmt.Errorf("the database of sessions is gone, looking for %s%s", cookie, hostile)
		})},
		"down, decoded": {503, "unavailable", "is gone", failing(func(cookie string) error {
			return fmt.Errorf("the database of sessions is gone, looking for %q", must(url.PathUnescape(cookie)))
		})},
		"an error of svc": {503, "unavailable", "inside", failing(func(cookie string) error {
			return &svc.Error{Code: svc.CodeForbidden, Message: cookie, Err: errors.New("inside")}
		})},
		"a panic": {500, "internal", "panic: oops", failing(func(cookie string) error { panic("oops " + cookie + hostile) })},
		"refused": {401, "unauthenticated", "", failing(func(cookie string) error {
			return &svc.Error{Code: svc.CodeUnauthenticated, Message: cookie + hostile}
		})},
	} {
		c.fail = f.fail
		asks := []func() answer{
			func() answer { return s.as("").sendWith("GET", "/me", "", cookie("session-of-alice")) },
			func() answer { return s.as("0123456789abcdef.session-of-alice").get("/me") },
		}
		if name == "a key" {
			asks = asks[:1] // a bearer may stand for a key
		}
		for _, ask := range asks {
			was := len(s.log.String())
			a := ask().fails(f.status, f.code)
			log := s.log.String()[was:]
			expect.Equal(t, name+log, strings.Contains(log, f.logged) && !strings.Contains(log+string(a.body), "0123456789"), true)
		}
	}
}

// A session that ends, or becomes another one, or is narrowed, while the body of its request arrives does nothing.
func TestSessionsThatEndMeanwhile(t *testing.T) {
	is := is.New(t)
	s, c := newCookieSite(t)
	send := func(change func()) int {
		body, rest := io.Pipe()
		asked := c.asked.Load()
		go func() {
			_, _ = io.WriteString(rest, create[:10])
			for began := time.Now(); c.asked.Load() == asked && time.Since(began) < patience; time.Sleep(time.Millisecond) {
			}
			change()
			_, _ = io.WriteString(rest, create[10:])
			_ = rest.Close()
		}()
		return s.as("").sendWith("POST", "/admin/templates", "", func(r *http.Request) {
			cookie("session-of-admin")(r)
			r.Header.Set("Content-Type", "application/json")
			r.Body, r.ContentLength = body, -1
		}).status
	}
	is.Equal(send(func() { c.closed.Store(true) }), 401)
	c.closed.Store(false)
	is.Equal(send(func() { c.others.Store(true) }), 401)
	c.others.Store(false)
	is.Equal(send(func() {
		must(s.service.Users.Patch(t.Context(), svc.Host, "admin", svc.UserPatch{Inactive: new(true)}))
	}), 401)
	must(s.service.Users.Patch(t.Context(), svc.Host, "admin", svc.UserPatch{Inactive: new(false)}))
	is.Equal(send(func() {
		c.fail = func(string) (svc.Principal, error) {
			return svc.Principal{Kind: svc.KindUser, ID: "admin", ScopingPolicyID: svc.PolicyIAMAdmin}, nil
		}
	}), 403)
	c.fail = nil
	s.admin().get("/admin/templates/made").is(404)
	is.Equal(send(func() {}), 200)
}

// The host's own routes behind Protect are as well guarded as the interface.
func TestProtectWithSessions(t *testing.T) {
	is := is.New(t)
	s, c := newCookieSite(t)
	limited := false
	api := httpapi.New(s.service, httpapi.Options{Principal: c.principal, Limit: func(_ *http.Request, by svc.Principal) time.Duration {
		if limited = by.ID == "alice"; limited {
			return time.Second
		}
		return 0
	}})
	reached := 0
	protected := api.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by, _ := httpapi.PrincipalFrom(r.Context())
		reached++
		_, _ = io.WriteString(w, by.ID)
	}))
	ask := func(method string, change func(*http.Request)) *httptest.ResponseRecorder {
		return recorded(protected, method, "http://example.com/of/the/host", "", "", change)
	}
	w := ask("POST", cookie("session-of-plain"))
	is.Equal(w.Body.String(), "plain")
	is.Equal(w.Header().Get("Cache-Control")+w.Header().Get("Cross-Origin-Resource-Policy"), "") // the answer is the host's
	is.Equal(ask("POST", withHeaders("session-of-plain", "Origin: http://example.com")).Code, 200)
	is.Equal(ask("GET", withHeaders("session-of-plain", "Origin: https://evil.example")).Code, 200)
	is.Equal(reached, 3)

	w = ask("POST", withHeaders("session-of-plain", "Origin: https://evil.example"))
	is.Equal(w.Code, 403)
	is.Equal(w.Header().Get("Content-Type"), "application/problem+json")
	is.Equal(w.Header().Get("Cache-Control"), "no-store")
	is.True(strings.Contains(w.Body.String(), `"code":"cross_origin"`))
	is.Equal(ask("POST", cookie("session-of-ghost")).Code, 401)
	is.Equal(ask("POST", func(*http.Request) {}).Code, 401)
	is.Equal(ask("POST", cookie("session-of-alice")).Code, 429)
	is.True(limited)
	is.Equal(ask("POST", withHeaders("session-of-plain", "Authorization: Bearer nonsense")).Code, 401)
	is.Equal(reached, 3)

	_, ok := httpapi.PrincipalFrom(t.Context())
	is.True(!ok)
}

// No text shows a cookie: not one that is part of another, that has no escapes, or that is broken.
func TestHiddenCookies(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Cookie", "a=the-secret; b=the-secret-and-more; c=%zz-no-escape; broken cookie")
	shown := inbound.Hide(r, "the-secret-and-more, the-secret, %zz-no-escape, "+r.Header.Get("Cookie"))
	is.New(t).Equal(shown, "***, ***, ***, ***")
}
