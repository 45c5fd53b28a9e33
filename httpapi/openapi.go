package httpapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The paths of the documents after the prefix. They are not in the list of routes, because they
// need no bearer.
const (
	openAPIPath   = "/openapi.json"
	openAPI30Path = "/openapi-3.0.json"
)

//go:embed openapi.json
var openAPI []byte

// development is the version in openapi.json, and of a module that has none.
const development = "devel"

// version returns the version of this module in a program. It is "devel" where the program was
// built from a working copy, or does not know. The argument may be nil.
func version(program *debug.BuildInfo) string {
	if program == nil {
		return development
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
	return development
}

// source returns openapi.json with the version of this module.
func source() []byte {
	program, _ := debug.ReadBuildInfo()
	quoted, _ := json.Marshal(version(program)) // a string always encodes
	return bytes.Replace(openAPI, []byte(`"`+development+`"`), quoted, 1)
}

// document is an OpenAPI document.
type document struct {
	head, tail []byte // the parts before and after the URL of its server
	sum        [sha256.Size]byte
}

func newDocument(text []byte) document {
	head, tail, _ := bytes.Cut(text, []byte(`"`+DefaultPrefix+`"`))
	return document{head, tail, sha256.Sum256(text)}
}

// at returns the document of an interface at server.
func (d document) at(server string) []byte {
	if server = strings.TrimRight(server, "/"); server == "" {
		server = "/"
	}
	quoted, _ := json.Marshal(server) // a string always encodes
	return slices.Concat(d.head, quoted, d.tail)
}

// documents has the documents of interfaces by their paths: with all routes, and without those that
// Options.HideAccess removes. Each is made at its first use.
var documents = map[string]struct{ whole, withoutAccess func() document }{
	openAPIPath: {kept(source), kept(sourceWithoutAccess)},
	openAPI30Path: {
		kept(func() []byte { return in30(source()) }),
		kept(func() []byte { return in30(sourceWithoutAccess()) }),
	},
}

func kept(text func() []byte) func() document {
	return sync.OnceValue(func() document { return newDocument(text()) })
}

// OpenAPI returns the OpenAPI 3.1 document of an interface at server: a URL, or only its path. The
// caller may change the returned bytes. It has all endpoints, also those that Options hide. Its
// info.version is the version of this module in the program, or "devel".
func OpenAPI(server string) []byte { return documents[openAPIPath].whole().at(server) }

// OpenAPI30 is OpenAPI for tools that do not read OpenAPI 3.1: its document is of OpenAPI 3.0. It
// describes the same requests and answers, some of them less exactly.
func OpenAPI30(server string) []byte { return documents[openAPI30Path].whole().at(server) }

func sourceWithoutAccess() []byte { return without(accessRoutes) }

// without returns the document without some endpoints, and without what only they use.
func without(routes []route) []byte {
	all := read(source())
	paths := all["paths"].(map[string]any)
	for _, r := range routes {
		operations := paths[r.Path].(map[string]any)
		if delete(operations, strings.ToLower(r.Method)); len(operations) == 0 {
			delete(paths, r.Path)
		}
	}
	text := withoutUnused(all)
	all["tags"] = slices.DeleteFunc(all["tags"].([]any), func(tag any) bool {
		name, _ := json.Marshal(tag.(map[string]any)["name"])
		return !bytes.Contains(text, slices.Concat([]byte(`"tags":[`), name, []byte("]")))
	})
	text, _ = encode(all) // it came from JSON
	return text
}

// read reads a document and keeps its numbers as written.
func read(text []byte) (all map[string]any) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&all); err != nil {
		panic(err) // the document is part of the package
	}
	return all
}

// withoutUnused removes the components that nothing refers to, and returns the document.
func withoutUnused(all map[string]any) []byte {
	for {
		text, _ := encode(all)
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

// sendOpenAPI answers with the document at a path as application/json. Browsers show that type and
// every tool accepts it, unlike application/openapi+json.
func (h *Handler) sendOpenAPI(w *answer, r *http.Request, path string) {
	w.route = "GET " + h.prefix.String() + path
	r.Pattern = w.route
	server := h.server(r, path)
	document := documents[path].whole()
	if h.options.HideAccess {
		document = documents[path].withoutAccess()
	}
	sum := sha256.Sum256(append(document.sum[:], server...)) // all that the bytes depend on
	etag := `"` + hex.EncodeToString(sum[:16]) + `"`
	header := w.Header()
	header.Set("Cache-Control", "no-cache")
	header.Set("ETag", etag)
	known, _ := tags(r.Header, "If-None-Match") // a malformed header counts as absent
	if has(known, etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	text := document.at(server)
	header.Set("Content-Length", strconv.Itoa(len(text)))
	start(w, http.StatusOK)
	_, _ = w.Write(text)
}

// server returns the address of the interface for the document: Options.PublicURL, else the prefix
// of the path that the client requested. The host may have cut that prefix off r.URL.
func (h *Handler) server(r *http.Request, path string) string {
	if h.options.PublicURL != "" {
		return h.options.PublicURL
	}
	if asked, err := url.ParseRequestURI(r.RequestURI); err == nil {
		if prefix, found := strings.CutSuffix(asked.EscapedPath(), path); found {
			return prefix
		}
	}
	return h.prefix.String()
}
