package httpapi_test

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc"
)

func TestResolveWhole(t *testing.T) {
	admin := newSite(t).admin()
	a := admin.get("/debug/resolve?bank=support&user_id=alice").is(200)
	want := `{
		"tenant_id": "alice", "principal_type": "user",
		"access": {"allowed": true, "resolved_user_id": "alice", "recall_budget": "low", "recall_max_tokens": 1024,
			"recall_tag_groups": null, "retain_roles": null, "retain_tags": null, "retain_every_n_turns": null,
			"retain_strategy": null, "llm_model": null, "llm_provider": null, "exclude_providers": null},
		"bank_policy": {"version": "2026-03-24", "default_strategy": "balanced",
			"public_access": {"default": {"actions": ["bank:recall"], "recall_budget": "low"}}},
		"decision": "allow", "reason": %q, "effective_strategy": "balanced", "revision": %q,
		"trace": [
			{"policy_id": "recalls", "via": "group:staff", "statement": 0, "effect": "allow", "matched": true,
				"action_pattern": "bank:recall", "bank_pattern": "support", "code": %q, "reason": %q,
				"sets": {"recall_budget": "low", "recall_max_tokens": 1024}, "lost": {}},
			{"policy_id": "support", "via": "bank", "statement": -1, "effect": "allow", "matched": true,
				"action_pattern": null, "bank_pattern": null, "code": %q, "reason": %q,
				"sets": {"retain_strategy": "balanced"}, "lost": {}}]}`
	v := a.value()
	var texts []any
	for _, entry := range v["trace"].([]any) {
		e := entry.(map[string]any)
		texts = append(texts, e["code"], e["reason"])
	}
	if v["reason"] == "" || v["revision"] == "" || len(texts) != 4 {
		t.Fatalf("%s", a.body)
	}
	a.json(fmt.Sprintf(want, append([]any{v["reason"], v["revision"]}, texts...)...))
}

// Groups of tags are told as they were written, in the trace as well as in what came of them.
func TestResolveTagGroups(t *testing.T) {
	s := newSite(t)
	bundle := must(svc.ParseBundle([]byte(`{
	  "policies": [{"id": "groups", "document": {"version": "2026-03-24", "statements": [
	    {"effect": "allow", "actions": ["bank:recall"], "banks": ["*"], "recall_tag_groups": [{"any": ["<&>", 1.50]}]}]}}],
	  "attachments": [{"policy_id": "groups", "principal_type": "user", "principal_id": "alice"}]}`)))
	if err := s.service.Access.Apply(t.Context(), svc.Host, bundle); err != nil {
		t.Fatal(err)
	}
	a := s.admin().get("/debug/resolve?bank=support&user_id=alice").is(200)
	if n := strings.Count(string(a.body), `"recall_tag_groups":[{"any":["<&>",1.50]}]`); n != 2 {
		t.Errorf("%d times in %s", n, a.body)
	}
}

func TestResolveKeys(t *testing.T) {
	admin := newSite(t).admin()
	top := []string{"access", "bank_policy", "decision", "effective_strategy", "principal_type", "reason", "revision", "tenant_id", "trace"}
	access := []string{"allowed", "exclude_providers", "llm_model", "llm_provider", "recall_budget", "recall_max_tokens", "recall_tag_groups",
		"resolved_user_id", "retain_every_n_turns", "retain_roles", "retain_strategy", "retain_tags"}
	entry := []string{"action_pattern", "bank_pattern", "code", "effect", "lost", "matched", "policy_id", "reason", "sets", "statement", "via"}
	for _, query := range []string{
		"bank=support&user_id=alice", "bank=support&user_id=nobody", "bank=other&user_id=alice", "bank=support&sa_id=narrow",
		"bank=support&sender=telegram:5", "bank=other&sender=telegram:5", "bank=support&sa_id=nobody", "bank=support&action=bank:retain&user_id=alice",
	} {
		a := admin.get("/debug/resolve?" + query).is(200)
		v := a.value()
		inside := v["access"].(map[string]any)
		if !slices.Equal(slices.Sorted(maps.Keys(v)), top) || !slices.Equal(slices.Sorted(maps.Keys(inside)), access) {
			t.Errorf("%s: not the keys: %s", query, a.body)
		}
		for _, element := range v["trace"].([]any) {
			e := element.(map[string]any)
			for _, key := range entry {
				if _, there := e[key]; !there {
					t.Errorf("%s: an entry of the trace has no %s: %v", query, key, e)
				}
			}
			if e["sets"] == nil || e["lost"] == nil {
				t.Errorf("%s: sets or lost is null: %v", query, e)
			}
		}
		if inside["allowed"] == true {
			continue
		}
		for key, value := range inside {
			if value != nil && key != "allowed" && key != "resolved_user_id" {
				t.Errorf("%s: a denial carries %s", query, key)
			}
		}
	}
}

