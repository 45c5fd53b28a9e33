package svc_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
)

// active returns a bundle in which nobody is inactive.
func active(b svc.Bundle) svc.Bundle {
	b.Users, b.ServiceAccounts = slices.Clone(b.Users), slices.Clone(b.ServiceAccounts)
	for i := range b.Users {
		b.Users[i].Inactive = false
	}
	for i := range b.ServiceAccounts {
		b.ServiceAccounts[i].Inactive = false
	}
	return b
}

// statementOf is a statement of a bundle.
type statementOf struct {
	policy string
	number int
}

// without returns a bundle that lacks some statements.
func without(b svc.Bundle, gone ...statementOf) svc.Bundle {
	b.Policies = slices.Clone(b.Policies)
	for i, p := range b.Policies {
		d := decoded(p.Document)
		kept := drawnDocument{d.Version, []map[string]any{}}
		for n, s := range d.Statements {
			if !slices.Contains(gone, statementOf{p.ID, n}) {
				kept.Statements = append(kept.Statements, s)
			}
		}
		b.Policies[i].Document = encoded(kept)
	}
	return b
}

// said is the answer to a request.
type said struct {
	outcome    svc.Outcome
	parameters string
}

// answers are those to everybody about everything that is asked.
func answers(t *testing.T, h *host) map[string]said {
	t.Helper()
	all := map[string]said{}
	for _, p := range principals() {
		for _, action := range askedActions {
			for _, bank := range askedBanks {
				d := h.decide(t, p, action, bank, svc.Context{})
				all[p.ID+" "+action+" "+bank] = said{d.Outcome(), string(encoded(d.Parameters()))}
			}
		}
	}
	return all
}

// What is called needless can go, each alone and all together; and what is not cannot, unless something that is goes with it.
func TestNeedlessIsWhatChangesNothing(t *testing.T) {
	seen := map[string]int{}
	forEachWorld(t, 4, 75, func(t *testing.T, w *worlds) {
		b := w.bundle()
		var needless []statementOf
		shadowed := map[statementOf]bool{}
		for _, f := range svc.Lint(b, nil) {
			if s := (statementOf{f.Policy, f.Statement}); f.Code == svc.FindingNeedless || f.Code == svc.FindingShadowed {
				needless = append(needless, s)
				shadowed[s] = f.Code == svc.FindingShadowed
				seen[string(f.Code)]++
			}
		}
		b = active(b)
		h := w.host(t, b)
		all := answers(t, h)
		changes := func(gone ...statementOf) bool {
			return !reflect.DeepEqual(answers(t, w.host(t, without(b, gone...))), all)
		}
		if changes(needless...) {
			t.Errorf("without %v something changes", needless)
		}
		for _, p := range b.Policies {
			d := decoded(p.Document)
			held := slices.ContainsFunc(principals(), func(who svc.Principal) bool { return traced(t, h, who, p.ID) })
			for n, st := range d.Statements {
				s := statementOf{p.ID, n}
				called := slices.Contains(needless, s)
				switch {
				case !held && called:
					t.Errorf("%v is needless, and nobody has it", s)
				case called && changes(s):
					t.Errorf("without %v alone something changes", s)
				case held && !called && !changes(s) && !changes(append([]statementOf{s}, needless...)...):
					t.Errorf("%v is not needless, and without it nothing changes", s)
				case called && st["effect"] == "allow" && shadowed[s] != allDenied(t, h, s):
					t.Errorf("%v is shadowed: %v", s, shadowed[s])
				case held && !called:
					seen["needed"]++
				}
			}
		}
	})
	if seen["statement_needless"] < 3 || seen["statement_shadowed"] < longtest.Times(0, 3) || seen["needed"] < longtest.Times(20, 50) {
		t.Error("the worlds are not varied", seen)
	}
}

// traced reports whether a policy comes to somebody.
func traced(t *testing.T, h *host, who svc.Principal, policy string) bool {
	t.Helper()
	return slices.ContainsFunc(resolved(t, h, who, "bank:recall", "a").Trace, func(e svc.TraceEntry) bool { return e.PolicyID == policy })
}

func resolved(t *testing.T, h *host, who svc.Principal, action, bank string) svc.Resolution {
	t.Helper()
	q := svc.Question{Action: action, Bank: bank, UserID: who.ID}
	if who.Kind == svc.KindServiceAccount {
		q.ServiceAccountID = who.ID
	}
	return must(h.Policies.Resolve(t.Context(), svc.Host, q))
}

// allDenied reports whether a deny covers all that a statement matches, for whoever has it.
func allDenied(t *testing.T, h *host, s statementOf) bool {
	t.Helper()
	for _, who := range principals() {
		if !traced(t, h, who, s.policy) {
			continue
		}
		for _, action := range askedActions {
			for _, bank := range askedBanks {
				r := resolved(t, h, who, action, bank)
				if r.Outcome != svc.ExplicitDeny && slices.ContainsFunc(r.Trace, func(e svc.TraceEntry) bool {
					return e.PolicyID == s.policy && e.Statement == s.number && e.Matched
				}) {
					return false
				}
			}
		}
	}
	return true
}

