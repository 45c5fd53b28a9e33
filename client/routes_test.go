package client_test

import (
	"context"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

// Every route is called by a method of a noun, and every method calls exactly one: a method that
// takes a holder or a question calls one for each kind of holder. Only a bundle is previewed and
// written by one route.
func TestEveryRouteHasAMethod(t *testing.T) {
	s := newSite(t)
	called := map[string]string{}
	for field, noun := range reflect.ValueOf(s.client).Elem().Fields() {
		if !field.IsExported() {
			continue
		}
		for method := range noun.Type().Methods() {
			name := field.Name + "." + method.Name
			for _, holder := range holders(method) {
				invoke(t.Context(), noun, method, holder)
				routes := slices.Compact(s.requests())
				if len(routes) != 1 || routes[0] == "" {
					t.Errorf("%s called %q", name, routes)
					continue
				}
				if other := called[routes[0]]; other != "" && other+name != "Access.PreviewAccess.Write" {
					t.Errorf("%s and %s call %s", other, name, routes[0])
				}
				called[routes[0]] = name
			}
		}
	}
	for _, route := range httpapi.Routes() {
		if called[route.Method+" "+route.Path] == "" {
			t.Errorf("no method calls %s %s", route.Method, route.Path)
		}
	}
}

// holders are those to call a method with.
func holders(method reflect.Method) []svc.Identity {
	if method.Type.NumIn() > 2 {
		switch method.Type.In(2) {
		case reflect.TypeFor[svc.Identity]():
			all := []svc.Identity{svc.Me, {Kind: svc.KindUser, ID: "x"}, {Kind: svc.KindServiceAccount, ID: "x"}, svc.MyAccount("x")}
			if method.Name == "List" {
				all = append(all, svc.AllHolders)
			}
			return all
		case reflect.TypeFor[svc.Question]():
			return []svc.Identity{svc.Me, {Kind: svc.KindUser, ID: "x"}}
		}
	}
	return []svc.Identity{{}}
}

// invoke calls a method, with "x" for each text and zero for all else; a list is ranged over.
func invoke(ctx context.Context, noun reflect.Value, method reflect.Method, holder svc.Identity) {
	in := []reflect.Value{noun, reflect.ValueOf(ctx)}
	for i := 2; i < method.Type.NumIn(); i++ {
		arg := reflect.New(method.Type.In(i)).Elem()
		switch arg.Type() {
		case reflect.TypeFor[svc.Identity]():
			arg.Set(reflect.ValueOf(holder))
		case reflect.TypeFor[svc.Question]():
			fill(arg)
			arg.FieldByName("Me").SetBool(holder == svc.Me)
		default:
			fill(arg)
		}
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
			if field.CanSet() {
				fill(field)
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
