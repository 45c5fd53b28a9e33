package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
	"github.com/extsvc/svc/httpapi"
)

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

// The client returns every error of the Service unchanged, except the Field when the code is not
// CodeInvalid.
func TestErrorsOfTheService(t *testing.T) {
	s, ctx := newSite(t), t.Context()
	s.register(catalogue)
	s.create("taken")
	must(s.Templates.Install(ctx, svc.Host, svc.Install{TemplateID: "notes", SourceName: "acme"}))
	must(s.Templates.Patch(ctx, svc.Host, "notes", svc.TemplatePatch{Name: new("mine"), Tags: &[]string{}}))
	s.offer(strings.Replace(catalogue, "1.50", "1.75", 1))
	notes := svc.Install{TemplateID: "notes", SourceName: "acme", AliasID: new("other")}
	bob := svc.Principal{Kind: svc.KindUser, ID: "bob"}
	bad := svc.NewTemplate{ID: "..", Content: svc.Content{Tags: []string{"", strings.Repeat("x", 129)}, Manifest: []byte(`{"version":7}`)}}
	again := svc.NewSource{URL: "fs://acme", Alias: new("acme")}
	rename := svc.TemplatePatch{Name: new("x")}
	renames := func() error { return second(s.client.Templates.Patch(ctx, "taken", rename)) }
	renamesHere := func() error { return second(s.Templates.Patch(ctx, admin, "taken", rename)) }
	installs := func() error { return second(s.client.Templates.Install(ctx, notes)) }
	installsHere := func() error { return second(s.Templates.Install(ctx, admin, notes)) }
	for _, c := range []struct {
		code    svc.Code
		status  int
		errors  int
		client  func() error
		service func() error
		store   error // what fails in it
		market  error
	}{
		{svc.CodeInvalid, 400, 4,
			func() error { return second(s.client.Templates.Create(ctx, bad)) },
			func() error { return second(s.Templates.Create(ctx, admin, bad)) }, nil, nil},
		{svc.CodeInvalid, 400, 1,
			func() error { return second(s.client.Templates.Update(ctx, "taken", svc.UpdateRequest{})) },
			func() error { return second(s.Templates.Update(ctx, admin, "taken", svc.UpdateRequest{})) }, nil, nil},
		{svc.CodeForbidden, 403, 1,
			func() error { return second(all(s.client.As("session-of-bob").Sources.List(ctx))) },
			func() error { return second(all(s.Sources.List(ctx, bob))) }, nil, nil},
		{svc.CodeNotFound, 404, 1,
			func() error { return s.client.Templates.Delete(ctx, "nothing") },
			func() error { return s.Templates.Delete(ctx, admin, "nothing") }, nil, nil},
		{svc.CodeExists, 409, 1,
			func() error { return second(s.client.Sources.Register(ctx, again)) },
			func() error { return second(s.Sources.Register(ctx, admin, again)) }, nil, nil},
		{svc.CodeEdited, 409, 1,
			func() error { return second(s.client.Templates.Update(ctx, "notes", svc.UpdateRequest{})) },
			func() error { return second(s.Templates.Update(ctx, admin, "notes", svc.UpdateRequest{})) }, nil, nil},
		{svc.CodeChanged, 409, 1, renames, renamesHere, svc.ErrChanged, nil},
		{svc.CodeInternal, 500, 1, renames, renamesHere, errors.New("the disk is on fire"), nil},
		{svc.CodeUnavailable, 503, 1, renames, renamesHere, svc.ErrUnavailable, nil},
		{svc.CodeSourceFailed, 502, 1, installs, installsHere, nil, errors.New("unplugged")},
		{svc.CodeSourceTimeout, 504, 1, installs, installsHere, nil, context.DeadlineExceeded},
	} {
		t.Run(string(c.code), func(t *testing.T) {
			is := is.New(t)
			s.store.plant(func(call string) error {
				if call == "ChangeTemplate" {
					return c.store
				}
				return nil
			})
			s.market.fail(c.market)
			got, want := c.client(), refusals(c.service())
			is.Equal(svc.ErrorCode(got), c.code)
			is.Equal(len(want), c.errors)
			for i := range want {
				if c.code != svc.CodeInvalid {
					want[i].Field = ""
				}
			}
			is.Equal(refusals(got), want)
			status, found := errors.AsType[*client.StatusError](got)
			is.True(found)
			is.True(status.Problem)
			is.Equal(status.Status, c.status)
			is.Equal(status.Excerpt, "")
		})
	}
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
	_, err := s.client.As("svcu_wrong").Templates.Read(ctx, "a")
	is.Equal(refused(err), refusal{Code: svc.CodeUnauthenticated, Message: "a valid bearer token is required"})
	_, err = s.client.Keys.Issue(ctx, svc.Me, svc.NewAPIKey{Description: new(strings.Repeat("x", 200))})
	is.Equal(refused(err), refusal{Code: "body_too_large", Message: "the body is larger than 200 bytes"})

	err = s.client.As("session-of-bob").Keys.RevokeAll(ctx, svc.Me)
	is.Equal(refused(err), refusal{Code: "rate_limited", Message: "too many requests: try again later"})
	status, _ := errors.AsType[*client.StatusError](err)
	is.True(status.RequestID != "")
	is.Equal(status, &client.StatusError{Route: "DELETE /me/api-keys", Status: 429, RetryAfter: wait, RequestID: status.RequestID, Problem: true})
	is.Equal(err.Error(), `too many requests: try again later: DELETE /me/api-keys: 429 Too Many Requests, request "`+status.RequestID+`"`)

	s.requests()
	_, err = all(s.client.As("session-of-bob").Keys.List(ctx, svc.Me, svc.KeyQuery{}))
	is.Equal(svc.ErrorCode(err), svc.Code("rate_limited"))
	is.Equal(len(s.requests()), 1) // who has to wait for that long is told so at once
}

// A base that lacks the prefix reaches something else, or nothing.
func TestWrongBase(t *testing.T) {
	is := is.New(t)
	mux := http.NewServeMux()
	mux.Handle("/ext/svc/", httpapi.New(newSite(t).Service, httpapi.Options{}))
	server := serve(t, mux)
	c := must(client.New(client.Config{BaseURL: server.URL, Token: token}))
	_, err := c.Templates.Read(t.Context(), "a")
	is.Equal(svc.ErrorCode(err), svc.CodeInternal)
	status, _ := errors.AsType[*client.StatusError](err)
	is.Equal(status, &client.StatusError{Route: "GET /admin/templates/{template_id}", Status: 404, Excerpt: `"404 page not found\n"`})
}

func TestRequestID(t *testing.T) {
	is := is.New(t)
	s := newSite(t, func(u *setup) {
		u.wrap = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Request-Id", "7f-1")
				next.ServeHTTP(w, r)
			})
		}
	})
	err := s.client.Templates.Delete(t.Context(), "a")
	is.Equal(err.Error(), `there is no such template: DELETE /admin/templates/{template_id}: 404 Not Found, request "7f-1"`)
}
