package httpapi_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/openapi"
	"github.com/extsvc/svc/parameter"
	"github.com/extsvc/svc/store/memstore"
)

// documents are those that are served, by path.
var documents = map[string]func(server string) []byte{"/openapi.json": httpapi.OpenAPI, "/openapi-3.0.json": httpapi.OpenAPI30}

// serverOf is the URL of the one server of a document.
func serverOf(t *testing.T, document []byte) string {
	t.Helper()
	servers, _ := parse(t, document).(map[string]any)["servers"].([]any)
	if len(servers) != 1 {
		t.Fatalf("servers %v", servers)
	}
	return servers[0].(map[string]any)["url"].(string)
}

func TestOpenAPIIsServed(t *testing.T) {
	t.Parallel()
	for name, change := range mounts {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s := newSite(t, change)
			server := s.prefix
			if server == "" {
				server = "/"
			}
			for path, document := range documents {
				for _, bearer := range []string{"", "nonsense", s.key("alice")} {
					a := s.as(bearer).get(path + "?x=;").is(200)
					is.Equal(serverOf(t, a.body), server)
					is.True(bytes.Equal(a.body, document(s.prefix)))
					is.Equal(a.header.Get("Cache-Control"), "no-cache")
					head := s.as(bearer).sendWith("HEAD", path, "", nil).is(200)
					for _, header := range []string{"ETag", "Content-Length", "Content-Type", "X-Content-Type-Options"} {
						is.True(a.header.Get(header) != "")
						is.Equal(head.header.Get(header), a.header.Get(header))
					}
				}
			}
		})
	}
}

// Each POST takes an idempotency key, or its description says what a repetition does.
func TestOpenAPIRepetitions(t *testing.T) {
	keys := 0
	for path, operations := range readDocument(t).Paths {
		if post, found := operations["post"]; found && post.takes("IdempotencyKey") {
			keys++
		} else if found && !strings.Contains(post.Description, "A repetition ") {
			t.Errorf("POST %s: the document does not say what a repetition does", path)
		}
	}
	expect.Equal(t, "with an idempotency key", keys, 10) // issue and rotate of four kinds of holders, two installations
}

// The server is where the request came by, however it got here, unless the host knows better.
func TestOpenAPIServer(t *testing.T) {
	t.Parallel()
	service := newSite(t).service
	alone := func(h http.Handler) http.Handler { return h }
	stripped := func(h http.Handler) http.Handler { return http.StripPrefix("/platform/memory", h) }
	rewritten := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path, r.RequestURI = "/ext/svc/openapi.json", "/docs"
			h.ServeHTTP(w, r)
		})
	}
	for _, c := range []struct {
		target  string
		options httpapi.Options
		mount   func(http.Handler) http.Handler
		server  string
	}{
		{"/platform/memory/openapi.json", httpapi.Options{}, stripped, "/platform/memory"},
		{"/platform/memory/openapi.json", httpapi.Options{Prefix: "/"}, stripped, "/platform/memory"},
		{"/platform/memory/ext/svc/openapi.json", httpapi.Options{}, stripped, "/platform/memory/ext/svc"},
		{"http://example.com/ext/svc/openapi.json?x", httpapi.Options{}, alone, "/ext/svc"},
		{"/openapi.json", httpapi.Options{}, alone, "/"},
		{"/platform/memory/openapi-3.0.json", httpapi.Options{}, stripped, "/platform/memory"},
		{"/openapi.json", httpapi.Options{PublicURL: "https://api.example.com/memory/"}, alone, "https://api.example.com/memory"},
		{"/ext/svc/openapi.json", httpapi.Options{PublicURL: `/a"b`}, alone, `/a"b`},
		{"/docs", httpapi.Options{}, rewritten, "/ext/svc"},
	} {
		w := httptest.NewRecorder()
		c.mount(httpapi.New(service, c.options)).ServeHTTP(w, httptest.NewRequest("GET", c.target, nil))
		expect.Equal(t, c.target, serverOf(t, w.Body.Bytes()), c.server)
	}
}

func TestOpenAPITags(t *testing.T) {
	is := is.New(t)
	service, seen := newSite(t).service, map[string]bool{"": true}
	for _, hide := range []bool{false, true} {
		h := httpapi.New(service, httpapi.Options{HideAccess: hide})
		for _, target := range []string{"/ext/svc/openapi.json", "/openapi.json", "/ext/svc/openapi-3.0.json"} { // one is found elsewhere
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", target, nil)
			h.ServeHTTP(w, r)
			is.Equal(r.Pattern, "GET /ext/svc/"+path.Base(target)) // for the access log
			is.True(!seen[w.Header().Get("ETag")])
			seen[w.Header().Get("ETag")] = true
		}
	}
}

func TestOpenAPIFileIsTheDocument(t *testing.T) {
	is := is.New(t)
	file := must(os.ReadFile("openapi.json"))
	is.True(bytes.Equal(file, httpapi.OpenAPI(httpapi.DefaultPrefix))) // this program has no version
	httpapi.OpenAPI("/x")[0] = 'x'
	is.Equal(httpapi.OpenAPI("/x")[0], byte('{'))
}