// Two values tie only when nothing but the ids of their policies decides.
func TestTiesAreOfOneRank(t *testing.T) {
	higher := attached("q", svc.GrantedToUser, "u")
	higher.Priority = 1
	for other, tied := range map[svc.Attachment]bool{
		attached("q", svc.GrantedToUser, "u"): true, attached("q", svc.GrantedToGroup, "g"): false, higher: false,
	} {
		b := held([]string{granting(`"llm_model":"m"`)})
		b.Groups = []svc.Group{{ID: "g", Members: []string{"u"}}}
		b.Policies = append(b.Policies, svc.Policy{ID: "q", Document: document(granting(`"llm_model":"n"`))})
		b.Attachments = append(b.Attachments, other)
		isTie := func(f svc.Finding) bool { return f.Code == svc.FindingTie }
		is.New(t).Equal(slices.ContainsFunc(svc.Lint(b, nil), isTie), tied)
	}
}

//go:embed testdata/linted.json
var linted string

func TestLint(t *testing.T) {
	b := must(svc.ParseBundle([]byte(linted)))
	want := []string{
		`/bank_policies/0/document/public_access/default/actions/0 action_unknown: the action pattern "bank:recal" covers no known action`,
		`/bank_policies/0/document/public_access/overrides/1/actions/1 action_unknown: the action pattern "web:*" covers no known action`,
		`/groups/0 group_empty: group "empty" has no members`,
		`/policies/0/document/statements/1 statement_needless: statement 1 of policy "all" is redundant: removing it changes no decision`,
		`/policies/1/document/statements/1 statement_shadowed: statement 1 of policy "delete" allows nothing: all that it covers is denied to every principal that has it`,
		`/policies/2/document/statements/0/llm_model tie: for user "alice", llm_model of "bank:recall" on bank "*" comes from statement 0 of policy "thorough" instead of this one only because of the policies' ids`,
		`/policies/4/document/statements/1 statement_needless: statement 1 of policy "twice" is redundant: removing it changes no decision`,
		`/policies/5 policy_unattached: policy "unused" is attached to no principal and narrows no service account`,
		`/policies/5/document/statements/1/actions/1 action_unknown: the action pattern "bnak:recall" covers no known action`,
		`/service_accounts/0/owner_user_id owner_inactive: service account "asleep" is denied everything: its owner "idle" is inactive`,
		`/service_accounts/1/scoping_policy_id scoping_idle: the scoping policy "all" takes nothing away from service account "same"`,
	}
	checkFindings(t, svc.Lint(b, []string{"bank:delete", "bank:wipe"}), want)
	is.New(t).Equal(svc.Lint(svc.Bundle{}, []string{}), []svc.Finding{}) // never nil
}

// A right that rests has to be right when its holder is active again: inactive principals count as active ones.
func TestLintOfInactivePrincipals(t *testing.T) {
	is, b := is.New(t), must(svc.ParseBundle([]byte(linted)))
	rests := func() (found []string) {
		for _, f := range svc.Lint(b, nil) {
			if slices.Contains([]svc.FindingCode{svc.FindingNeedless, svc.FindingShadowed, svc.FindingTie, svc.FindingIdleScoping}, f.Code) {
				found = append(found, f.Pointer)
			}
		}
		return found
	}
	want := rests()
	for i := range b.Users {
		b.Users[i].Inactive = true
	}
	for i := range b.ServiceAccounts {
		b.ServiceAccounts[i].Inactive = true
	}
	is.Equal(rests(), want)
	is.Equal(len(want), 5)
}

// An id looks like another one of its list only.
func TestLookAlikes(t *testing.T) {
	is := is.New(t)
	bundle, err := svc.ParseBundle([]byte(`{"users":[{"id":"alice"},{"id":"bob"},{"id":"\u0430lice"},{"id":"Bob"}],
		"groups":[{"id":"bob","members":["bob"]}],"bank_policies":[{"bank_id":"caf\u00e9","document":{}},{"bank_id":"cafe\u0301","document":{}}]}`))
	is.NoErr(err)
	var found []string
	for _, f := range svc.Lint(bundle, nil) {
		if f.Code == svc.FindingAlike {
			found = append(found, f.Pointer+" "+f.Principal.ID+f.Bank+": "+f.Message)
		}
	}
	is.Equal(found, []string{
		"/bank_policies/1 cafe\u0301: bank \"cafe\u0301\" looks like bank \"caf\u00e9\"",
		"/users/2 \u0430lice: user \"\u0430lice\" looks like user \"alice\"", "/users/3 Bob: user \"Bob\" looks like user \"bob\"",
	})
}

