// Package wire has the bodies of the HTTP interface, shared by package httpapi and the Go client.
//
// The Append methods write templates, keys and events, whose lists are long, and policies. They
// copy stored JSON unchanged and write every key. A list needs only the memory of its longest
// element. encoding/json writes the other answers, and reads all of them.
package wire

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/extsvc/svc/internal/jcs"
)

// TimeFormat is RFC 3339 in UTC with microseconds.
const TimeFormat = "2006-01-02T15:04:05.000000Z"

// Time is a time that encoding/json writes in TimeFormat.
type Time struct{ time.Time }

func (t Time) MarshalJSON() ([]byte, error) {
	return append(appendTime([]byte{'"'}, t.UTC()), '"'), nil
}

// object appends the fields of one JSON object.
type object struct{ b []byte }

func open(b []byte) object { return object{append(b, '{')} }

func (o *object) close() []byte { return append(o.b, '}') }

func (o *object) key(name string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(o.b, '"')
	o.b = append(o.b, name...) // the names are constants that need no escape
	o.b = append(o.b, `":`...)
}

func (o *object) text(name, value string) {
	o.key(name)
	o.b = jcs.AppendString(o.b, value)
}

func (o *object) optional(name string, value *string) {
	if value != nil {
		o.text(name, *value)
		return
	}
	o.optionalRaw(name, nil)
}

func (o *object) bool(name string, value bool) {
	o.key(name)
	o.b = strconv.AppendBool(o.b, value)
}

func (o *object) number(name string, value int64) {
	o.key(name)
	o.b = strconv.AppendInt(o.b, value, 10)
}

// decimal appends a number in as few digits as tell it from others, without an exponent.
func (o *object) decimal(name string, value float64) {
	o.key(name)
	o.b = strconv.AppendFloat(o.b, value, 'f', -1, 64)
}

func (o *object) time(name string, value time.Time) {
	o.key(name)
	o.b = append(appendTime(append(o.b, '"'), value.UTC()), '"')
}

// appendTime appends a time in TimeFormat, several times faster than package time.
func appendTime(b []byte, t time.Time) []byte {
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return t.AppendFormat(b, TimeFormat)
	}
	hour, minute, second := t.Clock()
	b = append(digits(b, year, 4), '-')
	b = append(digits(b, int(month), 2), '-')
	b = append(digits(b, day, 2), 'T')
	b = append(digits(b, hour, 2), ':')
	b = append(digits(b, minute, 2), ':')
	b = append(digits(b, second, 2), '.')
	return append(digits(b, t.Nanosecond()/1000, 6), 'Z')
}

// digits appends a number with count digits.
func digits(b []byte, number, count int) []byte {
	b = append(b, "000000"[:count]...)
	for i := len(b) - 1; number > 0; i-- {
		b[i] = byte('0' + number%10)
		number /= 10
	}
	return b
}

func (o *object) optionalTime(name string, value *time.Time) {
	if value != nil {
		o.time(name, *value)
		return
	}
	o.optionalRaw(name, nil)
}

func (o *object) texts(name string, values []string) {
	o.key(name)
	o.b = jcs.AppendStrings(o.b, values)
}

// object appends a field whose value is an object of the fields that write appends.
func (o *object) object(name string, write func(*object)) {
	o.key(name)
	inner := open(o.b)
	write(&inner)
	o.b = inner.close()
}

// optionalRaw appends a field whose value is JSON already, or null for nil.
func (o *object) optionalRaw(name string, value []byte) {
	if len(value) == 0 {
		value = []byte("null")
	}
	o.raw(name, value)
}

// raw appends a field whose value is JSON already.
func (o *object) raw(name string, value []byte) {
	o.key(name)
	o.b = append(o.b, value...)
}

// Each returns the elements of a list in another form; never nil.
func Each[A, B any](list []A, form func(A) B) []B {
	all := make([]B, len(list))
	for i, one := range list {
		all[i] = form(one)
	}
	return all
}

// List names a list for its cursors: by its escaped path and by the keys of the query that select
// its rows. Such a key can change the order of a list.
func List(path string, query url.Values) string {
	for _, key := range slices.Sorted(maps.Keys(query)) {
		switch key {
		case "limit", "cursor", "view":
			continue
		}
		if query.Get(key) != "" {
			path += "?" + key
		}
	}
	return path
}

// Cursor encodes the position at which a page of a list ended: a sort key and an id.
func Cursor(list string, position []string) string {
	text, _ := json.Marshal(append([]string{list}, position...)) // strings always encode
	return base64.RawURLEncoding.EncodeToString(text)
}
