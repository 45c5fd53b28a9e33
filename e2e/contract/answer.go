package contract

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
)

// carried lists headers that belong to HTTP itself, or that the document describes elsewhere.
var carried = []string{
	"Connection", "Content-Length", "Content-Type", "Cross-Origin-Resource-Policy", "Date",
	"Transfer-Encoding",
	"Ratelimit", "Ratelimit-Policy",
}

// checkAnswer returns an error for a part of an answer that the document does not have.
func (c *Contract) checkAnswer(o operation, e Exchange) error {
	answer := o.get("responses", strconv.Itoa(e.Status)).followed()
	if answer.value == nil {
		return fmt.Errorf("%s has no such status", o.name)
	}
	return errors.Join(c.checkHeaders(answer, e.Header), c.checkBody(answer, e))
}

func (c *Contract) checkHeaders(answer node, header http.Header) error {
	known := slices.Clone(carried)
	for _, name := range answer.get("headers").keys() {
		documented, values := answer.get("headers", name), header.Values(name)
		known = append(known, http.CanonicalHeaderKey(name))
		if len(values) == 0 && documented.get("required").is(true) {
			return fmt.Errorf("there is no %s", name)
		}
		if len(values) > 1 {
			return fmt.Errorf("%s appears %d times", name, len(values))
		}
		for _, value := range values {
			if err := c.schemas.checkText(documented.get("schema"), value); err != nil {
				return fmt.Errorf("%s %q: %w", name, value, err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("it has no header %s: %q", name, header[name])
		}
	}
	return nil
}

func (c *Contract) checkBody(answer node, e Exchange) error {
	kind := e.Header.Get("Content-Type")
	if len(answer.get("content").keys()) == 0 {
		if kind != "" || len(e.Body) > 0 {
			return fmt.Errorf("it has no body: %q %.200q", kind, e.Body)
		}
		return nil
	}
	content := answer.get("content", kind)
	if content.value == nil {
		return fmt.Errorf("its body is not of type %q", kind)
	}
	if e.Method == http.MethodHead {
		if len(e.Body) > 0 {
			return fmt.Errorf("HEAD has no body: %.200q", e.Body)
		}
		return nil
	}
	value, err := decode(e.Body)
	if err != nil {
		return fmt.Errorf("%w: %.200q", err, e.Body)
	}
	if err := c.schemas.check(content.get("schema"), value); err != nil {
		return fmt.Errorf("%w: %.500s", err, e.Body)
	}
	return nil
}
