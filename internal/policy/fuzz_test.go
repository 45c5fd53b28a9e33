package policy_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/policy/policytest"
	"github.com/extsvc/svc/internal/strictjson"
)

func FuzzParseDocument(f *testing.F) {
	seed(f, "access")
	f.Fuzz(func(t *testing.T, raw []byte) {
		checkLoose(t, policy.Memory, raw)
		d, err := policy.Memory.ParseDocument(raw)
		result := evaluate(policy.Subject{
			Kind:   policy.User,
			Grants: []policy.Grant{{PolicyID: "p", Document: raw}, {PolicyID: "p", Group: "g", Document: raw}},
		}, policytest.Request{Action: "bank:recall", Bank: "project::notes"})
		checkParse(t, err, result)
		expect.Holds(t, err != nil || len(result.Trace) == 2*len(d.Statements), "entries for statements that are there twice: ", len(result.Trace))
	})
}

func FuzzParseBankDocument(f *testing.F) {
	seed(f, "bank")
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := policy.Memory.ParseBankDocument(raw)
		result := evaluate(policy.Subject{Kind: policy.Unmapped}, policytest.Request{
			Action: "bank:recall", Bank: "b", Provider: "slack", Channel: "c", Topic: "t",
			BankPolicy: &policy.Named{ID: "b", Document: raw},
		})
		checkParse(t, err, result)
		expect.Holds(t, err != nil || d.PublicAccess != nil || result.Outcome != policy.Allow, "nothing is allowed without public access")
	})
}

// FuzzDecide compares the engine with the reference on unforeseen documents and strings.
func FuzzDecide(f *testing.F) {
	for seed := range uint64(50) {
		w := policytest.NewWorld(seed)
		q := w.Request()
		bank := w.BankPolicies[w.IntN(len(w.BankPolicies))].Document
		f.Add(w.Policies[0].Document, w.Policies[1].Document, bank, q.Action, q.Bank, q.Topic, int8(seed))
	}
	f.Fuzz(func(t *testing.T, document, another, bank []byte, action, asked, topic string, priority int8) {
		q := policytest.Request{Action: action, Bank: asked, Provider: "slack", Topic: topic, BankPolicy: &policy.Named{ID: asked, Document: bank}}
		grants := []policy.Grant{
			{PolicyID: "p", Document: document}, {PolicyID: "p", Group: "team", Priority: 1, Document: document},
			{PolicyID: "q", Group: "team", Priority: int64(priority), Document: another},
		}
		for _, s := range []policy.Subject{
			{Kind: policy.User, Grants: grants[:2]},
			{Kind: policy.User, Grants: grants},
			{Kind: policy.User, Grants: grants[:2], Scoping: []policy.Named{{ID: "q", Document: another}}},
			{Kind: policy.ServiceAccount, ServiceAccountID: "ci", Grants: grants[:2], Scoping: []policy.Named{{ID: "q", Document: another}}},
			{Kind: policy.ServiceAccount, ServiceAccountID: "ci", Grants: grants[:2], Scoping: []policy.Named{{ID: "q", Document: another}, {ID: "p", Document: document}}},
			{Kind: policy.User, Grants: grants[:2], Narrowing: []policy.Named{{ID: "q", Document: another}}},
			{
				Kind: policy.ServiceAccount, ServiceAccountID: "ci", Grants: grants[:2],
				Scoping: []policy.Named{{ID: "q", Document: another}}, Narrowing: []policy.Named{{ID: "p", Document: document}},
			},
			{Kind: policy.Unmapped},
		} {
			rights, want := compiler.Compile(s), policytest.Evaluate(s, q)
			expect.Equal(t, s.Kind, explain(rights, q), want)
			expect.Holds(t, agrees(decide(rights, q), want), s.Kind, ": Decide agrees with ", want)
		}
	})
}

// FuzzExceeds compares Exceeds with the reference on unforeseen documents and strings: no request that
// is asked exceeds when nothing does, and the witness exceeds.
func FuzzExceeds(f *testing.F) {
	for seed := range uint64(200) {
		w := policytest.NewWorld(seed)
		q := w.Request()
		f.Add(w.Policies[0].Document, w.Policies[1].Document, w.Policies[w.IntN(len(w.Policies))].Document, q.Action, q.Bank)
	}
	f.Fuzz(func(t *testing.T, document, another, by []byte, action, bank string) {
		grant := func(id string, raw []byte) policy.Grant { return policy.Grant{PolicyID: id, Document: raw} }
		one := policy.Subject{Kind: policy.User, Grants: []policy.Grant{grant("p", document)}}
		both := policy.Subject{Kind: policy.User, Grants: []policy.Grant{grant("p", document), grant("q", another)}}
		scoped := policy.Subject{Kind: policy.ServiceAccount, Grants: one.Grants, Scoping: []policy.Named{{ID: "q", Document: another}}}
		grantor := policy.Subject{Kind: policy.User, Grants: []policy.Grant{grant("by", by)}}
		for _, write := range [][2]policy.Subject{{one, both}, {both, one}, {scoped, one}, {one, scoped}, {{}, one}, {both, scoped}} {
			exceeds := func(action, bank string) bool {
				allowed := func(s policy.Subject) bool {
					return policytest.Evaluate(s, policytest.Request{Action: action, Bank: bank}).Outcome == policy.Allow
				}
				before, after := allowed(write[0]), allowed(write[1])
				control := strings.HasPrefix(action, "iam:") || strings.HasPrefix(action, "template:")
				return !allowed(grantor) && (!control && after && !before || control && bank == "*" && before != after)
			}
			got, found := compiler.Exceeds(&policy.Grantor{Subject: grantor}, &write[0], &write[1], nil)
			expect.Holds(t, !found || exceeds(got.Action, got.Bank), got, " exceeds")
			expect.Holds(t, found || !exceeds(action, bank) && !exceeds(action, "*"), action, " on ", bank, " does not exceed")
		}
	})
}

// checkParse checks, for both parsers, that a refusal has a pointer and denies, and that every
// answer can be written as JSON.
func checkParse(t *testing.T, err error, result policy.Result) {
	if _, unwritable := json.Marshal(result); unwritable != nil {
		t.Error(unwritable)
	}
	if err == nil {
		return
	}
	var refused *strictjson.Error
	expect.Holds(t, errors.As(err, &refused) && (refused.Pointer == "" || strings.HasPrefix(refused.Pointer, "/")), "refused without a pointer: ", err)
	expect.Equal(t, "the outcome of a document that does not parse", result.Outcome, policy.ImplicitDeny)
}

func seed(f *testing.F, kind string) {
	for _, c := range load(f, "testdata/policies/stored_documents.json").Documents {
		if c.Kind == kind {
			f.Add(c.raw())
		}
	}
}