func TestResolveWho(t *testing.T) {
	admin := newSite(t).admin()
	for query, want := range map[string]string{
		"user_id=alice":                        "alice user allow",
		"user_id=plain":                        "plain user implicit_deny",
		"user_id=nobody":                       "nobody user implicit_deny",
		"user_id=ghost":                        "ghost user implicit_deny",
		"sa_id=robot":                          "sa:robot service_account implicit_deny",
		"sa_id=nobody":                         "sa:nobody service_account implicit_deny",
		"sender=telegram:1001":                 "alice user allow",
		"sender=telegram:5":                    "_unmapped unmapped allow",
		"sender=telegram:666":                  "_unmapped unmapped allow",
		"sender=telegram:a:b":                  "_unmapped unmapped allow",
		"sender=slack:1001":                    "_unmapped unmapped allow",
		"sender=telegram:5&action=bank:retain": "_unmapped unmapped implicit_deny",
		"sa_id=robot&user_id=alice&sender=telegram:1001":    "sa:robot service_account implicit_deny",
		"user_id=plain&sender=telegram:1001":                "plain user implicit_deny",
		"sa_id=&user_id=plain&sender=":                      "plain user implicit_deny",
		"user_id=alice&action=":                             "alice user allow",
		"user_id=alice&action=bank:memories:get":            "alice user allow",
		"user_id=alice&action=bank:retain":                  "alice user implicit_deny",
		"user_id=alice&channel=c&topic=t":                   "alice user allow",
		"user_id=sa:robot":                                  "sa:robot user implicit_deny",
		"user_id=barred&action=template:admin":              "barred user implicit_deny",
		"user_id=barred&action=template:admin&bank=support": "400",
	} {
		a := admin.get("/debug/resolve?bank=support&" + query)
		if want == "400" {
			a.refuses("bank")
			continue
		}
		v := a.is(200).value()
		if have := fmt.Sprint(v["tenant_id"], " ", v["principal_type"], " ", v["decision"]); have != want && !strings.Contains(query, "barred") {
			t.Errorf("%s: %s, want %s", query, have, want)
		}
		if allowed := v["access"].(map[string]any)["allowed"]; allowed != (v["decision"] == "allow") || v["reason"] == "" {
			t.Errorf("%s: allowed %v: %s", query, allowed, a.body)
		}
	}
	if detail := admin.get("/debug/resolve?bank=support").is(400).text("detail"); detail != "user_id is required, unless sa_id or sender is given." {
		t.Errorf("about nobody: %q", detail)
	}
	for query, word := range map[string]string{"user_id=nobody": "unknown", "user_id=ghost": "inactive", "sa_id=nobody": "unknown", "sa_id=asleep": "inactive"} {
		if reason := admin.get("/debug/resolve?bank=support&" + query).is(200).text("reason"); !strings.Contains(reason, word) {
			t.Errorf("%s: reason %q", query, reason)
		}
	}
}

