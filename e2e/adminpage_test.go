package e2e_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/adminpage"
	"github.com/extsvc/svc/e2e/program"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/memstore"
)

// jobs are the lines that browser/drive.js prints on success.
const jobs = `signs in
follows a link of another site
explains a denial
tries a change
finds who can
changes access
reviews and updates
installs
issues, disables and revokes a key
reads the audit
filters
is accessible
signs out
`

// TestAdminPage does each job of the administration page in a browser, with and without JavaScript.
//
// Without Chromium, Node.js or its packages the test is skipped; with SVC_REQUIRE_NODE=1 it fails instead.
func TestAdminPage(t *testing.T) {
	longtest.Test(t, "the pages in a browser")
	p := newBrowser(t)
	if out := p.drive(newOffice(t, nil), "on"); out != jobs {
		t.Errorf("have\n%swant\n%s", out, jobs)
	}
	if out, want := p.drive(newOffice(t, nil), "off"), strings.Replace(jobs, "filters\n", "", 1); out != want {
		t.Errorf("without JavaScript: have\n%swant\n%s", out, want)
	}
}

// The check must be able to fail: it sees faults in the pages.
func TestAdminPageFaults(t *testing.T) {
	longtest.Test(t, "that the tests of the pages find faults")
	p := newBrowser(t)
	p.kept = append(p.kept, "PATIENCE=4000")
	for fault, replace := range map[string][2]string{
		"what was done is no status": {`role="status"`, `role="note"`},
		"the page is not marked":     {` aria-current="page"`, ``},
		"an unknown role":            {`<section class="card">`, `<section class="card" role="nothing">`},
	} {
		t.Run(fault, func(t *testing.T) {
			out, err := p.tryDrive(newOffice(t, func(page string) string {
				return strings.ReplaceAll(page, replace[0], replace[1])
			}), "on")
			if err == nil {
				t.Errorf("not seen: %s", out)
			}
		})
	}
}

// browser drives Chromium.
type browser struct {
	*program.Program
	t        *testing.T
	kept     []string // the environment of every run
	chromium string
}

func newBrowser(t *testing.T) browser {
	t.Helper()
	p := program.New(t, "browser")
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		p.Missing("there is no Chromium: %v", err)
	}
	p.GetPackages()
	return browser{p, t, p.Environment, chromium}
}

func (b browser) drive(o office, script string) string {
	b.t.Helper()
	out, err := b.tryDrive(o, script)
	if err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
	return out
}

func (b browser) tryDrive(o office, script string) (string, error) {
	b.Environment = append(slices.Clip(b.kept),
		"PAGE_URL="+o.url, "SVC_KEY="+o.key, "SCRIPT="+script, "CHROMIUM="+b.chromium)
	if longtest.InCI() {
		b.Environment = append(b.Environment, "LOOKS=light 1280, light 320, dark 320, dark 1280")
	}
	return b.Try("node", "drive.js")
}

// office is a server with the pages, some users, and a template that has an update.
type office struct{ url, key string }

// newOffice starts an office. change plants a fault into each page; nil: none.
func newOffice(t *testing.T, change func(page string) string) office {
	catalogue := func(version, budget string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(`{"templates":[{"id":"desk","name":"Desk","manifest":{"version":"` +
			version + `","budget":"` + budget + `"}}]}`)}
	}
	files := fstest.MapFS{"templates.json": catalogue("1", "mid")}
	service := must(svc.New(svc.Config{
		Store: memstore.New(), Events: svc.EventConfig{Keep: true},
		Sources: svc.SourceConfig{Marketplace: must(marketplace.New(marketplace.Config{Files: map[string]fs.FS{"acme": files}}))},
	}))
	t.Cleanup(func() { _ = service.Close() })
	must(0, service.Access.Apply(t.Context(), svc.Host, staff()))
	must(service.Sources.Register(t.Context(), svc.Host, svc.NewSource{URL: "fs://acme", Alias: new("acme")}))
	must(service.Templates.Install(t.Context(), svc.Host, svc.Install{TemplateID: "desk", SourceName: "acme"}))
	files["templates.json"] = catalogue("2", "high")
	issued := must(service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "admin"}, svc.NewAPIKey{}))

	var handler http.Handler = adminpage.New(service, adminpage.Options{}).Mount(http.NotFoundHandler())
	if change != nil {
		handler = changed(handler, change)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return office{server.URL + adminpage.DefaultPrefix + "/", string(issued.Key)}
}

