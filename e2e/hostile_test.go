package e2e_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
)

// zip compresses count copies of a megabyte of white space.
func zip(count int) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	megabyte := bytes.Repeat([]byte(" "), 1<<20)
	for range count {
		_, _ = z.Write(megabyte)
	}
	_ = z.Close()
	return b.Bytes()
}

func text(status int, kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func redirect(status int, to string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(status)
	}
}

// wait waits until the client is gone, with a time limit.
func wait(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-time.After(5 * time.Second):
	}
}

// hijacked answers with bytes that are not HTTP.
func hijacked(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, answer)
		_ = conn.Close()
	}
}

const goodCatalogue = `{"templates": [` + first + `]}`

// hostile returns sources that answer badly, by name. other is a good server that the host does not
// allow.
func hostile(other string) map[string]http.HandlerFunc {
	bomb := zip(100)
	return map[string]http.HandlerFunc{
		"404":               text(404, "application/json", goodCatalogue),
		"401":               text(401, "application/json", goodCatalogue),
		"500":               text(500, "application/json", goodCatalogue),
		"503":               text(503, "application/json", ""),
		"201":               text(201, "application/json", goodCatalogue),
		"204":               func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
		"206":               text(206, "application/json", goodCatalogue),
		"304":               func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) },
		"empty":             text(200, "application/json", ""),
		"HTML":              text(200, "text/html", "<!doctype html><title>Sign in</title>"),
		"HTML as JSON":      text(200, "application/json", "<html>"),
		"JSON as HTML":      text(200, "text/html", goodCatalogue),
		"cut off":           text(200, "application/json", goodCatalogue[:60]),
		"bad UTF-8":         text(200, "application/json", "{\"templates\": [], \"x\": \"\xff\"}"),
		"null":              text(200, "application/json", "null"),
		"array":             text(200, "application/json", "["+first+"]"),
		"no templates":      text(200, "application/json", `{"template": []}`),
		"templates null":    text(200, "application/json", `{"templates": null}`),
		"templates object":  text(200, "application/json", `{"templates": {"chat": `+first+`}}`),
		"duplicate keys":    text(200, "application/json", `{"templates": [], "templates": [`+first+`]}`),
		"trailing":          text(200, "application/json", goodCatalogue+`{}`),
		"deep":              text(200, "application/json", `{"templates": `+strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)+`}`),
		"chat is bad":       text(200, "application/json", `{"templates": [{"id": "chat", "name": "Chat"}]}`),
		"chat is twice":     text(200, "application/json", `{"templates": [`+first+","+first+`]}`),
		"no HTTP":           hijacked("SSH-2.0-OpenSSH_9.9\r\n"),
		"nothing":           hijacked(""),
		"half headers":      hijacked("HTTP/1.1 200 OK\r\nContent-Type: appl"),
		"too short":         hijacked("HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n" + goodCatalogue),
		"huge header":       hijacked("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 10<<20) + "\r\n\r\n" + goodCatalogue),
		"endless":           endless,
		"100 MB announced":  hijacked("HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n" + goodCatalogue),
		"gzip bomb":         encoded("gzip", bomb),
		"gzip cut off":      encoded("gzip", bomb[:len(bomb)/2]),
		"gzip in name only": encoded("gzip", []byte(goodCatalogue)),
		"gzip twice":        encoded("gzip, gzip", bomb),
		"brotli":            encoded("br", []byte(goodCatalogue)),
		"redirect there":    redirect(302, other),
		"redirect 301":      redirect(301, other),
		"redirect 307":      redirect(307, other),
		"redirect 308":      redirect(308, strings.Replace(other, "127.0.0.1", "localhost", 1)),
		"redirect mapped":   redirect(302, strings.Replace(other, "127.0.0.1", "[::ffff:127.0.0.1]", 1)),
		"redirect metadata": redirect(302, "http://169.254.169.254/latest/meta-data/"),
		"redirect https":    redirect(302, "https://127.0.0.1:1/"),
		"redirect to file":  redirect(302, "file:///etc/passwd"),
		"redirect to fs":    redirect(302, "fs://shelf/templates.json"),
		"redirect loop":     redirect(302, "/acme/templates.json"),
		"redirect nowhere":  redirect(302, ""),
		"redirect badly":    redirect(302, "http://%zz"),
		"redirect to user":  redirect(302, "http://a:b@127.0.0.1/"),
		"300":               redirect(300, other),
	}
}

