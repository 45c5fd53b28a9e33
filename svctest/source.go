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

// Source is a source of templates: a web server whose catalogue the test changes. Each state of the
// catalogue has its own ETag. All methods are safe for concurrent use.
type Source struct {
	URL    string // for registration; its last segment is the source's name
	Origin string // of URL, for [marketplace.Config.AllowOrigins]

	t       testing.TB
	mu      sync.Mutex
	entries []entry
	status  int    // of every answer; 0: the regular answer
	hold    func() // waits before an answer; nil: does not wait
	log     []string
}

// Template is a template that a [Source] offers.
type Template struct {
	ID           string   `json:"id"`
	Name         string   `json:"name"`                  // "": the ID
	Description  string   `json:"description,omitempty"` // "": none
	Category     string   `json:"category,omitempty"`    // "": none
	Integrations []string `json:"integrations"`
	Tags         []string `json:"tags"`
	Manifest     string   `json:"-"` // JSON; "": {"version":"1"}
}

// entry is a template as the catalogue writes it.
type entry struct {
	Template
	Manifest json.RawMessage `json:"manifest"`
}

// NewSource starts a source for a Service that the host builds itself. The source ends with the
// test. For a [Server] use [Server.Source].
func NewSource(t testing.TB, name string, templates ...Template) *Source {
	return newWeb(t).add(name, templates)
}

// Put offers a template. It replaces the one with the same ID.
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

// Remove withdraws a template.
func (s *Source) Remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = slices.DeleteFunc(s.entries, func(e entry) bool { return e.ID == id })
}

// Fail makes every request get that status, such as 503. 0 restores the regular answers.
func (s *Source) Fail(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

// Hang makes every request wait until the test calls release or ends. asked is closed when the
// first request comes.
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

// Requests returns the requests to the source with the status of each answer, in order: "GET
// /templates.json 200". The status is 304 when nothing has changed since the last request. A
// request that still waits has no status.
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
	encoder.SetEscapeHTML(false) // manifests stay as written
	if err := encoder.Encode(map[string][]entry{"templates": s.entries}); err != nil {
		panic(err) // Put accepts only JSON
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

// web is a web server of sources. The first segment of a path names the source.
type web struct {
	t       testing.TB
	url     string
	sources *sync.Map // [*Source] by name
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
	address := w.url + "/" + url.PathEscape(name)
	source := &Source{URL: address, Origin: w.url, t: w.t, entries: []entry{}}
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
