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
	"github.com/extsvc/svc/internal/text"
	"github.com/extsvc/svc/internal/token"
	"github.com/extsvc/svc/internal/wire"
)

// StatusError is the HTTP answer that an error comes from; errors.AsType finds it in the error.
type StatusError struct {
	Route      string        // the route of the request: "GET /admin/templates/{template_id}"
	Status     int           // the status of the answer, such as 503
	RequestID  string        // the answer's X-Request-Id, at most 100 bytes; "": none
	RetryAfter time.Duration // the wait that the server asks for; 0: none
	Problem    bool          // the answer is one of the interface, see the package
	// Excerpt is the start of a body that is not one of the interface, or what is wrong with its
	// JSON. It is short and quoted as in Go. "" for answers of the interface.
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

// join joins errors as the Service does: nil for none, and the error itself for one.
func join(errs ...error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// refusal returns the error for an answer that is not a success.
func (c *conn) refusal(ctx context.Context, r request, answer *http.Response) error {
	status := c.status(r, answer)
	body := &bounded{from: answer.Body, left: excerptFrom}
	isProblem := mediaType(answer.Header) == "application/problem+json"
	if isProblem {
		body.left = maxProblem
	}
	text, err := io.ReadAll(body)
	var p wire.Problem
	switch {
	case !isProblem || err == errTooLarge:
	case err != nil:
		return c.brokeOff(ctx, status, err)
	case json.Unmarshal(text, &p) == nil && p.Code != "":
		return c.problem(p, status)
	}
	status.Excerpt = c.excerpt(string(text), err == nil)
	return foreign(status)
}

// foreign returns the error for an answer that is not one of the interface.
func foreign(status *StatusError) *svc.Error {
	e := &svc.Error{
		Code: svc.CodeInternal, Err: status,
		Message: "the answer is not from the svc interface: check the base URL",
	}
	switch code := status.Status; code {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		e.Code, e.Message = svc.CodeUnavailable, "the server cannot answer: try again later"
	default:
		if code >= 300 && code < 400 {
			e.Message = "the server redirects, but the client follows no redirect: " +
				"check the base URL"
		}
	}
	return e
}

func (c *conn) status(r request, answer *http.Response) *StatusError {
	id := c.hide(answer.Header.Get("X-Request-Id"))
	return &StatusError{
		Route: r.route, Status: answer.StatusCode, RetryAfter: retryAfter(answer.Header),
		RequestID: strings.ToValidUTF8(id[:min(len(id), 100)], ""),
	}
}

// problem rebuilds the error of the Service from a problem document.
func (c *conn) problem(p wire.Problem, status *StatusError) error {
	status.Problem = true
	hide := c.hide
	refused := func(field, message string) *svc.Error {
		e := &svc.Error{
			Code: svc.Code(hide(p.Code)), Field: hide(field), Message: hide(message), Err: status,
		}
		for _, name := range p.Fields {
			e.Fields = append(e.Fields, hide(name))
		}
		return e
	}
	if len(p.Errors) == 0 {
		return refused("", strings.TrimSuffix(p.Detail, ".")) // httpapi adds the full stop
	}
	var all []error
	for _, wrong := range p.Errors {
		field := wrong.Parameter
		if wrong.Pointer != nil {
			field = *wrong.Pointer
		}
		all = append(all, refused(field, wrong.Detail))
	}
	return join(all...)
}

// The limits of an Excerpt, in bytes.
const (
	excerptFrom = 4 << 10 // read from the body
	excerptSize = 200     // shown
)

// excerpt quotes the start of a text. A text that is not whole may end with a part of a token or a
// key, so excerpt cuts the end off.
func (c *conn) excerpt(text string, whole bool) string {
	text = c.hide(text)
	if !whole {
		longest := 3 * max(len(c.token()), len(c.hidden), token.Length) // percent-encoded
		text = text[:max(0, len(text)-longest)]
	}
	if len(text) > excerptSize {
		text = strings.ToValidUTF8(text[:excerptSize], "") + "…"
	}
	if text == "" {
		return ""
	}
	return strconv.Quote(text)
}

// hide returns a text of the server without the tokens of the request, and without API keys: a
// proxy may spoil the answer that has a new one.
func (c *conn) hide(s string) string {
	return token.Mask(text.Hide(c.hidden, text.Hide(string(c.token()), s)))
}

// causeSize limits, in bytes, the text of an error of another package, which may quote the server.
const causeSize = 1000

// errUnreachable is in the error of every request without an answer.
var errUnreachable = errors.New("no answer")

// unreachable returns the error for a request without an answer or with an ended context.
func (c *conn) unreachable(ctx context.Context, r request, cause error) error {
	message := "the server cannot be reached: try again later"
	if cause == errSilent {
		message = "the server has not answered in time"
	}
	return &svc.Error{
		Code: svc.CodeUnavailable, Message: message,
		Err: fmt.Errorf("%s: %w: %w", r.route, errUnreachable, c.cause(ctx, cause)),
	}
}

// cause returns why a request failed: the error of an ended context, joined with err.
func (c *conn) cause(ctx context.Context, err error) error {
	if inner, is := errors.AsType[*url.Error](err); is {
		err = inner.Err // drop the address, which may hold a key by mistake
	}
	ended := ctx.Err()
	if err == nil || errors.Is(ended, err) {
		return ended
	}
	hidden := c.hide(err.Error())
	if hidden != err.Error() || len(hidden) > causeSize {
		err = errors.New(strings.ToValidUTF8(hidden[:min(len(hidden), causeSize)], ""))
	}
	if ended != nil {
		return fmt.Errorf("%w: %w", ended, err)
	}
	return err
}

// mediaType returns the Content-Type without its parameters; "" when it is absent or malformed.
func mediaType(header http.Header) string {
	kind, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return kind
}