// A bundle refers to built-in policies without their rows, as an export does. Own rows that they make
// redundant are findings.
func TestLintKnowsBuiltinPolicies(t *testing.T) {
	var b svc.Bundle
	b.Users = []svc.User{{ID: "u"}}
	for _, id := range []string{
		svc.PolicyBankReadWrite, svc.PolicyBankReadOnly, svc.PolicyBankRetainOnly, svc.PolicyBankAdmin, svc.PolicyIAMAdmin,
		svc.PolicyTemplateAdmin, svc.PolicyTemplateUser, svc.PolicyIAMSelfService,
	} {
		b.Attachments = append(b.Attachments, svc.Attachment{PolicyID: id, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "u"}})
		b.ServiceAccounts = append(b.ServiceAccounts, svc.ServiceAccount{ID: id, OwnerUserID: "u", ScopingPolicyID: id})
		b.Tests = append(b.Tests, svc.AccessTest{
			ServiceAccountID: id, Action: "bank:recall", Bank: "b",
			Allowed: slices.Contains([]string{svc.PolicyBankReadWrite, svc.PolicyBankReadOnly, svc.PolicyBankAdmin}, id),
		})
	}
	checkFindings(t, svc.Lint(b, []string{}), nil)
	b.Policies = []svc.Policy{{ID: "own", Document: json.RawMessage(doc)}}
	b.Attachments = append(b.Attachments, svc.Attachment{PolicyID: "own", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "u"}})
	b.Tests[0].Allowed = false
	checkFindings(t, svc.Lint(b, nil), []string{
		`/policies/0/document/statements/0 statement_needless: statement 0 of policy "own" is redundant: removing it changes no decision`,
		`/tests/0 test_turned: the answer is not the expected one`,
	})
}

func TestLintOfWhatCannotBeApplied(t *testing.T) {
	doc := json.RawMessage(doc)
	got := svc.Lint(svc.Bundle{
		Users: []svc.User{{ID: "a/b"}, {ID: "alice"}, {ID: "alice"}},
		ServiceAccounts: []svc.ServiceAccount{
			{ID: "lost", OwnerUserID: "nobody"}, {ID: "wide", OwnerUserID: "alice", ScopingPolicyID: "none"}, {ID: "", OwnerUserID: ""},
		},
		Groups: []svc.Group{{ID: "g", Members: []string{"nobody"}}},
		Policies: []svc.Policy{
			{ID: "broken", Document: []byte(`{"version":"2026-03-24","statements":[{"effect":"allow","actions":["a"],"banks":["*"]},{"effect":"deny","actions":["*"],"banks":["*"]}]}`)},
			{ID: "cut", Document: []byte(`{`)}, {ID: "good", Document: doc}, {ID: "none at all"},
		},
		Attachments: []svc.Attachment{
			{PolicyID: "broken", Principal: svc.GrantedTo{Type: "team", ID: "g"}},
			{PolicyID: "gone", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "alice"}},
			{PolicyID: "good", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "alice"}},
			{PolicyID: "cut", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "alice"}},
			{PolicyID: "none at all", Principal: svc.GrantedTo{Type: svc.GrantedToGroup, ID: "g"}},
		},
		BankPolicies: []svc.BankPolicy{{BankID: "b", Document: []byte(`{"version":"2026-03-24","default_strategy":""}`)}},
	}, nil)
	checkFindings(t, got, []string{
		`/attachments/0/principal_type row_invalid: attachments.0.principal_type must be "user" or "group"`,
		`/attachments/1/policy_id reference_missing: attachments.1.policy_id names a policy that does not exist: "gone"`,
		`/bank_policies/0/document/default_strategy document_invalid: bank_policies.0.document.default_strategy must not be empty`,
		`/groups/0/members/0 reference_missing: groups.0.members.0 names a user that does not exist: "nobody"`,
		`/policies/0/document/statements/1/actions/0 document_invalid: policies.0.document.statements.1.actions.0 may hold "*" only at its end, after a ":"`,
		`/policies/1/document document_invalid: policies.1.document must be valid JSON: it ends too early`,
		`/policies/3/document document_invalid: policies.3.document is required`,
		`/service_accounts/0/owner_user_id owner_missing: service_accounts.0.owner_user_id names a user that does not exist: "nobody"`,
		`/service_accounts/1/scoping_policy_id scoping_missing: service_accounts.1.scoping_policy_id names a policy that does not exist: "none"`,
		`/service_accounts/2/id row_invalid: service_accounts.2.id must be 1 to 128 characters`,
		`/service_accounts/2/owner_user_id row_invalid: service_accounts.2.owner_user_id must be 1 to 128 characters`,
		`/users/0/id row_invalid: users.0.id must hold no slash or backslash`,
		`/users/2 row_invalid: users.2 is in the bundle twice`,
	})
	for _, f := range got {
		if f.Severity != svc.SeverityError || f.Policy == "broken" && f.Code == svc.FindingDocument && f.Statement != 1 {
			t.Errorf("%+v", f)
		}
	}
}

func checkFindings(t *testing.T, got []svc.Finding, want []string) {
	t.Helper()
	var texts []string
	for _, f := range got {
		texts = append(texts, fmt.Sprintf("%s %s: %s", f.Pointer, f.Code, f.Message))
	}
	if !slices.Equal(texts, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(texts, "\n"), strings.Join(want, "\n"))
	}
}
