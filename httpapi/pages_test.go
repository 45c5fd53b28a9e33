package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/heaptest"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/memstore"
)

// rows are those of a list, which may be in an object.
func (a answer) rows() (all []map[string]any) {
	a.t.Helper()
	list, isArray := parse(a.t, a.body).([]any)
	if !isArray {
		for _, member := range a.value() {
			list = member.([]any)
		}
	}
	for _, row := range list {
		all = append(all, row.(map[string]any))
	}
	return all
}

// next is where the Link of an answer to a target leads, "" without one.
func (a answer) next(target string) string {
	a.t.Helper()
	reference, is := strings.CutSuffix(strings.TrimPrefix(a.header.Get("Link"), "<"), `>; rel="next"`)
	if !is {
		expect.Equal(a.t, a.request, a.header.Get("Link"), "")
		return ""
	}
	base := &url.URL{Path: strings.Split(target, "?")[0]}
	return base.ResolveReference(must(url.Parse(reference))).String()
}

// follow follows the links of a list to its end, and returns the rows on each page.
func (c caller) follow(target string) (all [][]map[string]any) {
	c.t.Helper()
	for target != "" {
		a := c.get(target).is(200)
		if all = append(all, a.rows()); len(all) > 1000 {
			c.t.Fatalf("the pages of %s do not end", target)
		}
		target = a.next(target)
	}
	return all
}

// pages are the ids on each page of a list.
func (c caller) pages(target string) (all [][]string) {
	c.t.Helper()
	for i, page := range c.follow(target) {
		all = append(all, nil)
		for _, row := range page {
			all[i] = append(all[i], row["id"].(string))
		}
	}
	return all
}

// A page of large rows ends early, and is not lost.
func TestPageOfLargeRows(t *testing.T) {
	t.Parallel()
	admin := newSite(t).admin()
	large := strings.Repeat("x", 400_000)
	for i := range 7 {
		admin.post("/admin/templates", fmt.Sprintf(`{"id": "t%d", "name": "n", "manifest": {"version": "1", "x": %q}}`, i, large)).is(200)
	}
	expect.Equal(t, "pages", admin.pages("/admin/templates?limit=100"), [][]string{{"t0", "t1", "t2"}, {"t3", "t4", "t5"}, {"t6"}})
}

// A list that is asked for whole ends after MaxList rows, and a Link leads to the others.
func TestListsHaveABound(t *testing.T) {
	longtest.Test(t, "lists of more than 10,000 rows")
	s := newSite(t, func(u *setup) { u.Keys.MaxPerHolder = 2 * httpapi.MaxList })
	admin := s.as("session-of-admin")
	for i := range httpapi.MaxList + 3 {
		content := svc.Content{Name: "Same", Tags: []string{"all"}, Manifest: []byte(`{"version":"1"}`)}
		must(s.service.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: fmt.Sprintf("t%05d", i), Content: content}))
		must(s.service.Keys.Issue(t.Context(), svc.Host, alice, svc.NewAPIKey{}))
	}
	for _, target := range []string{
		"/admin/templates", "/admin/templates?tag=all", "/users/alice/api-keys", "/admin/api-keys", "/admin/api-keys?unused_since=2030-01-01T00:00:00Z",
	} {
		pages := admin.pages(target)
		ids := slices.Concat(pages...)
		expect.Equal(t, target, []int{len(ids), len(pages[0])}, []int{httpapi.MaxList + 3, httpapi.MaxList})
		expect.Holds(t, strings.Contains(target, "keys") || slices.IsSorted(ids), target)
	}
	for i := range 4 {
		admin.delete(fmt.Sprintf("/admin/templates/t%05d", i)).is(204)
		if i == 2 {
			pages := admin.pages("/admin/templates")
			expect.Equal(t, "a whole list", []int{len(pages), len(pages[0])}, []int{1, httpapi.MaxList})
		}
	}
	pages := admin.pages("/admin/templates")
	expect.Equal(t, "a list of one row less", []int{len(pages), len(pages[0])}, []int{1, httpapi.MaxList - 1})
}

