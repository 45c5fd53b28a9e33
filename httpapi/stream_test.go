package httpapi_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
)

// many fills a site with templates of 4 KB each.
func many(t *testing.T, count int) *site {
	t.Helper()
	s := newSite(t)
	padding := strings.Repeat("x", 4<<10)
	for i := range count {
		_, err := s.service.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: fmt.Sprintf("t%03d", i), Content: svc.Content{
			Name: "Same", Manifest: []byte(`{"version":"1","n":` + fmt.Sprint(i) + `.0,"padding":"` + padding + `"}`),
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// open sends a request for the list of templates and returns its answer unread.
func (s *site) open() *http.Response {
	s.t.Helper()
	r := must(http.NewRequest("GET", s.server.URL+s.prefix+"/admin/templates", nil))
	r.Header.Set("Authorization", "Bearer "+s.key("admin"))
	response, err := s.server.Client().Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { response.Body.Close() })
	return response
}

func TestListOfManyTemplates(t *testing.T) {
	s := many(t, 500)
	a := s.admin().get("/admin/templates").is(200)
	var want []string
	for i := range 500 {
		want = append(want, fmt.Sprintf("t%03d", i))
	}
	if have := a.texts("id"); !slices.Equal(have, want) {
		t.Errorf("%d of 500, or not in their order: %v", len(have), have)
	}
	if len(a.body) < 500*4<<10 {
		t.Errorf("only %d bytes", len(a.body))
	}
}

// beforeChunk does something before one of the reads of a long list: the first chunk, the place where it would end, the second chunk.
func (s *site) beforeChunk(n int, do func() error) {
	chunk := 0
	s.store.plant(func(call string) error {
		if call != "Templates" {
			return nil
		}
		if chunk++; chunk == n {
			return do()
		}
		return nil
	})
}

func TestListIsSentWhileItIsRead(t *testing.T) {
	s := many(t, 150)
	seen := make(chan bool)
	s.beforeChunk(3, func() error {
		select {
		case <-seen:
			return nil
		case <-time.After(5 * time.Second):
			return errors.New("nobody has seen the first chunk")
		}
	})
	response := s.open()
	start := make([]byte, 32<<10)
	if _, err := io.ReadFull(response.Body, start); err != nil {
		t.Fatal(err)
	}
	close(seen)
	rest, err := io.ReadAll(response.Body)
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(rest)), "]}") {
		t.Errorf("the list broke off: %v", err)
	}
}

func TestListThatBreaksOffIsCut(t *testing.T) {
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
			if err == nil {
				t.Errorf("half a list passes for a whole one: %d, %d bytes, ending %q", response.StatusCode, len(body), body[max(0, len(body)-200):])
			}
			if strings.Contains(string(body), inside) || strings.Contains(string(body), "problem") || strings.Contains(string(body), "about:blank") {
				t.Error("an error was written into the list")
			}
			if !strings.Contains(s.said.String(), inside) {
				t.Error("nothing of it in the log")
			}
			s.store.plant(nil)
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

// A client that goes away ends its list, and no more.
func TestClientGoesAway(t *testing.T) {
	s := many(t, 150)
	left := make(chan bool)
	s.beforeChunk(3, func() error { <-left; return nil })
	response := s.open()
	response.Body.Close()
	s.server.CloseClientConnections()
	close(left)
	s.store.plant(nil)
	s.admin().get("/admin/templates").is(200)
}