// longName is wider than a phone, and has no place for a break.
const longName = "everything_that_the_desk_has_ever_written_down_and_kept_for_those_who_ask_again_later"

// staff has an administrator, and bob, whom a policy of his own forbids what his group allows.
func staff() svc.Bundle {
	document := func(statements string) json.RawMessage {
		return json.RawMessage(`{"version":"2026-03-24","statements":[` + statements + `]}`)
	}
	to := func(policy, kind, id string) svc.Attachment {
		return svc.Attachment{PolicyID: policy, Principal: svc.GrantedTo{Type: kind, ID: id}}
	}
	return svc.Bundle{
		Users:  []svc.User{{ID: "admin"}, {ID: "bob"}, {ID: "carol"}},
		Groups: []svc.Group{{ID: "support", Members: []string{"bob", "carol"}}},
		Policies: []svc.Policy{
			{ID: "on-leave", Document: document(`{"effect":"deny","actions":["bank:*"],"banks":["*"]}`)},
			{ID: "works", Document: document(`{"effect":"allow","actions":["bank:recall"],"banks":["support"],"recall_budget":"high"},` +
				`{"effect":"deny","actions":["bank:forget"],"banks":["*"]}`)},
			{ID: longName, Document: document(`{"effect":"allow","actions":["bank:recall"],"banks":["` + longName + `"]}`)},
		},
		Attachments: []svc.Attachment{
			to("on-leave", "user", "bob"), to("works", "group", "support"), to(longName, "user", "admin"),
			to(svc.PolicyIAMAdmin, "user", "admin"), to(svc.PolicyTemplateAdmin, "user", "admin"),
		},
	}
}

func changed(next http.Handler, change func(string) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Accept-Encoding")
		kept := httptest.NewRecorder()
		next.ServeHTTP(kept, r)
		maps.Copy(w.Header(), kept.Header())
		w.Header().Del("Content-Length")
		w.WriteHeader(kept.Code)
		_, _ = w.Write([]byte(change(kept.Body.String())))
	})
}

// readings are the lines that browser/site.js prints on success.
const readings = "searches\nshows diagrams\nprints\nis accessible\n"

// TestDocsSite reads the site of the documentation in a browser: search, diagrams, print, and what axe says of
// each page. Without Chromium, Node.js or its packages it is skipped; with SVC_REQUIRE_NODE=1 it fails instead.
func TestDocsSite(t *testing.T) {
	longtest.Test(t, "the site of the documentation in a browser")
	b, site := newBrowser(t), docsSite(t)
	if out, err := b.readSite(site); err != nil || out != readings {
		t.Errorf("%v: have\n%swant\n%s", err, out, readings)
	}
}

// The check must be able to fail: it sees faults in the site.
func TestDocsSiteFaults(t *testing.T) {
	longtest.Test(t, "that the test of the site finds faults")
	b := newBrowser(t)
	b.kept = append(b.kept, "ONLY=docs/faq.html")
	for fault, planted := range map[string]struct{ file, old, new, says string }{
		"a text without contrast":  {"docs/faq.html", "</h1>", `</h1><p style="color:#888;background:#999">some text</p>`, "color-contrast"},
		"a picture from elsewhere": {"docs/faq.html", "</h1>", `</h1><img alt="x" src="http://127.0.0.1:1/x.png">`, "requests to others"},
		"a wide page":              {"docs/faq.html", "</h1>", `</h1><p style="width:2000px">x</p>`, "scrolls sideways"},
		"no index":                 {"site/index.js", "const", "let other", "Timeout"},
	} {
		t.Run(fault, func(t *testing.T) {
			site := docsSite(t)
			name := filepath.Join(site, planted.file)
			text := strings.Replace(string(must(os.ReadFile(name))), planted.old, planted.new, 1)
			must(0, os.WriteFile(name, []byte(text), 0o600))
			b := b
			if planted.says == "Timeout" {
				b.kept = append(slices.Clip(b.kept), "PATIENCE=2000")
			}
			if out, err := b.readSite(site); err == nil || !strings.Contains(out, planted.says) {
				t.Errorf("not seen: %s", out)
			}
		})
	}
}

func docsSite(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	command := exec.CommandContext(t.Context(), "go", "-C", "../docs/site", "run", ".", folder)
	command.Env = append(os.Environ(), "GOWORK=off")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return folder
}

func (b browser) readSite(folder string) (string, error) {
	b.Environment = append(slices.Clip(b.kept), "SITE="+folder, "CHROMIUM="+b.chromium)
	return b.Try("node", "site.js")
}
