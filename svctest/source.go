package svctest

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// Source is a source of templates: a web server with a catalogue that the test changes, and an ETag for each state of it. All methods
// are safe for concurrent use.
type Source struct {
	URL    string // as it is registered; its name is the last segment
	Origin string // of URL, for [marketplace.Config.AllowOrigins]

	t       testing.TB
	mu      sync.Mutex
	entries []entry
	status  int    // of every answer; 0: as it should be
	hold    func() // waits before an answer; nil: there is none
	log     []string
}

// Template is what a [Source] offers.
type Template struct {
	ID           string   `json:"id"`
	Name         string   `json:"name"`                  // "": the ID
	Description  string   `json:"description,omitempty"` // "": none
	Category     string   `json:"category,omitempty"`    // "": none
	Integrations []string `json:"integrations"`
	Tags         []string `json:"tags"`
	Manifest     string   `json:"-"` // JSON; "": {"version":"1"}
}

// entry is a template as it is in a catalogue.
type entry struct {
	Template
	Manifest json.RawMessage `json:"manifest"`
}

// NewSource starts a source of its own, which ends with the test, for a Service that the host builds itself. [Server.Source] is for a
// [Server].
func NewSource(t testing.TB, name string, templates ...Template) *Source {
	return newWeb(t).add(name, templates)
}

// Put offers a template, in the place of the one with its ID.
func (s *Source) Put(template Template) {
	s.t.Helper()
	template.Name = cmp.Or(template.Name, template.ID)
	manifest := cmp.Or(template.Manifest, `{"version":"1"}`)
	if !json.Valid([]byte(manifest)) {
		s.t.Errorf("svctest: the manifest of %q is not JSON: %s", template.ID, manifest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.entries, func(e entry) bool { return e.ID == template.ID })
	if i < 0 {
		i, s.entries = len(s.entries), append(s.entries, entry{})
	}
	s.entries[i] = entry{template, json.RawMessage(manifest)}
}

// Remove offers a template no more.
func (s *Source) Remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = slices.DeleteFunc(s.entries, func(e entry) bool { return e.ID == id })
}

// Fail has every request answered with that status, 503 for one. 0: as it should be, again.
func (s *Source) Fail(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

// Hang has every request wait until release is called, or the test ends. asked is closed when the first comes.
func (s *Source) Hang() (asked <-chan struct{}, release func()) {
	came, over := make(chan struct{}), make(chan struct{})
	come := sync.OnceFunc(func() { close(came) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = func() {
		come()
		select {
		case <-over:
		case <-s.t.Context().Done():
		}
	}
	return came, sync.OnceFunc(func() { close(over) })
}

// Requests returns what the source was asked for and how it answered, in order: "GET /templates.json 200", and 304 where nothing
// had changed since it was asked before. What hangs has no status yet.
func (s *Source) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

func (s *Source) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	hold, number := s.hold, len(s.log)
	s.log = append(s.log, r.Method+" /"+r.PathValue("file"))
	s.mu.Unlock()
	if hold != nil {
		hold()
	}
	status, tag, catalog := s.answer(r, number)
	w.Header().Set("ETag", tag)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if status == http.StatusOK {
		_, _ = w.Write(catalog)
	}
}

func (s *Source) answer(r *http.Request, number int) (status int, tag string, catalog []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // manifests stay as they were written
	if err := encoder.Encode(map[string][]entry{"templates": s.entries}); err != nil {
		panic(err) // Put lets nothing in that is not JSON
	}
	catalog = text.Bytes()
	tag, status = fmt.Sprintf(`"%x"`, sha256.Sum256(catalog)), http.StatusOK
	switch {
	case s.status != 0:
		status = s.status
	case r.PathValue("file") != "templates.json":
		status = http.StatusNotFound
	case r.Header.Get("If-None-Match") == tag:
		status = http.StatusNotModified
	}
	s.log[number] += " " + strconv.Itoa(status)
	return status, tag, catalog
}

// web is a web server of sources: the first segment of a path is the name of one.
type web struct {
	t       testing.TB
	url     string
	sources *sync.Map // of [*Source] by name
}

func newWeb(t testing.TB) web {
	w := web{t: t, sources: &sync.Map{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/{name}/{file...}", w.serve)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

func (w web) add(name string, templates []Template) *Source {
	w.t.Helper()
	source := &Source{URL: w.url + "/" + url.PathEscape(name), Origin: w.url, t: w.t, entries: []entry{}}
	for _, template := range templates {
		source.Put(template)
	}
	w.sources.Store(name, source)
	return source
}

func (w web) serve(answer http.ResponseWriter, r *http.Request) {
	if source, found := w.sources.Load(r.PathValue("name")); found {
		source.(*Source).serve(answer, r)
	} else {
		http.NotFound(answer, r)
	}
}
