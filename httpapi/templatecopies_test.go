package httpapi_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

// withTemplates makes a site whose templates are kept in memory, and counts the reads of them.
func withTemplates(t *testing.T, count int) (*site, *atomic.Int64) {
	t.Helper()
	s := newSite(t, func(u *setup) { u.Config.Templates.Cached = 8 << 20 })
	for i := range count {
		content := svc.Content{
			Name: fmt.Sprint("Name ", i%7), Tags: []string{fmt.Sprint("tag", i%3), `"<é>"`}, Integrations: []string{"mail"},
			Manifest: []byte(`{"version":"1","n":` + fmt.Sprint(i) + `.0,"padding":"` + strings.Repeat("x", 1<<10) + `"}`),
		}
		if i%4 > 0 {
			content.Category = new(fmt.Sprint("category", i%4))
		}
		template := svc.Template{
			TemplateKey: svc.TemplateKey{Scope: svc.ScopeServer, ID: fmt.Sprintf("t%03d", i)}, Content: content, Version: 1,
			InstalledAt: begin.UTC().Truncate(time.Microsecond), UpdatedAt: begin.UTC().Truncate(time.Microsecond).Add(time.Duration(i) * time.Hour),
		}
		if i%2 == 0 {
			template.Origin = &svc.Origin{Source: svc.SourceKey{Scope: svc.ScopeServer, Name: "acme"}, ID: template.ID, Revision: "sha256:0", Base: content}
		}
		if err := s.store.CreateTemplate(t.Context(), template); err != nil {
			t.Fatal(err)
		}
	}
	reads := &atomic.Int64{}
	s.store.plant(func(call string) error {
		if call == "Template" || call == "Templates" {
			reads.Add(1)
		}
		return nil
	})
	return s, reads
}

// warm lists all templates as an admin, whom it returns, until that needs no call of the store.
func (s *site) warm(reads *atomic.Int64) caller {
	s.t.Helper()
	admin := s.admin()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		before := reads.Load()
		if admin.get("/admin/templates").is(200); reads.Load() == before {
			return admin
		}
		if time.Since(began) > 4*time.Second {
			s.t.Fatal("not in 4 seconds")
		}
	}
}

// Answers from memory are those from the store, byte for byte.
func TestAnswersFromMemory(t *testing.T) {
	s, reads := withTemplates(t, 300)
	plain := newSite(t, func(u *setup) { u.Config.Store = s.store.FullStore })
	admin, other := s.warm(reads), plain.admin()
	targets := []string{
		"/admin/templates", "/admin/templates?limit=1000", "/admin/templates?limit=7", "/admin/templates?tag=tag1", "/admin/templates?tag=none",
		"/admin/templates?category=category2", "/admin/templates?category=category2&tag=tag0&limit=5", "/admin/templates?tag=%22%3C%C3%A9%3E%22",
		"/admin/templates/t000", "/admin/templates/t001", "/admin/templates/none",
	}
	for _, target := range targets {
		for range 2 {
			have, want := admin.get(target), other.get(target)
			if have.status != want.status || !bytes.Equal(have.body, want.body) || have.header.Get("Link") != want.header.Get("Link") || have.header.Get("ETag") != want.header.Get("ETag") {
				t.Errorf("%s: %d with %d bytes, not %d with %d", target, have.status, len(have.body), want.status, len(want.body))
			}
		}
	}
	for _, limit := range []string{"7", "64", "299", "300"} {
		if have, want := admin.pages("/admin/templates?limit="+limit), other.pages("/admin/templates?limit="+limit); fmt.Sprint(have) != fmt.Sprint(want) {
			t.Errorf("limit %s: %v, not %v", limit, have, want)
		}
	}
	before := reads.Load()
	for _, target := range targets {
		admin.get(target)
	}
	if n := reads.Load() - before; n > 0 {
		t.Errorf("the store was read %d times", n)
	}
	admin.patch("/admin/templates/t001", `{"name": "Other"}`).is(200)
	if have, want := admin.get("/admin/templates").is(200), other.get("/admin/templates"); !bytes.Equal(have.body, want.body) {
		t.Error("a change is not in the list")
	}
}

// sink takes an answer and keeps none of it.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }

// Answers from memory allocate nothing for their rows.
func TestAnswersFromMemoryAllocateLittle(t *testing.T) {
	s, reads := withTemplates(t, 300)
	key := "Bearer " + s.warm(reads).bearer
	api := httpapi.New(s.service, httpapi.Options{})
	for _, query := range []string{"", "?tag=%22%3C%C3%A9%3E%22", "?limit=300"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, httpapi.DefaultPrefix+"/admin/templates"+query, nil)
		r.Header.Set("Authorization", key)
		allocations := testing.AllocsPerRun(20, func() {
			w := &sink{header: http.Header{}}
			if api.ServeHTTP(w, r); w.status != http.StatusOK {
				t.Fatalf("status %d", w.status)
			}
		})
		if allocations > 100 {
			t.Errorf("%q allocates %v times", query, allocations)
		}
	}
}
