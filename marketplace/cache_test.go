package marketplace_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
)

const (
	fileEntry = `{"templates":[{"id":"a","name":"A","manifest_file":"m.json"}]}`
	longAgo   = "Mon, 02 Jan 2006 15:04:05 GMT"
)

// shelf is a source with files that can change. It answers conditional requests and records each
// request.
type shelf struct {
	mu     sync.Mutex
	files  map[string]shelved
	before func(r *http.Request) // see beforeEach
	asked  []string              // "path, the value of a condition, status"
	sent   int                   // bytes of bodies
}

type shelved struct {
	body   string
	header map[string]string
}

func (s *shelf) put(path, body string, header map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[path] = shelved{body, header}
}

// tagged puts a file with a strong ETag that depends on the content.
func (s *shelf) tagged(path, body string) {
	s.put(path, body, map[string]string{"ETag": fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(body)))})
}

// beforeEach has f called before each answer. A request of a call that was cancelled can still be on its way.
func (s *shelf) beforeEach(f func(r *http.Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// requests returns the recorded requests and forgets them.
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
	file, there := s.files[r.URL.Path]
	status := http.StatusOK
	condition := r.Header.Get("If-None-Match") + r.Header.Get("If-Modified-Since")
	switch {
	case !there:
		status = http.StatusNotFound
	case condition != "" && (condition == file.header["ETag"] || condition == file.header["Last-Modified"]):
		status = http.StatusNotModified
	}
	for key, value := range file.header {
		w.Header().Set(key, value)
	}
	s.asked = append(s.asked, strings.Join(strings.Fields(fmt.Sprint(r.URL.Path, " ", condition, " ", status)), " "))
	w.WriteHeader(status)
	if status == http.StatusOK {
		s.sent += len(file.body)
		_, _ = w.Write([]byte(file.body))
	}
}

// newShelf returns a shelf with the template "a", whose manifest is a file, and a client that may
// ask it.
func newShelf(t *testing.T, config marketplace.Config) (*shelf, *marketplace.Client, svc.Upstream) {
	t.Helper()
	s := &shelf{files: map[string]shelved{}}
	s.tagged("/templates.json", fileEntry)
	s.tagged("/m.json", `{"version":"1"}`)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	config.AllowOrigins = append(config.AllowOrigins, server.URL)
	return s, newClient(t, config), upstream(server.URL)
}

func version(t *testing.T, client *marketplace.Client, from svc.Upstream) string {
	t.Helper()
	content := must(client.Template(t.Context(), from, "a"))
	return string(content.Manifest)
}

func TestUnchangedIsNotSentAgain(t *testing.T) {
	is := is.New(t)
	s, client, from := newShelf(t, marketplace.Config{})
	const catalog, manifest = `"62-6e616d65"`, `"15-6f6e223a"`
	s.put("/templates.json", fileEntry, map[string]string{"ETag": catalog})
	s.put("/m.json", `{"version":"1"}`, map[string]string{"ETag": manifest})
	for range 3 {
		is.Equal(version(t, client, from), `{"version":"1"}`)
	}
	again := []string{"/templates.json " + catalog + " 304", "/m.json " + manifest + " 304"}
	is.Equal(s.requests(), slices.Concat([]string{"/templates.json 200", "/m.json 200"}, again, again))
	is.Equal(s.sent, len(fileEntry)+len(`{"version":"1"}`))
	stats := client.CacheStats()
	is.Equal(stats.Copies, 2)
	is.Equal(stats.Answers, uint64(6))
	is.Equal(stats.Unchanged, uint64(4))

	s.put("/m.json", `{"version":"2"}`, map[string]string{"ETag": `"second"`})
	is.Equal(version(t, client, from), `{"version":"2"}`)
	is.Equal(version(t, client, from), `{"version":"2"}`)
	is.Equal(s.requests(), []string{"/templates.json " + catalog + " 304", "/m.json " + manifest + " 200", "/templates.json " + catalog + " 304", `/m.json "second" 304`})
	is.Equal(client.CacheStats().Copies, 2)
}

func TestWhatMakesARequestConditional(t *testing.T) {
	for name, test := range map[string]struct {
		header map[string]string
		want   string // of the second request; "": the file is sent again
	}{
		"strong":                {map[string]string{"ETag": `"x"`}, `"x"`},
		"weak":                  {map[string]string{"ETag": `W/"x"`}, `W/"x"`},
		"empty":                 {map[string]string{"ETag": `""`}, `""`},
		"not ASCII":             {map[string]string{"ETag": `"é"`}, `"é"`},
		"date":                  {map[string]string{"Last-Modified": longAgo}, longAgo},
		"both":                  {map[string]string{"ETag": `"x"`, "Last-Modified": longAgo}, `"x"`},
		"bad tag, and date":     {map[string]string{"ETag": `x`, "Last-Modified": longAgo}, longAgo},
		"none":                  {nil, ""},
		"not quoted":            {map[string]string{"ETag": `x`}, ""},
		"half quoted":           {map[string]string{"ETag": `"`}, ""},
		"any":                   {map[string]string{"ETag": `*`}, ""},
		"list":                  {map[string]string{"ETag": `"x", "y"`}, ""},
		"long":                  {map[string]string{"ETag": `"` + strings.Repeat("x", 1023) + `"`}, ""},
		"in the same second":    {map[string]string{"Last-Modified": longAgo, "Date": longAgo}, ""},
		"a second later":        {map[string]string{"Last-Modified": longAgo, "Date": "Mon, 02 Jan 2006 15:04:06 GMT"}, longAgo},
		"in the future":         {map[string]string{"Last-Modified": "Mon, 02 Jan 2106 15:04:05 GMT"}, ""},
		"no date":               {map[string]string{"Last-Modified": "yesterday"}, ""},
		"date of a bad clock":   {map[string]string{"Last-Modified": longAgo, "Date": "now"}, ""},
		"date in another form":  {map[string]string{"Last-Modified": "Monday, 02-Jan-06 15:04:05 GMT"}, "Monday, 02-Jan-06 15:04:05 GMT"},
		"two tags, and no date": {map[string]string{"ETag": `"x","y"`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s, client, from := newShelf(t, marketplace.Config{})
			s.put("/templates.json", oneEntry, test.header)
			version(t, client, from)
			version(t, client, from)
			second := "/templates.json 200"
			if test.want != "" {
				second = "/templates.json " + test.want + " 304"
			}
			is.Equal(s.requests(), []string{"/templates.json 200", second})
		})
	}
}

// A copy is not shown to another caller, source or address.
func TestWhoseCopy(t *testing.T) {
	first := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	for name, change := range map[string]func(*svc.Upstream){
		"registered again":  func(u *svc.Upstream) { u.Registered = first.Add(time.Microsecond) },
		"never registered":  func(u *svc.Upstream) { u.Registered = time.Time{} },
		"other name":        func(u *svc.Upstream) { u.Source.Name = "other" },
		"other owner":       func(u *svc.Upstream) { u.Source.Owner = "bob" },
		"other scope":       func(u *svc.Upstream) { u.Source.Scope = svc.ScopeServer },
		"other address":     func(u *svc.Upstream) { u.URL += "/." },
		"address spelled":   func(u *svc.Upstream) { u.URL += "/" },
		"other token":       func(u *svc.Upstream) { u.Token = "0ther" },
		"no token":          func(u *svc.Upstream) { u.Token = "" },
		"token cut shorter": func(u *svc.Upstream) { u.Token = u.Token[:5] },
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s, client, from := newShelf(t, marketplace.Config{AllowPersonal: true})
			from.Source = svc.SourceKey{Scope: svc.ScopePersonal, Owner: "alice", Name: "acme"}
			from.Registered, from.Token = first, "s3cr3t"
			version(t, client, from)
			s.requests()
			other := from
			if change(&other); client.CheckURL(other.URL) != nil {
				other.URL = from.URL + "/sub" // a directory with the same files
				s.tagged("/sub/templates.json", fileEntry)
				s.tagged("/sub/m.json", `{"version":"1"}`)
			}
			must(client.Catalog(t.Context(), other, time.Hour))
			version(t, client, other)
			for i, asked := range s.requests() {
				is.Equal(strings.HasSuffix(asked, " 200"), i != 1) // each once, and the catalogue compared with one's own
			}
			version(t, client, from)
			for _, asked := range s.requests() {
				is.True(strings.HasSuffix(asked, " 304")) // the first copy is there still
			}
			if kept := client.Kept(); strings.Contains(kept, "s3cr3t") || strings.Contains(kept, "***") {
				t.Errorf("a token is kept: %s", kept)
			}
			is.Equal(client.CacheStats().Copies, 4)
		})
	}
}

