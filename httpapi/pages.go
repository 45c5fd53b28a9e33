package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

const (
	maxLimit  = 1000    // most rows of a page
	pageBytes = 1 << 20 // a page ends early after so many bytes
)

// MaxList is the most rows of a list without a limit in the request. A Link leads to the others.
const MaxList = 10_000

const notACursor = "must be a cursor from a Link of this list"

// page is the requested part of a list.
type page struct {
	limit int      // 0: the whole list, up to MaxList
	after []string // the position at which the previous page ended; nil: from the start
}

// page reads the parameters limit and cursor.
func (q query) page() (p page, err error) {
	limit, cursor := q.text("limit"), q.text("cursor")
	if limit == "" && cursor == "" {
		return p, nil
	}
	p.limit = maxLimit
	if limit != "" {
		p.limit, err = strconv.Atoi(limit)
		if err != nil || p.limit < 1 || p.limit > maxLimit ||
			strings.TrimLeft(limit, "0123456789") != "" {
			return p, svc.Invalid("limit", fmt.Sprintf("must be a whole number from 1 to %d", maxLimit))
		}
	}
	if cursor == "" {
		return p, nil
	}
	if p.after = positionOf(cursor); p.after == nil {
		return p, svc.Invalid("cursor", notACursor)
	}
	return p, nil
}

// positionOf decodes a cursor of wire.Cursor; nil: it is malformed.
func positionOf(cursor string) (position []string) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || json.Unmarshal(text, &position) != nil || len(position) != 2 ||
		wire.Cursor(position) != cursor || strings.ContainsRune(position[0]+position[1], 0) ||
		utf8.RuneCountInString(position[0]) > svc.MaxNameLength ||
		utf8.RuneCountInString(position[1]) > svc.MaxIDLength {
		return nil
	}
	return position
}

// sendPage answers with one page of p.limit rows; rows begin at its start. When there are more
// rows, a Link (RFC 8288) leads to the next page. The Link is relative, because only the client
// knows the public address of this page.
func sendPage[R any, A appender](
	w http.ResponseWriter, r *request, p page, open, shut string, rows iter.Seq2[R, error],
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
			if n == p.limit || len(b) >= pageBytes {
				p.after = position(last)
				w.Header().Set("Link", "<"+r.next(p)+`>; rel="next"`)
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

// sendAll answers with a list of up to MaxList rows and sends the rows as they come. final holds
// the row of that number alone; sendAll reads it only when the list is too long for one buffer.
// compare orders positions as the list does.
func sendAll[R any, A appender](
	w http.ResponseWriter, r *request, open, shut string, rows, final iter.Seq2[R, error],
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
		for row, err := range final {
			if err != nil {
				return err
			}
			last = position(row)
			w.Header().Set("Link", "<"+r.next(page{limit: maxLimit, after: last})+`>; rel="next"`)
		}
		return nil
	})
}

// next returns the address of the page after p.after, relative to the address of this page.
func (r *request) next(p page) string {
	values := url.Values{}
	for key, value := range r.query {
		values[key] = value
	}
	values.Set("limit", strconv.Itoa(min(p.limit, maxLimit)))
	values.Set("cursor", wire.Cursor(p.after))
	return "?" + values.Encode()
}
