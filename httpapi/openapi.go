package httpapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// openAPIPath is the path of the document after the prefix. It is not in the list of routes,
// because it needs no bearer.
const openAPIPath = "/openapi.json"

//go:embed openapi.json
var openAPI []byte

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

var (
	wholeDocument = newDocument(openAPI)
	// hiddenAccess is the document for Options.HideAccess.
	hiddenAccess = sync.OnceValue(func() document { return newDocument(without(accessRoutes)) })
)

// OpenAPI returns the OpenAPI 3.1 document of an interface at server: a URL, or only its path. The
// caller may change the returned bytes. It has all endpoints, also those that Options hide.
func OpenAPI(server string) []byte { return wholeDocument.at(server) }

// without returns the document without some endpoints, and without what only they use.
func without(routes []route) []byte {
	var all map[string]any
	if err := json.Unmarshal(openAPI, &all); err != nil {
		panic(err) // the document is part of the package
	}
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

// sendOpenAPI answers with the document as application/json. Browsers show that type and every tool
// accepts it, unlike application/openapi+json.
func (h *Handler) sendOpenAPI(w *answer, r *http.Request) {
	w.route = "GET " + h.prefix.text + openAPIPath
	r.Pattern = w.route
	server := h.server(r)
	document := wholeDocument
	if h.options.HideAccess {
		document = hiddenAccess()
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
func (h *Handler) server(r *http.Request) string {
	if h.options.PublicURL != "" {
		return h.options.PublicURL
	}
	if asked, err := url.ParseRequestURI(r.RequestURI); err == nil {
		if prefix, found := strings.CutSuffix(asked.EscapedPath(), openAPIPath); found {
			return prefix
		}
	}
	return h.prefix.text
}
