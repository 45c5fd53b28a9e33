package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/extsvc/svc"
)

func TestWhoCanWhole(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	a := admin.get("/debug/who-can?bank=support").is(200)
	revision := a.text("revision")
	a.json(fmt.Sprintf(`{"action": "bank:recall", "bank": "support", "users": ["alice"], "service_accounts": [],
		"public": {"default": true, "overrides": []}, "statements": [{"policy_id": "recalls", "statement": 0, "effect": "allow"}], "revision": %q}`, revision))
	admin.get("/debug/who-can?bank=other&action=iam:users:write").is(200).json(fmt.Sprintf(`{"action": "iam:users:write", "bank": "other",
		"users": ["admin", "writer"], "service_accounts": ["robot"], "public": {"default": false, "overrides": []},
		"statements": [{"policy_id": "all", "statement": 0, "effect": "allow"}, {"policy_id": "writes-users", "statement": 0, "effect": "allow"}],
		"revision": %q}`, revision))
	admin.get("/debug/who-can?bank=*&action=bank:nothing").is(200).json(fmt.Sprintf(`{"action": "bank:nothing", "bank": "*", "users": [],
		"service_accounts": [], "public": {"default": false, "overrides": []}, "statements": [], "revision": %q}`, revision))
	if s.as(s.key("reader")).get("/debug/who-can?bank=support").is(200); revision == "" {
		t.Error("no revision")
	}
}

func TestWhoCanRefused(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	for query, places := range map[string][]string{
		"": {"bank"}, "?bank=": {"bank"}, "?bank=a%E2%80%AEb": {"bank"}, "?bank=a&bank=b": {"bank"}, "?bank=b&action=%00": {"action"},
		"?bank=b&action=a&action=a": {"action"}, "?action=%ff": {"action", "bank"},
	} {
		admin.get("/debug/who-can" + query).refuses(places...)
	}
	s.as("session-of-plain").get("/debug/who-can").fails(400, "invalid_request")
	s.as("session-of-plain").get("/debug/who-can?bank=b").fails(403, "forbidden")
}

func TestSimulateIsResolve(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	resolved := admin.get("/debug/resolve?bank=support&user_id=alice&topic=t").is(200)
	admin.post("/debug/simulate", `{"bundle": {}, "query": {"bank": "support", "user_id": "alice", "topic": "t"}}`).is(200).json(string(resolved.body))
	admin.post("/debug/simulate", `{"bundle": {"users": null}, "query": {"bank": "support", "user_id": "alice", "topic": "t", "action": null}}`).is(200).json(string(resolved.body))

	bundle := `{"groups": [{"id": "staff", "members": []}]}`
	a := admin.post("/debug/simulate", `{"bundle": `+bundle+`, "query": {"bank": "support", "sender": "telegram:1001", "action": "bank:recall"}}`).is(200)
	if a.text("decision") != "implicit_deny" || a.text("tenant_id") != "alice" || a.text("revision") == resolved.text("revision") {
		t.Errorf("%s", a.body)
	}
	admin.get("/debug/resolve?bank=support&user_id=alice&topic=t").is(200).json(string(resolved.body)) // nothing was written
}

func TestSimulateRefused(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	const query = `"query": {"bank": "b", "user_id": "a"}`
	for body, places := range map[string][]string{
		``:                                       {"/bundle"},
		`{}`:                                     {"/bundle"},
		`{` + query + `}`:                        {"/bundle"},
		`{"bundle": null, "query": {}}`:          {"/bundle"},
		`{"bundle": {}}`:                         {"/query/bank", "/query/user_id"},
		`{"bundle": {}, "query": null}`:          {"/query/bank", "/query/user_id"},
		`{"bundle": [], ` + query + `}`:          {"/bundle"},
		`{"bundle": {}, "query": []}`:            {"/query"},
		`{"bundle": {}, "query": {"bank": 1}}`:   {"/query/bank"},
		`{"bundle": {}, "query": {"Bank": "b"}}`: {"/query/Bank"},
		`{"bundle": {}, "query": {"bank": "a\u202eb", "sender": "x"}}`: {"/query/bank", "/query/sender"},
		`{"bundle": {}, "x": 1}`:                                                            {"/x"},
		`{"bundle": {"members": []}, ` + query + `}`:                                        {"/bundle/members"},
		`{"bundle": {"users": [{"id": "a", "id": "a"}]}, ` + query + `}`:                    {"/bundle/users/0/id"},
		`{"bundle": {"users": [{"id": "a/b"}]}, ` + query + `}`:                             {"/bundle/users/0/id"},
		`{"bundle": {"users": [{"id": "a/b"}]}, "query": {}}`:                               {"/bundle/users/0/id", "/query/bank", "/query/user_id"},
		`{"bundle": {"groups": [{"id": "g", "members": ["new", "plain"]}]}, ` + query + `}`: {"/bundle/groups/0/members/0"},
		`{"bundle": {"policies": [{"id": "p", "document": {"version": "2026-03-24", "statements": [{"effect": "deny"}]}}]}, ` + query + `}`: {
			"/bundle/policies/0/document/statements/0/actions"},
	} {
		admin.post("/debug/simulate", body).refuses(places...)
	}
	admin.post("/debug/simulate", `{"bundle": {"users": [{"id": "plain", "channels": [{"provider": "telegram", "sender_id": "1001"}]}]}, `+query+`}`).fails(409, "already_exists")
	plain := s.as("session-of-plain")
	plain.post("/debug/simulate", `{"bundle": {}, "query": {}}`).fails(400, "invalid_request")
	plain.post("/debug/simulate", `{"bundle": {}, `+query+`}`).fails(403, "forbidden")
	plain.post("/debug/simulate", `{"bundle": {"groups": [{"id": "g", "members": ["new"]}]}, `+query+`}`).fails(403, "forbidden") // before anything is told of who there is
	large := `{"bundle": {"users": [{"id": "` + strings.Repeat("x", 1<<20) + `"}]}, ` + query + `}`
	admin.post("/debug/simulate", large).fails(413, "body_too_large")
}

// Rows are looked at once the caller is known to have the right, and what is wrong with them has an end.
func TestSimulateEndsItsErrors(t *testing.T) {
	s := newSite(t)
	bad := strings.Repeat(`{"id": "a/b", "members": ["\u0000", "\u0000"]},`, 3000)
	body := func(groups string) string {
		return `{"bundle": {"groups": [` + strings.TrimSuffix(groups, ",") + `]}, "query": {"bank": "b", "user_id": "a"}}`
	}
	s.as("session-of-plain").post("/debug/simulate", body(bad)).fails(403, "forbidden")
	a := s.admin().post("/debug/simulate", body(bad)).is(400)
	if n := strings.Count(string(a.body), `"pointer"`); n != svc.MaxErrors+1 || !strings.Contains(string(a.body), "there may be more errors") {
		t.Errorf("%d errors, %d bytes", n, len(a.body))
	}
	s.admin().post("/debug/simulate", body(strings.Repeat(`{"id": "g"},`, 10_000))).is(400)
	for groups, at := range map[string]string{
		strings.Repeat(`{"id": "g"},`, 10_001):                                    "/bundle/groups/10000",
		`{"id": "g", "members": [` + strings.Repeat(`"a",`, 9_999) + `"a"]}`:      "/bundle/groups/0/members/9999",
		`{"id": "g"}], "users": [` + strings.Repeat(`{"id": "u"},`, 9_999) + `{}`: "/bundle/users/9999",
	} {
		s.admin().post("/debug/simulate", body(groups)).refuses(at)
	}
}
