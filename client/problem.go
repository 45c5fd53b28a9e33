package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

// StatusError is the HTTP answer behind an error: errors.AsType finds it in every error that was an answer.
type StatusError struct {
	Route      string        // what was asked: "GET /admin/templates/{template_id}"
	Status     int           // 503
	RequestID  string        // the answer's X-Request-Id, at most 100 bytes of it; "" when there is none
	RetryAfter time.Duration // how long the server asks to wait; 0: it does not
	Problem    bool          // the answer is one of the interface, so that nothing was changed
	// Excerpt is, of an answer that is none of the interface, how its body begins or what is wrong with its JSON: quoted as in Go, and
	// short. "" otherwise.
	Excerpt string
}

func (e *StatusError) Error() string {
	text := e.Route + ": " + strconv.Itoa(e.Status) + " " + http.StatusText(e.Status)
	if e.RequestID != "" {
		text += ", request " + strconv.Quote(e.RequestID)
	}
	if e.Excerpt != "" {
		text += ": " + e.Excerpt
	}
	return text
}

func invalid(field, message string) *svc.Error {
	return &svc.Error{Code: svc.CodeInvalid, Field: field, Message: message}
}

// join is what the Service makes of several errors: nil of none, and the error itself of one.
func join(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// refusal is the error of an answer that is not what was asked for.
func (c *Client) refusal(r request, answer *http.Response) error {
	status := c.status(r, answer)
	body, isProblem := &bounded{from: answer.Body, left: excerptFrom}, mediaType(answer.Header) == "application/problem+json"
	if isProblem {
		body.left = maxAnswer
	}
	text, err := io.ReadAll(body)
	var p wire.Problem
	if isProblem && err == nil && json.Unmarshal(text, &p) == nil && p.Code != "" {
		return c.problem(p, status)
	}
	status.Excerpt = c.excerpt(string(text), err == nil)
	return foreign(status)
}

// foreign is the error of an answer that is none of the interface.
func foreign(status *StatusError) *svc.Error {
	e := &svc.Error{Code: svc.CodeInternal, Message: "what answered is not this interface", Err: status}
	switch code := status.Status; code {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		e.Code, e.Message = svc.CodeUnavailable, "the server cannot answer just now, try again later"
	default:
		if code >= 300 && code < 400 {
			e.Message = "the server redirects, which is not followed"
		}
	}
	return e
}

func (c *Client) status(r request, answer *http.Response) *StatusError {
	id := c.token().Hide(answer.Header.Get("X-Request-Id"))
	return &StatusError{
		Route: r.route, Status: answer.StatusCode, RequestID: strings.ToValidUTF8(id[:min(len(id), 100)], ""),
		RetryAfter: retryAfter(answer.Header),
	}
}

// problem is the error that the Service gave, as far as the interface tells.
func (c *Client) problem(p wire.Problem, status *StatusError) error {
	status.Problem = true
	hide := c.token().Hide
	refused := func(field, message string) *svc.Error {
		e := &svc.Error{Code: svc.Code(hide(p.Code)), Field: hide(field), Message: hide(message), Err: status}
		for _, name := range p.Fields {
			e.Fields = append(e.Fields, hide(name))
		}
		return e
	}
	if len(p.Errors) == 0 {
		return refused("", strings.TrimSuffix(p.Detail, ".")) // httpapi made a sentence of it
	}
	var all []error
	for _, wrong := range p.Errors {
		field := wrong.Parameter
		if wrong.Pointer != nil {
			field = *wrong.Pointer
		}
		all = append(all, refused(field, wrong.Detail))
	}
	return join(all)
}

// Of a body that is none of the interface, so many bytes are read, and so many are shown.
const (
	excerptFrom = 4 << 10
	excerptSize = 200
)

// excerpt quotes how a text begins. Where the text is not whole, a part of the token may be at its end.
func (c *Client) excerpt(text string, whole bool) string {
	token := c.token()
	text = token.Hide(text)
	if !whole {
		text = text[:max(0, len(text)-3*len(token))] // as long as it is when it is escaped
	}
	if len(text) > excerptSize {
		text = strings.ToValidUTF8(text[:excerptSize], "") + "…"
	}
	if text == "" {
		return ""
	}
	return strconv.Quote(text)
}

// causeSize is how many bytes are shown of an error that is not ours, which may repeat what the server said.
const causeSize = 1000

// errUnreachable is in the errors of requests that got no answer.
var errUnreachable = errors.New("no answer")

// unreachable is the error of a request that got no answer, or whose context has ended.
func (c *Client) unreachable(ctx context.Context, r request, cause error) error {
	message := "the server cannot be reached just now, try again later"
	if cause == errSilent {
		message = "the server has not answered in time"
	}
	return &svc.Error{Code: svc.CodeUnavailable, Message: message, Err: fmt.Errorf("%s: %w: %w", r.route, errUnreachable, c.cause(ctx, cause))}
}

// cause is what made a request fail: that its context has ended, if it has, and what else is known.
func (c *Client) cause(ctx context.Context, err error) error {
	if inner, is := errors.AsType[*url.Error](err); is {
		err = inner.Err // without the address, which may hold a key by mistake
	}
	ended := ctx.Err()
	if err == nil || errors.Is(ended, err) {
		return ended
	}
	if hidden := c.token().Hide(err.Error()); hidden != err.Error() || len(hidden) > causeSize {
		err = errors.New(strings.ToValidUTF8(hidden[:min(len(hidden), causeSize)], ""))
	}
	if ended != nil {
		return fmt.Errorf("%w: %w", ended, err)
	}
	return err
}

// mediaType is a body's type without its parameters; "" when there is none that can be read.
func mediaType(header http.Header) string {
	kind, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return kind
}
