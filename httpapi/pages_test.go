package httpapi_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/slow"
)

// pages follows the links of a list to its end, and returns the ids on each page.
func (c caller) pages(target string) (all [][]string) {
	c.t.Helper()
	for {
		a := c.get(target).is(200)
		var list []map[string]any
		body := a.body
		if body[0] == '{' {
			var wrapped map[string]json.RawMessage
			if err := json.Unmarshal(body, &wrapped); err != nil {
				c.t.Fatal(err)
			}
			body = wrapped["templates"]
		}
		if err := json.Unmarshal(body, &list); err != nil {
			c.t.Fatal(err)
		}
		ids := []string{}
		for _, row := range list {
			ids = append(ids, row["id"].(string))
		}
		all = append(all, ids)
		link := a.header.Get("Link")
		if link == "" {
			return all
		}
		reference, ok := strings.CutSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
		next, err := url.Parse(reference)
		if !ok || err != nil || len(all) > 100 {
			c.t.Fatalf("Link %q, %v", link, err)
		}
		base := &url.URL{Path: strings.Split(target, "?")[0]}
		target = base.ResolveReference(next).String()
	}
}

func TestPagesOfTemplates(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	for i := range 7 {
		id := fmt.Sprint("t", i)
		name := []string{"a & b", "a & b", "\u00e9 <>", "b", "b", "b", "z"}[i]
		admin.post("/admin/templates", fmt.Sprintf(`{"id": %q, "name": %q, "tags": ["x y"], "manifest": {"version": "1"}}`, id, name)).is(200)
	}
	want := []string{"t0", "t1", "t3", "t4", "t5", "t6", "t2"} // by name
	for limit := 1; limit <= 8; limit++ {
		for _, filter := range []string{"", "&tag=x+y", "&tag=x%20y&category="} {
			pages := admin.pages(fmt.Sprintf("/admin/templates?limit=%d%s", limit, filter))
			var all []string
			for i, page := range pages {
				all = append(all, page...)
				if i < len(pages)-1 && len(page) != limit {
					t.Errorf("limit %d: page %d has %v", limit, i, page)
				}
			}
			if fmt.Sprint(all) != fmt.Sprint(want) || len(pages) != max(1, (7+limit-1)/limit) {
				t.Errorf("limit %d%s: %v, want %v", limit, filter, pages, want)
			}
		}
	}
	if pages := admin.pages("/admin/templates?limit=3&tag=none"); fmt.Sprint(pages) != "[[]]" {
		t.Errorf("an empty list: %v", pages)
	}

	// What is deleted or added between two pages moves no other.
	link := admin.get("/admin/templates?limit=2").header.Get("Link")
	admin.delete("/admin/templates/t1").is(204)
	admin.post("/admin/templates", `{"id": "t00", "name": "a", "manifest": {"version": "1"}}`).is(200)
	next := "/admin/templates" + strings.TrimSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
	if a := admin.get(next); !strings.HasPrefix(string(a.body), `{"templates":[{"id":"t3"`) {
		t.Errorf("behind one that is gone: %s", a.body)
	}
}

// A page of large rows ends early, and is not lost.
func TestPageOfLargeRows(t *testing.T) {
	admin := newSite(t).admin()
	large := strings.Repeat("x", 400_000)
	for i := range 7 {
		admin.post("/admin/templates", fmt.Sprintf(`{"id": "t%d", "name": "n", "manifest": {"version": "1", "x": %q}}`, i, large)).is(200)
	}
	if pages := admin.pages("/admin/templates?limit=100"); fmt.Sprint(pages) != "[[t0 t1 t2] [t3 t4 t5] [t6]]" {
		t.Errorf("pages %v", pages)
	}
}

func TestPagesOfKeys(t *testing.T) {
	s := newSite(t)
	mine := s.as(s.key("alice"))
	admin := s.admin()
	for i := range 8 {
		if i%3 == 0 {
			s.clock.tick() // some at the same time
		}
		mine.post("/me/api-keys", "").is(201)
	}
	whole := mine.pages("/me/api-keys")
	for limit := 1; limit <= 10; limit++ {
		for _, list := range []string{"/me/api-keys", "/users/alice/api-keys"} {
			for _, view := range []string{"", "&view=full"} {
				var all []string
				for _, page := range admin.in(t).as(list, mine).pages(fmt.Sprintf("%s?limit=%d%s", list, limit, view)) {
					all = append(all, page...)
				}
				if fmt.Sprint(all) != fmt.Sprint(whole[0]) {
					t.Errorf("%s by %d: %v, want %v", list, limit, all, whole[0])
				}
			}
		}
	}
}

