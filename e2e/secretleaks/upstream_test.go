//go:build unix

package secretleaks

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// upstream is a source that offers the template "chat", or answers with a test's handler.
type upstream struct {
	*httptest.Server
	mu             sync.Mutex
	handler        func(w http.ResponseWriter, bearer string)
	authorizations []string
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{}
	u.Server = httptest.NewServer(u)
	u.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	authorization := r.Header.Get("Authorization")
	u.mu.Lock()
	u.authorizations = append(u.authorizations, authorization)
	handler := u.handler
	u.mu.Unlock()
	if handler == nil {
		handler = text(200, `{"templates": [{"id": "chat", "name": "Chat", "manifest": {"version": "1"}}]}`)
	}
	handler(w, strings.TrimPrefix(authorization, "Bearer "))
}

// with sets the handler of all later answers; nil restores the regular answers.
func (u *upstream) with(handler func(w http.ResponseWriter, bearer string)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.handler = handler
}

// saw reports whether a request had that Authorization header.
func (u *upstream) saw(authorization string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Contains(u.authorizations, authorization)
}

// echoing holds bad answers of sources, by name. They contain the request's bearer: TOKEN.
var echoing = map[string]func(w http.ResponseWriter, bearer string){
	"an error":               text(500, `{"error": "TOKEN"}`),
	"a refusal":              text(401, `TOKEN`),
	"no JSON":                text(200, `TOKEN`),
	"JSON that breaks off":   text(200, `{"templates": ["TOKEN`),
	"a duplicate key":        text(200, `{"TOKEN": 1, "TOKEN": 2}`),
	"a duplicate key inside": text(200, `{"templates": [{"id": "chat", "name": "n", "manifest": {"version": "1", "a": {"TOKEN": 1, "TOKEN": 2}}}]}`),
	"a bad file":             text(200, `{"templates": [{"id": "chat", "name": "n", "manifest_file": "../TOKEN"}]}`),
	"a file that is no JSON": text(200, `{"templates": [{"id": "chat", "name": "n", "manifest_file": "TOKEN"}]}`+"TOKEN"),
	"a bad entry":            text(200, `{"templates": [{"id": "chat", "name": "TOKEN", "category": ["TOKEN"], "manifest": {}}]}`),
	"a bad manifest":         text(200, `{"templates": [{"id": "chat", "name": "n", "manifest": {"version": {"TOKEN": "TOKEN"}}}]}`),
	"a redirect":             redirect("https://127.0.0.1:1/TOKEN?t=TOKEN"),
	"a malformed redirect":   redirect("http://%zz/TOKEN"),
	"a redirect with a user": redirect("http://TOKEN:TOKEN@example.com/"),
	"a redirect in a circle": redirect("/acme/templates.json?t=TOKEN"),
	"no HTTP":                wire("TOKEN TOKEN\r\n"),
	"no status":              wire("HTTP/1.1 TOKEN\r\n\r\n"),
	"a bad header":           wire("HTTP/1.1 200 OK\r\nTOKEN\r\n\r\n"),
	"a bad length":           wire("HTTP/1.1 200 OK\r\nContent-Length: TOKEN\r\n\r\n"),
	"a bad transfer":         wire("HTTP/1.1 200 OK\r\nTransfer-Encoding: TOKEN\r\n\r\n"),
	"a bad chunk":            wire("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nTOKEN\r\n"),
	"a bad encoding":         wire("HTTP/1.1 200 OK\r\nContent-Encoding: TOKEN\r\nContent-Length: 2\r\n\r\n{}"),
	"a bad type":             wire("HTTP/1.1 200 OK\r\nContent-Type: TOKEN\r\nContent-Length: 32\r\n\r\nTOKEN"),
}

func text(status int, body string) func(w http.ResponseWriter, bearer string) {
	return func(w http.ResponseWriter, bearer string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, strings.ReplaceAll(body, "TOKEN", bearer))
	}
}

func redirect(to string) func(w http.ResponseWriter, bearer string) {
	return func(w http.ResponseWriter, bearer string) {
		w.Header().Set("Location", strings.ReplaceAll(to, "TOKEN", bearer))
		w.WriteHeader(http.StatusFound)
	}
}

// wire answers with bytes that need not be HTTP.
func wire(answer string) func(w http.ResponseWriter, bearer string) {
	return func(w http.ResponseWriter, bearer string) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, strings.ReplaceAll(answer, "TOKEN", bearer))
	}
}
