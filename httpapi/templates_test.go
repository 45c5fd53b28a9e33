package httpapi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/longtest"
)

func TestAnswersAreNotEscapedForHTML(t *testing.T) {
	admin := newSite(t).admin()
	a := admin.post("/admin/templates", `{"id":"a<b>&c","name":"<>&","manifest":{"version":"1"}}`).is(200)
	expect.Equal(t, string(a.body), strings.Contains(string(a.body), `"a<b>&c"`) && strings.Contains(string(a.body), `"<>&"`), true)
}

// withTemplates makes a site whose templates are kept in memory, and counts the reads of them.
func withTemplates(t *testing.T, count int) (*site, *atomic.Int64) {
	t.Helper()
	s := newSite(t, func(u *setup) { u.Config.Memory.Templates = 16 << 20 })
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
		expect.Equal(t, i, s.store.CreateTemplate(t.Context(), template), nil)
	}
	reads := &atomic.Int64{}
	s.store.Plant(func(call string) error {
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
	expect.Soon(s.t, "it never came", func() bool {
		before := reads.Load()
		admin.get("/admin/templates").is(200)
		return reads.Load() == before
	})
	return admin
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
			expect.Equal(t, target, have.status, want.status)
			expect.Equal(t, target, have.header.Get("Link")+string(have.body), want.header.Get("Link")+string(want.body))
		}
	}
	for _, limit := range []string{"7", "64", "299", "300"} {
		expect.Equal(t, limit, admin.pages("/admin/templates?limit="+limit), other.pages("/admin/templates?limit="+limit))
	}
	before := reads.Load()
	for _, target := range targets {
		admin.get(target)
	}
	expect.Equal(t, "reads of the store", reads.Load(), before)
	admin.patch("/admin/templates/t001", `{"name": "Other"}`).is(200)
	expect.Equal(t, "a changed list", string(admin.get("/admin/templates").is(200).body), string(other.get("/admin/templates").body))
}

// The ETag of a list from memory ends with the list. A client that shows it is sent nothing again.
func TestETagOfTemplates(t *testing.T) {
	t.Parallel()
	s, reads := withTemplates(t, 300)
	admin := s.warm(reads)
	next := func(target string) string {
		t.Helper()
		s.warm(reads)
		a := admin.get(target).is(200)
		etag := a.header.Get("ETag")
		expect.Equal(t, target+etag, etag != "" && a.header.Get("Cache-Control") == "private, no-cache", true)
		for value, status := range map[string]int{
			etag: 304, "W/" + etag: 304, `"x", ` + etag: 304, "*": 304, `"x"`: 200, `""`: 200, "x": 400, "": 400,
		} {
			b := admin.with("If-None-Match", value, "GET", target, "")
			expect.Holds(t, b.status == status && (status != 304 || len(b.body) == 0) && (status != 200 || bytes.Equal(a.body, b.body)), target, ", ", value, ": ", b.status, string(b.body))
			same := b.header.Get("ETag") == etag
			expect.Holds(t, same == (status != 400) && (status != 400 || b.header.Get("Cache-Control") == "no-store"), target, value, b.header)
		}
		return etag
	}
	for _, target := range []string{"/admin/templates", "/admin/templates?limit=7", "/admin/templates?tag=tag1", "/admin/templates?tag=none"} {
		etag := next(target)
		s.as("session-of-plain").with("If-None-Match", etag, "GET", target, "").is(403)
		admin.patch("/admin/templates/t001", `{"name": "`+target+`"}`).is(200)
		changed := admin.with("If-None-Match", etag, "GET", target, "").is(200)
		expect.Holds(t, changed.header.Get("ETag") != etag && next(target) != etag, target)
		admin.with("If-None-Match", etag, "GET", "/admin/templates?tag="+strings.Repeat("x", 2000), "").is(400)
	}
	plain := newSite(t).admin()
	a := plain.get("/admin/templates").is(200) // without a cache
	expect.Equal(t, "headers", a.header.Get("ETag")+a.header.Get("Cache-Control"), "no-store")
	plain.with("If-None-Match", `"x"`, "GET", "/admin/templates", "").is(200)
}

