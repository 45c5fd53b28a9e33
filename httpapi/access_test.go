package httpapi_test

import (
	"context"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/wire"
	"github.com/extsvc/svc/limits"
)

// rowsOfAccess are those that the matrix reads and changes. Nobody gains or loses a right by that.
//
//go:embed testdata/rows.json
var rowsOfAccess string

func withRows(t *testing.T, changes ...func(*setup)) *site {
	t.Helper()
	s := newSite(t, append([]func(*setup){func(u *setup) { u.Templates.Banks = banks{} }}, changes...)...)
	s.apply(rowsOfAccess)
	return s
}

// banks makes all banks but one, which is there already, and one that it does not like.
type banks struct{}

func (banks) MakeBank(_ context.Context, by svc.Principal, bank svc.NewBank) (svc.CreatedBank, error) {
	switch bank.ID {
	case "there":
		return svc.CreatedBank{}, nil
	case "taken":
		return svc.CreatedBank{}, &svc.Error{Code: svc.CodeExists, Message: "a bank with this id already exists"}
	}
	result := must(marshal(map[string]any{"bank_id": bank.ID, "name": bank.Name, "by": by.ID, "manifest": bank.Manifest}))
	return svc.CreatedBank{Created: true, ImportResult: result}, nil
}

func (s *site) apply(bundle string) {
	s.t.Helper()
	expect.Equal(s.t, bundle, s.service.Access.Apply(s.t.Context(), svc.Host, must(svc.ParseBundle([]byte(bundle)))), nil)
}

// matrixRow is a request of the matrix. In it, {mine} is an account of the caller's, {key} a key of the account.
type matrixRow struct {
	target, body string
	action       string // what the caller needs
	status       int    // for who has it
	makesKeys    bool   // service accounts may not
}

// accessMatrix has the rows of testdata/access.matrix, by method and path.
var accessMatrix = func() map[string]matrixRow {
	rows := map[string]matrixRow{}
	for line := range strings.Lines(string(must(os.ReadFile("testdata/access.matrix")))) {
		words := append(strings.SplitN(strings.TrimSpace(line), " ", 7), "")
		if len(words) > 6 && words[0] != "#" {
			rows[words[0]+" "+words[1]] = matrixRow{words[2], words[6], strings.Trim(words[3], "-"), must(strconv.Atoi(words[4])), words[5] == "keys"}
		}
	}
	return rows
}()

// allActions are the control-plane actions but one, for a session.
func allActions(but string) string {
	all := []string{
		action.UsersRead, action.UsersWrite, action.GroupsRead, action.GroupsWrite, action.PoliciesRead, action.PoliciesWrite,
		action.AttachmentsWrite, action.AccountsManage, action.AccountsRead, action.AccountsWrite, action.AccountKeysWrite,
		action.BanksRead, action.BanksWrite, action.BanksGrant, action.AuditRead, "iam:api_keys:read", "iam:api_keys:write",
		"template:list", "template:admin",
	}
	all = slices.DeleteFunc(all, func(action string) bool { return action == but })
	return "+" + strings.Join(all, "+")
}

// Each operation of access administration, by each kind of caller.
func TestAccessMatrix(t *testing.T) {
	t.Parallel()
	for name, row := range accessMatrix { // TestHideAccess finds what it lacks; bundles have tests of their own
		for _, by := range []struct {
			who, bearer string
			status      func(matrixRow) int
		}{
			{"nobody", "", func(matrixRow) int { return 401 }},
			{"a plain user", "session-of-plain", func(r matrixRow) int { return r.only("") }},
			{"who has exactly the action", strings.TrimSuffix("session-of-plain+"+row.action, "+"), func(r matrixRow) int { return r.status }},
			{"who has all but the action", "session-of-plain" + allActions(row.action), func(r matrixRow) int { return r.only("") }},
			{"a barred user", "session-of-ghost" + allActions(""), func(matrixRow) int { return 401 }},
			{"a service account", "session-of-robot+sa", matrixRow.byAccount},
			{"a narrow service account", "session-of-narrow+sa", func(r matrixRow) int {
				if r.action == "" {
					return 403
				}
				return r.only(action.UsersRead)
			}},
			{"a narrowed key", "narrowed", func(r matrixRow) int { return r.only(action.UsersRead) }},
		} {
			t.Run(name+"/"+by.who, func(t *testing.T) {
				s := withRows(t)
				bearer := by.bearer
				if bearer == "narrowed" {
					bearer = s.keyOf(svc.Identity{Kind: svc.KindUser, ID: "admin"}, svc.NewAPIKey{ScopingPolicyID: "reads-users"})
				}
				mine, account := "of-admin", "bot"
				if strings.HasPrefix(bearer, "session-of-plain") {
					mine = "of-plain"
				}
				if strings.Contains(row.target, "{mine}") {
					account = mine
				}
				key := s.accountKey(account)
				target := strings.NewReplacer("{mine}", mine, "{key}", key[5:21]).Replace(row.target)
				method, _, _ := strings.Cut(name, " ")
				before := s.state()
				s.as(bearer).send(method, target, row.body).is(by.status(row))
				expect.Equal(t, "changed", by.status(row) > 204 && s.state() != before, false)
			})
		}
	}
}

