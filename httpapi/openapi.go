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

// openAPIPath is where the document is, behind the prefix. It is no route of its own: everybody may read it.
const openAPIPath = "/openapi.json"

//go:embed openapi.json
var openAPI []byte

// The document, around the URL of its server.
var (
	openAPIHead, openAPITail, _ = bytes.Cut(openAPI, []byte(`"`+DefaultPrefix+`"`))
	openAPISum                  = sha256.Sum256(openAPI)
)

// OpenAPI returns the OpenAPI 3.1 document of the interface, for one that is found at server: a URL, or the path of one. It is the
// caller's own.
func OpenAPI(server string) []byte {
	if server = strings.TrimRight(server, "/"); server == "" {
		server = "/"
	}
	quoted, _ := json.Marshal(server) // a string always encodes
	return slices.Concat(openAPIHead, quoted, openAPITail)
}

// asksOpenAPI reports whether a request is for the document. A method that it has not goes the way of all others: 401 comes first.
func (h *Handler) asksOpenAPI(method, path string) bool {
	return h.openAPI && path == openAPIPath && (method == http.MethodGet || method == http.MethodHead)
}

// sendOpenAPI answers with the document, as application/json: browsers show that, and every tool takes it, which cannot be said of
// application/openapi+json.
func (h *Handler) sendOpenAPI(w *answer, r *http.Request) {
	w.route = "GET " + h.prefix.text + openAPIPath
	r.Pattern = w.route
	server := h.server(r)
	sum := sha256.Sum256(append(openAPISum[:], server...)) // what the bytes follow from
	etag := `"` + hex.EncodeToString(sum[:16]) + `"`
	header := w.Header()
	header.Set("Cache-Control", "no-cache")
	header.Set("ETag", etag)
	if known, _ := tags(r.Header, "If-None-Match"); has(known, etag) { // a malformed one is none
		w.WriteHeader(http.StatusNotModified)
		return
	}
	document := OpenAPI(server)
	header.Set("Content-Length", strconv.Itoa(len(document)))
	start(w, http.StatusOK)
	_, _ = w.Write(document)
}

// server is where the caller finds the interface: what the host says, else the path that the request came by, which may have been
// cut off since.
func (h *Handler) server(r *http.Request) string {
	if h.publicURL != "" {
		return h.publicURL
	}
	if asked, err := url.ParseRequestURI(r.RequestURI); err == nil {
		if prefix, found := strings.CutSuffix(asked.EscapedPath(), openAPIPath); found {
			return prefix
		}
	}
	return h.prefix.text
}
