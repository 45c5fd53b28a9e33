package svctest_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/memstore"
	"github.com/extsvc/svc/svctest"
)

const installNotes = `{"source_name": "acme"}`

func manifest(answer string) string {
	var template struct{ Manifest json.RawMessage }
	if err := json.Unmarshal([]byte(answer), &template); err != nil {
		return answer
	}
	return string(template.Manifest)
}

func TestSource(t *testing.T) {
	is, server := is.New(t), svctest.New(t)
	acme := server.Source("acme", svctest.Template{ID: "notes", Manifest: `{"version": "1", "html": "<b>&"}`}, svctest.Template{ID: "other"})
	is.Equal(acme.Requests(), nil) // registration sends no request
	_, answer := server.Admin.Do("POST", notes+"/install", installNotes)
	is.Equal(manifest(answer), `{"version":"1","html":"<b>&"}`)

	hasUpdate := func(want bool) {
		t.Helper()
		got, answer := server.Admin.Do("GET", notes+"/check-update", "")
		is.Equal(got, 200)
		is.Equal(strings.Contains(answer, `"has_update":true`), want)
	}
	hasUpdate(false)
	acme.Put(svctest.Template{ID: "third"})
	hasUpdate(false)
	acme.Put(svctest.Template{ID: "notes", Name: "Notes", Description: "d", Category: "c", Integrations: []string{"i"}, Tags: []string{"t"}})
	hasUpdate(true)
	is.Equal(status(server.Admin, "POST", notes+"/update", ""), 200)
	acme.Remove("notes")
	is.Equal(status(server.Admin, "POST", notes+"/update", ""), 404)
	is.Equal(acme.Requests(), []string{
		"GET /templates.json 200", "GET /templates.json 304", "GET /templates.json 200", "GET /templates.json 200",
		"GET /templates.json 304", "GET /templates.json 200",
	})

	template := must(server.Service.Templates.Read(t.Context(), svc.Host, "notes"))
	text := func(s string) *string { return &s }
	is.Equal(template.Content, svc.Content{Name: "Notes", Description: text("d"), Category: text("c"),
		Integrations: []string{"i"}, Tags: []string{"t"}, Manifest: json.RawMessage(`{"version":"1"}`)})
}

// TestListsShowAtOnce: lists come from the source, not from the cache.
func TestListsShowAtOnce(t *testing.T) {
	is, server := is.New(t), svctest.New(t)
	acme := server.Source("acme", svctest.Template{ID: "notes"})
	list := func() string {
		got, answer := server.Admin.Do("GET", sources+"/acme/templates", "")
		is.Equal(got, 200)
		return answer
	}
	is.True(strings.Contains(list(), `"notes"`))
	acme.Put(svctest.Template{ID: "support"})
	acme.Remove("notes")
	is.True(strings.Contains(list(), `"support"`))
	is.True(!strings.Contains(list(), `"notes"`))
	is.True(strings.Contains(list(), `"stale":false`))
	acme.Fail(503)
	is.True(strings.Contains(list(), `"stale":true`))
	acme.Remove("support")
	acme.Fail(0)
	is.True(strings.Contains(list(), `"templates":[]`))

	server.Source("empty")
	_, answer := server.Admin.Do("GET", sources+"/empty/templates", "")
	is.True(strings.HasPrefix(answer, `{"templates":[],`))
}

func TestFail(t *testing.T) {
	is, server := is.New(t), svctest.New(t)
	acme, other := server.Source("acme", svctest.Template{ID: "notes"}), server.Source("o t{h}er.git", svctest.Template{ID: "else"})
	acme.Fail(404)
	got, answer := server.Admin.Do("POST", notes+"/install", installNotes)
	is.Equal(got, 502)
	is.True(strings.Contains(answer, "answered 404"))
	is.Equal(status(server.Admin, "POST", templates+"/else/install", `{"source_name": "o t{h}er.git"}`), 200)
	acme.Fail(0)
	is.Equal(status(server.Admin, "POST", notes+"/install", installNotes), 200)
	is.Equal(acme.Requests(), []string{"GET /templates.json 404", "GET /templates.json 200"})
	is.Equal(other.Requests(), []string{"GET /templates.json 200"})

	is.Equal(status(server.Admin, "DELETE", sources+"/acme", ""), 204)
	acme = server.Source("acme", svctest.Template{ID: "new"}) // a new source under the same name
	is.Equal(status(server.Admin, "POST", templates+"/new/install", installNotes), 200)
	is.Equal(len(acme.Requests()), 1)
}

func TestHang(t *testing.T) {
	is, server := is.New(t), svctest.New(t)
	acme := server.Source("acme", svctest.Template{ID: "notes"})
	asked, release := acme.Hang()
	answered := make(chan int)
	go func() { answered <- status(server.Admin, "POST", notes+"/install", installNotes) }()
	select {
	case <-asked:
	case got := <-answered:
		t.Fatalf("answered %d before it was released", got)
	}
	waiting := acme.Requests()
	is.Equal(status(server.Admin, "GET", notes, ""), 404) // other requests do not wait
	acme.Put(svctest.Template{ID: "notes", Manifest: `{"version": "2"}`})
	release()
	is.Equal(<-answered, 200)
	_, answer := server.Admin.Do("GET", notes, "")
	is.Equal(manifest(answer), `{"version":"2"}`) // the source's state when it answered
	is.Equal(waiting, []string{"GET /templates.json"})
	is.Equal(acme.Requests(), []string{"GET /templates.json 200"})
	release() // does nothing
	is.Equal(status(server.Admin, "GET", notes+"/check-update", ""), 200)
}

// TestNewSource: a host that builds everything itself can use a source.
func TestNewSource(t *testing.T) {
	is, acme := is.New(t), svctest.NewSource(t, "acme", svctest.Template{ID: "notes"})
	market := must(marketplace.New(marketplace.Config{AllowOrigins: []string{acme.Origin}}))
	defer market.CloseIdleConnections()
	service := must(svc.New(svc.Config{Store: memstore.New(), Sources: svc.SourceConfig{Marketplace: market}, Logger: slog.New(slog.DiscardHandler)}))
	defer service.Close()
	source := must(service.Sources.Register(t.Context(), svc.Host, svc.NewSource{URL: acme.URL}))
	is.Equal(source.Name, "acme")
	_ = must(service.Templates.Install(t.Context(), svc.Host, svc.Install{SourceName: "acme", TemplateID: "notes"}))
	response := must(http.Get(acme.URL + "/templates.json.sig"))
	is.NoErr(response.Body.Close())
	is.Equal(acme.Requests(), []string{"GET /templates.json 200", "GET /templates.json.sig 404"})
}
