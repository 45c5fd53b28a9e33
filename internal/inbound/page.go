package inbound

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
	"github.com/extsvc/svc/limits"
)

// NotACursor says what is wrong with a cursor.
const NotACursor = "must be a cursor from a Link of this list"

// MaxLimit is the most rows of a page.
const MaxLimit = 1000

// Page is the requested part of a list.
type Page struct {
	Limit int      // 0: the whole list
	After []string // the position at which the previous page ended; nil: from the start
}

// PageOf reads the parameters limit and cursor of a query for a list with that name ([wire.List]).
func PageOf(list string, query url.Values) (p Page, err error) {
	limit, cursor := query.Get("limit"), query.Get("cursor")
	if limit == "" && cursor == "" {
		return p, nil
	}
	p.Limit = MaxLimit
	if limit != "" {
		p.Limit, err = strconv.Atoi(limit)
		if err != nil || p.Limit < 1 || p.Limit > MaxLimit ||
			strings.TrimLeft(limit, "0123456789") != "" {
			rule := fmt.Sprintf("must be a whole number from 1 to %d", MaxLimit)
			return p, svc.Invalid("limit", rule)
		}
	}
	if cursor == "" {
		return p, nil
	}
	if p.After = positionOf(list, cursor); p.After == nil {
		return p, svc.Invalid("cursor", NotACursor)
	}
	return p, nil
}

// positionOf decodes a cursor of a list; nil: it is malformed, or of another list.
func positionOf(list, cursor string) (position []string) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || json.Unmarshal(text, &position) != nil || len(position) != 3 {
		return nil
	}
	position = position[1:]
	if wire.Cursor(list, position) != cursor || strings.ContainsRune(position[0]+position[1], 0) ||
		utf8.RuneCountInString(position[0]) > limits.NameLength ||
		utf8.RuneCountInString(position[1]) > limits.IDLength {
		return nil
	}
	return position
}

// Next returns the address of the page after p.After of a list, relative to the address of the page
// that the query has asked for.
func (p Page) Next(list string, query url.Values) string {
	values := maps.Clone(query)
	values.Set("limit", strconv.Itoa(min(p.Limit, MaxLimit)))
	values.Set("cursor", wire.Cursor(list, p.After))
	return "?" + values.Encode()
}
