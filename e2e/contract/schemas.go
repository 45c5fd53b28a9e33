package contract

import (
	"fmt"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemas holds the schemas of a document, each compiled on first use.
type schemas struct {
	mu       sync.Mutex
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema // by pointer
}

// documentURL names the document. Nothing fetches it.
const documentURL = "https://svc.example/openapi.json"

func newSchemas(root any) *schemas {
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	compiler.UseLoader(jsonschema.SchemeURLLoader{})
	if err := compiler.AddResource(documentURL, root); err != nil {
		panic(err) // the address is valid and used once
	}
	return &schemas{compiler: compiler, compiled: map[string]*jsonschema.Schema{}}
}

// check checks a value against the schema at a node.
func (s *schemas) check(at node, value any) error {
	schema, err := s.at(at.pointer)
	if err != nil {
		return fmt.Errorf("the schema at %s: %w", at.pointer, err)
	}
	return schema.Validate(value)
}

func (s *schemas) at(pointer string) (*jsonschema.Schema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if schema := s.compiled[pointer]; schema != nil {
		return schema, nil
	}
	schema, err := s.compiler.Compile(documentURL + "#" + pointer)
	if err == nil {
		s.compiled[pointer] = schema
	}
	return schema, err
}

// checkText checks a parameter or a header. Its text may mean a string, a number or a boolean.
func (s *schemas) checkText(at node, text string) error {
	var first error
	for _, value := range scalars(text) {
		err := s.check(at, value)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}
