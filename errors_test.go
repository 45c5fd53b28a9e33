package svc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/limits"
	"github.com/extsvc/svc/store/memstore"
)

func ExampleErrors() {
	_, err := svc.Diff(svc.Bundle{}, svc.Bundle{
		Users:           []svc.User{{ID: "a/b"}, {ID: ".."}},
		ServiceAccounts: []svc.ServiceAccount{{ID: "ci", OwnerUserID: "alice", ScopingPolicyID: "p/q"}},
	})
	for _, e := range svc.Errors(err) {
		fmt.Println(e.Code, e.Field, e.Message)
	}
	// Output:
	// invalid_request /after/users/0/id must hold no slash or backslash
	// invalid_request /after/users/1/id must not be "." or ".."
	// invalid_request /after/service_accounts/0/scoping_policy_id must hold no slash or backslash
}

// many is an error whose tree is as its author wants it.
type many []error

func (m many) Error() string   { return "many" }
func (m many) Unwrap() []error { return m }

func doubled(err error, n int) error {
	for range n {
		err = errors.Join(err, err)
	}
	return err
}

func TestErrorsOfATree(t *testing.T) {
	one, two, plain := &svc.Error{Field: "/1"}, &svc.Error{Field: "/2", Err: &svc.Error{Field: "cause"}}, errors.New("plain")
	for name, c := range map[string]struct {
		err  error
		want []*svc.Error
	}{
		"nil":     {nil, nil},
		"plain":   {fmt.Errorf("wrapped: %w", errors.Join(plain, nil)), nil},
		"one":     {one, []*svc.Error{one}},
		"wrapped": {fmt.Errorf("wrapped: %w", two), []*svc.Error{two}},
		"joined":  {errors.Join(plain, two, fmt.Errorf("%w and %w", one, plain), errors.Join(errors.Join(two))), []*svc.Error{two, one, two}},
		"holes":   {many{nil, one, many{}, nil}, []*svc.Error{one}},
		"endless": {doubled(plain, 64), nil},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			is.Equal(svc.Errors(c.err), c.want)
			if c.want != nil {
				is.Equal(svc.ErrorCode(c.err), c.want[0].Code)
			}
		})
	}
	if n := len(svc.Errors(doubled(one, 64))); n < 4_000 || n > 10_000 {
		t.Errorf("%d errors", n)
	}
}

func TestRelocate(t *testing.T) {
	is, below := is.New(t), func(e *svc.Error) string { return "/below" + e.Field }
	plain, one := errors.New("plain"), &svc.Error{Code: svc.CodeExists, Field: "/1", Message: "m", Fields: []string{"f"}, Err: svc.ErrExists}
	is.Equal(svc.MapFields(nil, below), nil)
	is.Equal(svc.MapFields(plain, below), plain)
	is.Equal(svc.MapFields(one, below), error(&svc.Error{Code: svc.CodeExists, Field: "/below/1", Message: "m", Fields: []string{"f"}, Err: svc.ErrExists}))
	var fields []string
	for _, e := range svc.Errors(svc.MapFields(errors.Join(one, plain, one), below)) {
		fields = append(fields, e.Field)
	}
	is.Equal(fields, []string{"/below/1", "/below/1"})
	is.Equal(one.Field, "/1")
}

// Whatever error a host's check returns, the manifest is refused.
func TestErrorsOfAHost(t *testing.T) {
	one := svc.Invalid("/1", "is wrong")
	for name, c := range map[string]struct {
		err  error
		want []string
	}{
		"mixed":      {errors.Join(one, errors.New("no"), fmt.Errorf("page: %w", errors.New("no"))), []string{"/manifest/1: is wrong", "/manifest: no", "/manifest: page: no"}},
		"within":     {fmt.Errorf("page: %w", errors.Join(one, one)), []string{"/manifest/1: is wrong", "/manifest/1: is wrong"}},
		"no pointer": {svc.Invalid("a/b", "is wrong"), []string{"/manifest/a~1b: is wrong"}},
		"hidden":     {errors.Join(svc.Invalid("/\x00", "\u202ea\xff"), errors.New("a\n\tb\x1b[2J")), []string{"/manifest/\ufffd: \ufffda\ufffd", "/manifest: a\n\tb\ufffd[2J"}},
		"nothing":    {many{}, []string{"/manifest: many"}},
		"holes":      {many{nil, many{nil}}, []string{"/manifest: many"}},
		"deep":       {deep(20_000), []string{"/manifest: deep"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range svc.Errors(refusedManifest(t, c.err)) {
				got = append(got, e.Error())
			}
			is.New(t).Equal(got, c.want)
		})
	}
	all := svc.Errors(refusedManifest(t, doubled(errors.New("no"), 64)))
	other := func(e *svc.Error) bool { return e.Message != "no" }
	expect.Holds(t, len(all) == limits.Errors+1 && !slices.ContainsFunc(all[:limits.Errors], other), "errors: ", len(all))
}

