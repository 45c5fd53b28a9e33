package svc_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/policy"
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
	forEachWorld(t, 15, func(t *testing.T, w *worlds) {
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
	if seen["statement_needless"] < 3 || seen["statement_shadowed"] < 3 || seen["needed"] < 50 {
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

// A tie is two statements of different policies, of which one loses to the other in somebody's trace though neither ranks higher.
func TestTiesAreThoseOfTheTrace(t *testing.T) {
	ties := 0
	forEachWorld(t, longtest.Times(15, 40), func(t *testing.T, w *worlds) {
		b := w.bundle()
		b.Attachments = nil // most of them of one rank
		for _, p := range b.Policies {
			to := svc.GrantedTo{Type: svc.GrantedToUser, ID: "u0"}
			if w.IntN(3) == 0 {
				to = svc.GrantedTo{Type: svc.GrantedToGroup, ID: "g0"}
			}
			b.Attachments = append(b.Attachments, svc.Attachment{PolicyID: p.ID, Principal: to, Priority: max(0, w.Int64N(4)-2)})
		}
		got, want := []string{}, []string{}
		for _, f := range svc.Lint(b, nil) {
			if f.Code == svc.FindingTie {
				winner := f.Message[strings.Index(f.Message, "statement "):strings.Index(f.Message, " instead of")]
				got = append(got, fmt.Sprintf("%s#%d %s: %s", f.Policy, f.Statement, f.Pointer[strings.LastIndex(f.Pointer, "/")+1:], winner))
			}
		}
		b = active(b)
		h := w.host(t, b)
		for _, who := range principals()[:5] {
			for _, action := range askedActions {
				for _, bank := range askedBanks {
					want = append(want, tracedTies(b, who.ID, resolved(t, h, who, action, bank).Trace)...)
				}
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if want = slices.Compact(want); !slices.Equal(got, want) {
			t.Errorf("found %q, traced %q", got, want)
		}
		ties += len(got)
	})
	if ties < 5 {
		t.Error("the worlds are not varied", ties)
	}
}

func tracedTies(b svc.Bundle, user string, trace []svc.TraceEntry) (ties []string) {
	for _, e := range trace {
		for parameter, name := range e.Lost {
			var winner *svc.TraceEntry // the highest way in which its policy comes
			for i, o := range trace {
				if fmt.Sprintf("%s#%d", o.PolicyID, o.Statement) == name && (winner == nil || slices.Compare(rank(b, user, o), rank(b, user, *winner)) > 0) {
					winner = &trace[i]
				}
			}
			single := parameter == "llm_model" || parameter == "retain_strategy"
			if single && winner.PolicyID != e.PolicyID && slices.Equal(rank(b, user, *winner), rank(b, user, e)) {
				ties = append(ties, fmt.Sprintf("%s#%d %s: statement %d of policy %q", e.PolicyID, e.Statement, parameter, winner.Statement, winner.PolicyID))
			}
		}
	}
	return ties
}

// rank is what somebody chose of the rank of a statement that matched.
func rank(b svc.Bundle, user string, e svc.TraceEntry) []int {
	group, byGroup := strings.CutPrefix(e.Via, "group:")
	to, r := svc.GrantedTo{Type: svc.GrantedToGroup, ID: group}, []int{0, len(*e.BankPattern), 0}
	if !byGroup {
		to, r[0] = svc.GrantedTo{Type: svc.GrantedToUser, ID: user}, 1
	}
	if !strings.HasSuffix(*e.BankPattern, "*") {
		r[1] = math.MaxInt
	}
	for _, a := range b.Attachments {
		if a.PolicyID == e.PolicyID && a.Principal == to {
			r[2] = int(a.Priority)
		}
	}
	return r
}

// A scoping policy is idle when its service account is answered as it would be without one.
func TestIdleScopingIsWhatNarrowsNothing(t *testing.T) {
	seen := map[bool]int{}
	forEachWorld(t, 40, func(t *testing.T, w *worlds) {
		b := w.bundle()
		if w.IntN(2) == 0 {
			b.Policies[0].Document = encoded(drawnDocument{"2026-03-24", []map[string]any{{"effect": "allow", "actions": []string{"bank:*", "iam:*"}, "banks": []string{"*"}}}})
		}
		found := map[string]bool{}
		for _, f := range svc.Lint(b, nil) {
			if f.Code == svc.FindingIdleScoping {
				found[f.Principal.ID] = true
			}
		}
		b = active(b)
		wide := b
		wide.ServiceAccounts = slices.Clone(b.ServiceAccounts)
		for i := range wide.ServiceAccounts {
			wide.ServiceAccounts[i].ScopingPolicyID = ""
		}
		narrow, free := answers(t, w.host(t, b)), answers(t, w.host(t, wide))
		for _, a := range b.ServiceAccounts {
			idle := a.ScopingPolicyID != ""
			for request, said := range narrow {
				idle = idle && (!strings.HasPrefix(request, a.ID+" ") || said == free[request])
			}
			if seen[idle]++; idle != found[a.ID] {
				t.Errorf("%s: idle %v, found %v", a.ID, idle, found[a.ID])
			}
		}
	})
	if seen[true] < 10 || seen[false] < 10 {
		t.Error("the worlds are not varied", seen)
	}
}

// One list has the actions of the Service: the constants, the table of docs/reference/actions.md and Lint follow it.
func TestActions(t *testing.T) {
	is := is.New(t)
	var constants []string
	constant := regexp.MustCompile(`\bAction\w+ += "([^"]+)"`)
	for _, name := range must(filepath.Glob("*.go")) {
		for _, found := range constant.FindAllStringSubmatch(string(must(os.ReadFile(name))), -1) {
			if !strings.HasSuffix(name, "_test.go") && found[1] != action.Recall {
				constants = append(constants, found[1])
			}
		}
	}
	slices.Sort(constants)
	is.Equal(action.All(), constants)

	_, table, _ := strings.Cut(string(must(os.ReadFile("docs/reference/actions.md"))), "| action | allows | operations |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var documented []string
	for row := range strings.Lines(table) {
		for _, action := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			documented = append(documented, action[1])
		}
	}
	slices.Sort(documented)
	is.Equal(documented, constants)

	lint := func(actions ...string) (codes []svc.FindingCode) {
		document := must(json.Marshal(map[string]any{"version": "2026-03-24", "statements": []any{
			map[string]any{"effect": "allow", "actions": actions, "banks": []string{"*"}},
		}}))
		b := svc.Bundle{Policies: []svc.Policy{{ID: "p", Document: document}}}
		for _, f := range svc.Lint(b, []string{}) {
			if f.Code == svc.FindingUnknownAction {
				codes = append(codes, f.Code)
			}
		}
		return codes
	}
	is.Equal(len(lint(action.All()...)), 0)
	for _, misspelt := range []string{"iam:user:read", "iam", "template:admin:*", "iam:users:read ", "IAM:users:read", "bank:memories", "templates:*"} {
		is.Equal(len(lint(misspelt)), 1)
	}
}

func TestUnknownActionsAreThoseThatCoverNone(t *testing.T) {
	known := []string{"bank:retain", "bank:memories:x"}
	always := []string{"iam:users:read", "iam:users:write", "template:admin", "bank:recall", "bank:memories:list", "bank:memories:get"}
	forEachWorld(t, 20, func(t *testing.T, w *worlds) {
		b := w.bundle()
		found := 0
		for _, f := range svc.Lint(b, known) {
			if f.Code == svc.FindingUnknownAction {
				found++
				pattern := pointed(t, b, f.Pointer)
				if slices.ContainsFunc(append(always, known...), func(a string) bool { return policy.MatchAction(pattern, a) }) {
					t.Errorf("%s: %s is known", f.Pointer, pattern)
				}
			}
		}
		if unknown := strings.Count(string(encoded(b)), `"bank:"`); found != unknown { // the one drawn pattern that covers none of them
			t.Errorf("%d found, %d are unknown", found, unknown)
		}
	})
}

// pointed returns the string that a finding points to, in a document of the bundle.
func pointed(t *testing.T, b svc.Bundle, pointer string) string {
	t.Helper()
	tokens := strings.Split(pointer, "/")[1:]
	i := must(strconv.Atoi(tokens[1]))
	is.New(t).Equal(tokens[2], "document")
	raw := json.RawMessage(nil)
	if tokens[0] == "policies" {
		raw = b.Policies[i].Document
	} else {
		raw = b.BankPolicies[i].Document
	}
	var value any
	is.New(t).NoErr(json.Unmarshal(raw, &value))
	for _, token := range tokens[3:] {
		switch v := value.(type) {
		case map[string]any:
			value = v[token]
		case []any:
			n, _ := strconv.Atoi(token)
			value = v[n]
		}
	}
	return value.(string)
}

const linted = `{
	"users": [{"id":"alice"},{"id":"bob"},{"id":"idle","is_active":false}],
	"groups": [{"id":"empty"},{"id":"team","members":["alice","bob"]}],
	"service_accounts": [{"id":"asleep","owner_user_id":"idle"},{"id":"same","owner_user_id":"bob","scoping_policy_id":"all"}],
	"policies": [
		{"id":"all","document":{"version":"2026-03-24","statements":[
			{"effect":"allow","actions":["bank:*"],"banks":["*"]},
			{"effect":"allow","actions":["bank:recall"],"banks":["project::*"]},
			{"effect":"deny","actions":["bank:delete"],"banks":["*"]}]}},
		{"id":"delete","document":{"version":"2026-03-24","statements":[
			{"effect":"allow","actions":["bank:delete","bank:wipe"],"banks":["project::*"],"recall_budget":"low"},
			{"effect":"allow","actions":["bank:delete"],"banks":["project::a"]}]}},
		{"id":"quick","document":{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:recall"],"banks":["*"],"llm_model":"small","recall_budget":"low"}]}},
		{"id":"thorough","document":{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:recall"],"banks":["*"],"llm_model":"large"}]}},
		{"id":"twice","document":{"version":"2026-03-24","statements":[
			{"effect":"allow","actions":["bank:*"],"banks":["b"],"retain_tags":["t"]},
			{"effect":"allow","actions":["bank:*"],"banks":["b"],"retain_tags":["t"]}]}},
		{"id":"unused","document":{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bnak:recall"],"banks":["*"]}]}}],
	"attachments": [
		{"policy_id":"all","principal_type":"group","principal_id":"team"},
		{"policy_id":"delete","principal_type":"user","principal_id":"alice"},
		{"policy_id":"quick","principal_type":"user","principal_id":"alice"},
		{"policy_id":"thorough","principal_type":"user","principal_id":"alice"},
		{"policy_id":"twice","principal_type":"user","principal_id":"alice"}],
	"bank_policies": [{"bank_id":"help","document":{"version":"2026-03-24","public_access":{
		"default":{"actions":["bank:recal"]},"overrides":[{"scope":"topic","value":"t","actions":["bank:*","web:*"]}]}}}]}`

func TestLint(t *testing.T) {
	b := must(svc.ParseBundle([]byte(linted)))
	want := []string{
		`/bank_policies/0/document/public_access/default/actions/0 action_unknown: the action pattern "bank:recal" covers no known action`,
		`/bank_policies/0/document/public_access/overrides/0/actions/1 action_unknown: the action pattern "web:*" covers no known action`,
		`/groups/0 group_empty: group "empty" has no members`,
		`/policies/0/document/statements/1 statement_needless: statement 1 of policy "all" is redundant: removing it changes no decision`,
		`/policies/1/document/statements/1 statement_shadowed: statement 1 of policy "delete" allows nothing: all that it covers is denied to every principal that has it`,
		`/policies/2/document/statements/0/llm_model tie: for user "alice", llm_model of "bank:recall" on bank "*" comes from statement 0 of policy "thorough" instead of this one only because of the policies' ids`,
		`/policies/4/document/statements/1 statement_needless: statement 1 of policy "twice" is redundant: removing it changes no decision`,
		`/policies/5 policy_unattached: policy "unused" is attached to no principal and narrows no service account`,
		`/policies/5/document/statements/0/actions/0 action_unknown: the action pattern "bnak:recall" covers no known action`,
		`/service_accounts/0/owner_user_id owner_inactive: service account "asleep" is denied everything: its owner "idle" is inactive`,
		`/service_accounts/1/scoping_policy_id scoping_idle: the scoping policy "all" takes nothing away from service account "same"`,
	}
	checkFindings(t, svc.Lint(b, []string{"bank:delete", "bank:wipe"}), want)
	is.New(t).Equal(svc.Lint(svc.Bundle{}, []string{}), []svc.Finding{}) // never nil
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
			found = append(found, f.Pointer+" "+f.Principal.ID+f.Bank)
		}
	}
	is.Equal(found, []string{"/bank_policies/1 cafe\u0301", "/users/2 \u0430lice", "/users/3 Bob"})
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

func TestNeedlessForSomeIsNotNeedless(t *testing.T) {
	b, err := svc.ParseBundle([]byte(`{
		"users": [{"id":"a"},{"id":"b"},{"id":"c"}],
		"policies": [
			{"id":"narrow","document":{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:recall"],"banks":["*"]}]}},
			{"id":"wide","document":{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:*"],"banks":["*"]}]}}],
		"attachments": [
			{"policy_id":"narrow","principal_type":"user","principal_id":"a"},{"policy_id":"wide","principal_type":"user","principal_id":"a"},
			{"policy_id":"narrow","principal_type":"user","principal_id":"b"},
			{"policy_id":"narrow","principal_type":"user","principal_id":"c"},{"policy_id":"wide","principal_type":"user","principal_id":"c"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	checkFindings(t, svc.Lint(b, nil), nil)
	b.Attachments = slices.Delete(b.Attachments, 2, 3)
	checkFindings(t, svc.Lint(b, nil), []string{
		`/policies/0/document/statements/0 statement_needless: statement 0 of policy "narrow" is redundant: removing it changes no decision`,
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
