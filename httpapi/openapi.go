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

	"github.com/extsvc/svc/internal/inbound"
	"github.com/extsvc/svc/internal/openapi"
)

// The paths of the documents after the prefix. They are not in the list of routes, because they
// need no bearer.
const (
	openAPIPath   = "/openapi.json"
	openAPI30Path = "/openapi-3.0.json"
)

//go:embed openapi.json
var openAPI []byte

// source returns openapi.json with the version of this module.
func source() []byte {
	program, _ := debug.ReadBuildInfo()
	quoted, _ := json.Marshal(openapi.Version(program)) // a string always encodes
	return bytes.Replace(openAPI, []byte(`"`+openapi.Development+`"`), quoted, 1)
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

// documentSet has the documents of interfaces by their paths: with all routes, and without those
// that Options.HideAccess removes. Each is made at its first use.
type documentSet map[string]struct{ whole, withoutAccess func() document }

// documents are those of interfaces with [parameter.Memory()].
var documents = documentsOf(source)

func documentsOf(source func() []byte) documentSet {
	withoutAccess := func() []byte { return without(source(), accessRoutes) }
	return documentSet{
		openAPIPath: {kept(source), kept(withoutAccess)},
		openAPI30Path: {
			kept(func() []byte { return openapi.In30(source()) }),
			kept(func() []byte { return openapi.In30(withoutAccess()) }),
		},
	}
}

func kept(text func() []byte) func() document {
	return sync.OnceValue(func() document { return newDocument(text()) })
}

// OpenAPI returns the OpenAPI 3.1 document of an interface at server: a URL, or only its path. The
// caller may change the returned bytes. It has all endpoints, also those that Options hide, and
// [parameter.Memory()]; a Handler serves one with the parameters of its Service. Its info.version
// is the version of this module in the program, or "devel".
func OpenAPI(server string) []byte { return documents[openAPIPath].whole().at(server) }

// OpenAPI30 is OpenAPI for tools that do not read OpenAPI 3.1: its document is of OpenAPI 3.0. It
// describes the same requests and answers, some of them less exactly.
func OpenAPI30(server string) []byte { return documents[openAPI30Path].whole().at(server) }

// without returns the document without some endpoints, and without what only they use.
func without(source []byte, routes []route) []byte {
	all := openapi.Read(source)
	paths := all["paths"].(map[string]any)
	for _, r := range routes {
		operations := paths[r.Path].(map[string]any)
		if delete(operations, strings.ToLower(r.Method)); len(operations) == 0 {
			delete(paths, r.Path)
		}
	}
	text := openapi.WithoutUnused(all)
	all["tags"] = slices.DeleteFunc(all["tags"].([]any), func(tag any) bool {
		name, _ := json.Marshal(tag.(map[string]any)["name"])
		return !bytes.Contains(text, slices.Concat([]byte(`"tags":[`), name, []byte("]")))
	})
	text, _ = encode(all) // it came from JSON
	return text
}

// sendOpenAPI answers with the document at a path as application/json. Browsers show that type and
// every tool accepts it, unlike application/openapi+json.
func (h *Handler) sendOpenAPI(w *answer, r *http.Request, path string) {
	w.Route = "GET " + h.prefix.String() + path
	r.Pattern = w.Route
	server := h.server(r, path)
	document := h.documents[path].whole()
	if h.options.HideAccess {
		document = h.documents[path].withoutAccess()
	}
	sum := sha256.Sum256(append(document.sum[:], server...)) // all that the bytes depend on
	etag := `"` + hex.EncodeToString(sum[:16]) + `"`
	header := w.Header()
	header.Set("Cache-Control", "no-cache")
	header.Set("ETag", etag)
	known, _ := inbound.Tags(r.Header, "If-None-Match") // a malformed header counts as absent
	if inbound.HasTag(known, etag) {
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
