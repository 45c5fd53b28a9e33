package svc_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/limits"
	"github.com/extsvc/svc/parameter"
	"github.com/extsvc/svc/store/memstore"
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
		r := must(h.Policies.Resolve(t.Context(), svc.Host, c.q))
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
		wantCode(t, errorOf(h.Policies.Resolve(t.Context(), svc.Host, c.q)), svc.CodeInvalid, c.field)
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
				answers := must(h.Policies.Decide(t.Context(), svc.Host, questions...))
				for i, q := range questions {
					r := must(h.Policies.Resolve(t.Context(), svc.Host, q))
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
				answers := must(h.Policies.Decide(t.Context(), p, q))
				r := must(h.Policies.Resolve(t.Context(), p, q))
				if answers[0].Outcome != want.Outcome() || r.Outcome != want.Outcome() {
					t.Errorf("%+v, %+v: Decide says %s, Resolve %s, the Service %s", p, q, answers[0].Outcome, r.Outcome, want.Outcome())
				}
			}
			p.Actions = nil
			mine := must(h.Policies.WhatCan(t.Context(), p, svc.Me))
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
		return errorOf(h.Policies.Decide(t.Context(), by, questions...))
	}
	mine := svc.Question{Me: true, Bank: "b"}
	wantCode(t, ask(svc.Host, mine, svc.Question{UserID: "a"}), svc.CodeInvalid, "/1/bank")
	wantCode(t, ask(svc.Host, svc.Question{Bank: "b"}), svc.CodeInvalid, "/0/user_id")
	wantCode(t, ask(svc.Host, svc.Question{Me: true, UserID: "a", Bank: "b"}), svc.CodeInvalid, "/0/user_id")
	most := slices.Repeat([]svc.Question{{UserID: "a", Bank: "b"}}, limits.Questions)
	is.New(t).NoErr(ask(svc.Host, most...))
	wantCode(t, ask(svc.Host, append(most, most[0])...), svc.CodeInvalid, "")
	plain := svc.Principal{Kind: svc.KindUser, ID: "plain"}
	wantCode(t, ask(plain, mine, svc.Question{UserID: "plain", Bank: "b"}), svc.CodeForbidden, "")
	wantCode(t, errorOf(h.Policies.Resolve(t.Context(), svc.Host, mine)), svc.CodeForbidden, "")
	wantCode(t, errorOf(h.Policies.WhatCan(t.Context(), svc.Host, svc.Me)), svc.CodeForbidden, "")
}

func TestDecideNothing(t *testing.T) {
	is := is.New(t)
	is.Equal(len(must(newHost(t).Policies.Decide(t.Context(), svc.Principal{Kind: svc.KindUser, ID: "plain"}))), 0)
}

// documentOf draws a document with values of any parameters of the table.
func documentOf(d *rand.Rand, table []parameter.Definition) svc.Document {
	words := []string{"a", "ä<&>", "\u2028\"\\", "b\n"}
	document := svc.Document{Statements: make([]svc.Statement, d.IntN(4))}
	for i := range document.Statements {
		st := svc.Statement{Effect: svc.EffectAllow, Actions: []string{"flag:*", "a"}, Banks: []string{"${group}::*", "b::${user}"}}
		if d.IntN(4) == 0 {
			st.Effect = svc.EffectDeny
		}
		for _, p := range table {
			if st.Effect == svc.EffectDeny || d.IntN(2) == 0 {
				continue
			}
			if st.Set == nil {
				st.Set = map[string]any{}
			}
			switch p.Type {
			case parameter.Integer:
				st.Set[p.Name] = d.Int64()
			case parameter.Text:
				st.Set[p.Name] = words[d.IntN(len(words))]
			case parameter.Level:
				st.Set[p.Name] = p.Levels[d.IntN(len(p.Levels))]
			case parameter.TextList:
				st.Set[p.Name] = words[:d.IntN(len(words))]
			case parameter.ObjectList:
				st.Set[p.Name] = []json.RawMessage{json.RawMessage(`{"b":[1.0,1e3],"a":"<>"}`)}
			}
		}
		document.Statements[i] = st
	}
	return document
}

