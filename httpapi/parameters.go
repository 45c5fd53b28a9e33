package httpapi

import (
	"reflect"
	"slices"

	"github.com/extsvc/svc/internal/openapi"
	"github.com/extsvc/svc/parameter"
)

// documentsWith returns the documents of an interface whose statements have these parameters.
func documentsWith(table []parameter.Definition) documentSet {
	if reflect.DeepEqual(table, parameter.Memory()) {
		return documents
	}
	return documentsOf(func() []byte { return withParameters(source(), table) })
}

// withParameters returns the document with other parameters. Examples set none of them.
func withParameters(text []byte, table []parameter.Definition) []byte {
	all := openapi.Read(text)
	schemas := all["components"].(map[string]any)["schemas"].(map[string]any)
	for name, form := range map[string]parameterForm{
		"Access": {orNull: true}, "SetParameters": {}, "Statement": {orNull: true, written: true},
		"PublicDefault":  {orNull: true, written: true},
		"PublicOverride": {orNull: true, written: true},
	} {
		schema := schemas[name].(map[string]any)
		properties := schema["properties"].(map[string]any)
		withoutMemory(properties)
		required, _ := schema["required"].([]any)
		required = slices.DeleteFunc(required, func(name any) bool {
			return properties[name.(string)] == nil
		})
		for _, p := range table {
			properties[p.Name] = form.schema(p)
			if name == "Access" { // of an answer, which has all of them
				required = append(required, p.Name)
			}
		}
		if required != nil {
			schema["required"] = required
		}
	}
	inExamples(all, table)
	text, _ = encode(all) // it came from JSON
	return text
}

func withoutMemory(object map[string]any) {
	for _, p := range parameter.Memory() {
		delete(object, p.Name)
	}
}

// parameterForm is where a schema of a parameter stands.
type parameterForm struct {
	orNull  bool // null is no value
	written bool // by a client: texts are checked
}

// schema returns the schema of a parameter.
func (f parameterForm) schema(p parameter.Definition) map[string]any {
	text := map[string]any{"type": "string"}
	if f.written {
		text["minLength"] = 1
	}
	var schema map[string]any
	switch p.Type {
	case parameter.Integer:
		schema = map[string]any{
			"type": "integer", "format": "int64", "minimum": 0, "maximum": int64(1<<63 - 1),
		}
	case parameter.Text:
		schema = text
	case parameter.TextList:
		schema = map[string]any{"type": "array", "items": text}
	case parameter.Level:
		levels := []any{}
		for _, level := range p.Levels {
			levels = append(levels, level)
		}
		if f.orNull {
			levels = append(levels, nil)
		}
		schema = map[string]any{"type": "string", "enum": levels}
	default:
		object := map[string]any{"type": "object", "additionalProperties": true}
		schema = map[string]any{"type": "array", "items": object}
	}
	if f.orNull {
		schema["type"] = []any{schema["type"], "null"}
	}
	return schema
}

// inExamples takes the parameters of AI memory out of the values of examples. The access of an
// answer gets the others, not set.
func inExamples(part any, table []parameter.Definition) {
	switch part := part.(type) {
	case []any:
		for _, element := range part {
			inExamples(element, table)
		}
	case map[string]any:
		if _, isSchema := part["properties"]; isSchema {
			return
		}
		withoutMemory(part)
		_, allowed := part["allowed"]
		if _, resolved := part["resolved_user_id"]; allowed && resolved {
			for _, p := range table {
				part[p.Name] = nil
			}
		}
		for _, member := range part {
			inExamples(member, table)
		}
	}
}
