package httpapi

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/body"
	"github.com/extsvc/svc/internal/inbound"
)

// decode reads the JSON body of a request strictly, and authenticates the bearer a second time. An
// empty body gives the zero value of T; the Service refuses it when a field is required.
func decode[T any](h *Handler, w http.ResponseWriter, r *request) (in T, err error) {
	text, err := body.Read(w, r.Request, h.options.MaxBody, body.JSON)
	if err != nil {
		return in, err
	}
	if err := h.reauthenticate(r); err != nil {
		return in, err
	}
	return inbound.JSON[T](text, MaxBundleRows)
}

// query is the parsed query of a request.
type query url.Values

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

// is reports whether the value of a key is the only one that it can have; false when it is absent or
// empty.
func (q query) is(key, value string) (bool, error) {
	switch q.text(key) {
	case value:
		return true, nil
	case "":
		return false, nil
	}
	return false, svc.Invalid(key, fmt.Sprintf("must be %q, or absent", value))
}