// A Service keeps a typed document as it is, whatever its table, and gives it back.
func TestDocumentsKeepAll(t *testing.T) {
	is := is.New(t)
	for seed := range uint64(50) {
		d := rand.New(rand.NewPCG(seed, 3))
		table := []parameter.Definition{}
		for i := range d.IntN(8) {
			p := parameter.Definition{Name: fmt.Sprint("p_", i), Type: parameter.Type(1 + i%5), Merge: parameter.Closest, Narrow: parameter.Replace}
			if p.Type == parameter.Level {
				p.Levels = []string{"low", "high"}
			}
			table = append(table, p)
		}
		service := must(svc.New(svc.Config{Store: memstore.New(), Parameters: table}))
		document := documentOf(d, table)
		kept := must(service.Policies.Create(t.Context(), svc.Host, svc.Policy{ID: "p", Document: document.JSON()}))
		is.Equal(string(kept.Document), string(document.JSON()))
		is.Equal(must(svc.ParseDocument(kept.Document)), document)
		is.NoErr(service.Close())
	}
}

// What has no JSON, or stands under a wrong name, gives no right: a Service refuses the document.
func TestDocumentsThatAreRefused(t *testing.T) {
	is := is.New(t)
	service, err := svc.New(svc.Config{Store: memstore.New(), Parameters: flags})
	is.NoErr(err)
	defer service.Close()
	allow := svc.Statement{Effect: svc.EffectAllow, Actions: []string{"a"}, Banks: []string{"b"}}
	with := func(change func(*svc.Statement)) svc.Document {
		st := allow
		change(&st)
		return svc.Document{Statements: []svc.Statement{allow, st}}
	}
	set := func(name string, v any) svc.Document {
		return with(func(st *svc.Statement) { st.Set = map[string]any{name: v} })
	}
	for _, tc := range []struct {
		document  svc.Document
		at, field string // of ParseDocument, and of Create
	}{
		{set("row_limit", 5), "", ""},
		{set("row_limit", uint8(5)), "", ""},
		{set("row_limit", 5.0), "", ""},
		{set("row_limit", nil), "", ""},
		{set("row_limit", "5"), "", "row_limit"},
		{set("rows", 5), "", "rows"},
		{set("row_limit", func() {}), "row_limit", "row_limit"},
		{set("environments", []string{"\xff"}), "environments", "environments"},
		{set("banks", []string{"*"}), "banks", "banks"},
		{set("row limit", 1), "row limit", "row limit"},
		{with(func(st *svc.Statement) { st.Banks = []string{"\xff"} }), "banks", "banks"},
		{with(func(st *svc.Statement) { st.Banks = nil }), "banks", "banks"},
		{with(func(st *svc.Statement) { st.Effect = "" }), "effect", "effect"},
		{with(func(st *svc.Statement) { st.Effect, st.Set = svc.EffectDeny, map[string]any{"row_limit": 1} }), "row_limit", "row_limit"},
	} {
		check := func(err error, name, at string) {
			t.Helper()
			if want := at + "/statements/1/" + name; name == "" && err != nil || name != "" && (svc.ErrorCode(err) != svc.CodeInvalid || svc.Errors(err)[0].Field != want) {
				t.Errorf("%+v: %v, want %q", tc.document, err, want)
			}
		}
		_, err := svc.ParseDocument(tc.document.JSON())
		check(err, tc.at, "")
		_, err = service.Policies.Create(t.Context(), svc.Host, svc.Policy{ID: "p", Document: tc.document.JSON()})
		check(err, tc.field, "/document")
		if err == nil {
			is.NoErr(service.Policies.Delete(t.Context(), svc.Host, "p"))
		}
	}
	_, err = svc.ParseDocument(nil)
	is.Equal(svc.ErrorCode(err), svc.CodeInvalid)
	_, err = service.Policies.Create(t.Context(), svc.Host, svc.Policy{ID: "p", Document: set("\xff", 1).JSON()})
	is.Equal(svc.ErrorCode(err), svc.CodeInvalid)
}

