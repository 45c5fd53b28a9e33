// Package openapi edits OpenAPI documents: their version, their components and their form.
package openapi

import (
	"bytes"
	"encoding/json"
	"runtime/debug"
)

// Development is the version in openapi.json, and of a module that has none.
const Development = "devel"

// Version returns the version of this module in a program. It is Development where the program was
// built from a working copy, or does not know. The argument may be nil.
func Version(program *debug.BuildInfo) string {
	if program == nil {
		return Development
	}
	for _, module := range append(program.Deps, &program.Main) {
		if module.Path != "github.com/extsvc/svc" {
			continue
		}
		if module.Replace != nil {
			module = module.Replace
		}
		if module.Version != "" && module.Version != "(devel)" {
			return module.Version
		}
	}
	return Development
}

// Read reads a document and keeps its numbers as written. It panics when text is no JSON object.
func Read(text []byte) (all map[string]any) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&all); err != nil {
		panic(err) // the document is part of the package
	}
	return all
}

// WithoutUnused removes the components that nothing refers to, and returns the document.
func WithoutUnused(all map[string]any) []byte {
	for {
		text := encode(all)
		unused := 0
		for kind, components := range all["components"].(map[string]any) {
			for name := range components.(map[string]any) {
				reference := `"#/components/` + kind + "/" + name + `"`
				if kind != "securitySchemes" && !bytes.Contains(text, []byte(reference)) {
					delete(components.(map[string]any), name)
					unused++
				}
			}
		}
		if unused == 0 {
			return text
		}
	}
}

// encode returns a value that came from JSON.
func encode(value any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value)
	return b.Bytes()
}
