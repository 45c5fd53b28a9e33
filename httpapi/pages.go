package httpapi

import (
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/extsvc/svc/internal/inbound"
	"github.com/extsvc/svc/internal/wire"
)

const pageBytes = 1 << 20 // a page ends early after so many bytes

// MaxList is the most rows of a list without a limit in the request. A Link leads to the others.
const MaxList = 10_000

// list names the list of the request, for its cursors.
func (r *request) list() string {
	segments := strings.Split(r.path, "/")
	for i, segment := range segments {
		if name, is := strings.CutPrefix(segment, "{"); is {
			segments[i] = url.PathEscape(r.params[strings.TrimSuffix(name, "}")])
		}
	}
	return wire.List(strings.Join(segments, "/"), url.Values(r.query))
}

// page returns the part of the list that the request asks for.
func (r *request) page() (inbound.Page, error) {
	return inbound.PageOf(r.list(), url.Values(r.query))
}

// linkNext sets the Link (RFC 8288) to the page after p.After. It is relative, because only the
// client knows the public address of this page.
func (r *request) linkNext(w http.ResponseWriter, p inbound.Page) {
	w.Header().Set("Link", "<"+p.Next(r.list(), url.Values(r.query))+`>; rel="next"`)
}

// listForm is how a list is answered.
type listForm[R any, A appender] struct {
	open, shut string // around the rows
	answer     func(R) A
	position   func(R) []string // two texts
	descends   bool             // the positions of a list become smaller
}

// sendPart answers with the list, or with the page p of it. rows reads rows of the list from the
// start of p on: it leaves out skip of them, and reads at most limit, or all with 0.
func sendPart[R any, A appender](
	w http.ResponseWriter, r *request, p inbound.Page, form listForm[R, A],
	rows func(skip, limit int) iter.Seq2[R, error],
) error {
	if p.Limit > 0 {
		return sendPage(w, r, p, form, rows(0, p.Limit+1)) // one more tells whether a page follows
	}
	return sendAll(w, r, form, rows(0, 0), rows(MaxList-1, 2))
}

// sendPage answers with one page of p.Limit rows; rows begin at its start. When there are more
// rows, a Link leads to the next page.
func sendPage[R any, A appender](
	w http.ResponseWriter, r *request, p inbound.Page, form listForm[R, A], rows iter.Seq2[R, error],
) error {
	return withPageBuffer(func(b []byte) ([]byte, error) {
		b = append(b, form.open...)
		var last R
		n := 0
		for row, err := range rows {
			if err != nil {
				return b, err
			}
			if n == p.Limit || len(b) >= pageBytes {
				p.After = form.position(last)
				r.linkNext(w, p)
				break
			}
			if n++; n > 1 {
				b = append(b, ',')
			}
			b = form.answer(row).Append(b)
			last = row
		}
		start(w, http.StatusOK)
		b = append(append(b, form.shut...), '\n')
		_, _ = w.Write(b)
		return b, nil
	})
}

// sendAll answers with a list of up to MaxList rows and sends the rows as they come. end holds the
// row of that number and, if there is one, the next; sendAll reads it only when the list is too long
// for one buffer.
func sendAll[R any, A appender](
	w http.ResponseWriter, r *request, form listForm[R, A], rows, end iter.Seq2[R, error],
) error {
	var last []string // the position after which the answer ends; nil: it ends with the list
	forward := 1
	if form.descends {
		forward = -1
	}
	bounded := func(yield func(R, error) bool) {
		for row, err := range rows {
			beyond := err == nil && last != nil &&
				slices.Compare(form.position(row), last) == forward
			if beyond || !yield(row, err) {
				return
			}
		}
	}
	return sendList(w, form.open, form.shut, bounded, form.answer, func() error {
		var final []string // the position of row MaxList
		for row, err := range end {
			switch {
			case err != nil:
				return err
			case final == nil:
				final = form.position(row)
			default:
				last = final
				r.linkNext(w, inbound.Page{Limit: inbound.MaxLimit, After: last})
			}
		}
		return nil
	})
}
