// Package inbound reads what a request to the HTTP interface brings: headers, query and body.
package inbound

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/strictjson"
	"github.com/extsvc/svc/internal/text"
	"github.com/extsvc/svc/internal/token"
	"github.com/extsvc/svc/limits"
)

// JSON reads a body strictly. rows is the most rows of its lists. An empty body gives the zero
// value of T. An error is an [svc.Error] of CodeInvalid; its Field points into the body.
func JSON[T any](text []byte, rows int) (in T, err error) {
	if len(text) == 0 {
		return in, nil
	}
	err = strictjson.UnmarshalWithin(text, limits.Nesting, rows, &in)
	if wrong, ok := errors.AsType[*strictjson.Error](err); ok {
		problem := wrong.Detail
		if wrong.Pointer == "" {
			problem = "the body " + problem
		}
		return in, svc.Invalid(wrong.Pointer, problem)
	}
	return in, err
}

// Query parses the query of a request. An empty one is not nil.
func Query(raw string) (url.Values, error) {
	if raw == "" {
		return url.Values{}, nil
	}
	if strings.Contains(raw, ";") {
		return nil, svc.Invalid("query", "must not hold a semicolon: separate its keys with &")
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, svc.Invalid("query", "has a malformed percent escape")
	}
	return values, nil
}

// RequestIDHeader carries the id that identifies a request in the logs.
const RequestIDHeader = "X-Request-Id"

// Identify returns the id of a request: the one that the host has set in the answer, or else sets
// it. That is the id that the client gives, if it is safe in headers and logs, else a new one. An
// id that mask changes looks like an API key, and is not safe.
func Identify(
	w http.ResponseWriter, r *http.Request, mask func(string) string,
) (id string, sets bool) {
	if id = w.Header().Get(RequestIDHeader); id != "" {
		return id, false
	}
	const safe = token.Alphabet + "-_.:/+=@~"
	id = r.Header.Get(RequestIDHeader)
	if id == "" || len(id) > 128 || strings.Trim(id, safe) != "" || mask(id) != id ||
		len(r.Header.Values(RequestIDHeader)) > 1 {
		id = rand.Text()
	}
	w.Header().Set(RequestIDHeader, id)
	return id, true
}

// Bearer returns the bearer (RFC 6750, section 2.1) of the one Authorization header; "" when
// there is no bearer or more than one header.
func Bearer(header http.Header) string {
	headers := header.Values("Authorization")
	if len(headers) != 1 {
		return ""
	}
	scheme, bearer, _ := strings.Cut(headers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimLeft(bearer, " ")
}

// Basic returns the password of HTTP Basic (RFC 7617) of the one Authorization header; "" when
// there is none.
func Basic(header http.Header) string {
	if len(header.Values("Authorization")) != 1 {
		return ""
	}
	_, password, _ := (&http.Request{Header: header}).BasicAuth()
	return password
}

// Hide masks the credentials of a request in a text: those of its headers, and others. The longest
// come first: a cookie that is part of another one must not leave the rest of that.
func Hide(r *http.Request, s string, others ...string) string {
	secrets := append(others, Bearer(r.Header))
	secrets = append(secrets, r.Header.Values("Cookie")...)
	for _, cookie := range r.Cookies() {
		secrets = append(secrets, cookie.Value)
		if plain, err := url.PathUnescape(cookie.Value); err == nil {
			secrets = append(secrets, plain)
		}
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	for _, secret := range secrets {
		s = text.Hide(secret, s)
	}
	return s
}

// InTime returns a context for the work of a request that began at a time. It ends before the server
// stops writing the answer ([http.Server].WriteTimeout), so that the client can be told: by a quarter
// of that time, and by 5 seconds at most. It is ctx when the server has no such limit.
func InTime(ctx context.Context, began time.Time) (context.Context, context.CancelFunc) {
	server, _ := ctx.Value(http.ServerContextKey).(*http.Server)
	if server == nil || server.WriteTimeout <= 0 {
		return ctx, func() {}
	}
	limit := server.WriteTimeout
	return context.WithDeadline(ctx, began.Add(limit-min(limit/4, 5*time.Second)))
}

// BadSession is the answer to a request whose session the host cannot check, because of err.
func BadSession(r *http.Request, err error) error {
	if hidden := Hide(r, err.Error()); hidden != err.Error() {
		err = errors.New(hidden)
	}
	const message = "the session cannot be checked now: try again later"
	return &svc.Error{Code: svc.CodeUnavailable, Message: message, Err: err}
}

// maxTags is the most entity tags of a header.
const maxTags = 100

// Tags returns the entity tags of a header that has a list of them (RFC 9110, section 13.1), or only
// "*". Nil: there is no such header.
func Tags(header http.Header, name string) ([]string, error) {
	values := header.Values(name)
	if len(values) == 0 {
		return nil, nil
	}
	rest := strings.Trim(strings.Join(values, ","), " \t")
	if rest == svc.AnyETag {
		return []string{rest}, nil
	}
	malformed := svc.Invalid(name, `must be "*" or a list of at most 100 entity tags in quotes`)
	var all []string
	for rest != "" {
		if rest = strings.TrimLeft(rest, ", \t"); rest == "" {
			break
		}
		tag, behind, ok := cutTag(rest)
		behind = strings.TrimLeft(behind, " \t")
		if !ok || len(all) == maxTags || behind != "" && behind[0] != ',' {
			return nil, malformed
		}
		all, rest = append(all, tag), behind
	}
	if all == nil {
		return nil, malformed
	}
	return all, nil
}

// HasTag reports whether tags of an If-None-Match header contain an ETag. The comparison is weak
// (RFC 9110, section 13.1.2).
func HasTag(known []string, etag string) bool {
	return slices.ContainsFunc(known, func(tag string) bool {
		return tag == svc.AnyETag || strings.TrimPrefix(tag, "W/") == etag
	})
}

// cutTag cuts the first entity tag (RFC 9110, section 8.8.3) off a list.
func cutTag(list string) (tag, behind string, ok bool) {
	opaque, begins := strings.CutPrefix(strings.TrimPrefix(list, "W/"), `"`)
	opaque, behind, ends := strings.Cut(opaque, `"`)
	unprintable := func(r rune) bool { return r <= ' ' || r == 0x7f }
	ok = begins && ends && !strings.ContainsFunc(opaque, unprintable)
	return list[:len(list)-len(behind)], behind, ok
}

// Left reports whether the client of a request has left. A deadline is that of a middleware, whose
// client still waits.
func Left(r *http.Request) bool { return errors.Is(r.Context().Err(), context.Canceled) }
