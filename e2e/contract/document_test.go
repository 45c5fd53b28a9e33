package contract_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/extsvc/svc/httpapi"
)

// Generators have no type for a value of several types. The document of OpenAPI 3.0 is made by rules
// that know no other schemas.
func TestSchemasAreSimple(t *testing.T) {
	visit(readDocument(t), "", func(at string, object map[string]any) {
		if types, are := object["type"].([]any); are && (len(types) != 2 || types[1] != "null") {
			t.Errorf("%s: %v is not one type, or null", at, types)
		}
		for _, keyword := range []string{"oneOf", "anyOf", "allOf"} {
			if parts, are := object[keyword].([]any); are && len(parts) != 2 {
				t.Errorf("%s: %s has %d parts and not 2", at, keyword, len(parts))
			}
		}
	})
}

func readDocument(t *testing.T) any {
	t.Helper()
	document := must(jsonschema.UnmarshalJSON(bytes.NewReader(httpapi.OpenAPI("/ext/svc"))))
	return document
}

// visit calls do with every object in a value and the object's place.
func visit(value any, at string, do func(at string, object map[string]any)) {
	switch value := value.(type) {
	case map[string]any:
		do(at, value)
		for _, key := range slices.Sorted(maps.Keys(value)) {
			visit(value[key], at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(key), do)
		}
	case []any:
		for i, element := range value {
			visit(element, fmt.Sprint(at, "/", i), do)
		}
	}
}

// Every parameter, header, request and answer with a body has an example that fits its schema.
func TestExamplesFit(t *testing.T) {
	document, examples := readDocument(t), 0
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("https://svc.example/openapi.json", document); err != nil {
		t.Fatal(err)
	}
	visit(document, "", func(at string, object map[string]any) {
		if _, has := object["schema"]; !has {
			return
		}
		schema := compiler.MustCompile("https://svc.example/openapi.json#" + at + "/schema")
		values := map[string]any{}
		if example, has := object["example"]; has {
			values["example"] = example
		}
		several, _ := object["examples"].(map[string]any)
		for name, example := range several {
			values[name] = example.(map[string]any)["value"]
		}
		if len(values) == 0 {
			t.Errorf("%s has no example", at)
		}
		for name, value := range values {
			if examples++; schema.Validate(value) != nil {
				t.Errorf("%s: %s: %v", at, name, schema.Validate(value))
			}
		}
	})
	if examples < 80 {
		t.Errorf("only %d examples", examples)
	}
}

// Every definition is used.
func TestNothingIsDefinedInVain(t *testing.T) {
	document := readDocument(t)
	used := map[string]bool{}
	visit(document, "", func(_ string, object map[string]any) {
		if ref, is := object["$ref"].(string); is {
			used[ref] = true
		}
	})
	for kind, all := range document.(map[string]any)["components"].(map[string]any) {
		for name := range all.(map[string]any) {
			if kind != "securitySchemes" && !used["#/components/"+kind+"/"+name] {
				t.Errorf("%s %s is not used", kind, name)
			}
		}
	}
}

// Texts end like sentences, and no line of the file is too long.
func TestDocumentReadsWell(t *testing.T) {
	visit(readDocument(t), "", func(at string, object map[string]any) {
		text, is := object["description"].(string)
		if is && !strings.Contains(at, "/examples/") && !strings.HasSuffix(text, ".") && !strings.HasSuffix(at, "/properties") {
			t.Errorf("%s: %q is no sentence", at, text)
		}
	})
	for i, line := range bytes.Split(httpapi.OpenAPI("/ext/svc"), []byte("\n")) {
		if len(line) > 300 && !bytes.Contains(line, []byte(`"description"`)) {
			t.Errorf("line %d is %d bytes long", i+1, len(line))
		}
	}
}