// only is the status for a caller that has no action but one.
func (r matrixRow) only(action string) int {
	if r.action == action || r.action == "" {
		return r.status
	}
	return 403
}

// byAccount is the status for a service account that may do everything.
func (r matrixRow) byAccount() int {
	if r.makesKeys || r.action == "" {
		return 403
	}
	return r.status
}

// state is all rows of access and the ids of the keys of service accounts.
func (s *site) state() string {
	s.t.Helper()
	all := string(must(must(s.service.Access.Export(s.t.Context(), svc.Host)).JSON()))
	for _, id := range []string{"bot", "of-plain", "of-admin"} {
		for key, err := range s.service.Keys.List(s.t.Context(), svc.Host, svc.Identity{Kind: svc.KindServiceAccount, ID: id}, svc.KeyQuery{}) {
			all += must(key, err).ID
		}
	}
	return all
}

// A host that owns identity leaves all of it out, but its own templates.
func TestHideAccess(t *testing.T) {
	t.Parallel()
	s := withRows(t, func(u *setup) { u.HideAccess = true })
	admin := s.admin()
	for name, row := range accessMatrix {
		method, _, _ := strings.Cut(name, " ")
		admin.send(method, row.target, row.body).fails(404, "not_found")
	}
	admin.get("/users").json(`{"type": "about:blank", "title": "Not Found", "status": 404, "detail": "there is no such path.", "code": "not_found"}`)
	admin.get(bundlePath).fails(404, "not_found")
	admin.send("BREW", "/me", "").fails(404, "not_found")
	s.as("").get("/users").is(401)
	admin.get("/me/templates").is(200)
	admin.get("/me/template-sources").is(200)
	admin.get("/users/alice/api-keys").is(200)
	for path := range documents {
		wantHidden(t, string(s.as("").get(path).is(200).body))
	}
}

// wantHidden checks that a document has nothing of the administration of access, and all else.
func wantHidden(t *testing.T, document string) {
	t.Helper()
	for name := range accessMatrix {
		_, path, _ := strings.Cut(name, " ")
		expect.Holds(t, !strings.Contains(document, `"`+path+`"`), path)
	}
	for _, route := range httpapi.Routes() {
		hidden := accessMatrix[route.Method+" "+route.Path].status != 0 || route.Path == bundlePath
		expect.Holds(t, hidden || strings.Contains(document, `"`+route.Path+`"`), route.Path)
	}
	for _, name := range []string{`"Users"`, `"PatchUser"`, `"GroupID"`, `"RowETag"`, `"PolicyKept"`} {
		expect.Holds(t, !strings.Contains(document, name), name)
	}
}

const bundlePath = "/admin/access-bundle"

func TestLongBundles(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	admin := s.admin()
	users := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,{"id":"u%d"}`, i)
		}
		return b.String()[1:]
	}
	admin.post(bundlePath, `{"users":[`+users(httpapi.MaxBundleRows)+`]}`).is(204)
	admin.post(bundlePath, `{"users":[`+users(httpapi.MaxBundleRows+1)+`]}`).refuses("/users/10000")
	members := strings.ReplaceAll(strings.ReplaceAll(users(httpapi.MaxBundleRows), `{"id":`, ``), `}`, ``)
	admin.post(bundlePath, `{"groups":[{"id":"g","members":[`+members+`]}]}`).refuses("/groups/0/members/9999")
	admin.post(bundlePath, `{"users":[`+strings.Repeat(" ", 1<<20)+`]}`).fails(413, "body_too_large")

	long := must(svc.ParseBundle(admin.get(bundlePath).is(200).body)) // several parts
	expect.Equal(t, "users", len(long.Users), httpapi.MaxBundleRows+8)
}

// What is wrong with a request has an end. Rows are looked at once the caller is known to have the right.
func TestErrorsHaveAnEnd(t *testing.T) {
	s := newSite(t)
	list := func(row string, n int) string { return strings.TrimSuffix(strings.Repeat(row+",", n), ",") }
	rows := func(groups string) string {
		return `{"bundle": {"groups": [` + groups + `]}, "query": {"bank": "b", "user_id": "a"}}`
	}
	bad := rows(list(`{"id": "a/b", "members": ["\u0000", "\u0000"]}`, 3000))
	s.as("session-of-plain").post("/debug/simulate", bad).fails(403, "forbidden")
	s.admin().post("/debug/simulate", rows(list(`{"id": "g"}`, 10_000))).is(400)
	for _, a := range []answer{
		s.admin().post("/debug/simulate", bad),
		s.admin().post("/decide", `{"queries": [`+list(`{}`, limits.Questions)+`]}`),
		s.admin().post("/decide", `{"queries": [`+list(`{"bank":"\n","action":"/"}`, limits.Questions)+`]}`),
	} {
		expect.Equal(t, a.request, len(a.is(400).places()), limits.Errors+1)
		expect.Equal(t, a.request, strings.Contains(string(a.body), "there may be more errors"), true)
	}
}

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
