package openapi

import (
	"maps"
	"slices"
	"strings"
)

// In30 returns a document in the form of OpenAPI 3.0, which more generators read. It says less than
// the document where 3.0 or its generators have no words:
//
//   - The two views of an object are one schema, where what only view=full shows is optional.
//   - All problems are one schema with all codes, where what only some problems have is optional.
//   - Rules between the keys of an object, descriptions next to a reference, and headers that
//     always have the same value are left out.
func In30(text []byte) []byte {
	all := Read(text)
	all["openapi"] = "3.0.3"
	info := all["info"].(map[string]any)
	delete(info, "summary")
	license := info["license"].(map[string]any)
	license["url"] = "https://spdx.org/licenses/" + license["identifier"].(string) + ".html"
	delete(license, "identifier")
	components := all["components"].(map[string]any)
	d := downgrade{components["schemas"].(map[string]any), map[string]any{}, map[string]bool{}}
	for name, header := range components["headers"].(map[string]any) {
		schema := header.(map[string]any)["schema"].(map[string]any)
		d.fixed["#/components/headers/"+name] = schema["const"] != nil
	}
	for name, schema := range d.schemas {
		d.schemas[name] = d.schema(schema)
	}
	d.joinViews()
	d.joinProblems()
	maps.Copy(d.schemas, d.nullable)
	delete(components, "schemas")
	d.inside(all)
	components["schemas"] = d.schemas
	return WithoutUnused(all)
}

// downgrade turns the parts of a document into their form in OpenAPI 3.0.
type downgrade struct {
	schemas  map[string]any  // of the components, by name
	nullable map[string]any  // new schemas of what a component allows, or null
	fixed    map[string]bool // the references to headers that have one value
}

// full begins the name of a schema of what view=full shows. The schema of the other view has the
// same name without it.
const full = "Full"

// joinViews gives each schema that has a full view the keys of that view.
func (d downgrade) joinViews() {
	for name, whole := range d.schemas {
		rest, is := strings.CutPrefix(name, full)
		if short, has := d.schemas[rest].(map[string]any); is && has {
			short["properties"] = whole.(map[string]any)["properties"]
		}
	}
}

// problem is the name of the schema of problems, and ends the names of those of some problems.
const problem = "Problem"

// joinProblems gives the schema of problems the keys and the codes of the others.
func (d downgrade) joinProblems() {
	all := d.schemas[problem].(map[string]any)["properties"].(map[string]any)
	code := all["code"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(d.schemas)) {
		if name == problem || !strings.HasSuffix(name, problem) {
			continue
		}
		some, has := d.schemas[name].(map[string]any)["properties"].(map[string]any)
		if !has { // a narrower Problem
			continue
		}
		code["enum"] = append(code["enum"].([]any),
			some["code"].(map[string]any)["enum"].([]any)...)
		for key, property := range some {
			if all[key] == nil {
				all[key] = property
			}
		}
	}
}

// inside downgrades what is below a part of the document that is no schema.
func (d downgrade) inside(part any) {
	switch part := part.(type) {
	case map[string]any:
		for key, value := range part {
			switch key {
			case "schema":
				part[key] = d.schema(value)
			case "headers":
				d.headers(value.(map[string]any))
			case "example", "examples": // may look like anything
			default:
				d.inside(value)
			}
		}
	case []any:
		for _, element := range part {
			d.inside(element)
		}
	}
}

// headers downgrades headers. Those that have one value tell a client nothing, and a proxy may
// replace them.
func (d downgrade) headers(headers map[string]any) {
	maps.DeleteFunc(headers, func(_ string, header any) bool {
		ref, _ := header.(map[string]any)["$ref"].(string)
		return d.fixed[ref]
	})
	d.inside(headers)
}

// schema returns a schema in its new form. It changes the old one.
func (d downgrade) schema(schema any) any {
	s, is := schema.(map[string]any)
	if !is {
		return schema // additionalProperties is a boolean
	}
	if ref, is := s["$ref"].(string); is { // nothing next to it counts in 3.0
		if strings.HasSuffix(ref, problem) {
			ref = schemaReference + problem
		}
		return map[string]any{"$ref": ref}
	}
	delete(s, "contentEncoding")
	if value, is := s["const"]; is {
		s["enum"] = []any{value}
		delete(s, "const")
	}
	if types, are := s["type"].([]any); are { // one type, and null
		s["type"], s["nullable"] = types[0], true
	}
	for _, keyword := range []string{"items", "additionalProperties"} {
		if inner, has := s[keyword]; has {
			s[keyword] = d.schema(inner)
		}
	}
	properties, _ := s["properties"].(map[string]any)
	for name, property := range properties {
		properties[name] = d.schema(property)
	}
	return d.composed(s)
}

// composed downgrades a schema that is composed of others, and returns any other as it is.
func (d downgrade) composed(s map[string]any) any {
	if parts, is := s["allOf"].([]any); is { // a schema, and what narrows it
		return d.schema(parts[0])
	}
	for _, keyword := range []string{"oneOf", "anyOf"} {
		parts, is := s[keyword].([]any)
		if !is {
			continue
		}
		for i := range parts {
			parts[i] = d.schema(parts[i])
		}
		switch first, second := parts[0].(map[string]any), parts[1].(map[string]any); {
		case second["type"] == "null":
			return d.orNull(first["$ref"].(string))
		case areOne(first, second):
			return first
		case first["type"] == nil && first["$ref"] == nil: // a rule for s
			delete(s, keyword)
		}
	}
	return s
}

const schemaReference = "#/components/schemas/"

// orNull returns a reference to a schema of what ref allows, or null.
func (d downgrade) orNull(ref string) any {
	name := strings.TrimPrefix(ref, schemaReference)
	if _, has := d.schemas["Maybe"+name]; !has {
		maybe := d.schema(maps.Clone(d.schemas[name].(map[string]any))).(map[string]any)
		maybe["nullable"] = true
		d.nullable["Maybe"+name] = maybe
	}
	return map[string]any{"$ref": schemaReference + "Maybe" + name}
}

// areOne reports whether two schemas are equal, or the second is of the full view of the first.
func areOne(first, second map[string]any) bool {
	one, other := encode(first), encode(second)
	return string(one) == strings.ReplaceAll(string(other), schemaReference+full, schemaReference)
}
