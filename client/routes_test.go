package client_test

import (
	"context"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc/client"
	"github.com/extsvc/svc/httpapi"
	"github.com/matryer/is"
)

// Every route is called by a method, and every method that takes a context calls exactly one.
func TestEveryRouteHasAMethod(t *testing.T) {
	s := newSite(t)
	called := map[string]string{}
	for method := range reflect.TypeFor[*client.Client]().Methods() {
		if method.Type.NumIn() < 2 || method.Type.In(1) != reflect.TypeFor[context.Context]() {
			continue
		}
		invoke(t.Context(), s.client, method)
		routes := slices.Compact(s.requests())
		if len(routes) != 1 || routes[0] == "" {
			t.Errorf("%s called %q", method.Name, routes)
			continue
		}
		if other := called[routes[0]]; other != "" {
			t.Errorf("%s and %s call %s", other, method.Name, routes[0])
		}
		called[routes[0]] = method.Name
	}
	for _, route := range httpapi.Routes() {
		if called[route.Method+" "+route.Path] == "" {
			t.Errorf("no method calls %s %s", route.Method, route.Path)
		}
	}
}

// invoke calls a method, with "x" for each text and zero for all else; a list is ranged over.
func invoke(ctx context.Context, c *client.Client, method reflect.Method) {
	in := []reflect.Value{reflect.ValueOf(c), reflect.ValueOf(ctx)}
	for i := 2; i < method.Type.NumIn(); i++ {
		arg := reflect.New(method.Type.In(i)).Elem()
		fill(arg)
		in = append(in, arg)
	}
	do := method.Func.Call
	if method.Type.IsVariadic() {
		do = method.Func.CallSlice
	}
	for _, out := range do(in) {
		if out.Kind() == reflect.Func {
			for range out.Seq2() {
				break
			}
		}
	}
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() && field.Kind() == reflect.String {
				field.SetString("x")
			}
		}
	}
}

// docs/http.md shows the code of the example.
func TestDocumentedExample(t *testing.T) {
	is := is.New(t)
	page, example := string(must(os.ReadFile("../docs/http.md"))), string(must(os.ReadFile("example_test.go")))
	_, snippet, found := strings.Cut(page, "<!-- client/example_test.go -->\n```go\n")
	snippet, _, ended := strings.Cut(snippet, "```\n")
	is.True(found && ended && len(snippet) > 100)
	is.True(strings.Contains(strings.ReplaceAll(example, "\n\t", "\n"), snippet))
}
