package adminpage

import (
	"errors"
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

var (
	errMethod   = errors.New("this address does not take that method")
	errTooLarge = errors.New("the form is too large")
)

// statusOf returns the status of a page about an error.
func statusOf(err error) int {
	switch {
	case errors.Is(err, errMethod):
		return http.StatusMethodNotAllowed
	case errors.Is(err, errTooLarge):
		return http.StatusRequestEntityTooLarge
	}
	return httpapi.Status(err)
}

// tooLarge returns the error of a form that could not be read.
func tooLarge(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return errTooLarge
	}
	return svc.Invalid("", "the form cannot be read")
}
