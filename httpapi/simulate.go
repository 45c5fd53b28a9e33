package httpapi

import (
	"errors"
	"net/http"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

// MaxBundleRows is the most rows of a bundle in a request. It counts the rows of all lists; each
// channel and each member also counts as a row. It also limits the elements of all arrays in any
// body, without the arrays in manifests and documents.
const MaxBundleRows = 10_000

func (h *Handler) simulate(w http.ResponseWriter, r *request) error {
	in, err := decode[wire.Simulation](h, w, r)
	if err != nil {
		return err
	}
	if in.Bundle == nil {
		return invalid("/bundle", "is required")
	}
	bundle, err := svc.ParseBundleWithin(in.Bundle, MaxBundleRows)
	if err != nil {
		return within("/bundle", "/query/", err)
	}
	q := in.Query
	resolution, err := h.service.Policies.Simulate(r.Context(), r.by, bundle, svc.Query{
		Bank: q.Bank, Action: q.Action, ServiceAccountID: q.SAID, UserID: q.UserID,
		Sender: q.Sender, Channel: q.Channel, Topic: q.Topic, ScopingPolicyID: q.ScopingPolicyID,
	})
	if err != nil {
		return within("/bundle", "/query/", err)
	}
	answer, err := wireResolution(resolution)
	if err != nil {
		return err
	}
	return sendJSON(w, http.StatusOK, answer)
}

// within maps the fields of errors to places in a body: it puts one prefix before pointers and the
// other before names of parameters.
func within(pointers, parameters string, err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, one := range joined.Unwrap() {
			all = append(all, within(pointers, parameters, one))
		}
		return errors.Join(all...)
	}
	e, ok := errors.AsType[*svc.Error](err)
	if !ok || e.Code != svc.CodeInvalid {
		return err
	}
	moved := *e
	if e.Field == "" || strings.HasPrefix(e.Field, "/") {
		moved.Field = pointers + e.Field
	} else {
		moved.Field = parameters + e.Field
	}
	return &moved
}
