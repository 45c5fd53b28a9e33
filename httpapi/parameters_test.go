package httpapi_test

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
)

// The documents of a host with its own parameters have these, and no others, in every schema and
// example.
func TestOpenAPIHasOwnParameters(t *testing.T) {
	is := is.New(t)
	service := must(svc.New(svc.Config{Store: memstore.New(), Parameters: []svc.Parameter{
		{Name: "row_limit", Type: svc.ParameterInteger, Merge: svc.MergeGreatest, Narrow: svc.NarrowLesser},
		{Name: "review", Type: svc.ParameterLevel, Levels: []string{"none", "peer"}, Merge: svc.MergeLeast, Narrow: svc.NarrowGreater},
	}}))
	t.Cleanup(func() { _ = service.Close() })
	api := httpapi.New(service, httpapi.Options{})
	for _, path := range []string{"/openapi.json", "/openapi-3.0.json"} {
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequest("GET", "/ext/svc"+path, nil))
		is.Equal(w.Code, 200)
		is.True(!bytes.Contains(w.Body.Bytes(), []byte(`"recall_budget"`)))
		var d struct {
			Components struct {
				Schemas map[string]struct {
					Required   []string
					Properties map[string]json.RawMessage
				}
			}
		}
		is.NoErr(json.Unmarshal(w.Body.Bytes(), &d))
		for _, name := range []string{"Access", "SetParameters", "Statement", "PublicDefault", "PublicOverride"} {
			schema, there := d.Components.Schemas[name]
			if !there && path == "/openapi-3.0.json" {
				schema = d.Components.Schemas["Maybe"+name] // as OpenAPI 3.0 says it
			}
			if schema.Properties["row_limit"] == nil || schema.Properties["review"] == nil || schema.Properties["llm_model"] != nil {
				t.Errorf("%s: schema %s has %s", path, name, schema.Properties)
			}
		}
		is.Equal(d.Components.Schemas["Access"].Required, []string{"allowed", "resolved_user_id", "row_limit", "review"})
	}
	w := httptest.NewRecorder()
	httpapi.New(must(svc.New(svc.Config{Store: memstore.New(), Parameters: svc.MemoryParameters})), httpapi.Options{}).
		ServeHTTP(w, httptest.NewRequest("GET", "/ext/svc/openapi.json", nil))
	is.Equal(w.Body.String(), string(httpapi.OpenAPI("/ext/svc"))) // the default is served as it is
}