func TestNewRefusesParameters(t *testing.T) {
	for _, p := range []parameter.Definition{
		{Name: "words", Type: parameter.Text, Merge: parameter.Greatest, Narrow: parameter.Replace},
		{Name: "words", Type: parameter.Level, Merge: parameter.Greatest, Narrow: parameter.Lesser},
		{Name: "words", Type: parameter.Text, Merge: parameter.Closest},
	} {
		_, err := svc.New(svc.Config{Store: memstore.New(), Parameters: []parameter.Definition{p}})
		if err == nil || !strings.Contains(err.Error(), `"words"`) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

// An empty table is no table of AI memory: no statement sets anything, and the strategy is the bank's.
func TestNoParameters(t *testing.T) {
	is, ctx := is.New(t), t.Context()
	s := must(svc.New(svc.Config{Store: memstore.New(), Parameters: []parameter.Definition{}}))
	defer s.Close()
	is.NoErr(s.Access.Apply(ctx, svc.Host, must(svc.ParseBundle([]byte(`{"users": [{"id": "alice"}],
		"policies": [{"id": "p", "document": {"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["a"], "banks": ["b"]}]}}],
		"bank_policies": [{"bank_id": "b", "document": {"version": "2026-03-24", "default_strategy": "deep"}}],
		"attachments": [{"policy_id": "p", "principal_type": "user", "principal_id": "alice"}]}`)))))
	r := must(s.Policies.Resolve(ctx, svc.Host, svc.Question{UserID: "alice", Action: "a", Bank: "b"}))
	is.Equal(*r.EffectiveStrategy, "deep")
	for name := range r.Parameters.All() {
		t.Errorf("a parameter %q", name)
	}
}

// A policy with ${user} gives each user of a group something else, so each is judged.
func TestVariablesAreJudgedForEachUser(t *testing.T) {
	is, ctx := is.New(t), t.Context()
	s := must(svc.New(svc.Config{Store: memstore.New()}))
	defer s.Close()
	apply := func(banks string) {
		is.NoErr(s.Access.Apply(ctx, svc.Host, must(svc.ParseBundle([]byte(`{"users": [{"id": "alice"}, {"id": "bob"}, {"id": "carol"}],
			"groups": [{"id": "team", "members": ["alice", "bob"]}],
			"policies": [{"id": "own", "document": {"version": "2026-03-24", "statements": []}},
				{"id": "carol", "document": {"version": "2026-03-24", "statements": [
					{"effect": "allow", "actions": ["iam:policies:write"], "banks": ["*"]},
					{"effect": "allow", "actions": ["bank:recall"], "banks": [`+banks+`]}]}}],
			"attachments": [{"policy_id": "own", "principal_type": "group", "principal_id": "team"},
				{"policy_id": "carol", "principal_type": "user", "principal_id": "carol"}]}`)))))
	}
	carol := svc.Principal{Kind: svc.KindUser, ID: "carol"}
	write := func() error {
		document := json.RawMessage(`{"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["bank:recall"], "banks": ["${user}::*"]}]}`)
		_, err := s.Policies.Patch(ctx, carol, "own", svc.PolicyPatch{Document: document})
		return err
	}
	apply(`"alice::*"`)
	is.Equal(svc.ErrorCode(write()), svc.CodeForbidden) // bob's banks are not carol's
	apply(`"alice::*", "bob::*"`)
	is.NoErr(write())
	bob := svc.Principal{Kind: svc.KindUser, ID: "bob"}
	is.True(must(s.Decide(ctx, bob, "bank:recall", "bob::notes", svc.Context{})).Allowed())
	is.True(!must(s.Decide(ctx, bob, "bank:recall", "alice::notes", svc.Context{})).Allowed())
}