func many(t *testing.T, count int) *site {
	t.Helper()
	s := newSite(t)
	padding := strings.Repeat("x", 4<<10)
	for i := range count {
		content := svc.Content{Name: "Same", Manifest: []byte(`{"version":"1","n":` + fmt.Sprint(i) + `.0,"padding":"` + padding + `"}`)}
		must(s.service.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: fmt.Sprintf("t%03d", i), Content: content}))
	}
	return s
}

// open sends a request for the list of templates and returns its answer unread.
func (s *site) open() *http.Response {
	s.t.Helper()
	r := must(http.NewRequest("GET", s.server.URL+s.prefix+"/admin/templates", nil))
	r.Header.Set("Authorization", "Bearer "+s.key("admin"))
	response := must(s.server.Client().Do(r))
	s.t.Cleanup(func() { response.Body.Close() })
	return response
}

// beforeChunk does something before one of the reads of a long list: the first chunk, the place where it would end, the second chunk.
func (s *site) beforeChunk(n int, do func() error) {
	chunk := 0
	s.store.Plant(in("Templates", func() error {
		if chunk++; chunk == n {
			return do()
		}
		return nil
	}))
}

func TestListThatBreaksOffIsCut(t *testing.T) {
	t.Parallel()
	const inside = "disk on fire"
	for name, do := range map[string]func() error{
		"fault":       func() error { return errors.New(inside) },
		"unavailable": func() error { return fmt.Errorf("%s: %w", inside, svc.ErrUnavailable) },
		"panic":       func() error { panic(inside) },
	} {
		t.Run(name, func(t *testing.T) {
			s := many(t, 150)
			s.beforeChunk(3, do)
			response := s.open()
			body, err := io.ReadAll(response.Body)
			expect.Holds(t, err != nil, response.StatusCode, len(body), body[max(0, len(body)-200):])
			expect.Holds(t, !strings.Contains(string(body), inside) && !strings.Contains(string(body), "problem") && !strings.Contains(string(body), "about:blank"), "an error was written into the list")
			expect.Holds(t, strings.Contains(s.said.String(), inside), "nothing of it in the log")
			s.store.Plant(nil)
			s.admin().get("/admin/templates").is(200)
		})
	}
}

func TestListThatFailsBeforeAnythingWasSent(t *testing.T) {
	for chunk := range 2 {
		s := newSite(t)
		admin := s.admin()
		admin.post("/admin/templates", `{"id": "a", "name": "n", "manifest": {"version": "1"}}`).is(200)
		s.beforeChunk(chunk+1, func() error { return svc.ErrUnavailable })
		admin.get("/admin/templates").fails(503, "unavailable")
		s.beforeChunk(chunk+1, func() error { panic("disk on fire") })
		admin.get("/admin/templates").fails(500, "internal")
	}
}

// halves are the routes that both halves have, by their path behind /admin and /me: of each the action that openapi.json names.
func halves(t *testing.T) map[httpapi.Route][2]string {
	t.Helper()
	d := readDocument(t)
	both := map[httpapi.Route][2]string{}
	for _, route := range httpapi.Routes() {
		path, is := strings.CutPrefix(route.Path, "/me")
		if other, shared := d.Paths["/admin"+path]; is && shared && path != "/api-keys" { // of all holders, and of the caller
			method := strings.ToLower(route.Method)
			both[httpapi.Route{Method: route.Method, Path: path}] =
				[2]string{other[method].Actions[0], d.Paths[route.Path][method].Actions[0]}
		}
	}
	expect.Equal(t, "routes that are in both halves", len(both), 19)
	return both
}

// bodies are bodies that the routes take.
var bodies = map[string]string{
	"POST /template-sources":                 `{"url": "https://h/acme"}`,
	"POST /templates":                        `{"id": "chat", "name": "Chat", "manifest": {"version": "1"}}`,
	"PATCH /templates/{template_id}":         `{"name": "Chat"}`,
	"POST /templates/{template_id}/install":  `{"source_name": "acme"}`,
	"POST /templates/{template_id}/rollback": `{"version": 1}`,
}

var atChat = strings.NewReplacer("{name}", "acme", "{template_id}", "chat")

