package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/strictjson"
)

// decode reads the JSON body of a request strictly, and authenticates the bearer a second time. An
// empty body gives the zero value of T; the Service refuses it when a field is required.
func decode[T any](h *Handler, w http.ResponseWriter, r *request) (in T, err error) {
	body, err := h.body(w, r, jsonBody)
	if err != nil {
		return in, err
	}
	if err := h.reauthenticate(r); err != nil {
		return in, err
	}
	return parse[T](body)
}

func parse[T any](body []byte) (in T, err error) {
	if len(body) == 0 {
		return in, nil
	}
	err = strictjson.UnmarshalWithin(body, svc.MaxNesting, MaxBundleRows, &in)
	if wrong, ok := errors.AsType[*strictjson.Error](err); ok {
		return in, svc.Invalid(wrong.Pointer, bodyProblem(wrong))
	}
	return in, err
}

func bodyProblem(wrong *strictjson.Error) string {
	if wrong.Pointer == "" {
		return "the body " + wrong.Detail
	}
	return wrong.Detail
}

// mostAtOnce limits, in bytes, the buffer that a request gets before its body has arrived.
const mostAtOnce = 256 << 10

// bodyType is a type that a body can have.
type bodyType struct {
	covers func(mediaType string) bool
	rule   string // for a body of another type
}

var jsonBody = bodyType{isJSON, "the body must be JSON in UTF-8, unencoded, and say so: " +
	"Content-Type: application/json"}

// body reads the body of a request. It requires a Content-Type and enforces the size limit.
func (h *Handler) body(w http.ResponseWriter, r *request, of bodyType) ([]byte, error) {
	if r.ContentLength > h.options.MaxBody {
		return nil, h.bodyTooLarge()
	}
	if r.ContentLength != 0 && !of.declared(r.Header) {
		if _, err := io.ReadFull(r.Body, make([]byte, 1)); err == io.EOF {
			return nil, nil // an empty body of unknown length needs no Content-Type
		}
		return nil, &svc.Error{Code: codeNotJSON, Message: of.rule}
	}
	var body bytes.Buffer
	body.Grow(int(min(max(r.ContentLength, 0), mostAtOnce)) + bytes.MinRead)
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, h.options.MaxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, h.bodyTooLarge()
	} else if err != nil {
		return nil, &svc.Error{
			Code: svc.CodeInvalid, Message: "the body could not be read to its end", Err: err,
		}
	}
	return body.Bytes(), nil
}

func (h *Handler) bodyTooLarge() error {
	message := fmt.Sprintf("the body is larger than %d bytes", h.options.MaxBody)
	return &svc.Error{Code: codeBodyTooLarge, Message: message}
}

// declared reports whether the headers declare a plain body of that type in UTF-8.
func (t bodyType) declared(header http.Header) bool {
	types := header.Values("Content-Type")
	if len(types) != 1 || header.Get("Content-Encoding") != "" {
		return false
	}
	kind, params, err := mime.ParseMediaType(types[0])
	if err != nil {
		return false
	}
	if charset, given := params["charset"]; given && !strings.EqualFold(charset, "utf-8") {
		return false
	}
	return t.covers(kind)
}

// isJSON reports whether a media type is application/json, or has the suffix +json (RFC 6839).
func isJSON(mediaType string) bool {
	return mediaType == "application/json" ||
		strings.HasPrefix(mediaType, "application/") && strings.HasSuffix(mediaType, "+json")
}

// query is the parsed query of a request.
type query url.Values

func parseQuery(raw string) (query, error) {
	if raw == "" {
		return query{}, nil
	}
	if strings.Contains(raw, ";") {
		return nil, svc.Invalid("query", "must not hold a semicolon: separate its keys with &")
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, svc.Invalid("query", "has a malformed percent escape")
	}
	return query(values), nil
}

// mostUnknown is the most wrong keys of a query that an answer names.
const mostUnknown = 10

// check refuses keys that the route does not know and keys that are given twice. clip shortens and
// masks a key for a message.
func (q query) check(known []string, clip func(string) string) error {
	var wrong []error
	for _, key := range slices.Sorted(maps.Keys(q)) {
		if !slices.Contains(known, key) {
			wrong = append(wrong, unknownKey(key, known, clip))
		} else if len(q[key]) > 1 {
			wrong = append(wrong, svc.Invalid(key, "must be given once"))
		}
		if len(wrong) == mostUnknown {
			break
		}
	}
	return errors.Join(wrong...)
}

// unknownKey returns the error for an unknown key; it names the known keys. An empty key, or a key
// that looks like a pointer into the body, is quoted in the message and is not the Field.
func unknownKey(key string, known []string, clip func(string) string) error {
	problem := "is not a parameter of this path, which takes "
	if len(known) == 0 {
		problem += "none"
	} else {
		problem += strings.Join(known, ", ")
	}
	if key == "" || strings.HasPrefix(key, "/") {
		return svc.Invalid("query", fmt.Sprintf("is wrong: %q %s", clip(key), problem))
	}
	return svc.Invalid(key, problem)
}

// text returns the one value of a key; "" when it is absent or empty.
func (q query) text(key string) string { return url.Values(q).Get(key) }

// bool returns a truth value; false when it is absent or empty.
func (q query) bool(key string) (bool, error) {
	switch strings.ToLower(q.text(key)) {
	case "true", "1":
		return true, nil
	case "false", "0", "":
		return false, nil
	}
	return false, svc.Invalid(key, "must be true, false, 1 or 0")
}

// full reports whether the query asks for the full view.
func (q query) full() (bool, error) {
	switch q.text("view") {
	case "full":
		return true, nil
	case "":
		return false, nil
	}
	return false, svc.Invalid("view", `must be "full", or absent`)
}
