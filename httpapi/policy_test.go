package httpapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/extsvc/svc/limits"
)

// Rows are looked at once the caller is known to have the right, and what is wrong with them has an end.
func TestSimulateEndsItsErrors(t *testing.T) {
	s := newSite(t)
	bad := strings.Repeat(`{"id": "a/b", "members": ["\u0000", "\u0000"]},`, 3000)
	body := func(groups string) string {
		return `{"bundle": {"groups": [` + strings.TrimSuffix(groups, ",") + `]}, "query": {"bank": "b", "user_id": "a"}}`
	}
	s.as("session-of-plain").post("/debug/simulate", body(bad)).fails(403, "forbidden")
	a := s.admin().post("/debug/simulate", body(bad)).is(400)
	if n := strings.Count(string(a.body), `"pointer"`); n != limits.Errors+1 || !strings.Contains(string(a.body), "there may be more errors") {
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

// A caller without any action gets the answer that an administrator gets about it, narrowed as its key is.
func TestResolveMe(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	narrowed := admin.post("/users/admin/api-keys", `{"scoping_policy_id": "templates"}`).is(201).text("api_key")
	s.keepSecret(narrowed)
	for subject, by := range map[string]caller{
		"user_id=alice": s.as(s.key("alice")), "user_id=plain": s.as("session-of-plain"), "user_id=nobody": s.as("session-of-nobody"),
		"sa_id=robot": s.as(s.accountKey("robot")), "sa_id=narrow": s.as("session-of-narrow+sa"),
		"user_id=admin&scoping_policy_id=templates": s.as(narrowed),
	} {
		for _, query := range []string{
			"bank=support", "bank=other&action=", "bank=*&action=template:admin", "bank=*&action=iam:users:read&topic=t", "bank=support&channel=c&topic=t",
		} {
			by.get("/me/resolve?" + query).is(200).json(string(admin.get("/debug/resolve?" + subject + "&" + query).is(200).body))
		}
		for query, places := range map[string][]string{
			"": {"bank"}, "?bank=": {"bank"}, "?bank=b&user_id=alice": {"user_id"}, "?bank=b&sa_id=robot": {"sa_id"}, "?bank=b&sender=a:1": {"sender"},
			"?bank=b&scoping_policy_id=all": {"scoping_policy_id"}, "?bank=%00&action=a%2Fb&topic=%00": {"bank", "action", "topic"}, "?bank=b&bank=b": {"bank"},
		} {
			by.get("/me/resolve" + query).refuses(places...)
		}
	}
	vouched := s.as("session-of-plain+template:admin")
	if a := vouched.get("/me/resolve?bank=*&action=template:admin").is(200); a.text("decision") != "allow" || a.text("tenant_id") != "plain" {
		t.Errorf("%s", a.body)
	}
}

// decided are some decisions.
type decided struct {
	Decisions []map[string]any
}

// decide asks for decisions.
func (c caller) decide(queries ...map[string]string) []map[string]any {
	c.t.Helper()
	body := must(json.Marshal(map[string]any{"queries": append([]map[string]string{}, queries...)}))
	var out decided
	if err := json.Unmarshal(c.post("/decide", string(body)).is(200).body, &out); err != nil || len(out.Decisions) != len(queries) {
		c.t.Fatalf("%d decisions, %v", len(out.Decisions), err)
	}
	return out.Decisions
}

func TestDecideLimits(t *testing.T) {
	s := newSite(t)
	queries := make([]map[string]string, limits.Questions)
	for i := range queries {
		queries[i] = map[string]string{"bank": "support", "action": "bank:recall", "user_id": []string{"alice", "plain"}[i%2]}
	}
	for i, got := range s.admin().decide(queries...) {
		if got["allowed"] != (i%2 == 0) {
			t.Errorf("query %d: %v", i, got)
		}
	}
	body := func(query string, n int) string {
		return `{"queries": [` + strings.TrimSuffix(strings.Repeat(query+",", n), ",") + `]}`
	}
	s.admin().post("/decide", body(`{"bank":"b","action":"a"}`, limits.Questions+1)).refuses("/queries")
	for _, query := range []string{`{}`, `{"bank":"\n","action":"/"}`} {
		a := s.admin().post("/decide", body(query, limits.Questions)).is(400)
		if n := strings.Count(string(a.body), `"pointer"`); n != limits.Errors+1 || !strings.Contains(string(a.body), "there may be more errors") {
			t.Errorf("%d errors, %d bytes", n, len(a.body))
		}
	}
}
