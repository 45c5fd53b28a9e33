package body

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/extsvc/svc"
)

// MaxParameters is the most parameters of a form.
const MaxParameters = 100

var form = Type{
	func(mediaType string) bool { return mediaType == "application/x-www-form-urlencoded" },
	"the body must be a form, unencoded, and say so: " +
		"Content-Type: application/x-www-form-urlencoded",
}

// Form returns the form in the body of a request, or an [*svc.Error]. The body has at most limit
// bytes and [MaxParameters] parameters, each once. An empty body is an empty form. When a handler of
// the host has parsed the form already ([http.Request.ParseForm]), Form judges r.PostForm by the
// same rules.
func Form(w http.ResponseWriter, r *http.Request, limit int64) (url.Values, error) {
	if _, declared := form.declared(r.Header); declared && len(r.PostForm) > 0 {
		return r.PostForm, checkParsed(r, limit)
	}
	body, err := Read(w, r, limit, form)
	if err != nil {
		return nil, err
	}
	return ParseForm(body)
}

// ParseForm reads the text of a form that has at most [MaxParameters] parameters, each once.
func ParseForm(body []byte) (url.Values, error) {
	if bytes.Count(body, []byte("&")) >= MaxParameters {
		return nil, tooMany()
	}
	values, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, svc.Invalid("", "the body has a semicolon or a malformed percent escape")
	}
	return values, once(values)
}

func tooMany() error {
	return svc.Invalid("", fmt.Sprintf("the body has more than %d parameters", MaxParameters))
}

// checkParsed checks a form that a handler of the host has parsed, perhaps with another limit.
func checkParsed(r *http.Request, limit int64) error {
	parameters, size := 0, int64(0)
	for name, all := range r.PostForm {
		parameters += len(all)
		for _, value := range all {
			size += int64(len(name) + len(value))
		}
	}
	switch {
	case max(size, r.ContentLength) > limit:
		return tooLarge(limit)
	case parameters > MaxParameters:
		return tooMany()
	}
	return once(r.PostForm)
}

// once refuses a parameter that is given twice: two readers could take different ones. A name that
// is empty or looks like a JSON pointer is no Field.
func once(values url.Values) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case len(values[name]) == 1:
		case name == "" || strings.HasPrefix(name, "/"):
			return svc.Invalid("",
				"the body has a parameter twice whose name is empty or begins with a slash")
		default:
			return svc.Invalid(name, "must be given once")
		}
	}
	return nil
}