type deep int

func (d deep) Error() string { return "deep" }

func (d deep) Unwrap() error {
	if d == 0 {
		return nil
	}
	return d - 1
}

func refusedManifest(t *testing.T, err error) error {
	h := newHost(t, func(c *svc.Config) { c.Templates.ValidateManifest = func(json.RawMessage) error { return err } })
	_, err = h.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: "a", Content: svc.Content{Name: "A", Manifest: json.RawMessage(`{"version":"1"}`)}})
	return err
}

// TestErrorsIs: each sentinel is the Error of its code, however it is wrapped, and of no other.
func TestErrorsIs(t *testing.T) {
	sentinels := map[svc.Code]error{
		svc.CodeInvalid: svc.ErrInvalid, svc.CodeUnauthenticated: svc.ErrUnauthenticated,
		svc.CodeForbidden: svc.ErrForbidden, svc.CodeNotFound: svc.ErrNotFound, svc.CodeExists: svc.ErrExists,
		svc.CodeChanged: svc.ErrChanged, svc.CodeUnavailable: svc.ErrUnavailable,
	}
	for code, own := range sentinels {
		for of := range sentinels {
			err := fmt.Errorf("wrapped: %w", errors.Join(errors.New("other"), &svc.Error{Code: of}))
			expect.Equal(t, fmt.Sprintf("an Error of %s is %q", of, own), errors.Is(err, own), of == code)
		}
	}
	limit := &svc.Error{Code: svc.CodeLimit}
	expect.Holds(t, !errors.Is(limit, nil) && !errors.Is(limit, many{}), "an Error of a code without a sentinel is nothing else")
}

func ExampleErrNotFound() {
	service, _ := svc.New(svc.Config{Store: memstore.New()})
	defer service.Close()
	_, err := service.Users.Read(context.Background(), svc.Host, "nobody")
	fmt.Println(errors.Is(err, svc.ErrNotFound))
	// Output: true
}

func TestErrorCode(t *testing.T) {
	is := is.New(t)
	is.Equal(svc.ErrorCode(nil), svc.Code(""))
	is.Equal(svc.ErrorCode(errors.New("other")), svc.CodeInternal)
	cause := errors.New("cause")
	err := error(&svc.Error{Code: svc.CodeNotFound, Field: "bank", Message: "is gone", Err: cause})
	is.Equal(svc.ErrorCode(errors.Join(err)), svc.CodeNotFound)
	is.Equal(err.Error(), "bank: is gone: cause")
	is.True(errors.Is(err, cause))
}

// What a host's Authenticator or a source says of what it was given is not repeated, by any error of the chain.
func TestErrorsOfOthersHideSecrets(t *testing.T) {
	is := is.New(t)
	const secret = "session-canary"
	var cause error
	h := newHost(t, func(c *svc.Config) {
		c.Authenticator = svc.AuthenticatorFunc(func(context.Context, string) (svc.Principal, error) { return svc.Principal{}, cause })
	})
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme, AuthToken: ptr(svc.Secret(secret))}))
	deep := &url.Error{Op: "Get", URL: "https://id.example.com/?token=" + secret, Err: io.EOF}
	for _, cause = range []error{
		deep, fmt.Errorf("at %w", deep), &svc.Error{Code: svc.CodeSourceFailed, Field: secret, Message: "has no " + secret}, &svc.Error{Code: svc.CodeSourceFailed, Message: "m", Err: deep},
	} {
		h.market.err = cause
		_, told := h.Authenticate(t.Context(), secret)
		wantCode(t, told, svc.CodeUnavailable, "")
		_, asked := h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "x", SourceName: "acme"})
		is.Equal(svc.ErrorCode(asked), svc.CodeSourceFailed)
		for _, err := range []error{told, asked} {
			is.True(strings.Contains(err.Error(), "***"))
			for ; err != nil; err = errors.Unwrap(err) {
				is.True(!strings.Contains(sprintf("%v %+v %#v", err, err, err), "canary"))
			}
		}
	}
	cause = io.ErrUnexpectedEOF // with nothing to hide the chain stays
	_, err := h.Authenticate(t.Context(), secret)
	is.True(errors.Is(err, cause))
}

// The Service's own time limit is no end of the caller's time.
func TestTimeOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, h := is.New(t), newHost(t, func(c *svc.Config) {
			c.Store = outside(c.Store, func(ctx context.Context, call intercept.Call) error {
				if call.Method == "Changes" { // it does not say what has changed
					<-ctx.Done()
					return ctx.Err()
				}
				return call.Do()
			})
		})
		for _, err := range h.Keys.List(t.Context(), svc.Host, svc.AllHolders, svc.KeyQuery{}) {
			is.True(errors.Is(err, svc.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded))
			is.True(strings.Contains(err.Error(), "cannot reach its store"))
		}
	})
}