// Each route of a half needs the action that openapi.json names, and no other action of templates does.
func TestActionsOfBothHalves(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	actions := []string{"template:admin", "template:list", "template:create", "template:manage", "template:install", "template:source"}
	for route, needed := range halves(t) {
		for half, prefix := range []string{"/admin", "/me"} {
			send := func(bearer string) answer {
				return s.as(bearer).send(route.Method, prefix+atChat.Replace(route.Path), bodies[route.Method+" "+route.Path])
			}
			for _, action := range actions {
				a := send("session-of-plain+" + action)
				expect.Holds(t, (a.status == 403) != (action == needed[half]), a.request, action, a.status)
			}
			for bearer, may := range map[string]bool{
				s.key("admin"): true, s.accountKey("robot"): true, s.accountKey("narrow"): false, "session-of-plain": false, "session-of-unseen+template:*": true,
				"session-of-barred+template:*": false, "session-of-nobody+sa+template:*": prefix == "/admin",
			} {
				expect.Holds(t, (send(bearer).status != 403) == may, prefix, route, bearer[:5])
			}
			send("").fails(401, "unauthenticated")
			send("session-of-ghost+template:*").fails(401, "unauthenticated")
		}
	}
}

// discarded is an answer without a reader.
type discarded struct {
	header http.Header
	status int
}

func (d *discarded) Header() http.Header         { return d.header }
func (d *discarded) Write(p []byte) (int, error) { return len(p), nil }
func (d *discarded) WriteHeader(status int)      { d.status = status }

// shelf is an interface with so many templates of so many bytes each, kept in memory, and a request for a page of them.
func shelf(t *testing.T, templates, size, limit int) (http.Handler, *http.Request) {
	t.Helper()
	service := must(svc.New(svc.Config{
		Store: memstore.New(), Memory: svc.Memory{Templates: 64 << 20},
		Authenticator: svc.AuthenticatorFunc(func(context.Context, string) (svc.Principal, error) {
			return svc.Principal{Kind: svc.KindUser, ID: "admin", Actions: []string{"template:*"}}, nil
		}),
	}))
	t.Cleanup(func() { _ = service.Close() })
	manifest := json.RawMessage(`{"version":"1","text":"` + strings.Repeat("x", size) + `"}`)
	for i := range templates {
		id := fmt.Sprintf("t%04d", i)
		must(service.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: id, Content: svc.Content{Name: id, Manifest: manifest}}))
	}
	r := must(http.NewRequest("GET", fmt.Sprintf("/ext/svc/admin/templates?limit=%d", limit), nil))
	r.Header.Set("Authorization", "Bearer session")
	api := httpapi.New(service, httpapi.Options{})
	expect.Soon(t, "it never came", func() bool { // an ETag is one of memory, which is read in the background
		w := &discarded{header: http.Header{}}
		api.ServeHTTP(w, r)
		return w.header.Get("ETag") != ""
	})
	return api, r
}

// A page of some hundred kilobytes takes no memory of its own: the buffer of the one before is used again.
func TestPagesShareBuffers(t *testing.T) {
	if longtest.Raced {
		t.Skip("NOT TESTED: bytes, which the race detector changes")
	}
	api, r := shelf(t, 100, 4<<10, 100)
	const pages = 100
	allocated := heaptest.Allocated(func() {
		for range pages {
			api.ServeHTTP(&discarded{header: http.Header{}}, r)
		}
	})
	expect.Holds(t, allocated/pages <= 128<<10, "a page of 400 KiB")
}

// What is kept for pages is bounded, however many are asked for at once, and however large they are.
func TestBuffersOfPagesAreBounded(t *testing.T) {
	if longtest.Raced {
		t.Skip("NOT TESTED: bytes, which the race detector changes")
	}
	api, r := shelf(t, 20, 700<<10, 10)
	before := heaptest.Live()
	var group sync.WaitGroup
	for range 40 {
		group.Go(func() { api.ServeHTTP(&discarded{header: http.Header{}}, r.Clone(t.Context())) })
	}
	group.Wait()
	if kept := heaptest.Live() - before; kept > 24<<20 { // 40 pages have 60 MiB, the pool at most 16
		t.Errorf("%d bytes are kept", kept)
	}
	runtime.KeepAlive(api)
}
