package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/extsvc/svc/internal/strictjson"
)

// node is a place in the document. Its value is nil where the document has nothing.
type node struct {
	root    any
	pointer string // RFC 6901
	value   any
}

// get goes down, key by key, and follows references.
func (n node) get(keys ...string) node {
	for _, key := range keys {
		n = n.followed().child(key)
	}
	return n
}

func (n node) child(key string) node {
	next := node{root: n.root, pointer: n.pointer + "/" + strictjson.Token(key)}
	switch value := n.value.(type) {
	case map[string]any:
		next.value = value[key]
	case []any:
		if i, err := strconv.Atoi(key); err == nil && i < len(value) {
			next.value = value[i]
		}
	}
	return next
}

// unescapeToken undoes the escapes of a part of a pointer.
var unescapeToken = strings.NewReplacer("~1", "/", "~0", "~")

// followed returns the target of a reference, or the node itself.
func (n node) followed() node {
	object, _ := n.value.(map[string]any)
	ref, is := object["$ref"].(string)
	if !is {
		return n
	}
	target := node{root: n.root, value: n.root}
	for key := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		target = target.child(unescapeToken.Replace(key))
	}
	return target
}

// keys returns the keys of an object, sorted.
func (n node) keys() []string {
	object, _ := n.followed().value.(map[string]any)
	return slices.Sorted(maps.Keys(object))
}

// elements returns the elements of an array.
func (n node) elements() []node {
	array, _ := n.followed().value.([]any)
	all := make([]node, len(array))
	for i := range array {
		all[i] = n.child(strconv.Itoa(i))
	}
	return all
}

func (n node) text() string {
	text, _ := n.value.(string)
	return text
}

func (n node) is(value bool) bool { return n.value == value }

// decode reads one JSON value and keeps numbers as written.
func decode(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("it is not UTF-8")
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(data))
}

// scalars returns the values that a text in a parameter or header can mean. Numbers are integers
// only, and may have leading zeros. A boolean is true or 1, false or 0, in any case.
func scalars(text string) []any {
	all := []any{text}
	value, err := strconv.ParseInt(text, 10, 64)
	if err == nil && !strings.HasPrefix(text, "+") {
		all = append(all, json.Number(strconv.FormatInt(value, 10)))
	}
	switch strings.ToLower(text) {
	case "true", "1":
		all = append(all, true)
	case "false", "0":
		all = append(all, false)
	}
	return all
}
