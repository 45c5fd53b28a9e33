package adminpage_test

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/adminpage"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/heaptest"
)

// formOf returns a form that the address of a POST takes, and that writes where it can.
func (s *shop) formOf(path string) url.Values {
	s.t.Helper()
	switch path {
	case "/sign-in":
		return form("key", s.key, "to", "keys")
	case "/sign-out":
		return form("x", "y")
	case "/why":
		return form("kind", "user", "who", "bob", "bank", "support", "action", "bank:recall", "bundle", `{}`)
	case "/templates":
		return form("do", "install", "source", "acme", "template_id", "desk", "alias_id", "other", "once", "o")
	case "/templates/{template_id}":
		s.edit("edited here")
		etag := must(s.service.Templates.Read(s.t.Context(), svc.Host, "desk")).ETag()
		return form("do", "rollback", "version", "1", "etag", etag)
	case "/access/users/{id}", "/access/accounts/{id}":
		return s.saves("do", "suspend")
	case "/access/groups/{id}":
		return s.saves("do", "remove", "of", "carol")
	case "/access/policies/{id}":
		return s.saves("do", "attach", "kind", "group", "who", "staff")
	case "/access/banks/{id}":
		return s.saves("do", "document", "document", `{"version":"2026-03-24"}`)
	case "/sources":
		return form("do", "register", "url", "fs://acme", "name", "second")
	case "/sources/{name}":
		return form("do", "remove")
	case "/keys":
		holder := svc.Identity{Kind: svc.KindUser, ID: "bob"}
		key := must(s.service.Keys.Issue(s.t.Context(), svc.Host, holder, svc.NewAPIKey{}))
		return form("do", "revoke", "kind", "user", "for", "bob", "key", key.ID)
	}
	s.t.Fatalf("no form for %s: add one", path)
	return nil
}

func (s *shop) saves(fields ...string) url.Values {
	revision := must(s.service.Access.Export(s.t.Context(), svc.Host)).Revision()
	return form(append(fields, "then", "save", "revision", revision)...)
}

// send lets a handler answer a POST of the site's browser. The body is read when it is needed.
func (s *site) send(h http.Handler, path string, body io.Reader, size int, set ...func(*http.Request)) *httptest.ResponseRecorder {
	target := s.url + strings.NewReplacer("{template_id}", "desk", "{name}", "acme", "users/{id}", "users/bob", "groups/{id}", "groups/desk",
		"policies/{id}", "policies/works", "accounts/{id}", "accounts/robot", "banks/{id}", "banks/b").Replace(path[1:])
	r := httptest.NewRequest("POST", target, body)
	r.ContentLength = int64(size)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, cookie := range s.client.Jar.Cookies(r.URL) {
		r.AddCookie(cookie)
	}
	for _, f := range set {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func (s *shop) records() (n int) {
	for _, err := range s.service.Audit.Records(s.t.Context(), svc.Host, svc.AuditQuery{}) {
		must(0, err)
		n++
	}
	return n
}

// late is a body before whose first byte something happens.
type late struct {
	io.Reader
	before func()
}

func (l *late) Read(p []byte) (int, error) {
	if l.before != nil {
		l.before()
		l.before = nil
	}
	return l.Reader.Read(p)
}

// A session that ends while its form arrives does nothing, at every address.
func TestSessionEndsDuringTheForm(t *testing.T) {
	admin := svc.Identity{Kind: svc.KindUser, ID: "admin"}
	ends := map[string]func(*shop){
		"revoked": func(s *shop) {
			must(s.service.Keys.RevokeAll(t.Context(), svc.Host, admin))
		},
		"inactive": func(s *shop) {
			must(s.service.Users.Patch(t.Context(), svc.Host, admin.ID, svc.UserPatch{Inactive: new(true)}))
		},
		"signed out": func(s *shop) {
			copied := *s.client
			must(copied.PostForm(s.url+"sign-out", nil)) // the forms of the test have a copy of the cookie
		},
	}
	for _, path := range adminpage.Posts() {
		for name, end := range ends {
			if path == "/sign-in" && name == "signed out" {
				continue // it needs no session
			}
			s := newShop(t)
			text, records := s.formOf(path).Encode(), 0
			w := s.send(s.page, path, &late{strings.NewReader(text), func() {
				end(s)
				records = s.records()
			}}, len(text))
			says := strings.Contains(w.Body.String(), "nothing was changed")
			asks := strings.Contains(w.Body.String(), `type="password"`)
			expect.Holds(t, w.Code == 401 && asks && says != (path == "/sign-in"), path, ", ", name, ": ", w.Code)
			expect.Holds(t, records != 0 && s.records() == records, path, ", ", name, ": records: ", records, s.records())
		}
	}
}

// A session of the host that is another caller's when the form has arrived does nothing.
func TestSessionChangesDuringTheForm(t *testing.T) {
	bearer := ""
	s := newShop(t, func(o *adminpage.Options) { o.Bearer = func(*http.Request) string { return bearer } })
	other := must(s.service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "root"}, svc.NewAPIKey{}))
	for _, path := range adminpage.Posts()[1:] {
		bearer = s.key
		text, records := s.formOf(path).Encode(), s.records()
		w := s.send(s.page, path, &late{strings.NewReader(text), func() { bearer = string(other.Key) }}, len(text))
		expect.Holds(t, w.Code == 401 && s.records() == records && !strings.Contains(w.Body.String(), "<b>root</b>"), path, ": ", w.Code)
	}
}

