package adminpage_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/adminpage"
	"github.com/extsvc/svc/internal/expect"
)

// market is a Marketplace whose sources offer nothing. Those of ill fail, and all wait for open.
type market struct {
	svc.Marketplace
	open   chan struct{}
	ill    string
	panics string // what Catalog panics with; "": it does not
}

func (market) CheckURL(string) error { return nil }
func (m market) fault(from svc.Upstream) error {
	if !strings.Contains(from.URL, m.ill) {
		return nil
	}
	return &svc.Error{Code: svc.CodeSourceFailed, Message: "the source answers 503"}
}

func (m market) Template(_ context.Context, from svc.Upstream, _ string) (svc.Content, error) {
	return svc.Content{Name: "Desk", Manifest: []byte(`{"version":"1"}`)}, nil
}

func (m market) Catalog(ctx context.Context, from svc.Upstream, _ time.Duration) (svc.Catalog, error) {
	if m.panics != "" {
		panic(m.panics)
	}
	select {
	case <-m.open:
		return svc.Catalog{}, m.fault(from)
	case <-ctx.Done():
		return svc.Catalog{}, ctx.Err()
	}
}

// A check that takes long is answered at once, goes on without its page, and names what failed.
func TestSlowCheck(t *testing.T) {
	t.Parallel()
	m := market{open: make(chan struct{}), ill: "two"}
	s := newSiteWith(t, svc.Config{Sources: svc.SourceConfig{Marketplace: m}}, office()).signIn()
	for _, name := range []string{"one", "two", "three"} {
		must(s.service.Sources.Register(t.Context(), svc.Host, svc.NewSource{URL: "https://" + name + ".example", Alias: &name}))
		must(s.service.Templates.Install(t.Context(), svc.Host, svc.Install{TemplateID: "desk-" + name, SourceName: name}))
	}
	running := s.post("sources", form("do", "check")).is(t, 200, "Checking for updates", `http-equiv="refresh"`, "", "Checked")
	s.post("templates", form("do", "check")).is(t, 200, "Checking for updates") // the same one
	s.get("templates").is(t, 200, "Checking for updates", "not checked")
	close(m.open)
	for strings.Contains(running.body, "Checking for updates") {
		running = s.get("sources?done=checked")
	}
	running.is(t, 200, `role="alert"`, "Checked 2 of 3 sources.", `href="sources/two"`, "the source answers 503", "<title>Error: Sources", "", `http-equiv="refresh"`, `href="sources/one">one</a>:`)
	s.get("sources").is(t, 200, "the source answers 503", "", `role="alert"`)

	other := httptest.NewServer(adminpage.New(s.service, adminpage.Options{}).Mount(http.NotFoundHandler()))
	defer other.Close()
	s.url = strings.Replace(s.url, s.url[:strings.Index(s.url, "/ext/")], other.URL, 1)
	s.signIn().get("sources").is(t, 200, "the source answers 503", "", "not checked") // the report is kept
}

// A check that panics ends no process, and its page says so. The log has no key.
func TestCheckThatPanics(t *testing.T) {
	var log strings.Builder
	m := &market{}
	s := newSiteWith(t, svc.Config{Sources: svc.SourceConfig{Marketplace: m}}, office(), func(o *adminpage.Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	}).signIn()
	must(s.service.Sources.Register(t.Context(), svc.Host, svc.NewSource{URL: "https://one.example", Alias: new("one")}))
	must(s.service.Templates.Install(t.Context(), svc.Host, svc.Install{TemplateID: "desk", SourceName: "one"}))
	m.panics = "planted " + s.key
	ended := s.post("sources", form("do", "check"))
	for strings.Contains(ended.body, "Checking for updates") {
		ended = s.get("sources?done=checked")
	}
	ended.is(t, 200, "The check was not completed.")
	text := log.String()
	expect.Holds(t, strings.Contains(text, "planted") && !strings.Contains(text, s.key), text)
}
