// Package openapi_test is a module of its own, so that no other test compiles the second reader.
package openapi_test

import (
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/extsvc/svc/httpapi"
)

// Another OpenAPI reader finds no fault in the documents. That reader accepts null for no value, so
// it does not check examples.
func TestDocumentsAreOpenAPI(t *testing.T) {
	for version, text := range map[string][]byte{"3.1.1": httpapi.OpenAPI("/ext/svc"), "3.0.3": httpapi.OpenAPI30("/ext/svc")} {
		loader := openapi3.NewLoader()
		document, err := loader.LoadFromData(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := document.Validate(loader.Context, openapi3.DisableExamplesValidation()); err != nil {
			t.Error(err)
		}
		if document.OpenAPI != version {
			t.Errorf("version %s", document.OpenAPI)
		}
	}
}
