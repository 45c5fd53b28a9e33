package httpapi_test

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/wire"
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
	for _, list := range []string{
		"/users", "/users?q=b", "/users/bob/channels", "/groups", "/groups/crew/members", "/policies", "/policy-attachments", "/service-accounts", "/service-accounts?owner_user_id=admin",
		"/me/api-keys", "/users/plain/api-keys?view=full", "/admin/api-keys", "/admin/api-keys?unused_since=2030-01-01T00:00:00Z", "/admin/api-keys?expires_before=2030-01-01T00:00:00Z",
		"/admin/templates", "/admin/templates?tag=x+y", "/admin/templates?tag=x%20y&category=",
	} {
		whole := admin.get(list).is(200).rows()
		expect.Equal(t, list, len(whole) > 1, true)
		between := "?"
		if strings.Contains(list, "?") {
			between = "&"
		}
		for limit := 1; limit <= len(whole)+1; limit++ {
			pages := admin.follow(fmt.Sprint(list, between, "limit=", limit))
			expect.Equal(t, fmt.Sprint(list, " by ", limit), slices.Concat(pages...), whole)
			for i, page := range pages {
				expect.Holds(t, (len(page) == limit || i >= len(pages)-1) && len(page) <= limit, list, limit, i)
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
	s.apply(string(must(bundle.JSON())))
	pages := admin.pages("/users")
	expect.Equal(t, "users", []int{len(pages), len(pages[0]), len(pages[1])}, []int{2, httpapi.MaxList, 2 + 9})
	expect.Holds(t, slices.IsSorted(slices.Concat(pages...)))
	large := strings.Repeat("d", limits.DescriptionLength)
	for range 300 {
		must(s.service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "bob"}, svc.NewAPIKey{Description: &large}))
	}
	pages = admin.pages("/users/bob/api-keys")
	expect.Equal(t, "keys", []int{len(pages), len(pages[0])}, []int{1, 300})
	expect.Equal(t, "keys with a limit", len(admin.pages("/users/bob/api-keys?limit=1000")), 2)
}

// twoOfEach has two rows or more in each list of access.
const twoOfEach = `{
  "users": [{"id": "one", "channels": [{"provider": "slack", "sender_id": "a/b"}, {"provider": "slack", "sender_id": "c"}]},
    {"id": "two", "display_name": "other", "channels": [{"provider": "slack", "sender_id": "d"}, {"provider": "slack", "sender_id": "e"}]}],
  "groups": [{"id": "one", "members": ["one", "two"]}, {"id": "two", "members": ["one", "two"]}],
  "policies": [{"id": "one", "document": {"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["iam:*", "template:*"], "banks": ["*"]}]}}],
  "attachments": [{"policy_id": "one", "principal_type": "user", "principal_id": "one"}, {"policy_id": "one", "principal_type": "group", "principal_id": "one"}],
  "service_accounts": [{"id": "a", "owner_user_id": "one"}, {"id": "b", "owner_user_id": "one"}]
}`

// lists are the lists that have pages, some with a filter, and as whom to ask for them.
var lists = []struct{ by, target string }{
	{"admin", "/users?"}, {"admin", "/users?q=o&"}, {"admin", "/users/one/channels?"}, {"admin", "/users/two/channels?"},
	{"admin", "/groups?"}, {"admin", "/groups?user_id=one&"}, {"admin", "/groups/one/members?"}, {"admin", "/groups/two/members?"},
	{"admin", "/policies?"}, {"admin", "/policy-attachments?"}, {"admin", "/policy-attachments?policy_id=one&"},
	{"admin", "/service-accounts?"}, {"one", "/me/service-accounts?"}, {"admin", "/users/one/api-keys?"}, {"admin", "/users/two/api-keys?"},
	{"one", "/me/api-keys?"}, {"admin", "/service-accounts/a/keys?"}, {"one", "/me/service-accounts/a/keys?"},
	{"admin", "/admin/api-keys?"}, {"admin", "/admin/api-keys?unused_since=2030-01-01T00:00:00Z&"},
	{"admin", "/admin/api-keys?expires_before=2040-01-01T00:00:00Z&"},
	{"admin", "/admin/templates?"}, {"admin", "/admin/templates?tag=t&"}, {"one", "/me/templates?"}, {"admin", "/admin/events?"},
}

