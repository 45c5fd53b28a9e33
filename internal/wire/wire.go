// Package wire has the bodies of the HTTP interface, shared by package httpapi and the Go client.
//
// Answers are written by their Append methods: stored JSON is spliced in as it is, every key is always there, and a list
// costs no more memory than its longest element. The struct tags are for reading them.
package wire

import (
	"strconv"
	"time"

	"github.com/extsvc/svc/internal/jcs"
)

// TimeFormat is RFC 3339 in UTC with microseconds.
const TimeFormat = "2006-01-02T15:04:05.000000Z"

// object appends the fields of one JSON object.
type object struct{ b []byte }

func open(b []byte) object { return object{append(b, '{')} }

func (o *object) close() []byte { return append(o.b, '}') }

func (o *object) key(name string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(o.b, '"')
	o.b = append(o.b, name...) // the names are ours, and plain
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
	o.key(name)
	o.b = append(o.b, "null"...)
}

func (o *object) bool(name string, value bool) {
	o.key(name)
	o.b = strconv.AppendBool(o.b, value)
}

func (o *object) number(name string, value int64) {
	o.key(name)
	o.b = strconv.AppendInt(o.b, value, 10)
}

func (o *object) optionalNumber(name string, value *int64) {
	if value != nil {
		o.number(name, *value)
		return
	}
	o.key(name)
	o.b = append(o.b, "null"...)
}

func (o *object) optionalBool(name string, value *bool) {
	if value != nil {
		o.bool(name, *value)
		return
	}
	o.key(name)
	o.b = append(o.b, "null"...)
}

func (o *object) time(name string, value time.Time) {
	o.key(name)
	o.b = append(o.b, '"')
	o.b = value.UTC().AppendFormat(o.b, TimeFormat)
	o.b = append(o.b, '"')
}

func (o *object) optionalTime(name string, value *time.Time) {
	if value != nil {
		o.time(name, *value)
		return
	}
	o.key(name)
	o.b = append(o.b, "null"...)
}

func (o *object) texts(name string, values []string) {
	o.key(name)
	o.b = jcs.AppendStrings(o.b, values)
}

// raw splices JSON in.
func (o *object) raw(name string, value []byte) {
	o.key(name)
	o.b = append(o.b, value...)
}

// list appends an array of values that write themselves.
func list[T interface{ Append([]byte) []byte }](o *object, name string, values []T) {
	o.key(name)
	o.b = append(o.b, '[')
	for i, value := range values {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = value.Append(o.b)
	}
	o.b = append(o.b, ']')
}