func TestOpenAPIVersion(t *testing.T) {
	is := is.New(t)
	const ours, version = "github.com/extsvc/svc", "v1.2.3"
	for _, program := range []*debug.BuildInfo{
		nil, {}, {Main: debug.Module{Path: ours, Version: "(devel)"}}, {Main: debug.Module{Path: "example.com/host", Version: version}},
		{Deps: []*debug.Module{{Path: ours, Version: version, Replace: &debug.Module{Path: "../svc"}}}},
	} {
		is.Equal(openapi.Version(program), "devel")
	}
	for _, program := range []*debug.BuildInfo{
		{Main: debug.Module{Path: ours, Version: version}}, {Deps: []*debug.Module{{Path: "a"}, {Path: ours, Version: version}}},
		{Deps: []*debug.Module{{Path: ours, Version: "v0.0.0", Replace: &debug.Module{Path: "example.com/fork", Version: version}}}},
	} {
		is.Equal(openapi.Version(program), version)
	}
	for _, document := range documents {
		is.Equal(parse(t, document("/")).(map[string]any)["info"].(map[string]any)["version"], "devel")
	}
}

// Processes of one version answer with the same bytes, so that entity tags agree. Nothing is in it that 3.0 does not know.
func TestOpenAPI30IsAlwaysTheSame(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	is.Equal(parse(t, httpapi.OpenAPI30(httpapi.DefaultPrefix)).(map[string]any)["info"].(map[string]any)["summary"], nil) // which 3.0 does not know
	for range 4 {
		is.True(bytes.Equal(openapi.In30(httpapi.OpenAPI(httpapi.DefaultPrefix)), httpapi.OpenAPI30(httpapi.DefaultPrefix)))
	}
}

// Each problem has a schema with a name. The one of OpenAPI 3.0 has the keys of all, and one of two views those of both.
func TestProblemsHaveSchemas(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d, d30 := readDocument(t), document{}
	is.NoErr(json.Unmarshal(httpapi.OpenAPI30("/"), &d30))
	some, with := 0, 0
	for _, response := range d.Components.Responses {
		if problem, found := response.Content["application/problem+json"]; found {
			some++
			is.True(strings.HasSuffix(problem.Schema.Ref, "Problem"))
		}
	}
	for name, schema := range d.Components.Schemas {
		for key := range schema.Properties {
			is.True(!strings.HasPrefix(name, "Full") || d30.Components.Schemas[name[len("Full"):]].Properties[key] != nil) // of both views
			if strings.HasSuffix(name, "Problem") {
				with++
				is.True(d30.Components.Schemas["Problem"].Properties[key] != nil) // the problem lacks a key
			}
		}
	}
	for _, response := range d30.Components.Responses {
		ref := response.Content["application/problem+json"].Schema.Ref
		is.True(ref == "" || ref == "#/components/schemas/Problem")
	}
	is.True(some > 20 && with > 10)
}

// The documents of a host with its own parameters have these, and no others.
func TestOpenAPIHasOwnParameters(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	service := must(svc.New(svc.Config{Store: memstore.New(), Parameters: []parameter.Definition{
		{Name: "row_limit", Type: parameter.Integer, Merge: parameter.Greatest, Narrow: parameter.Lesser},
		{Name: "review", Type: parameter.Level, Levels: []string{"none", "peer"}, Merge: parameter.Least, Narrow: parameter.Greater},
	}}))
	t.Cleanup(func() { _ = service.Close() })
	api := httpapi.New(service, httpapi.Options{})
	for _, path := range []string{"/openapi.json", "/openapi-3.0.json"} {
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequest("GET", "/ext/svc"+path, nil))
		is.Equal(w.Code, 200)
		is.True(!bytes.Contains(w.Body.Bytes(), []byte(`"recall_budget"`)))
		var d document
		is.NoErr(json.Unmarshal(w.Body.Bytes(), &d))
		for _, name := range []string{"Access", "SetParameters", "Statement", "PublicDefault", "PublicOverride"} {
			schema, there := d.Components.Schemas[name]
			if !there && path == "/openapi-3.0.json" {
				schema = d.Components.Schemas["Maybe"+name] // as OpenAPI 3.0 says it
			}
			expect.Holds(t, schema.Properties["row_limit"] != nil && schema.Properties["review"] != nil && schema.Properties["llm_model"] == nil, path, ": ", name, " has ", schema.Properties)
		}
		is.Equal(d.Components.Schemas["Access"].Required, []string{"allowed", "resolved_user_id", "row_limit", "review"})
		is.True(answersOfAccess(t, parse(t, w.Body.Bytes())) > 0)
	}
	served := func(table []parameter.Definition) []byte {
		w := httptest.NewRecorder()
		httpapi.New(must(svc.New(svc.Config{Store: memstore.New(), Parameters: table})), httpapi.Options{}).
			ServeHTTP(w, httptest.NewRequest("GET", "/ext/svc/openapi.json", nil))
		return w.Body.Bytes()
	}
	memory := parameter.Memory()
	is.Equal(string(served(memory)), string(httpapi.OpenAPI("/ext/svc"))) // the default is served as it is
	var written, made document
	is.NoErr(json.Unmarshal(served(memory), &written))
	slices.Reverse(memory)
	is.NoErr(json.Unmarshal(served(memory), &made))
	for name, schema := range written.Components.Schemas {
		is.Equal(made.Components.Schemas[name].Properties, schema.Properties) // those of a host are made as those are written
	}
}

// answersOfAccess counts the examples that have the parameters, not set: those of the access of an answer.
func answersOfAccess(t *testing.T, part any) (n int) {
	t.Helper()
	switch part := part.(type) {
	case []any:
		for _, element := range part {
			n += answersOfAccess(t, element)
		}
	case map[string]any:
		if part["properties"] != nil { // a schema
			return 0
		}
		_, allowed := part["allowed"]
		_, resolved := part["resolved_user_id"]
		if limit, has := part["row_limit"]; has != (allowed && resolved) || limit != nil {
			t.Errorf("an example has the wrong parameters: %v", part)
		} else if has {
			n++
		}
		for _, member := range part {
			n += answersOfAccess(t, member)
		}
	}
	return n
}
