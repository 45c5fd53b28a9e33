package httpapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/limits"
)

// Lists of every kind by pages of every size, and whole.
func TestPages(t *testing.T) {
	s := withRows(t)
	s.apply(`{"users": [{"id": "bob", "channels": [{"provider": "a", "sender_id": "x:y"}, {"provider": "a-b", "sender_id": "x"}, {"provider": "a", "sender_id": "z/1"}, {"provider": "slack", "sender_id": "T1/U7"}]}],
	  "groups": [{"id": "crew", "members": ["alice", "bob", "plain", "admin"]}, {"id": "a-b"}, {"id": "a"}]}`)
	admin := s.as("session-of-plain+iam:*+template:*")
	for i := range 8 {
		if i%3 == 0 {
			s.clock.tick() // some keys at the same time
		}
		admin.post("/me/api-keys", fmt.Sprintf(`{"expires_at": "2026-06-01T00:00:0%dZ"}`, 9-i)).is(201)
		name := []string{"a & b", "a & b", "\u00e9 <>", "b", "b", "b", "z", "other"}[i]
		admin.post("/admin/templates", fmt.Sprintf(`{"id": "t%d", "name": %q, "tags": ["x y"], "manifest": {"version": "1"}}`, i, name)).is(200)
	}
	rows := func(a answer) []any {
		if list, is := parse(t, a.body).([]any); is {
			return list
		}
		return a.value()["templates"].([]any)
	}
	for _, list := range []string{
		"/users", "/users?q=b", "/users/bob/channels", "/groups", "/groups/crew/members", "/policies", "/policy-attachments", "/service-accounts", "/service-accounts?owner_user_id=admin",
		"/me/api-keys", "/users/plain/api-keys?view=full", "/admin/api-keys", "/admin/api-keys?unused_since=2030-01-01T00:00:00Z", "/admin/api-keys?expires_before=2030-01-01T00:00:00Z",
		"/admin/templates", "/admin/templates?tag=x+y", "/admin/templates?tag=x%20y&category=",
	} {
		whole := rows(admin.get(list).is(200))
		if len(whole) < 2 {
			t.Fatalf("%s: %v", list, whole)
		}
		between := "?"
		if strings.Contains(list, "?") {
			between = "&"
		}
		for limit := 1; limit <= len(whole)+1; limit++ {
			var all []any
			target := fmt.Sprint(list, between, "limit=", limit)
			for pages := 0; target != ""; pages++ {
				a := admin.get(target).is(200)
				page := rows(a)
				all = append(all, page...)
				if len(page) > limit || len(page) < limit && len(all) < len(whole) || pages > len(whole) {
					t.Fatalf("%s: page %d has %d rows", target, pages, len(page))
				}
				path, _, _ := strings.Cut(list, "?")
				next, more := strings.CutPrefix(a.header.Get("Link"), "<")
				if target = ""; more {
					target = path + strings.TrimSuffix(next, `>; rel="next"`)
				}
			}
			if string(must(marshal(all))) != string(must(marshal(whole))) {
				t.Errorf("%s by %d: %v, want %v", list, limit, all, whole)
			}
		}
	}
}

// Without a limit, lists are whole up to MaxList rows, however many bytes these are.
func TestWholeListsOfRows(t *testing.T) {
	t.Parallel()
	s := withRows(t, func(u *setup) { u.Keys.MaxPerHolder = 2000 })
	admin := s.as("session-of-plain+iam:*")
	var bundle svc.Bundle
	for i := range httpapi.MaxList + 2 {
		bundle.Users = append(bundle.Users, svc.User{ID: fmt.Sprintf("u%05d", i), DisplayName: strings.Repeat("n", 300)})
	}
	if err := s.service.Access.Apply(t.Context(), svc.Host, bundle); err != nil {
		t.Fatal(err)
	}
	pages := admin.pages("/users")
	if len(pages) != 2 || len(pages[0]) != httpapi.MaxList || len(pages[1]) != 2+9 || !slices.IsSorted(slices.Concat(pages...)) {
		t.Errorf("%d pages, of %d and more", len(pages), len(pages[0]))
	}
	large := strings.Repeat("d", limits.DescriptionLength)
	for range 300 {
		must(s.service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "bob"}, svc.NewAPIKey{Description: &large}))
	}
	if pages := admin.pages("/users/bob/api-keys"); len(pages) != 1 || len(pages[0]) != 300 {
		t.Errorf("keys: %d pages", len(pages))
	}
	if pages := admin.pages("/users/bob/api-keys?limit=1000"); len(pages) != 2 {
		t.Errorf("keys with a limit: %d pages", len(pages))
	}
}
