package bench_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/adminpage"
)

// BenchmarkAdminPage serves each page of the administration page from SQLite, with 10,000
// templates, 100,000 keys, 20,000 users and 100,000 events. It fails when a page is larger than
// 20 kB. The templates fit into the cache.
func BenchmarkAdminPage(b *testing.B) {
	page := newAdminPage(b)
	for name, address := range map[string]string{
		"why":              "why?user_id=user-000150&bank=bank-9&action=bank:recall",
		"who-can":          "who-can?bank=shared&action=bank:recall",
		"who-can/last":     "who-can?bank=shared&action=bank:recall&after=0user-009970",
		"templates":        "templates",
		"templates/search": "templates?search=t-009999",
		"templates/none":   "templates?search=nothing+has+this",
		"templates/edited": "templates?state=edited",
		"templates/update": "templates?state=update",
		"templates/hand":   "templates?state=hand&search=category-499",
		"template":         "templates/t-009999",
		"keys":             "keys",
		"keys/holder":      "keys?holder=u-000500",
		"keys/expiring":    "keys?which=expiring",
		"keys/unused":      "keys?which=unused",
		"audit":            "audit",
		"audit/actor":      "audit?actor=u-7&since=2023-11-20",
	} {
		b.Run(name, func(b *testing.B) {
			size := 0
			for b.Loop() {
				r := httptest.NewRequest("GET", adminpage.DefaultPrefix+"/"+address, nil)
				r.Header.Set("Accept-Encoding", "gzip")
				w := httptest.NewRecorder()
				page.ServeHTTP(w, r)
				if size = w.Body.Len(); w.Code != http.StatusOK || size > 20_000 {
					b.Fatalf("%s: answered %d, %d bytes", address, w.Code, size)
				}
			}
			b.ReportMetric(float64(size), "wire-B")
		})
	}
}

// newAdminPage returns the pages for the user boss, who is signed in by the host.
func newAdminPage(b *testing.B) *adminpage.Handler {
	s := newAuditLog(b, sqliteEngine).site
	for _, table := range []string{
		"svc_api_keys", "svc_users", "svc_templates", "svc_sources",
	} {
		if _, err := s.bare.write.Exec("DELETE FROM " + table); err != nil {
			b.Fatal(err)
		}
	}
	s.keys, s.templates, s.known = 100_000, 10_000, 0
	former := manifest
	manifest = makeManifest(2<<10, 2)
	defer func() { manifest = former }()
	if err := s.seed(); err != nil {
		b.Fatal(err)
	}
	_, err := s.bare.write.Exec(`UPDATE svc_api_keys SET
		expires_at = CASE WHEN rowid % 2 = 0 THEN (strftime('%s', 'now') + rowid * 100) * 1000000 END,
		last_used_at = CASE WHEN rowid % 3 = 0 THEN strftime('%s', 'now') * 1000000 END`)
	if err != nil {
		b.Fatal(err)
	}
	c := config(s.store)
	c.Events.Keep, c.Templates.Cached = true, 0
	service, err := svc.New(c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = service.Close() })
	if err := service.Access.Apply(b.Context(), svc.Host, company(10_000, 500)); err != nil {
		b.Fatal(err)
	}
	boss := svc.Identity{Kind: svc.KindUser, ID: "boss"}
	key, err := service.Keys.Issue(b.Context(), svc.Host, boss, svc.NewAPIKey{})
	if err != nil {
		b.Fatal(err)
	}
	return adminpage.New(service, adminpage.Options{
		Bearer: func(*http.Request) string { return string(key.Key) },
	})
}
