package contract

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// checkRequest returns an error for a part of a request that the document does not have. A request
// that matches no operation is never wrong.
func (c *Contract) checkRequest(o operation, path, query string, e Exchange) error {
	if o.path == nil {
		return nil
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("its query: %w", err)
	}
	if err := checkKeys(o, values); err != nil {
		return err
	}
	for i, segment := range strings.Split(path, "/") {
		if isParameter(o.path[i]) {
			values["path "+strings.Trim(o.path[i], "{}")] = []string{unescaped(segment)}
		}
	}
	for _, parameter := range o.get("parameters").elements() {
		if err := c.checkParameter(parameter, values, e.RequestHeader); err != nil {
			return err
		}
	}
	return c.checkRequestBody(o.get("requestBody"), e.RequestHeader, e.RequestBody)
}

// checkKeys checks that all keys of a query are documented.
func checkKeys(o operation, query url.Values) error {
	for key := range query {
		if !slices.ContainsFunc(o.get("parameters").elements(), func(parameter node) bool {
			return parameter.get("in").text() == "query" && parameter.get("name").text() == key
		}) {
			return fmt.Errorf("it has the key %.200q in its query", key)
		}
	}
	return nil
}

// checkParameter checks the values of one parameter. Parameters of the path are called "path name".
// Several headers of one name are one list (RFC 9110, section 5.3).
func (c *Contract) checkParameter(parameter node, values url.Values, header http.Header) error {
	name := parameter.get("name").text()
	given := values[name]
	switch parameter.get("in").text() {
	case "path":
		given = values["path "+name]
	case "header":
		if given = header.Values(name); len(given) > 1 {
			given = []string{strings.Join(given, ", ")}
		}
	}
	switch len(given) {
	case 0:
		if parameter.get("required").is(true) {
			return fmt.Errorf("it has no %s", name)
		}
		return nil
	case 1:
		if given[0] == "" && parameter.get("allowEmptyValue").is(true) {
			return nil
		}
		if err := c.schemas.checkText(parameter.get("schema"), given[0]); err != nil {
			return fmt.Errorf("%s %.200q: %w", name, given[0], err)
		}
		return nil
	}
	return fmt.Errorf("it has %d values of %s", len(given), name)
}

func (c *Contract) checkRequestBody(documented node, header http.Header, body []byte) error {
	switch {
	case len(body) == 0:
		if documented.get("required").is(true) {
			return errors.New("it has no body")
		}
		return nil
	case documented.value == nil:
		return fmt.Errorf("it has a body: %.200q", body)
	}
	kind, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	content := documented.get("content", kind)
	if err != nil || content.value == nil {
		return fmt.Errorf("its body is of type %q", header.Get("Content-Type"))
	}
	read := decode
	if kind == formType {
		read = decodeForm
	}
	value, err := read(body)
	if err != nil {
		return err
	}
	return c.schemas.check(content.get("schema"), value)
}

// decodeForm reads a form as an object of texts. Each parameter is there once.
func decodeForm(body []byte) (any, error) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, err
	}
	object := map[string]any{}
	for name, values := range form {
		if len(values) > 1 {
			return nil, fmt.Errorf("it has %d values of %.200q", len(values), name)
		}
		object[name] = values[0]
	}
	return object, nil
}

// unescaped returns a segment of a path, or "" when it is not valid.
func unescaped(segment string) string {
	text, err := url.PathUnescape(segment)
	if err != nil {
		return ""
	}
	return text
}