func TestResolveServiceAccountDenials(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	bundle := must(svc.ParseBundle([]byte(`{
		"users": [{"id": "allowed"}, {"id": "denied"}, {"id": "none"}],
		"policies": [
			{"id": "yes", "document": {"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["bank:*"], "banks": ["*"]}]}},
			{"id": "no", "document": {"version": "2026-03-24", "statements": [{"effect": "deny", "actions": ["bank:*"], "banks": ["*"]}]}},
			{"id": "silent", "document": {"version": "2026-03-24", "statements": []}}],
		"attachments": [
			{"policy_id": "yes", "principal_type": "user", "principal_id": "allowed"},
			{"policy_id": "no", "principal_type": "user", "principal_id": "denied"}],
		"service_accounts": [
			{"id": "yes-yes", "owner_user_id": "allowed", "scoping_policy_id": "yes"},
			{"id": "yes-no", "owner_user_id": "allowed", "scoping_policy_id": "no"},
			{"id": "yes-silent", "owner_user_id": "allowed", "scoping_policy_id": "silent"},
			{"id": "no-yes", "owner_user_id": "denied", "scoping_policy_id": "yes"},
			{"id": "none-no", "owner_user_id": "none", "scoping_policy_id": "no"},
			{"id": "none-yes", "owner_user_id": "none", "scoping_policy_id": "yes"},
			{"id": "ghosts", "owner_user_id": "ghost", "scoping_policy_id": "yes"}]}`)))
	if err := s.service.Access.Apply(t.Context(), svc.Host, bundle); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"yes-yes": "allow", "yes-no": "explicit_deny", "yes-silent": "implicit_deny", "no-yes": "explicit_deny",
		"none-no": "explicit_deny", "none-yes": "implicit_deny", "ghosts": "implicit_deny",
	} {
		a := admin.get("/debug/resolve?bank=b&sa_id=" + id).is(200)
		if have := a.text("decision"); have != want {
			t.Errorf("%s: %s, want %s", id, have, want)
		}
		if a.value()["bank_policy"] != nil {
			t.Errorf("%s: a bank policy: %s", id, a.body)
		}
	}
}

