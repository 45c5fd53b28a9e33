package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

const (
	maxLimit  = 1000    // rows of a page
	pageBytes = 1 << 20 // after which a page ends early
)

// MaxList is how many rows a list has at most that is asked for without a limit: a Link leads to the others.
const MaxList = 10_000

const notACursor = "must be one that a Link of this list had"

// page is the part of a list that a client asks for.
type page struct {
	limit int      // 0: all of it, up to MaxList
	after []string // where the page before ended; nil: from the start
}

// page reads limit and cursor.
func (q query) page() (p page, err error) {
	limit, err := q.text("limit")
	if err != nil {
		return p, err
	}
	cursor, err := q.text("cursor")
	if err != nil || limit == "" && cursor == "" {
		return p, err
	}
	p.limit = maxLimit
	if limit != "" {
		if p.limit, err = strconv.Atoi(limit); err != nil || p.limit < 1 || p.limit > maxLimit || strings.TrimLeft(limit, "0123456789") != "" {
			return p, invalid("limit", fmt.Sprintf("must be a whole number from 1 to %d", maxLimit))
		}
	}
	if cursor == "" {
		return p, nil
	}
	if p.after = positionOf(cursor); p.after == nil {
		return p, invalid("cursor", notACursor)
	}
	return p, nil
}

// positionOf reads what wire.Cursor has written, or is nil.
func positionOf(cursor string) (position []string) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || json.Unmarshal(text, &position) != nil || len(position) != 2 || wire.Cursor(position) != cursor ||
		strings.ContainsRune(position[0]+position[1], 0) ||
		utf8.RuneCountInString(position[0]) > svc.MaxNameLength || utf8.RuneCountInString(position[1]) > svc.MaxIDLength {
		return nil
	}
	return position
}

// sendPage answers with a page of rows, which begin where it does. When there are more, a Link (RFC 8288) leads to the next: relative,
// because only the client knows by which address it came.
func sendPage[R any, A appender](w http.ResponseWriter, r *request, p page, open, shut string, rows iter.Seq2[R, error], answer func(R) A, position func(R) []string) error {
	if p.limit == 0 {
		p.limit = MaxList
	}
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

// sendAll answers with a list as it comes, up to MaxList rows. at returns the row in a place of the list, and is only asked about one that
// is too long to be gathered first.
func sendAll[R any, A appender](w http.ResponseWriter, r *request, open, shut string, rows iter.Seq2[R, error], answer func(R) A, position func(R) []string, at func(place int) (R, error)) error {
	var last []string // the position of the last row; nil: it is the list's own
	bounded := func(yield func(R, error) bool) {
		for row, err := range rows {
			if err == nil && last != nil && slices.Compare(position(row), last) > 0 || !yield(row, err) {
				return
			}
		}
	}
	return sendList(w, open, shut, bounded, answer, func() error {
		row, err := at(MaxList - 1)
		if svc.ErrorCode(err) == svc.CodeNotFound {
			return nil
		} else if err != nil {
			return err
		}
		last = position(row)
		w.Header().Set("Link", "<"+r.next(page{limit: maxLimit, after: last})+`>; rel="next"`)
		return nil
	})
}

// next is the address of the page behind p.after, relative to that of this one.
func (r *request) next(p page) string {
	values := url.Values{}
	for key, value := range r.query {
		values[key] = value
	}
	values.Set("limit", strconv.Itoa(min(p.limit, maxLimit)))
	values.Set("cursor", wire.Cursor(p.after))
	return "?" + values.Encode()
}
