package httpapi

import (
	"errors"
	"net/http"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/token"
	"github.com/extsvc/svc/internal/wire"
)

// The codes that only HTTP has.
const (
	codeMethodNotAllowed svc.Code = "method_not_allowed"
	codeBodyTooLarge     svc.Code = "body_too_large"
	codeNotJSON          svc.Code = "unsupported_media_type"
	codeLimited          svc.Code = "rate_limited"
	codeCrossOrigin      svc.Code = "cross_origin"
)

// statuses maps codes to statuses; no other code does.
var statuses = map[svc.Code]int{
	svc.CodeInvalid:           http.StatusBadRequest,
	svc.CodeUnauthenticated:   http.StatusUnauthorized,
	svc.CodeForbidden:         http.StatusForbidden,
	codeCrossOrigin:           http.StatusForbidden,
	svc.CodeReadOnly:          http.StatusForbidden,
	svc.CodeNotFound:          http.StatusNotFound,
	codeMethodNotAllowed:      http.StatusMethodNotAllowed,
	svc.CodeExists:            http.StatusConflict,
	svc.CodeLimit:             http.StatusConflict,
	svc.CodeInUse:             http.StatusConflict,
	svc.CodeBuiltin:           http.StatusConflict,
	svc.CodeLastAdministrator: http.StatusConflict,
	svc.CodeTooComplex:        http.StatusConflict,
	svc.CodeEdited:            http.StatusConflict,
	svc.CodeChanged:           http.StatusConflict,
	svc.CodeSourceMoved:       http.StatusConflict,
	svc.CodePrecondition:      http.StatusPreconditionFailed,
	svc.CodeKeyReused:         http.StatusUnprocessableEntity,
	codeBodyTooLarge:          http.StatusRequestEntityTooLarge,
	codeNotJSON:               http.StatusUnsupportedMediaType,
	codeLimited:               http.StatusTooManyRequests,
	svc.CodeInternal:          http.StatusInternalServerError,
	svc.CodeSourceFailed:      http.StatusBadGateway,
	svc.CodeUnavailable:       http.StatusServiceUnavailable,
	svc.CodeSourceTimeout:     http.StatusGatewayTimeout,
}

// Status returns the HTTP status that the interface answers an error of a Service with. Nil, and an
// error that wraps no [svc.Error], is 500.
func Status(err error) int {
	if status, known := statuses[svc.ErrorCode(err)]; known {
		return status
	}
	return http.StatusInternalServerError
}

// retryAfter is the Retry-After of a 503, in seconds.
const retryAfter = "1"

// fail answers with a problem; no other function does. If the answer has begun, fail cuts it off,
// so that the client cannot take a part for the whole.
func (h *Handler) fail(a *answer, r *http.Request, err error) {
	err = challenged(err, func() bool { return h.hasCredential(r) })
	problem := h.problemOf(err)
	a.Code = svc.Code(problem.Code)
	h.identify(a, r)
	if problem.Status >= http.StatusInternalServerError || a.begun {
		a.Err = err
	}
	if a.begun {
		panic(http.ErrAbortHandler)
	}
	if !a.admitted {
		defer h.holdBack(r.Context(), problem.Status)()
	}
	if problem.Status == http.StatusUnauthorized {
		a.dropRequestID()
	}
	if problem.Status == http.StatusUnauthorized && a.rated { // the bearer was a key until just now
		a.Header().Del(limitHeader)
		a.Header().Del(policyHeader)
	}
	writeProblem(a, problem, err)
}

// WriteError answers a request of the host with an error, as the interface answers with its own: a
// problem (RFC 9457) with the status of [Status], the code, and no text that is for the log only.
// Text that looks like an API key is masked. Call it before anything of the answer is written.
// Behind [Handler.Protect] and [Handler.Require], the Logger gets the cause of a status of 500 or
// above; elsewhere nothing is logged.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	err = challenged(err, func() bool { return hasAuthorization(r) })
	var h Handler // it masks what looks like a key of any service
	problem := h.problemOf(err)
	if passed, ok := r.Context().Value(letKey{}).(let); ok && passed.answer != nil {
		passed.handler.answered(passed.answer, r, problem, err)
	}
	writeProblem(w, problem, err)
}

func writeProblem(w http.ResponseWriter, problem wire.Problem, err error) {
	header := w.Header()
	if own, ok := errors.AsType[*withHeader](err); ok {
		header.Set(own.name, own.value)
	} else if problem.Status == http.StatusServiceUnavailable {
		header.Set("Retry-After", retryAfter)
	}
	header.Set("Content-Type", "application/problem+json")
	header.Set("Cache-Control", "no-store")
	body, _ := encode(problem) // strings and numbers always encode
	w.WriteHeader(problem.Status)
	_, _ = w.Write(body)
}

// withHeader is an error whose answer has an additional header.
type withHeader struct {
	error
	name, value string
}

func (e *withHeader) Unwrap() error { return e.error }

func refuse(code svc.Code, message, header, value string) error {
	return &withHeader{&svc.Error{Code: code, Message: message}, header, value}
}

func (h *Handler) problemOf(err error) wire.Problem {
	all := svc.Errors(err)
	if all == nil {
		all = []*svc.Error{
			{Code: svc.CodeInternal, Message: "an unexpected fault: see the server's log"},
		}
	}
	first := all[0] // which the answer describes
	status := Status(first)
	p := wire.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: h.detail(first), Code: string(first.Code), Fields: first.Fields,
	}
	if status == http.StatusBadRequest {
		p.Errors = h.fieldsOf(all)
	}
	return p
}

// detail returns an error as a sentence: the plain name of the field, then what is wrong with it.
func (h *Handler) detail(e *svc.Error) string {
	sentence := h.mask(e.Message)
	name := strings.ReplaceAll(strings.Trim(h.clip(e.Field), "/"), "/", ".")
	if name != "" && e.Code == svc.CodeInvalid {
		sentence = name + " " + sentence
	}
	return sentence + "."
}

// clip shortens and masks a field: a pointer into the body can be as long as the body, and it can
// hold an API key.
func (h *Handler) clip(field string) string {
	const most = 200
	if field = h.mask(field); len(field) <= most {
		return field
	}
	return strings.ToValidUTF8(field[:most], "") + "…"
}

// mask masks text that looks like an API key, also like an imported key of another system.
func (h *Handler) mask(text string) string {
	switch {
	case h.service != nil:
		return h.service.Keys.Mask(text)
	case h.tenants != nil:
		return h.tenants.Mask(text)
	}
	return token.Mask(text) // of WriteError
}

// fieldsOf lists what is wrong with each field.
func (h *Handler) fieldsOf(all []*svc.Error) []wire.ProblemField {
	fields := make([]wire.ProblemField, len(all))
	for i, e := range all {
		fields[i].Detail = h.mask(e.Message)
		if name := h.clip(e.Field); name == "" || strings.HasPrefix(name, "/") {
			fields[i].Pointer = &name
		} else {
			fields[i].Parameter = name
		}
	}
	return fields
}