// A form has the same effect when a middleware has parsed it before.
func TestParsedForms(t *testing.T) {
	for _, path := range adminpage.Posts() {
		s := newShop(t)
		parsed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			must(0, r.ParseForm())
			s.page.ServeHTTP(w, r)
		})
		text := s.formOf(path).Encode()
		want := map[string]int{"/why": 200}[path]
		if want == 0 {
			want = 303
		}
		expect.Equal(t, path+", parsed", s.send(parsed, path, strings.NewReader(text), len(text)).Code, want)
		twice := text + "&" + text
		w := s.send(parsed, path, strings.NewReader(twice), len(twice))
		expect.Holds(t, w.Code == 400 || path == "/sign-out", path, ", parsed, twice: ", w.Code)
	}
}

func TestBadForms(t *testing.T) {
	s := newShop(t)
	var files bytes.Buffer
	parts := multipart.NewWriter(&files)
	must(0, parts.WriteField("do", "revoke"))
	must(0, parts.Close())
	read := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		s.page.ServeHTTP(w, r)
	})
	for _, path := range adminpage.Posts() {
		text := s.formOf(path).Encode()
		for name, bad := range map[string]struct {
			status     int
			says, body string
			kind       string
			handler    http.Handler
		}{
			"twice":     {400, "must be given once", text + "&" + text, "", s.page},
			"many":      {400, "more than 100 parameters", text + strings.Repeat("&", 100), "", s.page},
			"escape":    {400, "malformed", text + "&x=%zz", "", s.page},
			"large":     {413, "larger than", text + "&x=" + strings.Repeat("x", 1<<21), "", s.page},
			"multipart": {415, "must be a form", files.String(), parts.FormDataContentType(), s.page},
			"json":      {415, "must be a form", `{}`, "application/json", s.page},
			"read":      {400, "was read before", text, "", read},
		} {
			for _, size := range []int{len(bad.body), -1} {
				if name == "read" && size < 0 {
					continue
				}
				w := s.send(bad.handler, path, strings.NewReader(bad.body), size, func(r *http.Request) {
					if bad.kind != "" {
						r.Header.Set("Content-Type", bad.kind)
					}
				})
				expect.Holds(t, w.Code == bad.status && strings.Contains(w.Body.String(), bad.says), path, ", ", name, ": ", w.Code, w.Body)
			}
		}
	}
}

// A page parses no bundle of a caller without rights, and none has more rows than a bundle of the interface.
func TestHugeBundles(t *testing.T) {
	s := newShop(t)
	nobody := must(s.service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "carol"}, svc.NewAPIKey{}))
	rows := strings.Repeat(`{"id":"u"},`, 90_000)
	bundle := `{"users":[` + strings.TrimSuffix(rows, ",") + `]}`
	text := "kind=user&who=bob&bank=b&action=bank:recall&do=x&bundle=" + bundle
	for _, path := range adminpage.Posts()[1:] {
		as := func(key string) (w *httptest.ResponseRecorder, allocated uint64) {
			s.post("sign-in", form("key", key))
			allocated = heaptest.Allocated(func() { w = s.send(s.page, path, strings.NewReader(text), len(text)) })
			return w, allocated
		}
		w, allocated := as(string(nobody.Key))
		expect.Holds(t, allocated <= uint64(16*len(text)), path, ": bytes allocated for a caller without rights: ", allocated)
		expect.Holds(t, path != "/why" || w.Code == 403, path, ": a caller without rights: ", w.Code)
		if path != "/why" {
			continue
		}
		w, _ = as(s.key)
		expect.Holds(t, w.Code == 400 && strings.Contains(w.Body.String(), "/users/10000"), path, ": too many rows: ", w.Code, w.Body)
	}
}

func TestRates(t *testing.T) {
	s := newSite(t, office())
	limited := must(s.service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "admin"},
		svc.NewAPIKey{Rate: svc.Rate{PerSecond: 0.001, Burst: 4}}))
	s.post("sign-in", form("key", string(limited.Key))).is(t, 200) // with two redirects
	answers := ""
	for range 3 {
		a := s.post("why", form("bundle", "{}"))
		answers += fmt.Sprint(a.StatusCode, " ", a.Header.Get("Retry-After") != "", " ")
	}
	expect.Equal(t, "answers", answers, "200 false 429 true 429 true ")
	s.post("sign-in", form("key", string(limited.Key))).is(t, 429, "Too many requests")
}
