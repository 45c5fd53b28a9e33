package httpapi

import (
	"iter"
	"net/http"
	"net/url"
	"strings"

	"github.com/extsvc/svc/internal/inbound"
	"github.com/extsvc/svc/internal/wire"
)

const (
	pageBytes = 1 << 20 // a page ends early after so many bytes
)

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

// sendPage answers with one page of p.Limit rows; rows begin at its start. When there are more
// rows, a Link leads to the next page.
func sendPage[R any, A appender](
	w http.ResponseWriter, r *request, p inbound.Page, open, shut string, rows iter.Seq2[R, error],
	answer func(R) A, position func(R) []string,
) error {
	return withPageBuffer(func(b []byte) ([]byte, error) {
		b = append(b, open...)
		var last R
		n := 0
		for row, err := range rows {
			if err != nil {
				return b, err
			}
			if n == p.Limit || len(b) >= pageBytes {
				p.After = position(last)
				r.linkNext(w, p)
				break
			}
			if n++; n > 1 {
				b = append(b, ',')
			}
			b = answer(row).Append(b)
			last = row
		}
		start(w, http.StatusOK)
		b = append(append(b, shut...), '\n')
		_, _ = w.Write(b)
		return b, nil
	})
}

// sendAll answers with a list of up to MaxList rows and sends the rows as they come. end holds the
// row of that number and, if there is one, the next; sendAll reads it only when the list is too long
// for one buffer. compare orders positions as the list does.
func sendAll[R any, A appender](
	w http.ResponseWriter, r *request, open, shut string, rows, end iter.Seq2[R, error],
	answer func(R) A, position func(R) []string, compare func(a, b []string) int,
) error {
	var last []string // the position after which the answer ends; nil: it ends with the list
	bounded := func(yield func(R, error) bool) {
		for row, err := range rows {
			beyond := err == nil && last != nil && compare(position(row), last) > 0
			if beyond || !yield(row, err) {
				return
			}
		}
	}
	return sendList(w, open, shut, bounded, answer, func() error {
		var final []string // the position of row MaxList
		for row, err := range end {
			switch {
			case err != nil:
				return err
			case final == nil:
				final = position(row)
			default:
				last = final
				r.linkNext(w, inbound.Page{Limit: inbound.MaxLimit, After: last})
			}
		}
		return nil
	})
}
