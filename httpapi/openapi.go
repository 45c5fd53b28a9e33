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
)

// openAPIPath is the path of the document after the prefix. It is not in the list of routes,
// because it needs no bearer.
const openAPIPath = "/openapi.json"

//go:embed openapi.json
var openAPI []byte

// The parts of the document before and after the URL of its server.
var (
	openAPIHead, openAPITail, _ = bytes.Cut(openAPI, []byte(`"`+DefaultPrefix+`"`))
	openAPISum                  = sha256.Sum256(openAPI)
)

// OpenAPI returns the OpenAPI 3.1 document of an interface at server: a URL, or only its path. The
// caller may change the returned bytes.
func OpenAPI(server string) []byte {
	if server = strings.TrimRight(server, "/"); server == "" {
		server = "/"
	}
	quoted, _ := json.Marshal(server) // a string always encodes
	return slices.Concat(openAPIHead, quoted, openAPITail)
}

// sendOpenAPI answers with the document as application/json. Browsers show that type and every tool
// accepts it, unlike application/openapi+json.
func (h *Handler) sendOpenAPI(w *answer, r *http.Request) {
	w.route = "GET " + h.prefix.text + openAPIPath
	r.Pattern = w.route
	server := h.server(r)
	sum := sha256.Sum256(append(openAPISum[:], server...)) // all that the bytes depend on
	etag := `"` + hex.EncodeToString(sum[:16]) + `"`
	header := w.Header()
	header.Set("Cache-Control", "no-cache")
	header.Set("ETag", etag)
	known, _ := tags(r.Header, "If-None-Match") // a malformed header counts as absent
	if has(known, etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	document := OpenAPI(server)
	header.Set("Content-Length", strconv.Itoa(len(document)))
	start(w, http.StatusOK)
	_, _ = w.Write(document)
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