// One file that is both catalogue and manifest has two copies.
func TestCatalogueAsManifest(t *testing.T) {
	is := is.New(t)
	s, client, from := newShelf(t, marketplace.Config{})
	const catalog = `{"templates":[{"id":"a","name":"A","manifest_file":"templates.json"}]}`
	s.tagged("/templates.json", catalog)
	for range 2 {
		is.Equal(version(t, client, from), catalog)
	}
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

// A bad answer is not installed, and the last good copy stays with its validator. TestHostileAnswers
// has the other bad answers.
func TestLastGoodCopyStays(t *testing.T) {
	is := is.New(t)
	s, client, from := newShelf(t, marketplace.Config{})
	s.tagged("/templates.json", oneEntry)
	good := must(client.Catalog(t.Context(), from, time.Hour))
	is.Equal(good.Failure, nil)

	s.beforeEach(func(*http.Request) { panic(http.ErrAbortHandler) })
	stale := must(client.Catalog(t.Context(), from, 0))
	is.Equal(svc.ErrorCode(stale.Failure), svc.CodeSourceFailed)
	is.Equal(stale.FetchedAt, good.FetchedAt)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := client.Catalog(cancelled, from, 0)
	is.True(errors.Is(err, context.Canceled))

	s.beforeEach(nil)
	s.requests()
	is.Equal(version(t, client, from), `{"version":"1"}`)
	is.True(strings.HasSuffix(s.requests()[0], " 304"))
	fresh := must(client.Catalog(t.Context(), from, time.Hour))
	is.Equal(fresh.Failure, nil)
	is.True(fresh.FetchedAt.After(good.FetchedAt)) // confirmed
}

func TestNoCopyNoCatalog(t *testing.T) {
	client, from := serve(t, status(500), marketplace.Limits{})
	catalog, err := client.Catalog(t.Context(), from, time.Hour)
	wantError(t, err, svc.CodeSourceFailed, "its catalogue answered 500")
	if catalog.Entries != nil || !catalog.FetchedAt.IsZero() {
		t.Errorf("got %+v", catalog)
	}
}

func TestCatalogFromItsCopy(t *testing.T) {
	is := is.New(t)
	s, client, from := newShelf(t, marketplace.Config{})
	begin := time.Now().Round(0)
	manifest := func(maxAge time.Duration) string {
		catalog := must(client.Catalog(t.Context(), from, maxAge))
		is.True(!catalog.FetchedAt.Before(begin))
		is.Equal(catalog.Entries[0].ManifestFile, "m.json")
		return string(catalog.Entries[0].Content.Manifest)
	}
	is.Equal(manifest(time.Hour), "")
	is.Equal(manifest(time.Hour), "")
	is.Equal(s.requests(), []string{"/templates.json 200"})
	version(t, client, from)
	s.requests()
	is.Equal(manifest(time.Hour), `{"version":"1"}`) // known: it was asked for by an installation
	is.Equal(len(s.requests()), 0)
	is.Equal(manifest(0), "") // known, and too old
	is.Equal(len(s.requests()), 1)
	is.Equal(manifest(time.Hour), `{"version":"1"}`)
	time.Sleep(2 * time.Millisecond)
	is.Equal(manifest(time.Millisecond), "")
	is.Equal(len(s.requests()), 1)
	is.Equal(version(t, client, from), `{"version":"1"}`)
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
			if stats := client.CacheStats(); stats.Bytes > 60_000 {
				t.Errorf("%d bytes are kept", stats.Bytes)
			}
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

func TestNoCache(t *testing.T) {
	is := is.New(t)
	s, client, from := newShelf(t, marketplace.Config{Cache: -1})
	for range 2 {
		version(t, client, from)
		must(client.Catalog(t.Context(), from, time.Hour))
	}
	is.Equal(s.requests(), []string{"/templates.json 200", "/m.json 200", "/templates.json 200", "/templates.json 200", "/m.json 200", "/templates.json 200"})
	is.Equal(client.CacheStats(), marketplace.CacheStats{Answers: 6})
}

// A late answer does not replace a newer one.
func TestLateAnswer(t *testing.T) {
	is := is.New(t)
	is.Equal(marketplace.PutLate(time.Second), "first")
	is.Equal(marketplace.PutLate(-time.Second), "second")
}
