package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/strictjson"
	"github.com/extsvc/svc/internal/text"
	"github.com/extsvc/svc/internal/wire"
)

// request is one call of a route.
type request struct {
	route string   // method and path: "GET /admin/templates/{template_id}"
	ids   []string // the values of the path's parameters, in their order
	query url.Values
	body  any        // a type of package wire; nil: none
	form  url.Values // the body as a form; nil: none
	limit int        // the most rows of a list; 0: all
	tags  []string   // If-Match; nil: none
	key   string     // Idempotency-Key; "": none
	etag  *string    // gets the ETag of the answer; nil: nobody asks
	wrong error      // why the request cannot be sent; nil: nothing known
}

// at returns a request of a route.
func at(route string, ids ...string) request { return request{route: route, ids: ids} }

// with returns the request with a body.
func (r request) with(body any) request {
	r.body = body
	return r
}

// where returns the request with a query from pairs of key and value. It omits empty values.
func (r request) where(pairs ...string) request {
	r.query = url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			r.query.Set(pairs[i], pairs[i+1])
		}
	}
	return r
}

// maxPage is the most rows of one page of a list.
const maxPage = 1000

// part returns the request for at most limit rows (0: all) of a list, after a position ("", "":
// from the start). The request has a query.
func (r request) part(limit int, after ...string) request {
	if r.limit = limit; limit != 0 {
		r.query.Set("limit", strconv.Itoa(min(limit, maxPage)))
	}
	if strings.Join(after, "") != "" {
		path, _ := r.path() // send refuses a bad one
		r.query.Set("cursor", wire.Cursor(wire.List(path, r.query), after))
	}
	return r
}

// rows returns the request for the part of a list that query asks for, after a position.
func (r request) rows(query svc.RowQuery, after ...string) request {
	if r.query == nil {
		r = r.where()
	}
	return r.unless("skip", query.Skip != 0).part(query.Limit, after...)
}

// unless returns the request, which is refused if it has a field that the interface does not have.
// Without the field, the server would do something else.
func (r request) unless(field string, given bool) request {
	if given && r.wrong == nil {
		r.wrong = svc.Invalid(field, "must not be set: a server does not take it in this call")
	}
	return r
}

// match returns the request with the condition If-Match; no tags: without a condition.
func (r request) match(tags []string) request {
	if r.tags = tags; slices.Contains(tags, svc.AnyETag) {
		r.tags = []string{svc.AnyETag} // "*" must be the only one
	}
	return r
}

// repeatable returns the request with an idempotency key, which permits retries; "": none.
func (r request) repeatable(key string) request {
	r.key = key
	return r
}

func (r request) method() string {
	method, _, _ := strings.Cut(r.route, " ")
	return method
}

// target returns the path after the base, with the query.
func (r request) target() (string, error) {
	target, err := r.path()
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	return target, err
}

// path returns the path after the base.
func (r request) path() (string, error) {
	_, path, _ := strings.Cut(r.route, " ")
	segments, ids := strings.Split(path, "/"), r.ids
	var wrong []error
	for i, segment := range segments {
		name, is := strings.CutPrefix(segment, "{")
		if !is {
			continue
		}
		id := ids[0]
		segments[i], ids = url.PathEscape(id), ids[1:]
		name = strings.TrimSuffix(name, "}")
		if problem := pathProblem(name, id); problem != "" {
			wrong = append(wrong, svc.Invalid(name, problem))
		}
	}
	return strings.Join(segments, "/"), join(wrong...)
}

