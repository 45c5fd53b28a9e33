package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/extsvc/svc"
)

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

func TestDecideWhole(t *testing.T) {
	admin := newSite(t).admin()
	const unset = `"recall_tag_groups": null, "retain_roles": null, "retain_tags": null, "retain_every_n_turns": null,
		"retain_strategy": null, "llm_model": null, "llm_provider": null, "exclude_providers": null`
	admin.post("/decide", `{"queries": [
		{"user_id": "alice", "sa_id": null, "sender": null, "action": "bank:recall", "bank": "support", "channel": null, "topic": null},
		{"action": "bank:retain", "bank": "support"}, {"sender": "telegram:5", "action": "bank:retain", "bank": "support"}]}`).is(200).json(`{"decisions": [
		{"allowed": true, "decision": "allow", "effective_strategy": "balanced",
			"access": {"allowed": true, "resolved_user_id": "alice", "recall_budget": "low", "recall_max_tokens": 1024, ` + unset + `}},
		{"allowed": false, "decision": "implicit_deny", "effective_strategy": null,
			"access": {"allowed": false, "resolved_user_id": "admin", "recall_budget": null, "recall_max_tokens": null, ` + unset + `}},
		{"allowed": false, "decision": "implicit_deny", "effective_strategy": null,
			"access": {"allowed": false, "resolved_user_id": null, "recall_budget": null, "recall_max_tokens": null, ` + unset + `}}]}`)
	admin.post("/decide", `{"queries": []}`).is(200).json(`{"decisions": []}`)
	admin.post("/decide?user_id=alice", `{"queries": []}`).refuses("user_id")
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

func TestDecideRefused(t *testing.T) {
	s := newSite(t)
	const good = `{"bank": "b", "action": "a"}`
	for body, places := range map[string][]string{
		``:                                {"/queries"},
		`{}`:                              {"/queries"},
		`{"queries": null}`:               {"/queries"},
		`{"queries": {}}`:                 {"/queries"},
		`{"queries": ["a"]}`:              {"/queries/0"},
		`{"queries": [null]}`:             {"/queries/0"},
		`{"queries": [], "x": 1}`:         {"/x"},
		`{"queries": [` + good + `, {}]}`: {"/queries/1/bank", "/queries/1/action"},
		`{"queries": [` + good + `, {"bank": "", "action": null}]}`:                                 {"/queries/1/bank", "/queries/1/action"},
		`{"queries": [` + good + `, {"bank": "\n", "action": "a/b", "topic": "\u0000"}]}`:           {"/queries/1/bank", "/queries/1/action", "/queries/1/topic"},
		`{"queries": [{"bank": "b", "action": "a", "user_id": "a", "sa_id": "b"}]}`:                 {"/queries/0"},
		`{"queries": [{"bank": "b", "action": "a", "user_id": "a", "sa_id": "", "sender": "a:1"}]}`: {"/queries/0"},
		`{"queries": [{"bank": "b", "action": "a", "user_id": ""}]}`:                                {"/queries/0/user_id"},
		`{"queries": [{"bank": "b", "action": "a", "user_id": ".."}]}`:                              {"/queries/0/user_id"},
		`{"queries": [{"bank": "b", "action": "a", "sa_id": "a/b"}]}`:                               {"/queries/0/sa_id"},
		`{"queries": [{"bank": "b", "action": "a", "sender": "a"}]}`:                                {"/queries/0/sender"},
		`{"queries": [{"bank": "b", "action": "a", "user_id": 1}]}`:                                 {"/queries/0/user_id"},
		`{"queries": [{"bank": "b", "action": "a", "scoping_policy_id": "p"}]}`:                     {"/queries/0/scoping_policy_id"},
		`{"queries": [{"bank": "b", "action": "a", "bank": "b"}]}`:                                  {"/queries/0/bank"},
	} {
		s.admin().post("/decide", body).refuses(places...)
		s.as("session-of-plain").post("/decide", body).fails(400, "invalid_request")
	}
}

func TestDecideLimits(t *testing.T) {
	s := newSite(t)
	queries := make([]map[string]string, svc.MaxQuestions)
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
	s.admin().post("/decide", body(`{"bank":"b","action":"a"}`, svc.MaxQuestions+1)).refuses("/queries")
	for _, query := range []string{`{}`, `{"bank":"\n","action":"/"}`} {
		a := s.admin().post("/decide", body(query, svc.MaxQuestions)).is(400)
		if n := strings.Count(string(a.body), `"pointer"`); n < svc.MaxErrors || n > svc.MaxErrors+1 {
			t.Errorf("%d errors, %d bytes", n, len(a.body))
		}
	}
}
