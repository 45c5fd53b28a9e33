package client_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
	"github.com/extsvc/svc/internal/expect"
)

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		config client.Config
		field  string // "": it is good
	}{
		{client.Config{}, "BaseURL"},
		{client.Config{BaseURL: "example.com/ext/svc"}, "BaseURL"},
		{client.Config{BaseURL: "/ext/svc"}, "BaseURL"},
		{client.Config{BaseURL: "ftp://example.com"}, "BaseURL"},
		{client.Config{BaseURL: "https:example.com"}, "BaseURL"},
		{client.Config{BaseURL: "https:///ext/svc"}, "BaseURL"},
		{client.Config{BaseURL: "https://example.com/%zz-" + token}, "BaseURL"},
		{client.Config{BaseURL: "https://u:" + url.QueryEscape(token) + "@example.com/"}, "BaseURL"},
		{client.Config{BaseURL: "https://u@example.com/"}, "BaseURL"},
		{client.Config{BaseURL: "https://example.com/?a=" + token}, "BaseURL"},
		{client.Config{BaseURL: "https://example.com/?"}, "BaseURL"},
		{client.Config{BaseURL: "https://example.com/#"}, "BaseURL"},
		{client.Config{BaseURL: "https://example.com", Token: "a\r\nb: " + token}, "Token"},
		{client.Config{BaseURL: "https://example.com", Token: token, UserAgent: "a\nb"}, "UserAgent"},
		{client.Config{BaseURL: "https://example.com"}, ""},
		{client.Config{BaseURL: "HTTP://[::1]:8080/ext//svc///", Token: token, UserAgent: "a b/1"}, ""},
	} {
		made, err := client.New(c.config)
		expect.Holds(t, (made != nil) == (err == nil) && (err == nil) == (c.field == ""), c.config.BaseURL, err)
		expect.Holds(t, err == nil || strings.HasPrefix(err.Error(), "client: Config."+c.field+" "), err)
		expect.Holds(t, err == nil || !strings.Contains(err.Error(), "tests-only"), err)
	}
}

// A base may have any prefix, escapes included.
func TestPrefix(t *testing.T) {
	is := is.New(t)
	var targets []string
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		targets = append(targets, r.RequestURI)
		w.WriteHeader(http.StatusNoContent)
	}))
	for _, prefix := range []string{"", "/", "/ext/svc", "/ä", "/a%2Fb/%C3%BC/", "//x"} {
		is.NoErr(must(client.New(client.Config{BaseURL: server.URL + prefix, Token: token})).Keys.RevokeAll(t.Context(), svc.Me))
	}
	is.Equal(targets, []string{
		"/me/api-keys", "/me/api-keys", "/ext/svc/me/api-keys", "/%C3%A4/me/api-keys", "/a%2Fb/%C3%BC/me/api-keys", "//x/me/api-keys",
	})
}

// goodIDs are ids that mean something else to one part or another of what carries them.
var goodIDs = []string{
	"a b", "%", "%2F", "%2e%2e", "ä", "u\u0308", "+", ";", ":", "a;b=c", "?x=1", "#", "&", "=", "@", "user:alice@example.com", "...", ".a",
	"*", "'\"<>", "😀", "me", "api-keys", "null", strings.Repeat("ü", 128),
}

func TestAwkwardIDs(t *testing.T) {
	s, ctx := newSite(t), t.Context()
	for _, id := range goodIDs {
		is := is.New(t)
		must(s.client.Templates.Create(ctx, svc.NewTemplate{ID: id, Content: svc.Content{Name: id, Manifest: []byte(`{"version":"1"}`)}}))
		got := must(s.client.Templates.Read(ctx, id))
		is.Equal(got, s.kept(id))
		is.NoErr(s.client.Templates.Delete(ctx, id))
		issued := must(s.client.Keys.Issue(ctx, svc.Identity{Kind: svc.KindUser, ID: id}, svc.NewAPIKey{}))
		is.Equal(issued.Holder, svc.Identity{Kind: svc.KindUser, ID: id})
		is.NoErr(s.client.Keys.Revoke(ctx, svc.Identity{Kind: svc.KindUser, ID: id}, issued.ID))
		must(s.client.Policies.Resolve(ctx, svc.Question{Bank: id, UserID: id, Topic: id}))
	}
}

