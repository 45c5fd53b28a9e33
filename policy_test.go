package svc_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
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

// Decide answers each question as Resolve does, before and after the cache has it, and after a change.
func TestDecideIsResolve(t *testing.T) {
	forEachWorld(t, longtest.Times(20, 60), func(t *testing.T, w *worlds) {
		h := w.host(t, w.bundle())
		for range 2 {
			questions := make([]svc.Question, 20)
			for i := range questions {
				questions[i] = w.query()
			}
			for range 2 {
				answers, err := h.Policies.Decide(t.Context(), svc.Host, questions...)
				if err != nil {
					t.Fatal(err)
				}
				for i, q := range questions {
					r, err := h.Policies.Resolve(t.Context(), svc.Host, q)
					if err != nil {
						t.Fatal(err)
					}
					want := svc.Answer{Outcome: r.Outcome, Parameters: r.Parameters, EffectiveStrategy: r.EffectiveStrategy, ResolvedUserID: r.ResolvedUserID}
					if string(encoded(answers[i])) != string(encoded(want)) || answers[i].Allowed() != (r.Outcome == svc.Allow) {
						t.Errorf("%+v: %s, and Resolve says %s", q, encoded(answers[i]), encoded(want))
					}
				}
			}
			if err := h.Access.Apply(t.Context(), svc.Host, w.bundle()); err != nil && svc.ErrorCode(err) != svc.CodeExists {
				t.Fatal(err)
			}
		}
	})
}

// A caller asks about itself without any action, narrowed as it is, with what the host vouches for.
func TestQuestionsAboutTheCaller(t *testing.T) {
	forEachWorld(t, longtest.Times(10, 30), func(t *testing.T, w *worlds) {
		h := w.host(t, w.bundle())
		for _, p := range principals() {
			if p.Kind != svc.KindUser && p.Kind != svc.KindServiceAccount {
				continue
			}
			if w.IntN(2) == 0 {
				p.Actions = []string{"iam:*"}
			}
			for range 8 {
				q := svc.Question{Me: true, Bank: w.one(append(slices.Clone(askedBanks), "*")), Action: w.one(askedActions)}
				want := h.decide(t, p, q.Action, q.Bank, svc.Context{})
				answers, err := h.Policies.Decide(t.Context(), p, q)
				if err != nil {
					t.Fatal(err)
				}
				r, err := h.Policies.Resolve(t.Context(), p, q)
				if err != nil {
					t.Fatal(err)
				}
				if answers[0].Outcome != want.Outcome() || r.Outcome != want.Outcome() {
					t.Errorf("%+v, %+v: Decide says %s, Resolve %s, the Service %s", p, q, answers[0].Outcome, r.Outcome, want.Outcome())
				}
			}
			p.Actions = nil
			mine, err := h.Policies.WhatCan(t.Context(), p, svc.Me)
			if err != nil {
				t.Fatal(err)
			}
			if p.ScopingPolicyID != "" {
				continue
			}
			his, err := h.Policies.WhatCan(t.Context(), svc.Host, p.Identity())
			if err != nil || string(encoded(mine)) != string(encoded(his)) {
				t.Errorf("%+v: %s, and the host is told %s (%v)", p, encoded(mine), encoded(his), err)
			}
		}
	})
}

func TestDecideRefuses(t *testing.T) {
	h := newHost(t)
	ask := func(by svc.Principal, questions ...svc.Question) error {
		_, err := h.Policies.Decide(t.Context(), by, questions...)
		return err
	}
	mine := svc.Question{Me: true, Bank: "b"}
	wantCode(t, ask(svc.Host, mine, svc.Question{UserID: "a"}), svc.CodeInvalid, "/1/bank")
	wantCode(t, ask(svc.Host, svc.Question{Bank: "b"}), svc.CodeInvalid, "/0/user_id")
	wantCode(t, ask(svc.Host, svc.Question{Me: true, UserID: "a", Bank: "b"}), svc.CodeInvalid, "/0/user_id")
	most := slices.Repeat([]svc.Question{{UserID: "a", Bank: "b"}}, svc.MaxQuestions)
	is.New(t).NoErr(ask(svc.Host, most...))
	wantCode(t, ask(svc.Host, append(most, most[0])...), svc.CodeInvalid, "")
	plain := svc.Principal{Kind: svc.KindUser, ID: "plain"}
	wantCode(t, ask(plain, mine, svc.Question{UserID: "plain", Bank: "b"}), svc.CodeForbidden, "")
	_, err := h.Policies.Resolve(t.Context(), svc.Host, mine)
	wantCode(t, err, svc.CodeForbidden, "")
	_, err = h.Policies.WhatCan(t.Context(), svc.Host, svc.Me)
	wantCode(t, err, svc.CodeForbidden, "")
}

func TestDecideNothing(t *testing.T) {
	is := is.New(t)
	answers, err := newHost(t).Policies.Decide(t.Context(), svc.Principal{Kind: svc.KindUser, ID: "plain"})
	is.NoErr(err)
	is.Equal(len(answers), 0)
}
