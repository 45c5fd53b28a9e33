// Package contract checks HTTP traffic against the OpenAPI document of the interface. Use its
// Transport in a client of a test. The test fails when the document does not have an answer: its
// status, a header, a key of its body. The test also fails when the server does not refuse a
// request that the document does not have.
//
// The schemas of OpenAPI 3.1 are JSON Schema. The package compiles each once and checks values
// against it.
//
// The tests of this package send the examples of the document, which fit and work, and get every
// promised answer from a server. They also change the examples in every place, to see that document
// and server refuse the same requests.
package contract

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/extsvc/svc/httpapi"
)

// Contract is a document and the answers seen so far. It is safe for concurrent use.
type Contract struct {
	root       node
	prefix     string // the path of the document's server
	operations []operation
	elsewhere  operation // for requests that match no operation
	schemas    *schemas

	mu   sync.Mutex
	seen map[string]bool
}

// operation is an operation of the document.
type operation struct {
	node
	method string
	path   []string // its segments
	name   string   // "GET /me/api-keys"
}

// Exchange is a request and its answer.
type Exchange struct {
	Method, Target string // as sent; Target has the server's prefix and the query
	RequestHeader  http.Header
	RequestBody    []byte

	Status int
	Header http.Header
	Body   []byte
}

// ours is the Contract that the functions of the package check.
var ours = sync.OnceValue(Ours)

// Ours returns a new Contract with the document that the interface serves.
func Ours() *Contract {
	root, err := decode(httpapi.OpenAPI(httpapi.DefaultPrefix))
	if err != nil {
		panic(err)
	}
	c := &Contract{root: node{root, "", root}, schemas: newSchemas(root), seen: map[string]bool{}}
	c.prefix = strings.TrimSuffix(c.root.get("servers", "0", "url").text(), "/")
	c.elsewhere = operation{node: c.root.get("x-elsewhere"), name: "elsewhere"}
	for _, path := range c.root.get("paths").keys() {
		for _, method := range c.root.get("paths", path).keys() {
			c.operations = append(c.operations, operation{
				node:   c.root.get("paths", path, method),
				method: strings.ToUpper(method),
				path:   strings.Split(path, "/"),
				name:   strings.ToUpper(method) + " " + path,
			})
		}
	}
	if len(c.operations) == 0 || c.elsewhere.value == nil {
		panic("the document has no operations")
	}
	return c
}

// Check returns an error when an exchange breaks the contract; otherwise it records the answer. It
// ignores requests outside the server's path, and requests for the documents.
func Check(e Exchange) error { return ours().Check(e) }

// Check is the package's Check for one Contract.
func (c *Contract) Check(e Exchange) error {
	path, query, _ := strings.Cut(e.Target, "?")
	path, below := strings.CutPrefix(path, c.prefix)
	reads := e.Method == http.MethodGet || e.Method == http.MethodHead
	document := path == "/openapi.json" || path == "/openapi-3.0.json"
	if !below || document && reads {
		return nil
	}
	if e.Status == http.StatusExpectationFailed && e.RequestHeader.Get("Expect") != "" {
		return nil // by net/http, which calls no handler then
	}
	o := c.find(e.Method, path)
	if err := c.checkAnswer(o, e); err != nil {
		return fmt.Errorf("%s %s: the answer %d is not in the document: %w",
			e.Method, e.Target, e.Status, err)
	}
	refused := e.Status >= 400 && e.Status < 500
	if err := c.checkRequest(o, path, query, e); err != nil && !refused {
		return fmt.Errorf("%s %s: answered %d, though the request is not in the document: %w",
			e.Method, e.Target, e.Status, err)
	}
	c.see(o, e)
	return nil
}

// Enum returns the values of the schema at a place in the document.
func (c *Contract) Enum(keys ...string) []string {
	var all []string
	for _, value := range c.root.get(append(keys, "enum")...).elements() {
		all = append(all, value.text())
	}
	return all
}

// find returns the operation of a request. When several match, the first literal segment decides.
func (c *Contract) find(method, path string) operation {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	segments, found := strings.Split(path, "/"), c.elsewhere
	for _, o := range c.operations {
		if o.method == method && o.covers(segments) && (found.path == nil || o.closer(found)) {
			found = o
		}
	}
	return found
}

func (o operation) covers(segments []string) bool {
	return slices.EqualFunc(o.path, segments, func(pattern, segment string) bool {
		return pattern == unescaped(segment) || isParameter(pattern) && segment != ""
	})
}

// closer reports whether o has a literal first where other, which matches the same path, has none.
func (o operation) closer(other operation) bool {
	for i := range o.path {
		if mine, its := isParameter(o.path[i]), isParameter(other.path[i]); mine != its {
			return its
		}
	}
	return false
}

func isParameter(segment string) bool { return strings.HasPrefix(segment, "{") }
