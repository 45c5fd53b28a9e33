package httpapi

import (
	"context"
	"iter"
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/inbound"
)

// rowForm says how the rows of one kind of access are listed.
type rowForm[R any, A appender] struct {
	answer   func(R) A
	position func(R) []string               // two texts, in the order of the list
	after    func(position []string) string // the RowQuery.After of a position; "": it is none
}

// byID is the form of rows that are listed by id.
func byID[R any, A appender](answer func(R) A, id func(R) string) rowForm[R, A] {
	return rowForm[R, A]{
		answer:   answer,
		position: func(row R) []string { return []string{id(row), ""} },
		after: func(position []string) string {
			if position[1] != "" {
				return ""
			}
			return position[0]
		},
	}
}

// sendRows answers with a list of rows, whole or a page of it.
func sendRows[R any, A appender](
	w http.ResponseWriter, r *request, form rowForm[R, A],
	rows func(svc.RowQuery) iter.Seq2[R, error],
) error {
	p, err := r.page()
	if err != nil {
		return err
	}
	var query svc.RowQuery
	if p.After != nil {
		if query.After = form.after(p.After); query.After == "" {
			return svc.Invalid("cursor", inbound.NotACursor)
		}
	}
	list := listForm[R, A]{open: "[", shut: "]", answer: form.answer, position: form.position}
	err = sendPart(w, r, p, list, func(skip, limit int) iter.Seq2[R, error] {
		query.Skip, query.Limit = skip, limit
		return rows(query)
	})
	return moved(err, "after", "cursor")
}

// moved returns err with the field from named to.
func moved(err error, from, to string) error {
	return svc.MapFields(err, func(e *svc.Error) string {
		if e.Field == from {
			return to
		}
		return e.Field
	})
}

// createRow adds the row that a body describes. read reads the body.
func createRow[In any, R tagged, A appender](
	h *Handler, w http.ResponseWriter, r *request, answer func(R) A, read func(In) (R, error),
	create func(ctx context.Context, by svc.Principal, row R) (R, error),
) error {
	in, err := decode[In](h, w, r)
	if err != nil {
		return err
	}
	row, err := read(in)
	if err == nil {
		row, err = create(r.Context(), r.by, row)
	}
	return sendRow(w, http.StatusCreated, row, err, answer)
}

// patchRow changes the row with an id as a body says. read reads the body.
func patchRow[In, Patch any, R tagged, A appender](
	h *Handler, w http.ResponseWriter, r *request, id string, answer func(R) A,
	read func(In) (Patch, error),
	change func(context.Context, svc.Principal, string, Patch, ...string) (R, error),
) error {
	in, err := decode[In](h, w, r)
	if err != nil {
		return err
	}
	match, err := r.ifMatch()
	if err != nil {
		return err
	}
	patch, err := read(in)
	if err != nil {
		return err
	}
	row, err := change(r.Context(), r.by, id, patch, match...)
	return sendRow(w, http.StatusOK, row, err, answer)
}

// deleteRow removes the row with an id.
func deleteRow(
	w http.ResponseWriter, r *request, id string,
	remove func(ctx context.Context, by svc.Principal, id string, ifMatch ...string) error,
) error {
	match, err := r.ifMatch()
	if err != nil {
		return err
	}
	return sendNothing(w, remove(r.Context(), r.by, id, match...))
}

// filled reads a text of a request that may be absent, which is "", but not empty.
func filled(pointer string, in *string) (string, error) {
	if in == nil {
		return "", nil
	}
	if *in == "" {
		return "", svc.Invalid(pointer, "must not be empty")
	}
	return *in, nil
}