// What cannot be sent is refused as the Service refuses it, and no request is made.
func TestWhatCannotBeSent(t *testing.T) {
	s, ctx := newSite(t), t.Context()
	for _, id := range []string{"", ".", "..", "a/b", "/", "../x", `a\b`} {
		is := is.New(t)
		_, err := s.client.Templates.Read(ctx, id)
		is.Equal(refusals(err), refusals(errorOf(s.Templates.Read(ctx, svc.Host, id))))
		is.Equal(refused(err).Field, "template_id")
		_, err = all(s.client.Keys.List(ctx, svc.Identity{Kind: svc.KindUser, ID: id}, svc.KeyQuery{}))
		is.Equal(refused(err).Field, "user_id")
		is.Equal(refused(s.client.Sources.Remove(ctx, id)).Field, "name")
		err = s.client.Keys.Revoke(ctx, svc.Identity{Kind: svc.KindUser, ID: id}, id)
		is.Equal(refusals(err), refusals(s.Keys.Revoke(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: id}, id)))
		is.Equal(len(refusals(err)), 2)
	}
	is := is.New(t)
	bad := svc.NewTemplate{ID: "a", Content: svc.Content{Name: "a", Manifest: []byte(`{"version":"1"}`)}}
	for field, change := range map[string]func(*svc.NewTemplate){
		"/name":        func(in *svc.NewTemplate) { in.Name = "\xff" },
		"/tags/1":      func(in *svc.NewTemplate) { in.Tags = []string{"a", "\xff"} },
		"/description": func(in *svc.NewTemplate) { in.Description = new("\xff") },
		"/manifest":    func(in *svc.NewTemplate) { in.Manifest = []byte(`{"version":"1"`) },
		"/manifest/a":  func(in *svc.NewTemplate) { in.Manifest = []byte(`{"version":"1","a":1,"a":2}`) },
	} {
		in := bad
		change(&in)
		err := errorOf(s.client.Templates.Create(ctx, in))
		is.Equal(refused(err).Field, field)
		is.Equal(refusals(err), refusals(errorOf(s.Templates.Create(ctx, svc.Host, in))))
	}
	is.Equal(len(s.requests()), 0)
}

