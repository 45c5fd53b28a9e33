package svc_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/policy/policytest"
)

// TestServiceAnswersAsTheReference: worlds are written to a store, and what Resolve and Decide make of them is what the reference
// makes of their principals.
func TestServiceAnswersAsTheReference(t *testing.T) {
	worlds := uint64(60)
	if testing.Short() {
		worlds = 10
	}
	seen := map[svc.Outcome]int{}
	for seed := range worlds {
		w := policytest.NewWorld(seed)
		h := newHost(t)
		h.write(t, rows(w))
		for range 40 {
			p, q := w.Principal(), w.Request()
			if p.Odd {
				continue // no store holds such a one
			}
			seen[h.compare(t, p, q)]++
			if t.Failed() {
				t.Fatal("seed", seed)
			}
		}
	}
	t.Log(seen)
	is.New(t).True(testing.Short() || min(seen[svc.Allow], seen[svc.ExplicitDeny], seen[svc.ImplicitDeny]) >= 50) // worlds are varied
}

// rows are the rows of a world.
func rows(w *policytest.World) (b svc.Bundle) {
	for _, u := range w.Users {
		b.Users = append(b.Users, svc.User{ID: u.ID, Inactive: u.Inactive})
	}
	for _, g := range w.Groups {
		b.Groups = append(b.Groups, svc.Group{ID: g.ID, Members: g.Members})
	}
	for _, a := range w.Accounts {
		b.ServiceAccounts = append(b.ServiceAccounts, svc.ServiceAccount{ID: a.ID, OwnerUserID: a.Owner, ScopingPolicyID: a.Scoping, Inactive: a.Inactive})
	}
	for _, p := range w.Policies {
		b.Policies = append(b.Policies, svc.Policy{ID: p.ID, Document: json.RawMessage(p.Document)})
	}
	for _, a := range w.Attachments {
		to := svc.GrantedTo{Type: svc.GrantedToUser, ID: a.User}
		if a.Group != "" {
			to = svc.GrantedTo{Type: svc.GrantedToGroup, ID: a.Group}
		}
		b.Attachments = append(b.Attachments, svc.Attachment{PolicyID: a.Policy, Principal: to, Priority: a.Priority})
	}
	for _, n := range w.BankPolicies {
		b.BankPolicies = append(b.BankPolicies, svc.BankPolicy{BankID: n.ID, Document: json.RawMessage(n.Document)})
	}
	return b
}

// compare asks both ways what the reference is asked, and returns the outcome; "" when it cannot be asked for.
func (h *host) compare(t *testing.T, p policytest.Principal, q policytest.Request) svc.Outcome {
	q.Action = literal(q.Action)
	asked := svc.Principal{Kind: svc.Kind(p.Kind), ID: p.ID}
	sq := query(asked, q.Action, q.Bank)
	sq.Channel, sq.Topic = q.Channel, q.Topic
	if sq.Sender = ""; q.Provider != "" {
		sq.Sender = q.Provider + ":nobody"
	} else if p.Kind == policy.Unmapped {
		return "" // a sender has a provider
	}
	if q.Action == "" {
		return "" // stands for bank:recall there, and for nothing elsewhere
	}
	r, err := h.Policies.Resolve(t.Context(), svc.Host, sq)
	if svc.ErrorCode(err) == svc.CodeInvalid {
		return "" // no such action or bank is possible
	} else if err != nil {
		t.Fatal(err)
	}
	want := policytest.Evaluate(p.Subject, q)
	got := policy.Result{
		Outcome: policy.Outcome(r.Outcome), Reason: r.Reason, Parameters: engineParameters(r.Parameters),
		Strategy: r.EffectiveStrategy, Trace: entries(r.Trace),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s %q asks %+v:\ngot  %+v\nwant %+v", p.Kind, p.ID, q, got, want)
	}
	if p.ID == "nobody" {
		p.Subject.Closed = "" // has no row and no rights, but may be vouched for
	}
	want = policytest.Evaluate(p.Subject, q)
	d, err := h.Decide(t.Context(), asked, q.Action, q.Bank, svc.Context{Provider: q.Provider, Channel: q.Channel, Topic: q.Topic})
	if err != nil {
		t.Fatal(err)
	}
	strategy, _ := d.Strategy()
	if d.Outcome() != svc.Outcome(want.Outcome) || d.Reason() != want.Reason || strategy != or(want.Strategy) ||
		!reflect.DeepEqual(engineParameters(d.Parameters()), want.Parameters) {
		t.Errorf("%s %q asks %+v:\ngot  %+v %q\nwant %+v", p.Kind, p.ID, q, d.Outcome(), d.Reason(), want)
	}
	return svc.Outcome(want.Outcome)
}

// engineParameters are parameters of AI memory as the engine has them.
func engineParameters(p svc.Parameters) (values policy.Parameters) {
	i := 0
	for name, v := range p.All() {
		if text, is := v.(string); is && name == "recall_budget" {
			v = policy.Level(text)
		}
		if v != nil && values == nil {
			values = make(policy.Parameters, policy.Memory.Len())
		}
		if v != nil {
			values[i] = v
		}
		i++
	}
	return values
}

// entries are a trace as the reference writes it.
func entries(trace []svc.TraceEntry) []policy.Entry {
	list := make([]policy.Entry, len(trace))
	for i, e := range trace {
		list[i] = policy.Entry{
			PolicyID: e.PolicyID, Via: e.Via, Statement: e.Statement, Effect: policy.Effect(e.Effect), Matched: e.Matched,
			ActionPattern: e.ActionPattern, BankPattern: e.BankPattern, Code: string(e.Code), Reason: e.Reason,
			Sets: engineParameters(e.Sets), Lost: e.Lost,
		}
	}
	return list
}