// as is the caller, or another for its own list.
func (c caller) as(list string, me caller) caller {
	if strings.HasPrefix(list, "/me/") {
		return me
	}
	return c
}

func TestBadPages(t *testing.T) {
	admin := newSite(t).admin()
	cursor := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	for _, list := range []string{"/admin/templates", "/me/api-keys", "/users/alice/api-keys"} {
		for _, limit := range []string{"0", "-1", "1001", "+5", "1.0", "1e1", "x", "%20", "99999999999999999999", "0x10"} {
			admin.get(list + "?limit=" + limit).refuses("limit")
		}
		for _, bad := range []string{"x", "%00", "=", cursor("{}"), cursor(`["a"]`), cursor(`["a","b","c"]`), cursor(`[1,2]`), cursor(`["\u0000",""]`), cursor(`["a","b"]`) + "=",
			cursor(`["a", "b"]`), cursor(`["a",null]`), cursor(`["\u0061","b"]`), cursor(`["` + strings.Repeat("a", 1025) + `","b"]`), cursor(`["a","` + strings.Repeat("b", 129) + `"]`),
			cursor(`[null,null]`), cursor("[\"\xff\",\"b\"]"), cursor(`["\ud800","b"]`), cursor(`["a","b"]`) + "%0A", "W%0D" + cursor(`["a","b"]`)[1:]} {
			admin.get(list + "?cursor=" + bad).refuses("cursor")
		}
		admin.get(list + "?limit=1&limit=2").refuses("limit")
		admin.get(list + "?limit=&cursor=").is(200)
		if other := list + "?cursor=" + cursor(`["a","b"]`); list == "/admin/templates" {
			admin.get(other).is(200)
		} else {
			admin.get(other).refuses("cursor") // that is no time
			admin.get(list + "?cursor=" + cursor(`["2026-01-02T03:04:05.678901Z","b"]`)).is(200)
			admin.get(list + "?cursor=" + cursor(`["2026-01-02T03:04:05.67890Z","b"]`)).refuses("cursor")
		}
	}
}

// A list that is asked for whole ends after MaxList rows, and a Link leads to the others.
func TestListsHaveABound(t *testing.T) {
	slow.Test(t, "lists of more than 10,000 rows")
	s := newSite(t, func(u *setup) { u.Keys.MaxPerHolder = 2 * httpapi.MaxList })
	admin, alice := s.admin(), svc.Identity{Kind: svc.KindUser, ID: "alice"}
	for i := range httpapi.MaxList + 3 {
		content := svc.Content{Name: "Same", Tags: []string{"all"}, Manifest: []byte(`{"version":"1"}`)}
		if _, err := s.service.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: fmt.Sprintf("t%05d", i), Content: content}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.service.Keys.Issue(t.Context(), svc.Host, alice, svc.NewAPIKey{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, target := range []string{"/admin/templates", "/admin/templates?tag=all", "/users/alice/api-keys"} {
		pages := admin.pages(target)
		ids := slices.Concat(pages...)
		if len(ids) != httpapi.MaxList+3 || len(pages[0]) > httpapi.MaxList || len(pages) < 2 {
			t.Errorf("%s: %d ids on %d pages, the first of %d", target, len(ids), len(pages), len(pages[0]))
		}
		if len(pages[0]) != httpapi.MaxList || !strings.Contains(target, "keys") && !slices.IsSorted(ids) {
			t.Errorf("%s: the first page has %d, and sorted is %v", target, len(pages[0]), slices.IsSorted(ids))
		}
	}
	for i := range 4 {
		admin.delete(fmt.Sprintf("/admin/templates/t%05d", i)).is(204)
	}
	if pages := admin.pages("/admin/templates"); len(pages) != 1 || len(pages[0]) != httpapi.MaxList-1 {
		t.Errorf("a list of one row less: %d pages, the first of %d", len(pages), len(pages[0]))
	}
}
