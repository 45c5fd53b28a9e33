package httpapi_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
)

// document is what these tests read of the document.
type document struct {
	Paths      map[string]map[string]operation
	Elsewhere  operation `json:"x-elsewhere"`
	Components struct {
		Responses  map[string]response
		Parameters map[string]parameterOf
		Schemas    map[string]struct {
			Required             []string
			Properties           map[string]any
			AdditionalProperties any
		}
	}
}

type operation struct {
	OperationID string
	Description string
	Actions     []string `json:"x-actions"`
	Parameters  []parameterOf
	Responses   map[string]response
}

// parameterOf is a parameter of an operation, or a reference to one.
type parameterOf struct {
	Ref      string `json:"$ref"`
	Name, In string
}

// of returns the operation of a route.
func (d document) of(route httpapi.Route) operation {
	return d.Paths[route.Path][strings.ToLower(route.Method)]
}

// takes reports whether an operation has a parameter of the components.
func (o operation) takes(name string) bool {
	return slices.Contains(o.Parameters, parameterOf{Ref: "#/components/parameters/" + name})
}

// response is one, or a reference to one.
type response struct {
	Ref     string `json:"$ref"`
	Content map[string]struct {
		Examples map[string]any
		Schema   parameterOf
	}
}

// plain leaves out of a name whose things they are: most handlers serve those of all and of the caller, and in the path and in the query.
var plain = strings.NewReplacer("UserKey", "Key", "MyServiceAccountKey", "Key", "ServiceAccountKey", "Key", "My", "", "myT", "t", "myS", "s", "resolveMe", "resolve", "InQuery", "")

// inSource returns what a pattern finds in files of the source, white space as single spaces.
func inSource(t *testing.T, pattern string, files ...string) (all [][]string) {
	t.Helper()
	for _, file := range files {
		text := strings.Join(strings.Fields(string(must(os.ReadFile(file)))), " ")
		all = append(all, regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1)...)
	}
	if len(all) == 0 {
		t.Fatalf("nothing in %v matches %s", files, pattern)
	}
	return all
}

// servedBy names the method of the Handler that serves each route. The paths of some rows are behind each of several places.
func servedBy(t *testing.T) map[httpapi.Route]string {
	places := inSource(t, `(?:half|key)Routes\("([^"]+)"\)`, "routes.go", "routes_access.go")
	names := map[httpapi.Route]string{}
	for _, m := range inSource(t, `Route{"(\w+)", (at)?(?: \+ )?(?:"([^"]+)")?}, \(\*Handler\)\.(\w+)`, "routes.go", "routes_access.go") {
		if m[2] == "" {
			names[httpapi.Route{Method: m[1], Path: m[3]}] = m[4]
			continue
		}
		for _, place := range places {
			route := httpapi.Route{Method: m[1], Path: place[1] + m[3]}
			if slices.Contains(httpapi.Routes(), route) {
				names[route] = m[4]
			}
		}
	}
	return names
}

func statuses(t *testing.T) map[svc.Code]int {
	all := map[svc.Code]int{}
	for _, m := range inSource(t, `[cC]ode[A-Z]\w+ (?:svc\.)?Code = "([a-z_]+)"`, "../errors.go", "problem.go") {
		code := svc.Code(m[1])
		all[code] = httpapi.Status(&svc.Error{Code: code})
	}
	return all
}

func readDocument(t *testing.T) document {
	t.Helper()
	var d document
	expect.Equal(t, "document", json.Unmarshal(httpapi.OpenAPI("/"), &d), nil)
	return d
}

// operations are named as the handlers that serve them. One handler serves what belongs to a user or the server, and what is the caller's.
func (d document) operations() map[httpapi.Route]string {
	all := map[httpapi.Route]string{}
	for path, methods := range d.Paths {
		for method, operation := range methods {
			all[httpapi.Route{Method: strings.ToUpper(method), Path: path}] = plain.Replace(operation.OperationID)
		}
	}
	return all
}

func TestOpenAPIHasAllRoutes(t *testing.T) {
	operations, routes := readDocument(t).operations(), servedBy(t)
	for route, name := range routes {
		expect.Equal(t, route, operations[route], plain.Replace(name))
	}
	for route := range operations {
		expect.Holds(t, routes[route] != "", route)
	}
	expect.Equal(t, "routes", len(routes), len(httpapi.Routes()))
}

// Pages made from the document do not show extensions.
func TestOpenAPIDescribesActions(t *testing.T) {
	for path, methods := range readDocument(t).Paths {
		for method, operation := range methods {
			for _, action := range operation.Actions {
				named := strings.Contains(operation.Description, "`"+action+"`")
				expect.Holds(t, named || operation.OperationID == "writeAccess", method, " ", path, ": the description names ", action)
			}
		}
	}
}

func TestOpenAPIHasAllCodes(t *testing.T) {
	d, promised := readDocument(t), map[string]string{} // code to status
	all := []operation{d.Elsewhere}
	for _, methods := range d.Paths {
		all = slices.AppendSeq(all, maps.Values(methods))
	}
	for _, o := range all {
		for status, answer := range o.Responses {
			if answer.Ref != "" {
				answer = d.Components.Responses[filepath.Base(answer.Ref)]
			}
			for code := range answer.Content["application/problem+json"].Examples {
				promised[code] = status
			}
		}
	}
	coded := map[string]string{}
	for code, status := range statuses(t) {
		coded[string(code)] = strconv.Itoa(status)
	}
	expect.Equal(t, "codes of openapi.json", promised, coded)
}