// No error shows the token, even when the server repeats it, and neither does a printed Client or Config.
func TestTokenIsNeverShown(t *testing.T) {
	t.Parallel()
	config := client.Config{BaseURL: "https://svc.example/", Token: token}
	echo := dial(t, func(w http.ResponseWriter, r *http.Request) {
		said := r.Header.Get("Authorization")
		w.Header().Set("X-Request-Id", said)
		w.Header().Set("Location", "/?"+url.QueryEscape(said))
		switch r.Method {
		case "GET":
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(404)
			fmt.Fprintf(w, `{"code": %[1]q, "detail": %[1]q, "fields": [%[1]q], "errors": [{"pointer": %[1]q, "detail": %[1]q}, {"parameter": %[1]q}]}`, said)
		case "POST":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"id": %q, "installed_at": %q}`, said, said)
		default:
			w.WriteHeader(302)
			_, _ = io.WriteString(w, strings.Repeat(url.QueryEscape(said)+said, 300))
		}
	})
	fails := dial(t, nil).As("")
	config.HTTPClient = &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("cannot send %v", r.Header)
	})}
	broken := must(client.New(config))
	var said strings.Builder
	for _, c := range []*client.Client{echo, fails, broken, newSite(t).client.As("svcu_" + token)} {
		for _, err := range three(t, c) {
			show(&said, err)
		}
		fmt.Fprintf(&said, "%v %+v %#v %+v\n", c, c, c, *c)
		fmt.Fprintf(&said, "%+v %#v\n", struct{ c *client.Client }{c}, struct{ C client.Client }{*c})
	}
	fmt.Fprintf(&said, "%v %+v %#v %v", config, config, config, &config)
	slog.New(slog.NewJSONHandler(&said, nil)).Info("client", "config", config.Token, "client", broken)
	slog.New(slog.NewTextHandler(&said, nil)).Info("client", "config", config, "client", broken)
	for _, part := range []string{token, token[:30], url.QueryEscape(token), "tests-only", token[len(token)-12:]} {
		expect.Holds(t, !strings.Contains(said.String(), part), part)
	}
	expect.Holds(t, said.Len() >= 2000, said.String())
}

func show(to io.Writer, err error) {
	fmt.Fprintf(to, "%v %+v %#v %q\n", err, err, err, err)
	switch e := err.(type) {
	case *client.StatusError:
		fmt.Fprintf(to, "%+v %#v\n", *e, *e)
	case *svc.Error:
		fmt.Fprintf(to, "%+v %#v\n", *e, *e)
	}
	if joined, is := err.(interface{ Unwrap() []error }); is {
		for _, one := range joined.Unwrap() {
			show(to, one)
		}
	} else if inner := errors.Unwrap(err); inner != nil {
		show(to, inner)
	}
}

// A shortened excerpt of a foreign answer has no part of a token.
func TestTokenIsNotCut(t *testing.T) {
	is := is.New(t)
	long := svc.Secret(strings.Repeat("secret", 170))
	for _, text := range []string{string(long), url.QueryEscape(string(long) + "="), "x" + string(long) + "-"} {
		c := dial(t, says(500, "text/html", strings.Repeat(text, 20))).As(long)
		err := c.Templates.Delete(t.Context(), "a")
		is.Equal(svc.ErrorCode(err), svc.CodeInternal)
		is.True(!strings.Contains(err.Error(), "secret"))
	}
}

// Many goroutines use one client, each with its own token.
func TestConcurrentUse(t *testing.T) {
	s, ctx := newSite(t), t.Context()
	var tasks sync.WaitGroup
	for n := range 8 {
		tasks.Go(func() {
			me := s.client.As(svc.Secret(fmt.Sprintf("session-of-user%d", n)))
			for i := range 10 {
				expect.Equal(t, n, errorOf(me.Keys.Issue(ctx, svc.Me, svc.NewAPIKey{Description: new(fmt.Sprint(n))})), nil)
				count := 0
				for key, err := range me.Keys.List(ctx, svc.Me, svc.KeyQuery{}) {
					if count++; err != nil || *key.Description != fmt.Sprint(n) {
						t.Errorf("user %d got %+v, %v", n, key, err)
					}
				}
				expect.Equal(t, n, count, i+1)
			}
		})
	}
	tasks.Wait()
}

// refusal is an error as the interface tells it.
type refusal struct {
	Code           svc.Code
	Field, Message string
	Fields         string
}

// refusals are all that is in an error.
func refusals(err error) []refusal {
	var list []refusal
	for _, e := range svc.Errors(err) {
		list = append(list, refusal{e.Code, e.Field, e.Message, strings.Join(e.Fields, " ")})
	}
	return list
}

// refused is an error that is alone.
func refused(err error) refusal {
	list := refusals(err)
	if len(list) != 1 {
		return refusal{Message: fmt.Sprintf("%d errors: %v", len(list), err)}
	}
	return list[0]
}

// The codes that only HTTP has.
func TestErrorsOfHTTP(t *testing.T) {
	is := is.New(t)
	wait := 90 * time.Second
	s := newSite(t, func(u *setup) {
		u.api.MaxBody = 200
		u.api.Limit = func(_ *http.Request, by svc.Principal) time.Duration {
			if by.ID == "bob" {
				return wait
			}
			return 0
		}
	})
	ctx := t.Context()
	err := errorOf(s.client.As("svcu_wrong").Templates.Read(ctx, "a"))
	is.Equal(refused(err), refusal{Code: svc.CodeUnauthenticated, Message: "a valid bearer token is required"})
	err = errorOf(s.client.Keys.Issue(ctx, svc.Me, svc.NewAPIKey{Description: new(strings.Repeat("x", 200))}))
	is.Equal(refused(err), refusal{Code: "body_too_large", Message: "the body is larger than 200 bytes"})

	err = s.client.As("session-of-bob").Keys.RevokeAll(ctx, svc.Me)
	is.Equal(refused(err), refusal{Code: "rate_limited", Message: "too many requests: try again later"})
	status, _ := errors.AsType[*client.StatusError](err)
	is.True(status.RequestID != "")
	is.Equal(status, &client.StatusError{Route: "DELETE /me/api-keys", Status: 429, RetryAfter: wait, RequestID: status.RequestID, Problem: true})
	is.Equal(err.Error(), `too many requests: try again later: DELETE /me/api-keys: 429 Too Many Requests, request "`+status.RequestID+`"`)

	s.requests()
	is.Equal(svc.ErrorCode(errorOf(all(s.client.As("session-of-bob").Keys.List(ctx, svc.Me, svc.KeyQuery{})))), svc.Code("rate_limited"))
	is.Equal(len(s.requests()), 1) // who has to wait for that long is told so at once
}
