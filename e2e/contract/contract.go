// Package contract holds HTTP traffic to the OpenAPI document of the interface. A client whose Transport it is fails its test when an
// answer is not in the document (its status, a header, a key of its body), or when the server does what a request asks that is not.
//
// The schemas of OpenAPI 3.1 are JSON Schema, and are checked as such, each compiled once.
//
// The tests of this package get from a server every answer that the document promises, by the examples in the document, which fit and
// work; and spoil those in every place, to see that the document refuses what the server refuses.
package contract

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/extsvc/svc/httpapi"
)

// Contract is a document, and what was seen of it. It is safe for concurrent use.
type Contract struct {
	root       node
	prefix     string // the path of the document's server
	operations []operation
	elsewhere  operation // what requests get that are no operation
	schemas    *schemas

	mu   sync.Mutex
	seen map[string]bool
}

// operation is one of the document's.
type operation struct {
	node
	method string
	path   []string // its segments
	name   string   // "GET /me/api-keys"
}

// Exchange is a request and its answer.
type Exchange struct {
	Method, Target string // as they were sent: the target with its query, and with the prefix of the server
	RequestHeader  http.Header
	RequestBody    []byte

	Status int
	Header http.Header
	Hosts  []string // headers that the host application adds, also where the document has none
	Body   []byte
}

// New reads a document whose one server is a path.
func New(document []byte) (*Contract, error) {
	root, err := decode(document)
	if err != nil {
		return nil, fmt.Errorf("read the document: %w", err)
	}
	c := &Contract{root: node{root, "", root}, schemas: newSchemas(root), seen: map[string]bool{}}
	c.prefix = strings.TrimSuffix(c.root.get("servers", "0", "url").text(), "/")
	c.elsewhere = operation{node: c.root.get("x-elsewhere"), name: "elsewhere"}
	for _, path := range c.root.get("paths").keys() {
		for _, method := range c.root.get("paths", path).keys() {
			c.operations = append(c.operations, operation{
				node: c.root.get("paths", path, method), method: strings.ToUpper(method), path: strings.Split(path, "/"),
				name: strings.ToUpper(method) + " " + path,
			})
		}
	}
	if len(c.operations) == 0 || c.elsewhere.value == nil {
		return nil, errors.New("the document has no operations")
	}
	return c, nil
}

// ours is the contract that the interface serves.
var ours = sync.OnceValue(Ours)

// Ours returns a contract of its own with the document that the interface serves.
func Ours() *Contract {
	c, err := New(httpapi.OpenAPI(httpapi.DefaultPrefix))
	if err != nil {
		panic(err)
	}
	return c
}

// Check says what is wrong with an exchange, and remembers what was right. What goes on beside the server's path, and the document
// itself, is not looked at.
func Check(e Exchange) error { return ours().Check(e) }

// Check is the function of that name, for one contract.
func (c *Contract) Check(e Exchange) error {
	path, query, _ := strings.Cut(e.Target, "?")
	path, below := strings.CutPrefix(path, c.prefix)
	if !below || path == "/openapi.json" && (e.Method == http.MethodGet || e.Method == http.MethodHead) {
		return nil
	}
	if e.Status == http.StatusExpectationFailed && e.RequestHeader.Get("Expect") != "" {
		return nil // by net/http, which asks no handler then
	}
	o := c.find(e.Method, path)
	if err := c.checkAnswer(o, e); err != nil {
		return fmt.Errorf("%s %s: the answer %d is not in the document: %w", e.Method, e.Target, e.Status, err)
	}
	refused := e.Status >= 400 && e.Status < 500
	if err := c.checkRequest(o, path, query, e); err != nil && !refused {
		return fmt.Errorf("%s %s: answered %d, though the request is not in the document: %w", e.Method, e.Target, e.Status, err)
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

// find returns the operation that a request is for: of several the one whose path has a literal first where the others have none.
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

// closer reports whether o has a literal first where other, which covers the same path, has none.
func (o operation) closer(other operation) bool {
	for i := range o.path {
		if mine, its := isParameter(o.path[i]), isParameter(other.path[i]); mine != its {
			return its
		}
	}
	return false
}

func isParameter(segment string) bool { return strings.HasPrefix(segment, "{") }
