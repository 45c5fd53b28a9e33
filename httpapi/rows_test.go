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

func (c caller) put(target, body string) answer {
	c.t.Helper()
	return c.send("PUT", target, body)
}

// Lists of every kind by pages of every size, and whole.
func TestPagesOfRows(t *testing.T) {
	s := withRows(t)
	s.apply(`{"users": [{"id": "bob", "channels": [{"provider": "a", "sender_id": "x:y"}, {"provider": "a-b", "sender_id": "x"}, {"provider": "a", "sender_id": "z/1"}, {"provider": "slack", "sender_id": "T1/U7"}]}],
	  "groups": [{"id": "crew", "members": ["alice", "bob", "plain", "admin"]}, {"id": "a-b"}, {"id": "a"}]}`)
	admin := s.as("session-of-plain+iam:*")
	for _, list := range []string{"/users", "/users?q=b", "/users/bob/channels", "/groups", "/groups/crew/members", "/policies", "/policy-attachments", "/service-accounts", "/service-accounts?owner_user_id=admin"} {
		whole := parse(t, admin.get(list).is(200).body).([]any)
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
				page := parse(t, a.body).([]any)
				all = append(all, page...)
				if len(page) > limit || pages > len(whole) {
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
