package httpapi

import (
	"iter"
	"net/http"
	"slices"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/inbound"
	"github.com/extsvc/svc/internal/strictjson"
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
	list func(svc.RowQuery) iter.Seq2[R, error],
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
	if p.Limit > 0 {
		query.Limit = p.Limit + 1 // one more tells whether there is a next page
		err = sendPage(w, r, p, "[", "]", list(query), form.answer, form.position)
	} else {
		end := svc.RowQuery{Skip: MaxList - 1, Limit: 2}
		err = sendAll(w, r, "[", "]", list(query), list(end), form.answer,
			form.position, slices.Compare)
	}
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

// createRow adds the row that a body describes.
func createRow[In any, R tagged, A appender](
	h *Handler, w http.ResponseWriter, r *request, answer func(R) A, create func(In) (R, error),
) error {
	in, err := decode[In](h, w, r)
	if err != nil {
		return err
	}
	row, err := create(in)
	return sendRow(w, http.StatusCreated, row, err, answer)
}

// putRow changes the row in the path as a body says.
func putRow[In any, R tagged, A appender](
	h *Handler, w http.ResponseWriter, r *request, answer func(R) A,
	put func(in In, ifMatch []string) (R, error),
) error {
	in, err := decode[In](h, w, r)
	if err != nil {
		return err
	}
	match, err := r.ifMatch()
	if err != nil {
		return err
	}
	row, err := put(in, match)
	return sendRow(w, http.StatusOK, row, err, answer)
}

// deleteRow removes the row with an id of the path.
func deleteRow(w http.ResponseWriter, r *request, remove func(ifMatch []string) error) error {
	match, err := r.ifMatch()
	if err != nil {
		return err
	}
	return sendNothing(w, remove(match))
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

// inactive reads the is_active of a patch.
func inactive(in strictjson.Optional[bool]) (*bool, error) {
	if in.Set && !in.Null {
		return new(!in.Value), nil
	}
	var absent *bool
	return nil, required("/is_active", in, &absent)
}