// shapes are where Go writes down what a body holds, and what that is called in the document: "" as in Go.
var shapes = []struct {
	files   string
	schemas map[string]string
}{
	{"../internal/wire/*.go", nil},
	{"../internal/bundlejson/*.go", map[string]string{
		"Bundle": "Bundle", "User": "BundleUser", "Group": "BundleGroup", "ServiceAccount": "BundleServiceAccount",
		"Policy": "BundlePolicy", "Attachment": "BundleAttachment", "BankPolicy": "BundleBankPolicy", "Channel": "BundleChannel",
	}},
	{"../internal/policy/forms.go", map[string]string{
		"statementKeys": "Statement", "defaultKeys": "PublicDefault", "overrideKeys": "PublicOverride",
	}},
	{"../internal/policy/bank.go", map[string]string{"StrategyOverride": "StrategyOverride"}},
}

// parametrized are the structs whose JSON has all parameters in addition to their fields.
var parametrized = []string{"Access", "statementKeys", "defaultKeys", "overrideKeys"}

func TestOpenAPIHasAllFields(t *testing.T) {
	d, seen := readDocument(t), 0
	embedded := structs{"svc.Parameters": structsIn(t, "../policy.go")["Parameters"]}
	for _, shape := range shapes {
		structs := structsIn(t, shape.files)
		maps.Copy(structs, embedded)
		for name, fields := range structs {
			schema := name
			if shape.schemas != nil {
				schema = shape.schemas[name]
			}
			if name == "Sets" {
				schema = "SetParameters"
			}
			if schema == "" || name == "svc.Parameters" || name == "Content" { // parts of others
				continue
			}
			seen++
			if slices.Contains(parametrized, name) {
				fields = append(fields, field{embedded: "svc.Parameters"})
			}
			fields = slices.DeleteFunc(structs.whole(fields), func(f field) bool { return f.name == "-" })
			d.wantFields(t, schema, fields)
			if shape.schemas == nil && name != "Query" && name != "Sets" { // they may lack all but a query's bank
				d.wantRequired(t, schema, fields)
			}
		}
	}
	expect.Holds(t, seen >= 52, seen)
}

// wantFields checks that a schema has exactly these fields. A problem has three schemas.
func (d document) wantFields(t *testing.T, name string, fields []field) {
	t.Helper()
	schema, there := d.Components.Schemas[name]
	if !there {
		t.Errorf("openapi.json has no schema %q", name)
		return
	}
	if name == "Problem" {
		maps.Copy(schema.Properties, d.Components.Schemas["InvalidProblem"].Properties)
		maps.Copy(schema.Properties, d.Components.Schemas["EditedProblem"].Properties)
	}
	expect.Holds(t, name == "TraceEntry" || schema.AdditionalProperties == false, name)
	want := []string{}
	for _, f := range fields {
		want = append(want, f.name)
	}
	slices.Sort(want)
	expect.Equal(t, "schema "+name, slices.Sorted(maps.Keys(schema.Properties)), want)
}

// wantRequired wants those fields to be required that are not optional by their tag or type.
func (d document) wantRequired(t *testing.T, name string, fields []field) {
	t.Helper()
	for _, f := range fields {
		expect.Holds(t, slices.Contains(d.Components.Schemas[name].Required, f.name) != f.optional, name, f.name)
	}
}

// field is one of a struct that is written as JSON.
type field struct {
	name     string
	optional bool   // it may be absent
	embedded string // the struct whose fields are here; "" this is a field
}

// structs are the fields of structs, by the structs' names.
type structs map[string][]field

// whole are fields with those that are embedded.
func (s structs) whole(fields []field) (all []field) {
	for _, f := range fields {
		if f.embedded == "" {
			all = append(all, f)
		} else {
			all = append(all, s.whole(s[f.embedded])...)
		}
	}
	return all
}

// structsIn are the structs that files declare.
func structsIn(t *testing.T, pattern string) structs {
	t.Helper()
	files, found := must(filepath.Glob(pattern)), structs{}
	expect.Holds(t, len(files) > 0, pattern)
	for _, name := range files {
		file := must(parser.ParseFile(token.NewFileSet(), name, nil, 0))
		for node := range ast.Preorder(file) {
			if spec, is := node.(*ast.TypeSpec); is {
				if fields := fieldsOf(spec.Type); fields != nil {
					found[spec.Name.Name] = fields
				}
			}
		}
	}
	return found
}

func fieldsOf(declared ast.Expr) (fields []field) {
	body, is := declared.(*ast.StructType)
	if !is {
		return nil
	}
	for _, f := range body.Fields.List {
		if f.Names == nil && types.ExprString(f.Type) != "time.Time" {
			fields = append(fields, field{embedded: types.ExprString(f.Type)})
		}
		if f.Tag == nil {
			continue
		}
		tag, _ := strconv.Unquote(f.Tag.Value)
		name, options, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		_, generic := f.Type.(*ast.IndexExpr) // strictjson.Optional
		fields = append(fields, field{name: name, optional: generic || options == "omitempty"})
	}
	return fields
}