func endless(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	chunk := bytes.Repeat([]byte(" "), 1<<20)
	for range 100 {
		if _, err := w.Write(chunk); err != nil || r.Context().Err() != nil {
			return
		}
	}
}

func encoded(encoding string, body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", encoding)
		_, _ = w.Write(body)
	}
}

// hanging holds sources that do not answer in time, by name.
var hanging = map[string]http.HandlerFunc{
	"before headers": func(_ http.ResponseWriter, r *http.Request) { wait(r) },
	"in headers": func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
		_ = conn.SetReadDeadline(time.Now().Add(3 * time.Second))
		_, _ = buffered.ReadByte() // until the client is gone
	},
	"in the body": func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"templates": [`)
		_ = http.NewResponseController(w).Flush()
		wait(r)
	},
	"byte by byte": func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i < 100 && r.Context().Err() == nil; i++ {
			_, _ = io.WriteString(w, " ")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(50 * time.Millisecond)
		}
	},
}

// wantSourceFault checks the rules for a faulty source. Every request that asks it fails with the
// code and a sentence that names the source and nothing internal. Nothing is written.
func (c caller) wantSourceFault(t *testing.T, code svc.Code) {
	t.Helper()
	_, check := c.Templates.CheckUpdate(t.Context(), "mine")
	for _, err := range []error{check, c.install("chat"), c.update("mine", true)} {
		said := wantSaid(t, err, code, `"acme"`)
		// Where no catalogue is, the sentence ends with the address that the caller has registered.
		if address := strings.LastIndex(said, " (http"); strings.HasSuffix(said, ".json)") {
			said = said[:address]
		}
		for _, inside := range []string{"127.0.0.1", "localhost", "::", "169.254", "dial", "tcp", "EOF", "net/http", "context", "goroutine", "gzip:", "Sign in", "<", "passwd"} {
			if strings.Contains(said, inside) {
				t.Errorf("shows %q: %s", inside, said)
			}
		}
	}
	if have := must(all(c.Templates.List(t.Context(), svc.TemplateQuery{}))); len(have) != 1 || have[0].ID != "mine" || have[0].UpdatedAt != have[0].InstalledAt {
		t.Errorf("there are %+v", have)
	}
}

// wantSaid checks that an error has this code and contains a text. It returns the error's text.
func wantSaid(t *testing.T, err error, code svc.Code, something string) string {
	t.Helper()
	fails(t, err, code)
	e, _ := errors.AsType[*svc.Error](err)
	if !strings.Contains(e.Message, something) {
		t.Errorf("%q says nothing of %s", e.Message, something)
	}
	return e.Message
}

func TestHostileSources(t *testing.T) {
	other := newUpstream(t, map[string]string{"templates.json": goodCatalogue})
	u, admin := installed(t)
	for name, handler := range hostile(other.URL + "/acme/templates.json") {
		t.Run(name, func(t *testing.T) {
			u.answer(handler)
			admin.wantSourceFault(t, svc.CodeSourceFailed)
		})
	}
	u.answer(nil)
	must(admin.Templates.CheckUpdate(t.Context(), "mine"))
}

func TestSourcesThatHang(t *testing.T) {
	t.Parallel()
	u, admin := installedWithin(t, marketplace.Limits{HeaderTimeout: 400 * time.Millisecond, Timeout: 800 * time.Millisecond})
	for name, handler := range hanging {
		t.Run(name, func(t *testing.T) {
			u.answer(handler)
			admin.wantSourceFault(t, svc.CodeSourceTimeout)
		})
	}
	u.CloseClientConnections()
}

func TestSourceThatIsNotThere(t *testing.T) {
	u, admin := installed(t)
	u.CloseClientConnections()
	u.Close()
	admin.wantSourceFault(t, svc.CodeSourceFailed)
}

// A large answer of a source must not fill the memory of this process.
func TestLargeAnswersAreNotKept(t *testing.T) {
	u, admin := installed(t)
	u.answer(endless)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 3 {
		fails(t, failure(admin.Templates.CheckUpdate(t.Context(), "mine")), svc.CodeSourceFailed)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 20<<20 {
		t.Errorf("%d MB more are in use", grown>>20)
	}
}

// badEntries are catalogue entries that cannot be installed. The first three have no id, so errors
// name their index.
var badEntries = map[string]string{
	"no-name":      `{"id": "no-name", "manifest": {"version": "1"}}`,
	"no-manifest":  `{"id": "no-manifest", "name": "n"}`,
	"both":         `{"id": "both", "name": "n", "manifest": {"version": "1"}, "manifest_file": "good.json"}`,
	"no-version":   `{"id": "no-version", "name": "n", "manifest": {}}`,
	"version":      `{"id": "version", "name": "n", "manifest": {"version": 1}}`,
	"array":        `{"id": "array", "name": "n", "manifest": []}`,
	"name":         `{"id": "name", "name": 1, "manifest": {"version": "1"}}`,
	"tags":         `{"id": "tags", "name": "n", "tags": "t", "manifest": {"version": "1"}}`,
	"tag":          `{"id": "tag", "name": "n", "tags": [1], "manifest": {"version": "1"}}`,
	"long":         `{"id": "long", "name": "n", "description": "` + strings.Repeat("d", 4097) + `", "manifest": {"version": "1"}}`,
	"many":         `{"id": "many", "name": "n", "tags": [` + strings.Repeat(`"t",`, 100) + `"t"], "manifest": {"version": "1"}}`,
	"file-missing": `{"id": "file-missing", "name": "n", "manifest_file": "missing.json"}`,
	"file-text":    `{"id": "file-text", "name": "n", "manifest_file": "text.txt"}`,
	"file-array":   `{"id": "file-array", "name": "n", "manifest_file": "array.json"}`,
	"file-twice":   `{"id": "file-twice", "name": "n", "manifest_file": "twice.json"}`,
	"file-large":   `{"id": "file-large", "name": "n", "manifest_file": "large.json"}`,
}

func TestBadEntriesDoNotStopTheOthers(t *testing.T) {
	u := newUpstream(t, map[string]string{
		"good.json": `{"version": "1"}`, "text.txt": "version: 1", "array.json": `[{"version": "1"}]`, "twice.json": `{"version": "1", "version": "2"}`,
		"large.json": `{"version": "1", "x": "` + strings.Repeat("x", 1<<20) + `"}`,
	})
	entries := []string{`null`, `[]`, `{"name": "n", "manifest": {"version": "1"}}`, `{"id": 7}`, `{"id": "", "name": "n", "manifest": {"version": "1"}}`}
	for _, e := range badEntries {
		entries = append(entries, e)
	}
	u.offer(append(entries, `{"id": "good", "name": "n", "manifest": null, "manifest_file": "./good.json", "tags": null}`, first)...)
	admin := newSite(t, trusting(u)).admin()
	admin.register(u)
	for id := range badEntries {
		t.Run(id, func(t *testing.T) {
			if said := wantSaid(t, admin.install(id), svc.CodeSourceFailed, `"acme"`); strings.Contains(said, "127.0.0.1") &&
				id != "file-missing" { // a missing file's own address, without a token, is for the publisher
				t.Error(said)
			}
		})
	}
	if have := admin.templates(svc.TemplateQuery{}); len(have) > 0 {
		t.Errorf("installed are %v", have)
	}
	fails(t, errors.Join(admin.install("good"), admin.install("chat")), "")
	if have := must(admin.Templates.Read(t.Context(), "good")).Manifest; string(have) != `{"version":"1"}` {
		t.Errorf("%s", have)
	}
}