func TestResolveRefused(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	long := strings.Repeat("a", 129)
	for query, places := range map[string][]string{
		"":                                     {"bank", "user_id"},
		"?bank=b":                              {"user_id"},
		"?user_id=alice":                       {"bank"},
		"?bank=&user_id=alice":                 {"bank"},
		"?bank=b&sender=telegram":              {"sender"},
		"?bank=b&bank=c&user_id=alice":         {"bank"},
		"?bank=b&user_id=alice&user_id=alice":  {"user_id"},
		"?bank=b&user_id=a&sa_id=&sa_id=":      {"sa_id"},
		"?bank=b&user_id=a&topic=x&topic=y":    {"topic"},
		"?bank=b&user_id=a&channel=x&channel=": {"channel"},
		"?bank=b&user_id=a&action=x&action=x":  {"action"},
		"?bank=b&sender=a:1&sender=a:1":        {"sender"},
		"?bank=b&user_id=" + long:              {"user_id"},
		"?bank=b&user_id=..":                   {"user_id"},
		"?bank=b&sa_id=a%2Fb":                  {"sa_id"},
		"?bank=b&sa_id=robot&user_id=a%2Fb":    {"user_id"},
		"?bank=b&user_id=%ff":                  {"user_id"},
		"?bank=b&user_id=a%00":                 {"user_id"},
		"?bank=b%00&user_id=a":                 {"bank"},
		"?bank=%ff&user_id=a":                  {"bank"},
		"?bank=b&sender=a:%ff":                 {"sender"},
		"?bank=b&user_id=a&topic=%00":          {"topic"},
		"?bank=b&user_id=a&channel=%ff":        {"channel"},
		"?bank=b&user_id=a&action=%00":         {"action"},
		"?bank=b%0A&user_id=a":                 {"bank"},
		"?bank=b&sender=a%2Fb:1":               {"sender"},
		"?bank=b&sender=a:%E2%80%AE":           {"sender"},
		"?bank=b&user_id=a&channel=" + long:    {"channel"},
	} {
		admin.get("/debug/resolve" + query).refuses(places...)
	}
	s.as("session-of-plain").get("/debug/resolve").fails(400, "invalid_request")
	s.as("session-of-plain").get("/debug/resolve?bank=b&user_id=plain").fails(403, "forbidden")
	s.as(s.key("reader")).get("/debug/resolve?bank=b&user_id=plain").is(200)
	admin.get("/debug/resolve?bank=" + url.QueryEscape(strings.Repeat("ü", 128)) + "&user_id=user:x@y").is(200)
	for _, name := range []string{"b%20c%2F%C3%BC", "%5C", "%2F", ".", "..", "a%2F..%2Fb", strings.Repeat("%F0%9F%98%80", 128)} {
		admin.get("/debug/resolve?bank=" + name + "&sender=telegram:" + name + "&channel=" + name + "&topic=" + name).is(200)
		admin.get("/debug/who-can?bank=" + name).is(200)
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

// A caller without any action lists what it may do, narrowed as its key is. Unset parameters are absent; an empty list is set.
func TestWhatCanI(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	if err := s.service.Access.Apply(t.Context(), svc.Host, must(svc.ParseBundle([]byte(`{
	  "users": [{"id": "mixed"}],
	  "policies": [
	    {"id": "mixes", "document": {"version": "2026-03-24", "statements": [
	      {"effect": "allow", "actions": ["bank:*"], "banks": ["p::*"], "retain_roles": ["user"], "recall_tag_groups": [{"any": ["a"]}], "retain_every_n_turns": 3},
	      {"effect": "deny", "actions": ["bank:*"], "banks": ["p::<s>"]}]}},
	    {"id": "mutes", "document": {"version": "2026-03-24", "statements": [
	      {"effect": "allow", "actions": ["bank:retain"], "banks": ["*"], "retain_roles": ["assistant"]}]}}],
	  "attachments": [{"policy_id": "mixes", "principal_type": "user", "principal_id": "mixed"}]}`)))); err != nil {
		t.Fatal(err)
	}
	narrowed := admin.post("/users/mixed/api-keys", `{"scoping_policy_id": "mutes"}`).is(201).text("api_key")
	const nothing, denied = `{"capabilities": []}`, `{"action": "bank:*", "bank": "p::<s>", "decision": "explicit_deny", "parameters": {}}`
	for bearer, want := range map[string]string{
		"session-of-plain": nothing, "session-of-nobody": nothing, "session-of-plain+template:admin": nothing,
		s.key("alice"):         `{"capabilities": [{"action": "bank:recall", "bank": "support", "decision": "allow", "parameters": {"recall_budget": "low", "recall_max_tokens": 1024}}]}`,
		"session-of-barred":    `{"capabilities": [{"action": "template:*", "bank": "*", "decision": "explicit_deny", "parameters": {}}]}`,
		"session-of-narrow+sa": `{"capabilities": [{"action": "iam:users:read", "bank": "*", "decision": "allow", "parameters": {}}]}`,
		"session-of-mixed": `{"capabilities": [
		  {"action": "bank:*", "bank": "p::*", "decision": "allow", "parameters": {"retain_roles": ["user"], "recall_tag_groups": [{"any": ["a"]}], "retain_every_n_turns": 3}}, ` + denied + `]}`,
		narrowed: `{"capabilities": [` + denied + `,
		  {"action": "bank:retain", "bank": "p::*", "decision": "allow", "parameters": {"retain_roles": [], "recall_tag_groups": [{"any": ["a"]}], "retain_every_n_turns": 3}},
		  {"action": "bank:retain", "bank": "p::<s>", "decision": "explicit_deny", "parameters": {}}]}`,
	} {
		s.as(bearer).get("/me/what-can").is(200).json(want)
		s.as(bearer).get("/me/what-can?user_id=admin").refuses("user_id")
	}
}
