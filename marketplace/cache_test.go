package marketplace_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/marketplace"
)

const (
	fileEntry = `{"templates":[{"id":"a","name":"A","manifest_file":"m.json"}]}`
	longAgo   = "Mon, 02 Jan 2006 15:04:05 GMT"
)

// shelf is a source with files that can change. It answers conditional requests, and records all.
type shelf struct {
	host string // of the files whose path has none

	mu     sync.Mutex
	files  map[string]shelved
	before func(r *http.Request) // see beforeEach
	asked  []string              // "path, the value of a condition, status, the token"
}

type shelved struct {
	body   string
	header map[string]string
	status int // 0: 200, or 304
}

func (s *shelf) put(path string, file shelved) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[path] = file
}

// tagged puts a file with a strong ETag that depends on the content.
func (s *shelf) tagged(path, body string) {
	s.put(path, shelved{body: body, header: map[string]string{"ETag": fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(body)))}})
}

// beforeEach has f called before each answer. A request of a call that was cancelled can still be on its way.
func (s *shelf) beforeEach(f func(r *http.Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

func (s *shelf) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

func (s *shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil {
		before(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	file, there := s.files[strings.TrimPrefix(r.Host+r.URL.Path, s.host)]
	if !there {
		http.NotFound(w, r)
		return
	}
	status := cmp.Or(file.status, http.StatusOK)
	condition := r.Header.Get("If-None-Match") + r.Header.Get("If-Modified-Since")
	if condition != "" && (condition == file.header["ETag"] || condition == file.header["Last-Modified"]) {
		status = http.StatusNotModified
	}
	for key, value := range file.header {
		w.Header().Set(key, value)
	}
	target := strings.TrimPrefix(r.Host+r.URL.RequestURI(), s.host)
	words := strings.Fields(fmt.Sprint(target, " ", condition, " ", status, " ", r.Header.Get("Authorization")))
	s.asked = append(s.asked, strings.Join(words, " "))
	w.WriteHeader(status)
	if status == http.StatusOK {
		_, _ = w.Write([]byte(file.body))
	}
}

// newShelf returns a shelf with the template "a", whose manifest is a file, and a client that may ask it.
func newShelf(t *testing.T, config marketplace.Config) (*shelf, *marketplace.Client, svc.Upstream) {
	t.Helper()
	s := &shelf{files: map[string]shelved{}}
	s.tagged("/templates.json", fileEntry)
	s.tagged("/m.json", `{"version":"1"}`)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.host = server.Listener.Addr().String()
	config.AllowOrigins = append(config.AllowOrigins, server.URL)
	return s, newClient(t, config), upstream(server.URL)
}

func version(t *testing.T, client *marketplace.Client, from svc.Upstream) string {
	t.Helper()
	return string(must(client.Template(t.Context(), from, "a")).Manifest)
}

// Whoever has left gets no copy, though there is one of a source that fails.
func TestNoCopyForWhoHasLeft(t *testing.T) {
	s, client, from := newShelf(t, marketplace.Config{})
	must(client.Catalog(t.Context(), from, 0))
	s.beforeEach(func(*http.Request) { panic(http.ErrAbortHandler) })
	left, leave := context.WithCancel(t.Context())
	leave()
	_, err := client.Catalog(left, from, 0)
	is.New(t).True(errors.Is(err, context.Canceled))
}

// The caller may change the content that it gets.
func TestCopiesAreNotHandedOut(t *testing.T) {
	is := is.New(t)
	s, client, from := newShelf(t, marketplace.Config{})
	s.tagged("/templates.json", `{"templates":[{"id":"a","name":"A","description":"d","category":"c","tags":["t"],"integrations":["i"],"manifest":{"version":"1"}},
		{"id":"b","name":"B","manifest_file":"m.json"}]}`)
	for _, id := range []string{"a", "b"} {
		first := must(client.Template(t.Context(), from, id))
		want := fmt.Sprintf("%q %s", first.Tags, first.Manifest)
		for i := range first.Manifest {
			first.Manifest[i] = 'x'
		}
		if id == "a" {
			*first.Description, *first.Category, first.Tags[0], first.Integrations[0] = "x", "x", "x", "x"
		}
		second := must(client.Template(t.Context(), from, id))
		is.Equal(fmt.Sprintf("%q %s", second.Tags, second.Manifest), want)
		if id == "a" {
			is.Equal(*second.Description+*second.Category+second.Integrations[0], "dci")
		}
	}
}

func TestNoCopyNoCatalog(t *testing.T) {
	client, from := serve(t, status(500), marketplace.Limits{})
	catalog, err := client.Catalog(t.Context(), from, time.Hour)
	wantError(t, err, svc.CodeSourceFailed, "its catalogue answered 500")
	expect.Equal(t, "catalogue", catalog, svc.Catalog{})
}

func TestCacheIsBounded(t *testing.T) {
	is := is.New(t)
	const each = 10_000 // of a manifest
	s, client, from := newShelf(t, marketplace.Config{Cache: 60_000})
	var entries []string
	for i := range 8 {
		entries = append(entries, fmt.Sprintf(`{"id":"t%d","name":"A","manifest_file":"%d.json"}`, i, i))
		s.tagged(fmt.Sprintf("/%d.json", i), fmt.Sprintf(`{"version":"%d","x":"%s"}`, i, strings.Repeat("x", each)))
	}
	s.tagged("/templates.json", `{"templates":[`+strings.Join(entries, ",")+`]}`)
	ask := func(ids ...int) (unchanged []int) {
		t.Helper()
		s.requests()
		for _, i := range ids {
			must(client.Template(t.Context(), from, fmt.Sprintf("t%d", i)))
			expect.Holds(t, client.CacheStats().Bytes <= 60_000, "bytes are kept")
		}
		for _, asked := range s.requests() {
			var i int
			if n, _ := fmt.Sscanf(asked, "/%d.json", &i); n == 1 && strings.HasSuffix(asked, " 304") {
				unchanged = append(unchanged, i)
			}
		}
		return unchanged
	}
	is.Equal(ask(0, 1, 2, 3, 0, 1, 2, 3), []int{0, 1, 2, 3})
	is.Equal(client.CacheStats().Copies, 5)
	is.Equal(ask(0, 4, 5, 0), []int{0, 0}) // 1 and 2 have gone
	is.Equal(ask(3, 4, 5, 0, 1), []int{3, 4, 5, 0})

	large := func(n int) {
		s.tagged("/0.json", `{"x":"`+strings.Repeat("y", n)+`"}`)
		ask(0)
	}
	before := client.CacheStats().Copies
	large(31_000) // more than half: not kept, nor what it was before
	is.Equal(client.CacheStats().Copies, before-1)
	is.Equal(ask(0), nil)
	large(28_000)
	is.Equal(ask(0), []int{0})
}

// Listing a copy counts as using it.
func TestCopyThatIsLookedAtStays(t *testing.T) {
	is := is.New(t)
	s, client, from := newShelf(t, marketplace.Config{Cache: 12_000})
	looked := from
	looked.Source.Name = "looked at"
	for i := range 20 {
		from.Source.Name = fmt.Sprint(i)
		version(t, client, from)
		s.requests()
		must(client.Catalog(t.Context(), looked, time.Hour))
		is.True(i == 0 || len(s.requests()) == 0)
	}
	from.Source.Name = "0"
	version(t, client, from)
	is.Equal(s.requests(), []string{"/templates.json 200", "/m.json 200"}) // that one has gone
}

// A late answer does not replace a newer one.
func TestLateAnswer(t *testing.T) {
	is := is.New(t)
	is.Equal(marketplace.PutLate(time.Second), "first")
	is.Equal(marketplace.PutLate(-time.Second), "second")
}