func withLists(t *testing.T) (as map[string]caller) {
	s := newSite(t, keeping)
	s.apply(twoOfEach)
	as = map[string]caller{"admin": s.admin(), "one": s.as(s.key("one"))}
	for _, id := range []string{"a", "b"} {
		as["admin"].post("/admin/templates", `{"id": "`+id+`", "name": "n", "tags": ["t"], "manifest": {"version": "1"}}`).is(200)
		mine := svc.NewTemplate{ID: id, Content: svc.Content{Name: "n", Manifest: []byte(`{"version":"1"}`)}}
		must(s.service.MyTemplates.Create(t.Context(), svc.Principal{Kind: svc.KindUser, ID: "one"}, mine))
		for _, holder := range []svc.Identity{
			{Kind: svc.KindUser, ID: "one"}, {Kind: svc.KindUser, ID: "two"}, {Kind: svc.KindServiceAccount, ID: "a"},
		} {
			must(s.service.Keys.Issue(t.Context(), svc.Host, holder, svc.NewAPIKey{ExpiresAt: s.clock.Now().AddDate(1, 0, 0)}))
		}
	}
	return as
}

// cursor is that of the first page of a list.
func (c caller) cursor(target string) string {
	c.t.Helper()
	return must(url.Parse(c.get(target + "limit=1").is(200).next(target))).Query().Get("cursor")
}

// A cursor leads on in its own list, whatever the limit. In every other list it is refused, since another list may be in another order.
func TestCursorsBelongToTheirList(t *testing.T) {
	as := withLists(t)
	cursors := make([]string, len(lists))
	for i, list := range lists {
		cursors[i] = as[list.by].cursor(list.target)
	}
	for _, list := range lists {
		for i, cursor := range cursors {
			target := list.target + "limit=7&cursor=" + cursor
			if lists[i] == list {
				as[list.by].get(target).is(200)
			} else {
				as[list.by].get(target).refuses("cursor")
			}
		}
	}
	longest := wire.Cursor("/admin/templates", []string{strings.Repeat("x", limits.NameLength), strings.Repeat("x", limits.IDLength)})
	as["admin"].get("/admin/templates?cursor=" + longest).is(200)
	as["admin"].get("/users?q=&cursor=" + cursors[0]).is(200)
	as["admin"].get("/users?q=other&cursor=" + cursors[1]).is(200)
	as["admin"].get("/%75sers/%6Fne/channels?cursor=" + cursors[2]).is(200)
	as["admin"].get("/users/one/api-keys?view=full&cursor=" + cursors[13]).is(200)
}

func TestListsAreComplete(t *testing.T) {
	listed, parameters := map[string]bool{}, strings.NewReplacer("{user_id}", "one", "{group_id}", "one", "{sa_id}", "a")
	for _, list := range lists {
		path, _, _ := strings.Cut(list.target, "?")
		listed[path] = true
	}
	for route, keys := range documentedKeys(t) {
		expect.Holds(t, !slices.Contains(keys, "cursor") || listed[parameters.Replace(route.Path)], route.Path)
	}
}

// A cursor that is not exactly as its Link has it is refused.
func TestCursorsThatAreNone(t *testing.T) {
	as := withLists(t)
	for _, list := range lists {
		cursor := as[list.by].cursor(list.target)
		text := string(must(base64.RawURLEncoding.DecodeString(cursor)))
		name, position, _ := strings.Cut(text, ",")
		sort, id, _ := strings.Cut(position, ",")
		bad := []string{cursor + "=", cursor + "%0A", "%0D" + cursor, "x", "%00", "="}
		for _, text := range []string{
			name + "," + position[:len(position)-1] + `,"x"]`, name + "," + sort + "]", "[" + position, name + ", " + position,
			name + "," + sort + ",null]", "[null," + position, `["\u002f` + strings.TrimPrefix(name, `["/`) + "," + position,
			name + `,"\u0000",` + id, name + `,"\ud800",` + id, name + ",\"\xff\"," + id, name + `,1,` + id, "{}", "null", "[]",
			name + `,"` + strings.Repeat("x", 1025) + `",` + id, name + "," + sort + `,"` + strings.Repeat("x", 129) + `"]`,
		} {
			bad = append(bad, base64.RawURLEncoding.EncodeToString([]byte(text)))
		}
		for _, cursor := range bad {
			as[list.by].get(list.target + "cursor=" + cursor).refuses("cursor")
		}
	}
}
