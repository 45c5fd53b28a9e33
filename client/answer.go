package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strings"

	"github.com/extsvc/svc"
)

// maxAnswer and maxProblem limit an answer in bytes. In a list maxAnswer limits each element.
const (
	maxAnswer  = 64 << 20
	maxProblem = 4 << 20
)

// call sends a request and reads the one JSON object of the answer.
func call[W, T any](ctx context.Context, c *conn, r request, read func(W) T) (T, error) {
	var none T
	a, err := c.ask(ctx, r)
	if err != nil {
		return none, err
	}
	defer a.Body.Close()
	in, err := element[W](a)
	if err == nil {
		err = a.end()
	}
	if err != nil {
		return none, c.unread(ctx, a, err)
	}
	return read(in), nil
}

// list returns the elements of a JSON array in the answer: the array under key, or with key "" the
// answer itself. Each range over list sends the request again and reads one element at a time.
// When the answer has a Link, list asks for the remaining pages, up to r.limit rows. An error is
// the last thing yielded. Leaving the loop early ends the request.
func list[W, T any](
	ctx context.Context, c *conn, r request, key string, read func(W) T,
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		next, more, rows := r, true, 0
		full := func() bool { return r.limit > 0 && rows == r.limit }
		see := func(in W) bool {
			if full() {
				return false
			}
			rows++
			return yield(read(in), nil)
		}
		for more && !full() {
			var err error
			if next, more, err = elements(ctx, c, next, key, see); err != nil {
				var none T
				yield(none, err)
			}
		}
	}
}

// elements reads one page of a list until see returns false. It returns the request for the next
// page; false: none.
func elements[W any](
	ctx context.Context, c *conn, r request, key string, see func(W) bool,
) (next request, more bool, err error) {
	a, err := c.ask(ctx, r)
	if err != nil {
		return next, false, err
	}
	defer a.Body.Close()
	opened, closed := []json.Token{json.Delim('[')}, []json.Token{json.Delim(']')}
	if key != "" {
		opened = []json.Token{json.Delim('{'), key, json.Delim('[')}
		closed = append(closed, json.Delim('}'))
	}
	err = a.expect(opened...)
	for err == nil && a.json.More() {
		var in W
		if in, err = element[W](a); err == nil && !see(in) {
			return next, false, nil
		}
	}
	if err == nil {
		err = a.expect(closed...)
	}
	if err == nil {
		err = a.end()
	}
	if err == nil {
		next, more, err = a.next()
	}
	if err != nil {
		return next, false, c.unread(ctx, a, err)
	}
	return next, more, nil
}

// anyNext finds a link to a next page (RFC 8288) in the Link headers of an answer, and ownNext finds
// one of the interface. Other links are those of a proxy, or of the host.
var (
	anyNext = regexp.MustCompile(`(?i)>[^<]*\brel\s*=\s*` +
		`(?:"(?:[^"]*\s)?next(?:\s[^"]*)?"|next\s*(?:[;,]|$))`)
	ownNext = regexp.MustCompile(`<\?([^<>]*)>; rel="next"`)
)

// next returns the request for the next page, from the Link headers: the same path with another
// query. false: there is none.
func (a *reply) next() (next request, more bool, err error) {
	links := strings.Join(a.Header.Values("Link"), ", ")
	if !anyNext.MatchString(links) {
		return next, false, nil
	}
	own := ownNext.FindStringSubmatch(links)
	if own == nil {
		return next, false, errForm
	}
	query, err := url.ParseQuery(own[1])
	if err != nil || !query.Has("cursor") ||
		query.Get("cursor") == a.request.query.Get("cursor") {
		return next, false, errForm
	}
	next = a.request
	next.query = query
	return next, true, nil
}

// do sends a request whose answer is 204.
func (c *conn) do(ctx context.Context, r request) error {
	answer, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		return c.refusal(ctx, r, answer)
	}
	return nil
}

// reply is a JSON answer during reading.
type reply struct {
	*http.Response
	request request
	body    *bounded
	json    *json.Decoder
}

// ask sends a request whose answer is JSON.
func (c *conn) ask(ctx context.Context, r request) (*reply, error) {
	answer, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode > http.StatusCreated || mediaType(answer.Header) != "application/json" {
		defer answer.Body.Close()
		return nil, c.refusal(ctx, r, answer)
	}
	body := &bounded{from: answer.Body, left: maxAnswer}
	return &reply{answer, r, body, json.NewDecoder(body)}, nil
}

var errForm = errors.New("the JSON is not in the expected form")

// element reads one object. No object of the interface is empty, and none has an empty id or an empty
// new key. So null, an object that has no key of W, and half an object is errForm.
func element[W any](a *reply) (W, error) {
	var in W
	a.body.left = maxAnswer
	err := a.json.Decode(&in)
	if object := reflect.ValueOf(in); err == nil &&
		(object.IsZero() || lacks(object, "ID") || lacks(object, "APIKey")) {
		err = errForm
	}
	return in, err
}

// lacks reports whether an object has a text of that name in Go, and it is empty.
func lacks(object reflect.Value, name string) bool {
	if object.Kind() != reflect.Struct {
		return false
	}
	field := object.FieldByName(name)
	return field.IsValid() && field.Kind() == reflect.String && field.Len() == 0
}

// expect reads the tokens that must come next.
func (a *reply) expect(tokens ...json.Token) error {
	for _, want := range tokens {
		if token, err := a.json.Token(); err != nil {
			return err
		} else if token != want {
			return errForm
		}
	}
	return nil
}

// end reads to the end of the answer, so that the connection can be reused.
func (a *reply) end() error {
	switch _, err := a.json.Token(); err {
	case io.EOF:
		return nil
	case nil:
		return errForm
	default:
		return err
	}
}

// unread returns the error for an answer that breaks off or is not one of the interface.
func (c *conn) unread(ctx context.Context, a *reply, err error) error {
	status := c.status(a.request, a.Response)
	switch {
	case a.body.err == errTooLarge:
		return &svc.Error{
			Code: svc.CodeInternal, Message: "the server's answer is too large", Err: status,
		}
	case a.body.err != nil:
		err = a.body.err
	case err != io.EOF && err != io.ErrUnexpectedEOF:
		status.Excerpt = c.excerpt(err.Error(), true) // the error may quote the answer
		return foreign(status)
	}
	return c.brokeOff(ctx, status, err)
}

// brokeOff returns the error for an answer whose body ends too early.
func (c *conn) brokeOff(ctx context.Context, status *StatusError, err error) *svc.Error {
	return &svc.Error{
		Code: svc.CodeUnavailable, Message: "the server's answer broke off",
		Err: fmt.Errorf("%w: %w", status, c.cause(ctx, err)),
	}
}

var errTooLarge = errors.New("too large")

// bounded reads a body up to a limit and keeps the error of the last failed read.
type bounded struct {
	from io.Reader
	left int
	err  error // nil: no read has failed; io.EOF is no failure
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		b.err = errTooLarge
		return 0, b.err
	}
	n, err := b.from.Read(p[:min(len(p), b.left)])
	b.left -= n
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}
