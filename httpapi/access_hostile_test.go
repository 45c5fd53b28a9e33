package httpapi_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/wire"
)

var (
	long129  = strings.Repeat("a", 129)
	long1025 = strings.Repeat("ü", 1025)
)

const policyOf = `{"id": "x", "document": {"version": "2026-03-24", "statements": [%s]}}`

// Each body is wrong at these places, and changes nothing.
func TestHostileRows(t *testing.T) {
	s := withRows(t)
	admin := s.as("session-of-plain+iam:*")
	before := s.state()
	for _, c := range []struct {
		request, body string
		places        string
	}{
		{"POST /users", ``, "/id"}, {"POST /users", `{}`, "/id"}, {"POST /users", `[]`, ""}, {"POST /users", `null`, ""}, {"POST /users", `{`, ""},
		{"POST /users", `{"id": 7}`, "/id"}, {"POST /users", `{"id": null}`, "/id"}, {"POST /users", `{"id": ""}`, "/id"}, {"POST /users", `{"id": ".."}`, "/id"},
		{"POST /users", `{"id": "a/b"}`, "/id"}, {"POST /users", `{"id": "a\\b"}`, "/id"}, {"POST /users", `{"id": "a\u0000"}`, "/id"}, {"POST /users", `{"id": "a\u202eb"}`, "/id"},
		{"POST /users", `{"id": "` + long129 + `"}`, "/id"}, {"POST /users", `{"id": "x", "id": "y"}`, "/id"}, {"POST /users", `{"ID": "x"}`, "/ID"},
		{"POST /users", `{"id": "x", "channels": []}`, "/channels"}, {"POST /users", `{"id": "x", "display_name": ""}`, "/display_name"},
		{"POST /users", `{"id": "x", "display_name": "` + long1025 + `"}`, "/display_name"}, {"POST /users", `{"id": "x", "display_name": ["x"]}`, "/display_name"},
		{"POST /users", `{"id": "x", "email": "` + long1025 + `"}`, "/email"}, {"POST /users", `{"id": "x", "email": "a\u0000"}`, "/email"},
		{"POST /users", `{"id": "x", "is_active": "true"}`, "/is_active"}, {"POST /users", `{"id": "x", "is_active": 1}`, "/is_active"},
		{"POST /users", `{"id": "/", "email": "a\u0000"}`, "/email /id"},

		{"PUT /users/bob", ``, ""}, {"PUT /users/bob", `{}`, ""}, {"PUT /users/bob", `{"id": "bob"}`, "/id"}, {"PUT /users/bob", `{"display_name": null}`, "/display_name"},
		{"PUT /users/bob", `{"display_name": ""}`, "/display_name"}, {"PUT /users/bob", `{"is_active": null}`, "/is_active"}, {"PUT /users/bob", `{"email": 7}`, "/email"},
		{"PUT /users/bob", `{"display_name": "` + long1025 + `"}`, "/display_name"}, {"PUT /users/bob", `{"email": null, "email": null}`, "/email"},

		{"POST /users/bob/channels", `{}`, "/provider /sender_id"}, {"POST /users/bob/channels", `{"provider": "p"}`, "/sender_id"},
		{"POST /users/bob/channels", `{"provider": "p:q", "sender_id": "s"}`, "/provider"}, {"POST /users/bob/channels", `{"provider": "p/q", "sender_id": "s"}`, "/provider"},
		{"POST /users/bob/channels", `{"provider": "p", "sender_id": "."}`, "/sender_id"}, {"POST /users/bob/channels", `{"provider": "p", "sender_id": ".."}`, "/sender_id"},
		{"POST /users/bob/channels", `{"provider": "p", "sender_id": "a\u0007"}`, "/sender_id"}, {"POST /users/bob/channels", `{"provider": "p", "sender_id": "` + long129 + `"}`, "/sender_id"},
		{"POST /users/bob/channels", `{"provider": "p", "sender_id": 7}`, "/sender_id"}, {"POST /users/bob/channels", `{"provider": "p", "sender_id": "s", "user_id": "x"}`, "/user_id"},

		{"POST /groups", `{"id": "x", "members": []}`, "/members"}, {"POST /groups", `{"display_name": "x"}`, "/id"}, {"PUT /groups/crew", `{}`, ""},
		{"PUT /groups/crew", `{"display_name": null}`, "/display_name"}, {"PUT /groups/crew", `{"members": []}`, "/members"},
		{"POST /groups/crew/members", `{}`, "/user_id"}, {"POST /groups/crew/members", `{"user_id": "nobody"}`, "/user_id"}, {"POST /groups/crew/members", `{"user_id": "a/b"}`, "/user_id"},
		{"POST /groups/crew/members", `{"user_id": null}`, "/user_id"}, {"POST /groups/crew/members", `{"user_id": "bob", "group_id": "crew"}`, "/group_id"},
		{"POST /groups/crew/members", `[{"user_id": "bob"}]`, ""},

		{"POST /policies", `{"id": "x"}`, "/document"}, {"POST /policies", `{"id": "x", "document": null}`, "/document"}, {"POST /policies", `{"id": "x", "document": []}`, "/document"},
		{"POST /policies", `{"id": "x", "document": "{}"}`, "/document"}, {"POST /policies", `{"id": "x", "document": {}}`, "/document/version"},
		{"POST /policies", `{"id": "x", "is_builtin": true, "document": ` + emptyDocument + `}`, "/is_builtin"},
		{"POST /policies", `{"id": "x", "document": {"version": "1", "statements": []}}`, "/document/version"},
		{"POST /policies", `{"id": "x", "document": {"version": "2026-03-24", "statements": [], "statements": []}}`, "/document/statements"},
		{"POST /policies", fmt.Sprintf(policyOf, `{}`), "/document/statements/0/effect"},
		{"POST /policies", fmt.Sprintf(policyOf, `{"effect": "maybe", "actions": ["bank:recall"], "banks": ["*"]}`), "/document/statements/0/effect"},
		{"POST /policies", fmt.Sprintf(policyOf, `{"effect": "allow", "actions": ["bank:recall"], "banks": ["*"]}, {"effect": "allow", "actions": ["a*b"], "banks": ["*"]}`), "/document/statements/1/actions/0"},
		{"POST /policies", fmt.Sprintf(policyOf, `{"effect": "allow", "actions": ["bank:recall"], "banks": ["*", 7]}`), "/document/statements/0/banks/1"},
		{"POST /policies", fmt.Sprintf(policyOf, `{"effect": "allow", "actions": ["bank:recall"], "banks": ["*"], "color": 1}`), "/document/statements/0/color"},
		{"POST /policies", fmt.Sprintf(policyOf, `{"effect": "allow", "actions": ["bank:recall"], "banks": ["*"], "recall_max_tokens": 1.5}`), "/document/statements/0/recall_max_tokens"},
		{"POST /policies", `{"id": "x", "document": ` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`, "*"},
		{"PUT /policies/spare", `{}`, ""}, {"PUT /policies/spare", `{"document": null}`, "/document"}, {"PUT /policies/spare", `{"document": {"version": "2026-03-24"}}`, "/document/statements"},
		{"PUT /policies/spare", `{"display_name": ""}`, "/display_name"},

		{"PUT /policy-attachments", `{}`, "/policy_id /principal_id /principal_type"}, {"PUT /policy-attachments", `{"policy_id": "none", "principal_type": "user", "principal_id": "bob"}`, "/policy_id"},
		{"PUT /policy-attachments", `{"policy_id": "spare", "principal_type": "user", "principal_id": "crew"}`, "/principal_id"},
		{"PUT /policy-attachments", `{"policy_id": "spare", "principal_type": "group", "principal_id": "bob"}`, "/principal_id"},
		{"PUT /policy-attachments", `{"policy_id": "spare", "principal_type": "service_account", "principal_id": "bot"}`, "/principal_type"},
		{"PUT /policy-attachments", `{"policy_id": "spare", "principal_type": "user", "principal_id": "bob", "priority": 2147483648}`, "/priority"},
		{"PUT /policy-attachments", `{"policy_id": "spare", "principal_type": "user", "principal_id": "bob", "priority": -2147483649}`, "/priority"},
		{"PUT /policy-attachments", `{"policy_id": "spare", "principal_type": "user", "principal_id": "bob", "priority": 1.5}`, "/priority"},
		{"PUT /policy-attachments", `{"policy_id": "spare", "principal_type": "user", "principal_id": "bob", "priority": "1"}`, "/priority"},

		{"POST /service-accounts", `{"id": "x"}`, "/owner_user_id"}, {"POST /service-accounts", `{"id": "x", "owner_user_id": ""}`, "/owner_user_id"},
		{"POST /service-accounts", `{"id": "x", "owner_user_id": "nobody"}`, "/owner_user_id"}, {"POST /service-accounts", `{"id": "x", "owner_user_id": "bob", "is_active": true}`, "/is_active"},
		{"POST /service-accounts", `{"id": "x", "owner_user_id": "bob", "scoping_policy_id": ""}`, "/scoping_policy_id"},
		{"POST /service-accounts", `{"id": "x", "owner_user_id": "bob", "scoping_policy_id": "none"}`, "/scoping_policy_id"},
		{"PUT /service-accounts/bot", `{}`, ""}, {"PUT /service-accounts/bot", `{"owner_user_id": "alice"}`, "/owner_user_id"}, {"PUT /service-accounts/bot", `{"scoping_policy_id": "none"}`, "/scoping_policy_id"},
		{"PUT /service-accounts/bot", `{"scoping_policy_id": ""}`, "/scoping_policy_id"}, {"PUT /service-accounts/bot", `{"is_active": null}`, "/is_active"}, {"PUT /service-accounts/bot", `{"display_name": null}`, "/display_name"},
		{"POST /me/service-accounts", `{"id": "x", "owner_user_id": "plain"}`, "/owner_user_id"}, {"POST /me/service-accounts", `{"id": "x", "owner_user_id": ""}`, "/owner_user_id"},
		{"POST /me/service-accounts", `{"id": "x", "scoping_policy_id": "none"}`, "/scoping_policy_id"},
		{"PUT /me/service-accounts/of-plain", `{"scoping_policy_id": null}`, "/scoping_policy_id"}, {"PUT /me/service-accounts/of-plain", `{"is_active": false}`, "/is_active"}, {"PUT /me/service-accounts/of-plain", `{}`, ""},

		{"PUT /banks/x/policy", ``, "/document"}, {"PUT /banks/x/policy", `{}`, "/document"}, {"PUT /banks/x/policy", `{"document": null}`, "/document"}, {"PUT /banks/x/policy", `{"document": {}}`, "/document/version"},
		{"PUT /banks/x/policy", `{"bank_id": "x", "document": {"version": "2026-03-24"}}`, "/bank_id"},
		{"PUT /banks/x/policy", `{"document": {"version": "2026-03-24", "public_access": {"default": {"actions": [7]}}}}`, "/document/public_access/default/actions/0"},
	} {
		method, target, _ := strings.Cut(c.request, " ")
		a := admin.send(method, target, c.body)
		if c.places != "*" {
			a.refuses(strings.Split(c.places, " ")...)
		} else {
			a.fails(400, "invalid_request")
		}
	}
	if s.state() != before {
		t.Error("a refused request changed something")
	}
}

// Ids in paths name their parameter, for everybody. What another system names may have slashes.
func TestHostileIDs(t *testing.T) {
	s := withRows(t)
	admin := s.as("session-of-plain+iam:*")
	for name, row := range accessMatrix {
		method, path, _ := strings.Cut(name, " ")
		target := strings.NewReplacer("{mine}", "of-plain", "{key}", "0000000000000000").Replace(row.target)
		parts := strings.Split(target, "/")
		for i, part := range strings.Split(path, "/") {
			if !strings.HasPrefix(part, "{") {
				continue
			}
			parameter := strings.Trim(part, "{}")
			foreign := slices.Contains([]string{"bank_id", "provider", "sender_id"}, parameter)
			for _, id := range badIDs {
				printable := strings.Contains(id, "%2F") || strings.Contains(strings.ToLower(id), "%5c") || strings.ContainsAny(id, `.\`) || strings.HasPrefix(id, "%2e")
				if foreign && (printable || strings.HasPrefix(id, "%2E")) {
					continue
				}
				spoiled := slices.Clone(parts)
				spoiled[i] = id
				admin.send(method, strings.Join(spoiled, "/"), row.body).refuses(parameter)
				s.as("").send(method, strings.Join(spoiled, "/"), row.body).is(401)
			}
		}
	}
}

func TestForeignNames(t *testing.T) {
	s := withRows(t)
	admin := s.as("session-of-plain+iam:*")
	for _, name := range []string{"a/b", `a\b`, "/", "//", "../../users", "a%2Fb", "a b", "ü", "*", "a:b", "%", "?x=1", "#x", strings.Repeat("ü", 128)} {
		quoted, escaped := string(must(marshal(name))), url.PathEscape(name)
		admin.post("/users/bob/channels", `{"provider": "slack", "sender_id": `+quoted+`}`).is(201).json(`{"provider": "slack", "sender_id": ` + quoted + `}`)
		admin.delete("/users/bob/channels/slack/" + escaped).is(204)
		admin.put("/banks/"+escaped+"/policy", `{"document": {"version": "2026-03-24"}}`).is(200).json(`{"bank_id": ` + quoted + `, "document": {"version": "2026-03-24"}}`)
		admin.get("/banks/" + escaped + "/policy").is(200)
		admin.delete("/banks/" + escaped + "/policy").is(204)
	}
	admin.get("/banks/a/b/policy").fails(404, "not_found")
}

func TestQueriesOfRows(t *testing.T) {
	s := withRows(t)
	admin := s.as("session-of-plain+iam:*")
	ids := func(target string) string { return strings.Join(admin.get(target).is(200).texts("id"), " ") }
	for target, want := range map[string]string{
		"/users?q=b": "barred bob", "/users?q=BOB%40ex": "bob", "/users?q=zzz": "", "/users?q=": "admin alice barred bob ghost plain reader templater writer",
		"/groups?user_id=bob": "crew", "/groups?user_id=nobody": "", "/groups": "crew staff",
		"/service-accounts?owner_user_id=bob": "bot", "/service-accounts?owner_user_id=nobody": "", "/me/service-accounts": "of-plain",
		"/policies?limit=3": "all bank:admin bank:readonly",
	} {
		if have := ids(target); have != want {
			t.Errorf("%s: %s, want %s", target, have, want)
		}
	}
	all := admin.get("/policy-attachments").is(200).texts("policy_id")
	if want := "recalls all no-templates held recalls all reads-users templates writes-users"; strings.Join(all, " ") != want {
		t.Errorf("attachments of %q", all)
	}
	for target, parameter := range map[string]string{
		"/users?q=" + strings.Repeat("x", 1025): "q", "/users?text=x": "text", "/groups?user_id=a%2Fb": "user_id", "/groups?q=x": "q", "/policies?policy_id=x": "policy_id",
		"/policy-attachments?policy_id=..": "policy_id", "/policy-attachments?principal_type=user": "principal_id", "/policy-attachments?principal_id=bob": "principal_type",
		"/policy-attachments?principal_type=bot&principal_id=x": "principal_type", "/me/service-accounts?owner_user_id=bob": "owner_user_id",
		"/service-accounts?owner_user_id=%00": "owner_user_id", "/users?limit=0": "limit", "/users?limit=1001": "limit", "/users?cursor=x": "cursor",
		"/users?cursor=WyJhIiwiYiJd": "cursor", "/groups/crew/members?limit=x": "limit", "/users/bob/channels?view=full": "view",
		"/users?cursor=" + cursor(strings.Repeat("x", 1000), ""): "cursor", "/me?view=full": "view",
	} {
		admin.get(target).refuses(parameter)
	}
}

func cursor(position ...string) string { return wire.Cursor(position) }

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
	large := strings.Repeat("d", svc.MaxDescriptionLength)
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