// pathProblem says why an id cannot be sent in a path; "": it can. Such an id would lead to another
// path, by itself or after a proxy has rewritten it. The names of other systems may have slashes,
// which are sent escaped. The server checks all other rules for ids.
func pathProblem(name, id string) string {
	switch {
	case id == "":
		return "must be 1 to 128 characters"
	case id == "." || id == "..":
		return `must not be "." or ".."`
	case strings.ContainsAny(id, `/\`) && name != "bank_id" && name != "sender_id":
		return "must hold no slash or backslash"
	}
	return ""
}

// encode returns the body as JSON or as a form; nil: the request has no body.
func (r request) encode() ([]byte, error) {
	if r.form != nil {
		return []byte(r.form.Encode()), nil
	}
	if r.body == nil {
		return nil, nil
	}
	body, err := strictjson.Marshal(r.body)
	if at, ok := errors.AsType[*strictjson.Error](err); ok {
		return nil, svc.Invalid(at.Pointer, at.Detail)
	} else if err != nil {
		return nil, &svc.Error{
			Code: svc.CodeInternal, Message: "the request cannot be written as JSON", Err: err,
		}
	}
	return body, nil
}

// send sends a request, retries it when that is safe, and returns an answer whose status is 200 to
// 299. The caller must close its body.
func (c *conn) send(ctx context.Context, r request) (*http.Response, error) {
	if r.wrong != nil {
		return nil, r.wrong
	} else if c.refused != nil {
		return nil, c.refused
	}
	target, badTarget := r.target()
	body, badBody := r.encode()
	var badKey error
	if !text.Visible(r.key) { // a header cannot hold it; the server checks all other rules
		badKey = svc.Invalid("Idempotency-Key", "must be 1 to 255 visible ASCII characters")
	}
	var badTag error
	if strings.ContainsFunc(strings.Join(r.tags, ""), unicode.IsControl) {
		badTag = svc.Invalid("If-Match", "must hold no control characters")
	}
	if err := join(badTarget, badBody, badKey, badTag); err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		answer, err := c.once(ctx, r, target, body)
		if err == nil {
			return answer, nil
		}
		pause, again := retry(r, err, try)
		if !again || !lasts(ctx, pause) {
			return nil, err
		}
		if !wait(ctx, pause) {
			return nil, c.unreachable(ctx, r, err)
		}
	}
}

// once sends a request without retries.
func (c *conn) once(
	ctx context.Context, r request, target string, body []byte,
) (*http.Response, error) {
	if ctx.Err() != nil {
		return nil, c.unreachable(ctx, r, nil)
	}
	out, err := c.outgoing(ctx, r.method(), target, body)
	if err != nil {
		return nil, err
	}
	if r.form != nil {
		out.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if len(r.tags) > 0 {
		out.Header.Set("If-Match", strings.Join(r.tags, ", "))
	}
	if r.key != "" {
		out.Header.Set("Idempotency-Key", r.key)
	}
	waiting, end := context.WithCancelCause(ctx)
	p := patience{waiting, end, c.timeout}
	stop := p.watch()
	answer, err := c.http.Do(out.WithContext(p.ctx))
	stop()
	if err != nil {
		err = p.reason(err)
		p.end(nil)
		return nil, c.unreachable(ctx, r, err)
	}
	answer.Body = &patientBody{answer.Body, p}
	if r.etag != nil {
		*r.etag = answer.Header.Get("ETag")
	}
	if answer.StatusCode/100 != 2 {
		defer answer.Body.Close()
		return nil, c.refusal(ctx, r, answer)
	}
	return answer, nil
}

func (c *conn) outgoing(
	ctx context.Context, method, target string, body []byte,
) (*http.Request, error) {
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	out, err := http.NewRequestWithContext(ctx, method, c.base+target, content)
	if err != nil {
		return nil, &svc.Error{
			Code: svc.CodeInternal, Message: "the request has no valid address",
			Err: c.cause(ctx, err),
		}
	}
	out.Header.Set("Accept", "application/json, application/problem+json")
	out.Header.Set("User-Agent", c.userAgent)
	if body != nil {
		out.Header.Set("Content-Type", "application/json")
	}
	if token := c.token(); token != "" {
		out.Header.Set("Authorization", "Bearer "+string(token))
	}
	return out, nil
}
