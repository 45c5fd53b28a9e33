package adminpage

import (
	"fmt"
	"html/template"
	"iter"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/extsvc/svc"
)

// pageRows is the number of rows on one page of a list.
const pageRows = 50

// maxListed is the most entries of a list that has no pages.
const maxListed = 100

// maxText is the most bytes of one text in a page that is not repeated in a list of rows.
const maxText = 2000

// cut shortens a text to maxText bytes, and says how many are left out.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	kept := strings.ToValidUTF8(text[:maxText], "")
	return fmt.Sprintf("%s… (%d more bytes)", kept, len(text)-len(kept))
}

// htmlSize returns the bytes of HTML that show a text, about.
func htmlSize(text string) int {
	return len(appendRevealed(nil, []byte(template.HTMLEscapeString(cut(text)))))
}

// head returns the first entries of a list, and the number of the others.
func head[T any](all []T, most int) (first []T, more int) {
	more = max(0, len(all)-most)
	return all[:len(all)-more], more
}

// choice is an option of a select.
type choice struct {
	Value, Name string
	Chosen      bool
}

// choices returns the options of a select, with the one that has a value chosen.
func choices(all []choice, value string) []choice {
	all = slices.Clone(all)
	for i := range all {
		all[i].Chosen = all[i].Value == value
	}
	return all
}

// take returns up to pageRows rows of a list, and whether there are more.
func take[T any](rows iter.Seq2[T, error]) (page []T, more bool, err error) {
	for row, err := range rows {
		if err != nil {
			return nil, false, err
		}
		if len(page) == pageRows {
			return page, true, nil
		}
		page = append(page, row)
	}
	return page, false, nil
}

// with returns an address with some parameters changed: names and values in turn. "" removes one.
func with(address string, in url.Values, pairs ...string) string {
	out := url.Values{}
	for name := range in {
		if value := in.Get(name); value != "" && name != "done" {
			out.Set(name, value)
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		if out.Del(pairs[i]); pairs[i+1] != "" {
			out.Set(pairs[i], pairs[i+1])
		}
	}
	if len(out) == 0 {
		return address
	}
	return address + "?" + out.Encode()
}

// doneWords says in words what a form has done, by the page that it led to and its parameter done.
var doneWords = map[string]string{
	"Why kept":             "The question is kept.",
	"Why forgotten":        "The question is no longer kept.",
	"Access saved":         "Saved.",
	"Templates installed":  "Installed.",
	"Templates updated":    "Updated.",
	"Templates unchanged":  "There was nothing to update.",
	"Templates settled":    "Updated. Your former content is in the history.",
	"Templates kept":       "Updated. Your edits stay.",
	"Templates discarded":  "Updated. The local edits are in the history.",
	"Templates rolledback": "Restored. The content of that version is back.",
	"Sources registered":   "Registered.",
	"Sources token":        "The token has changed.",
	"Sources removed":      "Removed. Its templates stay; they have no source to update from.",
	"Keys disabled":        "Disabled. The key is refused until it is enabled.",
	"Keys enabled":         "Enabled. The key is accepted again.",
	"Keys revoked":         "Revoked. The key has stopped working for good.",
}

// done says what the form has done that led to this address; "": none did.
func (v *visit) done() string { return doneWords[v.page+" "+v.r.URL.Query().Get("done")] }

// instant reads a day, or a time of RFC 3339. A day is the time of that day in UTC.
// "" is the zero time.
func instant(field, text string, ofDay time.Duration) (time.Time, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return time.Time{}, nil
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil && !day.IsZero() {
		return day.Add(ofDay), nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil && !at.IsZero() {
		return at, nil
	}
	return time.Time{}, svc.Invalid(field,
		"must be a day or a time, such as 2030-12-31 or 2030-12-31T23:59:59Z")
}

// The times of a day at which periods begin and end.
const (
	dayBegins = 0
	dayEnds   = 24*time.Hour - time.Microsecond
)
