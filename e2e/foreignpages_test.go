package e2e_test

import (
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/sqlite"
)

// cookieSite is a host with sessions in cookies, and the browser of its administrator.
type cookieSite struct {
	*site
	store  *sqlite.Store
	origin string // of its pages
}

func newCookieSite(t *testing.T, protection *http.CrossOriginProtection) *cookieSite {
	shelf := fstest.MapFS{"templates.json": {Data: []byte(`{"templates": [{"id": "chat", "name": "Chat", "manifest": {"version": "1"}}]}`)}}
	s := &cookieSite{}
	config := marketplace.Config{Files: map[string]fs.FS{"shelf": shelf}}
	s.site = newSiteOn(t, config, func() (database, error) {
		var err error
		s.store, err = sqlite.Open(t.Context(), t.TempDir()+"/svc.db", sqlite.Options{})
		return s.store, err
	})
	server := httptest.NewServer(httpapi.New(s.service, httpapi.Options{CrossOrigin: protection, Principal: bySession}))
	t.Cleanup(server.Close)
	s.origin = server.URL
	return s
}

// bySession accepts the administrator's session.
func bySession(r *http.Request) (svc.Principal, error) {
	if cookie, err := r.Cookie("session"); err != nil || cookie.Value != "the administrator's" {
		return svc.Principal{}, svc.ErrUnauthenticated
	}
	return svc.Principal{Kind: svc.KindUser, ID: "admin"}, nil
}

// fetched is a request as a browser sends it for a page.
type fetched struct {
	what, method string // method: "" the route's
	origin       string // "" the browser sends none
	site, mode   string // Sec-Fetch-Site and Sec-Fetch-Mode; "": an old browser
	kind         string // Content-Type; "" no body
}

const evil = "https://evil.example"

// foreign are the requests that pages of other origins can make a browser send with its cookies. A
// browser sends those that need a preflight only after it was allowed to: they stand for one that
// does not ask.
var foreign = []fetched{
	{"form", "POST", evil, "cross-site", "navigate", "application/x-www-form-urlencoded"},
	{"form of files", "POST", evil, "cross-site", "navigate", "multipart/form-data; boundary=b"},
	{"form of text", "POST", evil, "cross-site", "navigate", "text/plain"},
	{"form in a sandbox", "POST", "null", "cross-site", "navigate", "text/plain"},
	{"form without referrer", "POST", "null", "cross-site", "navigate", "application/x-www-form-urlencoded"},
	{"form of an old browser", "POST", evil, "", "", "text/plain"},
	{"empty form", "POST", evil, "cross-site", "navigate", ""},
	{"fetch, no-cors", "POST", evil, "cross-site", "no-cors", "text/plain"},
	{"beacon", "POST", evil, "cross-site", "no-cors", "text/plain;charset=UTF-8"},
	{"fetch, no-cors, JSON", "POST", evil, "cross-site", "no-cors", "application/json"},
	{"fetch with credentials", "", evil, "cross-site", "cors", "application/json"},
	{"fetch without a body", "", evil, "cross-site", "cors", ""},
	{"fetch of an old browser", "", evil, "", "", "application/json"},
	{"fetch in a sandbox", "", "null", "cross-site", "cors", "application/json"},
	{"fetch of an old browser in a sandbox", "", "null", "", "", "application/json"},
	{"fetch of a sibling", "", "http://www.{host}", "same-site", "cors", "application/json"},
	{"fetch of another port", "", "http://127.0.0.1:1", "same-site", "cors", "application/json"},
}

// harmless are the foreign requests that a browser also sends, and that only read.
var harmless = []fetched{
	{"image", "GET", "", "cross-site", "no-cors", ""},
	{"script", "GET", "", "cross-site", "no-cors", ""},
	{"link", "GET", "", "cross-site", "navigate", ""},
	{"fetch to read", "GET", evil, "cross-site", "cors", ""},
	{"preflight", "OPTIONS", evil, "cross-site", "cors", ""},
}

// browse sends a request with the administrator's cookie.
func (s *cookieSite) browse(f fetched, method, target, body string) *http.Response {
	s.t.Helper()
	if f.method != "" {
		method = f.method
	}
	if f.kind == "" {
		body = ""
	}
	r := must(http.NewRequestWithContext(s.t.Context(), method, s.origin+httpapi.DefaultPrefix+target, strings.NewReader(body)))
	r.AddCookie(&http.Cookie{Name: "session", Value: "the administrator's"})
	for name, value := range map[string]string{
		"Origin": strings.ReplaceAll(f.origin, "{host}", r.Host), "Sec-Fetch-Site": f.site, "Sec-Fetch-Mode": f.mode, "Content-Type": f.kind,
	} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	answer := must(http.DefaultClient.Do(r))
	must(0, answer.Body.Close())
	return answer
}

// generation returns the number that every mutation raises.
func (s *cookieSite) generation() int64 {
	return must(s.store.Changes(s.t.Context(), math.MaxInt64)).Generation
}

// tryForeign sends all foreign requests for one route, and returns what they reached.
func (s *cookieSite) tryForeign(method, target, body string) (reached []string) {
	before := s.generation()
	check := func(f fetched, refused bool) {
		answer := s.browse(f, method, target, body)
		after := s.generation()
		switch header := answer.Header; {
		case refused && answer.StatusCode != http.StatusForbidden, after != before,
			header.Get("Access-Control-Allow-Origin") != "" || header.Get("Cross-Origin-Resource-Policy") != "same-origin":
			reached = append(reached, fmt.Sprintf("%s: %s %s answers %d %v, %d changes", f.what, method, target, answer.StatusCode, header, after-before))
		}
		before = after
	}
	for _, f := range foreign {
		check(f, true)
	}
	for _, f := range harmless {
		check(f, false)
	}
	return reached
}

// mutating returns the rows of the matrix whose requests can change something.
func mutating() map[string]row {
	rows := map[string]row{}
	for _, route := range httpapi.Routes() {
		if name := route.Method + " " + route.Path; route.Method != "GET" {
			rows[name] = matrix[name]
		}
	}
	return rows
}

// A page of another origin gets nowhere with the cookies of its visitor, on no route. The
// host's own page does what its user may do.
func TestForeignPages(t *testing.T) {
	s := newCookieSite(t, nil)
	changed := 0
	for name, row := range mutating() {
		t.Run(name, func(t *testing.T) {
			target := s.restock().in(row.target, keyID(s.key("admin")))
			method, _, _ := strings.Cut(name, " ")
			for _, reached := range s.tryForeign(method, target, row.body) {
				t.Error(reached)
			}
			before, kind := s.generation(), ""
			if row.body != "" {
				kind = kindOf(target)
			}
			own := fetched{"own", "", s.origin, "same-origin", "cors", kind}
			if answer := s.browse(own, method, target, row.body); answer.StatusCode != row.statuses[5] {
				t.Errorf("the own page: %d", answer.StatusCode)
			}
			if s.generation() > before {
				changed++
			}
		})
	}
	if changed < 40 {
		t.Errorf("the own page changed something %d times", changed)
	}
}

// TestForeignPages must be able to fail.
func TestForeignPagesAreNoticed(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	off := http.NewCrossOriginProtection()
	off.AddInsecureBypassPattern("/")
	s := newCookieSite(t, off)
	for name, row := range mutating() {
		target := s.restock().in(row.target, keyID(s.key("admin")))
		method, _, _ := strings.Cut(name, " ")
		if reached := s.tryForeign(method, target, row.body); len(reached) < len(foreign)-2 {
			t.Errorf("%s: unprotected, only this was noticed: %q", name, reached)
		}
	}
}
