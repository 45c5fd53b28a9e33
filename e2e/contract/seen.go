package contract

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
)

const problemType = "application/problem+json"

// promises returns all answers of an operation: "GET /me/api-keys 200", with the code of a problem.
// It also returns the optional headers: "GET /me/api-keys 200 Link".
func (o operation) promises() []string {
	var all []string
	for _, status := range o.get("responses").keys() {
		codes := o.get("responses", status, "content", problemType, "examples").keys()
		for _, code := range codes {
			all = append(all, o.name+" "+status+" "+code)
		}
		if len(codes) == 0 {
			all = append(all, o.name+" "+status)
		}
		for _, header := range o.get("responses", status, "headers").keys() {
			if !o.get("responses", status, "headers", header, "required").is(true) {
				all = append(all, o.name+" "+status+" "+http.CanonicalHeaderKey(header))
			}
		}
	}
	return all
}

// see records an answer. It ignores answers to HEAD, whose code is not known.
func (c *Contract) see(o operation, e Exchange) {
	status := o.name + " " + strconv.Itoa(e.Status)
	name := status
	if e.Header.Get("Content-Type") == problemType {
		var problem struct{ Code string }
		_ = json.Unmarshal(e.Body, &problem) // checkAnswer has read it
		name += " " + problem.Code
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[name] = true
	for header := range e.Header {
		c.seen[status+" "+header] = true
	}
}

// Promises reports whether the document has an answer of an operation, such as "409 too_complex".
func (c *Contract) Promises(operation, answer string) bool {
	for _, o := range c.operations {
		if o.name == operation {
			return slices.Contains(o.promises(), operation+" "+answer)
		}
	}
	return false
}

// Unseen returns the promised answers not seen yet, sorted.
func (c *Contract) Unseen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	unseen := map[string]bool{}
	for _, o := range append(slices.Clone(c.operations), c.elsewhere) {
		for _, promise := range o.promises() {
			if !c.seen[promise] {
				unseen[promise] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(unseen))
}
