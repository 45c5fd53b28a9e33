package svc_test

import (
	"strings"
	"testing"

	"github.com/extsvc/svc"
)

const world = `{
	"users": [{"id":"alice","channels":[{"provider":"telegram","sender_id":"1"}]},
		{"id":"idle","is_active":false,"channels":[{"provider":"telegram","sender_id":"2"}]}],
	"groups": [{"id":"team","members":["alice"]}],
	"service_accounts": [
		{"id":"ci","owner_user_id":"alice","scoping_policy_id":"narrow"},{"id":"free","owner_user_id":"alice"},
		{"id":"off","owner_user_id":"alice","is_active":false},{"id":"idle-owned","owner_user_id":"idle"}],
	"policies": [
		{"id":"wide","document":{"version":"2026-03-24","statements":[
			{"effect":"allow","actions":["bank:*"],"banks":["*"],"recall_budget":"high","recall_max_tokens":4096,"retain_roles":[]},
			{"effect":"deny","actions":["bank:delete"],"banks":["prod::*"]}]}},
		{"id":"narrow","document":{"version":"2026-03-24","statements":[
			{"effect":"allow","actions":["bank:recall"],"banks":["notes"],"recall_budget":"low"}]}}],
	"attachments": [{"policy_id":"wide","principal_type":"group","principal_id":"team"}],
	"bank_policies": [{"bank_id":"notes","document":{"version":"2026-03-24","default_strategy":"deep",
		"strategy_overrides":[{"scope":"provider","value":"telegram","strategy":"quick"},{"scope":"topic","value":"news","strategy":"daily"}],
		"public_access":{"default":{"actions":["bank:recall"],"recall_budget":"low","recall_max_tokens":512},
			"overrides":[{"scope":"channel","value":"closed"}]}}}]}`

func TestResolve(t *testing.T) {
	h := newHost(t)
	h.apply(t, world)
	for _, c := range []struct {
		q                        svc.Question
		tenant, user, decision   string
		strategy, budget, reason string
	}{
		{svc.Question{UserID: "alice"}, "alice", "alice", "allow", "deep", "high", `group "team"`},
		{svc.Question{UserID: "alice", Sender: "telegram:9"}, "alice", "alice", "allow", "quick", "high", "wide"},
		{svc.Question{UserID: "alice", Sender: "telegram:9", Topic: "news"}, "alice", "alice", "allow", "daily", "high", "wide"},
		{svc.Question{UserID: "alice", Bank: "prod::1", Action: "bank:delete"}, "alice", "alice", "explicit_deny", "", "", "wide"},
		{svc.Question{UserID: "alice", Action: "iam:users:read"}, "alice", "alice", "implicit_deny", "", "", "no policy"},
		{svc.Question{UserID: "nobody"}, "nobody", "", "implicit_deny", "", "", "unknown"},
		{svc.Question{UserID: "idle"}, "idle", "idle", "implicit_deny", "", "", "inactive"},
		{svc.Question{Sender: "telegram:1"}, "alice", "alice", "allow", "quick", "high", "wide"},
		{svc.Question{Sender: "telegram:2"}, "_unmapped", "", "allow", "quick", "low", "public"},
		{svc.Question{Sender: "slack:1"}, "_unmapped", "", "allow", "deep", "low", "public"},
		{svc.Question{Sender: "slack:1", Channel: "closed"}, "_unmapped", "", "implicit_deny", "", "", "public"},
		{svc.Question{Sender: "slack:1", Bank: "other"}, "_unmapped", "", "implicit_deny", "", "", "bank"},
		{svc.Question{ServiceAccountID: "ci"}, "sa:ci", "alice", "allow", "deep", "low", "narrow"},
		{svc.Question{ServiceAccountID: "ci", Action: "bank:retain"}, "sa:ci", "alice", "implicit_deny", "", "", "narrow"},
		{svc.Question{ServiceAccountID: "free", UserID: "nobody", Sender: "slack:1"}, "sa:free", "alice", "allow", "deep", "high", "wide"},
		{svc.Question{ServiceAccountID: "off"}, "sa:off", "alice", "implicit_deny", "", "", "inactive"},
		{svc.Question{ServiceAccountID: "idle-owned"}, "sa:idle-owned", "idle", "implicit_deny", "", "", "inactive"},
		{svc.Question{ServiceAccountID: "nobody"}, "sa:nobody", "", "implicit_deny", "", "", "unknown"},
	} {
		if c.q.Bank == "" {
			c.q.Bank = "notes"
		}
		r, err := h.Policies.Resolve(t.Context(), svc.Host, c.q)
		if err != nil {
			t.Fatal(err)
		}
		got := []string{r.TenantID, or(r.ResolvedUserID), string(r.Outcome), or(r.EffectiveStrategy), or(r.Parameters.RecallBudget)}
		want := []string{c.tenant, c.user, c.decision, c.strategy, c.budget}
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%+v:\ngot  %q\nwant %q", c.q, got, want)
		}
		if !strings.Contains(r.Reason, c.reason) {
			t.Errorf("%+v: the reason is %q, want it to speak of %q", c.q, r.Reason, c.reason)
		}
		if (r.BankPolicy != nil) != (c.q.Bank == "notes") || r.Revision == "" {
			t.Errorf("%+v: bank policy %s, revision %q", c.q, r.BankPolicy, r.Revision)
		}
	}
}

func or(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func TestResolveRefuses(t *testing.T) {
	h := newHost(t)
	for _, c := range []struct {
		field string
		q     svc.Question
	}{
		{"bank", svc.Question{UserID: "a"}},
		{"bank", svc.Question{UserID: "a", Bank: "a\u202eb"}},
		{"action", svc.Question{UserID: "a", Bank: "b", Action: "\n"}},
		{"user_id", svc.Question{Bank: "b"}},
		{"user_id", svc.Question{Bank: "b", UserID: "\xff"}},
		{"sa_id", svc.Question{Bank: "b", ServiceAccountID: ".."}},
		{"user_id", svc.Question{Bank: "b", ServiceAccountID: "a", UserID: ".."}},
		{"sender", svc.Question{Bank: "b", Sender: "nocolon"}},
		{"sender", svc.Question{Bank: "b", Sender: ":1"}},
		{"sender", svc.Question{Bank: "b", Sender: "telegram:"}},
		{"sender", svc.Question{Bank: "b", UserID: "a", Sender: "nocolon"}},
		{"sender", svc.Question{Bank: "b", Sender: "a:\x00"}},
		{"channel", svc.Question{Bank: "b", UserID: "a", Channel: "\xff"}},
		{"topic", svc.Question{Bank: "b", UserID: "a", Topic: strings.Repeat("a", 129)}},
	} {
		_, err := h.Policies.Resolve(t.Context(), svc.Host, c.q)
		wantCode(t, err, svc.CodeInvalid, c.field)
	}
}
