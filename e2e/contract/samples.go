package contract

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Sample is a request built from the examples of the document.
type Sample struct {
	Operation string // "POST /me/api-keys"
	Method    string
	Path      []Value // after the prefix: literal segments or examples
	Query     []Value
	Header    []Value
	Body      string // "": none
	BodyType  string // its Content-Type
}

// Value is a segment of a path, a parameter of a query, or a header.
type Value struct {
	Name     string // "": a literal segment
	Text     string
	Required bool
}

// Samples returns all requests that the document shows, with all parameters: one for each example
// of a body.
func (c *Contract) Samples() []Sample {
	var all []Sample
	for _, o := range c.operations {
		sample := Sample{Operation: o.name, Method: o.method}
		for _, segment := range o.path[1:] {
			sample.Path = append(sample.Path, o.shown(segment))
		}
		for _, parameter := range o.get("parameters").elements() {
			switch parameter.get("in").text() {
			case "query":
				sample.Query = append(sample.Query, exampleOf(parameter))
			case "header":
				sample.Header = append(sample.Header, exampleOf(parameter))
			}
		}
		sample.BodyType = o.bodyType()
		examples := o.get("requestBody", "content", sample.BodyType, "examples")
		for _, name := range examples.keys() {
			sample.Body = bodyOf(sample.BodyType, examples.get(name, "value"))
			all = append(all, sample)
		}
		if len(examples.keys()) == 0 || !o.get("requestBody", "required").is(true) {
			sample.Body = ""
			all = append(all, sample)
		}
	}
	return all
}

// formType is the Content-Type of a form.
const formType = "application/x-www-form-urlencoded"

// BodyType returns the Content-Type of the bodies that a request takes. The target follows the
// prefix.
func (c *Contract) BodyType(method, target string) string {
	path, _, _ := strings.Cut(target, "?")
	return c.find(method, path).bodyType()
}

func (o operation) bodyType() string {
	if o.get("requestBody", "content", formType).value != nil {
		return formType
	}
	return "application/json"
}

// bodyOf returns an example of a body as it is sent.
func bodyOf(bodyType string, example node) string {
	if bodyType != formType {
		body, _ := json.Marshal(example.value) // it came from JSON
		return string(body)
	}
	form := url.Values{}
	for _, name := range example.keys() {
		form.Set(name, example.get(name).text())
	}
	return form.Encode()
}

// shown returns the value of a segment of the operation's path.
func (o operation) shown(segment string) Value {
	for _, parameter := range o.get("parameters").elements() {
		if isParameter(segment) && parameter.get("name").text() == strings.Trim(segment, "{}") {
			return exampleOf(parameter)
		}
	}
	return Value{Text: segment}
}

func exampleOf(parameter node) Value {
	return Value{
		Name:     parameter.get("name").text(),
		Text:     fmt.Sprint(parameter.get("example").value),
		Required: parameter.get("required").is(true),
	}
}

// Target returns the target of a sample, with all optional parameters or with none.
func (s Sample) Target(optional bool) string {
	var b strings.Builder
	for _, segment := range s.Path {
		b.WriteString("/" + url.PathEscape(segment.Text))
	}
	between := "?"
	for _, parameter := range s.Query {
		if parameter.Required || optional {
			name, text := url.QueryEscape(parameter.Name), url.QueryEscape(parameter.Text)
			b.WriteString(between + name + "=" + text)
			between = "&"
		}
	}
	return b.String()
}

// Refuses returns an error for a part of a request that the document does not have, or nil. The
// target follows the prefix; the body is of the type that the operation takes.
func (c *Contract) Refuses(method, target, body string, headers ...Value) error {
	path, query, _ := strings.Cut(target, "?")
	header := http.Header{"Content-Type": {c.BodyType(method, target)}}
	for _, h := range headers {
		header.Set(h.Name, h.Text)
	}
	e := Exchange{RequestHeader: header, RequestBody: []byte(body)}
	return c.checkRequest(c.find(method, path), path, query, e)
}
