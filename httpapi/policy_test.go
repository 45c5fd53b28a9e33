package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/extsvc/svc"
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

// about are queries about everybody, on some banks.
func about() (queries []map[string]string) {
	for _, subject := range [][2]string{
		{"user_id", "alice"}, {"user_id", "admin"}, {"user_id", "barred"}, {"user_id", "ghost"}, {"user_id", "nobody"}, {"sa_id", "robot"}, {"sa_id", "narrow"},
		{"sa_id", "haunted"}, {"sa_id", "none"}, {"sender", "telegram:1001"}, {"sender", "telegram:666"}, {"sender", "slack:a/b"}, {"sender", "telegram:a:b"},
	} {
		for _, bank := range []string{"support", "other", "*", "a/b"} {
			for _, action := range []string{"bank:recall", "bank:retain", "iam:users:read", "template:admin"} {
				queries = append(queries,
					map[string]string{subject[0]: subject[1], "bank": bank, "action": action},
					map[string]string{subject[0]: subject[1], "bank": bank, "action": action, "channel": "#ops", "topic": "t/1"})
			}
		}
	}
	return queries
}

// Every query has the answer of resolve, before and after the rows change.
func TestDecideIsResolve(t *testing.T) {
	s := newSite(t)
	admin, queries := s.admin(), about()
	for _, change := range []string{
		`{}`, `{"groups": [{"id": "staff", "members": ["barred"]}], "bank_policies": [{"bank_id": "support", "document": {"version": "2026-03-24", "default_strategy": "brief",
			"public_access": {"default": {"actions": []}, "overrides": [{"scope": "channel", "value": "#ops", "actions": ["bank:*"]}]}}}]}`,
	} {
		if err := s.service.Access.Apply(t.Context(), svc.Host, must(svc.ParseBundle([]byte(change)))); err != nil {
			t.Fatal(err)
		}
		outcomes := map[any]bool{}
		for i, got := range admin.decide(queries...) {
			values := url.Values{}
			for key, value := range queries[i] {
				values.Set(key, value)
			}
			want := admin.get("/debug/resolve?" + values.Encode()).is(200).value()
			if have, want := fmt.Sprint(got["access"], got["decision"], got["effective_strategy"]), fmt.Sprint(want["access"], want["decision"], want["effective_strategy"]); have != want {
				t.Errorf("%v: %s, and resolve says %s", queries[i], have, want)
			}
			if got["allowed"] != (got["decision"] == "allow") {
				t.Errorf("%v: %v", queries[i], got)
			}
			outcomes[got["decision"]] = true
		}
		if len(outcomes) != 3 {
			t.Errorf("only %v", outcomes)
		}
	}
}

// A query without a subject has the answer of /me/resolve, for every caller and without any action.
func TestDecideAboutTheCaller(t *testing.T) {
	s := newSite(t)
	narrowed := s.admin().post("/users/admin/api-keys", `{"scoping_policy_id": "templates"}`).is(201).text("api_key")
	s.keepSecret(narrowed)
	for _, bearer := range []string{s.key("alice"), s.accountKey("robot"), s.accountKey("narrow"), narrowed, "session-of-plain", "session-of-plain+template:admin"} {
		by := s.as(bearer)
		queries := []map[string]string{
			{"bank": "support", "action": "bank:recall"}, {"bank": "*", "action": "template:admin"}, {"bank": "*", "action": "iam:users:read", "topic": "t"},
		}
		for i, got := range by.decide(queries...) {
			want := by.get("/me/resolve?bank=" + queries[i]["bank"] + "&action=" + queries[i]["action"] + "&topic=" + queries[i]["topic"]).is(200).value()
			if fmt.Sprint(got["access"], got["decision"], got["effective_strategy"]) != fmt.Sprint(want["access"], want["decision"], want["effective_strategy"]) {
				t.Errorf("%v: %v, and resolve says %v", queries[i], got, want)
			}
		}
	}
	plain := s.as("session-of-plain")
	plain.post("/decide", `{"queries": [{"bank": "b", "action": "a"}, {"bank": "b", "action": "a", "user_id": "plain"}]}`).fails(403, "forbidden")
	s.as(narrowed).post("/decide", `{"queries": [{"bank": "b", "action": "a", "sender": "a:1"}]}`).fails(403, "forbidden")
	s.as(s.key("reader")).post("/decide", `{"queries": [{"bank": "b", "action": "a", "sa_id": "none"}]}`).is(200)
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
		if n := strings.Count(string(a.body), `"pointer"`); n < limits.Errors || n > limits.Errors+1 {
			t.Errorf("%d errors, %d bytes", n, len(a.body))
		}
	}
}