// Every answer with one ETag is the same, and none is older than a change that has been answered.
func TestETagsWhileTemplatesChange(t *testing.T) {
	t.Parallel()
	s, _ := withTemplates(t, 20)
	admin := s.admin()
	admin.patch("/admin/templates/t001", `{"name": "0"}`).is(200)
	var bodies sync.Map
	var readers sync.WaitGroup
	var stop atomic.Bool
	var written, tagged atomic.Int64
	for range 3 {
		readers.Go(func() {
			for !stop.Load() {
				least := written.Load()
				a := admin.get("/admin/templates").is(200)
				_, text, _ := strings.Cut(string(a.body), `"id":"t001","name":"`)
				name, _, _ := strings.Cut(text, `"`)
				n, err := strconv.ParseInt(name, 10, 64)
				expect.Holds(t, err == nil && n >= least, name, " is listed after this was written: ", least, err)
				if etag := a.header.Get("ETag"); etag != "" {
					first, _ := bodies.LoadOrStore(etag, string(a.body))
					if tagged.Add(1); first != string(a.body) {
						t.Errorf("two answers have the tag %s", etag)
					}
				}
			}
		})
	}
	for n := int64(1); n < 100 || tagged.Load() < 100; n++ {
		admin.patch("/admin/templates/t001", fmt.Sprintf(`{"name": "%d"}`, n)).is(200)
		written.Store(n)
		if n%10 == 0 {
			time.Sleep(5 * time.Millisecond)
		}
	}
	stop.Store(true)
	readers.Wait()
}

// A list that is too long for one answer is sent in parts, and none of it is kept.
func TestLongListsAreNotKept(t *testing.T) {
	longtest.Test(t, "lists that are too long to be kept")
	s, reads := withTemplates(t, 0)
	for i := range httpapi.MaxList + 1 {
		template := svc.Template{TemplateKey: svc.TemplateKey{Scope: svc.ScopeServer, ID: fmt.Sprintf("t%06d", i)}, Version: 1,
			Content: svc.Content{Name: "n", Manifest: []byte(`{"version":"1"}`)}, InstalledAt: begin.UTC(), UpdatedAt: begin.UTC()}
		expect.Equal(t, i, s.store.FullStore.CreateTemplate(t.Context(), template), nil)
	}
	admin := s.warm(reads)
	for range 2 {
		a := admin.get("/admin/templates").is(200)
		n := len(a.texts("id"))
		expect.Holds(t, n == httpapi.MaxList && a.header.Get("ETag") != "" && a.header.Get("Link") != "", "templates: ", n, a.header)
	}
}

func TestAnswersFromMemoryAllocateLittle(t *testing.T) {
	s, reads := withTemplates(t, 300)
	key := "Bearer " + s.warm(reads).bearer
	api := httpapi.New(s.service, httpapi.Options{})
	for _, query := range []string{"", "?tag=%22%3C%C3%A9%3E%22", "?limit=300"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, httpapi.DefaultPrefix+"/admin/templates"+query, nil)
		r.Header.Set("Authorization", key)
		allocations := testing.AllocsPerRun(20, func() {
			w := &discarded{header: http.Header{}}
			if api.ServeHTTP(w, r); w.status != http.StatusOK {
				t.Fatalf("status %d", w.status)
			}
		})
		expect.Holds(t, allocations <= 100, query, allocations)
	}
}

// stocked is a site with a source "acme" that offers "chat".
func stocked(t *testing.T, changes ...func(*setup)) (*site, caller) {
	s := newSite(t, changes...)
	admin := s.admin()
	admin.post("/admin/template-sources", `{"url": "https://h/acme"}`).is(201)
	s.market.offer("chat", "Chat", `{"version": "1", "n": 1.0}`)
	return s, admin
}

// A bad entry is the publisher's fault, and no fault of this server: it wakes nobody. A source that fails does.
func TestBadEntriesAreWarnings(t *testing.T) {
	level := func(s *site) string {
		all := records(t, s.log.String())
		return all[len(all)-1].Level
	}
	s, admin := stocked(t, func(u *setup) {
		u.Templates.ValidateManifest = func(json.RawMessage) error { return errors.New("budget is missing") }
	})
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).fails(502, "source_failed")
	expect.Equal(t, "a refused manifest", level(s), "WARN")
	s, admin = stocked(t)
	s.market.fail(errors.New("down"))
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).fails(502, "source_failed")
	expect.Equal(t, "a failing source", level(s), "ERROR")
}
