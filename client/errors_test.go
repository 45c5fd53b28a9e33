package client_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
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
