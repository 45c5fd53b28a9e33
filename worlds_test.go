package svc_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/policy/policytest"
)

// What worlds are made of, and what is asked in them: patterns one under another, and of each class that they make a member or more.
var (
	drawnActions = []string{"bank:*", "bank:recall", "bank:memories:*", "bank:memories:list", "bank:retain", "iam:*", "iam:users:*", "iam:users:read", "bank:"}
	drawnBanks   = []string{"*", "*", "a::*", "a::b::*", "a", "a::", "a::b", "a::b::c", "z"}
	askedActions = append([]string{"bank:memories:get", "bank:memories:", "bank:memories:x", "bank:x", "bank", "iam:users:", "iam:x", "*", "x"}, drawnActions...)
	askedBanks   = append([]string{"a::b::", "a::b::d", "a::x", "a::b::c::d", "b", "none", "a:b"}, drawnBanks[1:]...)
	askedPlaces  = places()
)

// places are the contexts of every value of each part that bank policies are drawn with, and of one that none has.
func places() (all []svc.Context) {
	for _, provider := range []string{"", "slack", "web"} {
		for _, channel := range []string{"", "c", "d"} {
			for _, topic := range []string{"", "t", "u", "v"} {
				all = append(all, svc.Context{Provider: provider, Channel: channel, Topic: topic})
			}
		}
	}
	return all
}

// worlds draws bundles; of one seed always the same.
type worlds struct {
	*rand.Rand
	seed uint64
}

// forEachWorld runs a property on some worlds, here or in CI, and says which one broke it.
func forEachWorld(t *testing.T, here, ci int, property func(t *testing.T, w *worlds)) {
	t.Helper()
	for seed := range uint64(longtest.Times(here, ci)) {
		property(t, &worlds{rand.New(rand.NewPCG(seed, 7)), seed})
		if t.Failed() {
			t.Fatalf("in the world of seed %d", seed)
		}
	}
}

// bundle draws a whole world.
func (w *worlds) bundle() svc.Bundle {
	var b svc.Bundle
	users := []string{"u0", "u1", "u2", "u3", "u4"}
	for i, id := range users {
		b.Users = append(b.Users, svc.User{ID: id, Inactive: w.IntN(8) == 0, Channels: []svc.Channel{{Provider: "slack", SenderID: fmt.Sprint(i)}}})
	}
	for _, id := range []string{"g0", "g1", "g2"} {
		b.Groups = append(b.Groups, svc.Group{ID: id, Members: w.some(users)})
	}
	for i := range 4 {
		b.Policies = append(b.Policies, svc.Policy{ID: fmt.Sprint("p", i), Document: w.document()})
	}
	for i := range 3 {
		account := svc.ServiceAccount{ID: fmt.Sprint("s", i), OwnerUserID: w.one(users), Inactive: w.IntN(8) == 0}
		if w.IntN(3) > 0 {
			account.ScopingPolicyID = w.policy()
		}
		b.ServiceAccounts = append(b.ServiceAccounts, account)
	}
	holders, policies := users, 4
	if w.IntN(3) == 0 { // some have the same policies, by other ways
		holders, policies = users[:3], 2
	}
	for range 6 {
		a := svc.Attachment{PolicyID: fmt.Sprint("p", w.IntN(policies)), Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: w.one(holders)}, Priority: w.Int64N(2)}
		if w.IntN(2) == 0 {
			a.Principal = svc.GrantedTo{Type: svc.GrantedToGroup, ID: w.one([]string{"g0", "g1", "g2"})}
		}
		if !slices.ContainsFunc(b.Attachments, func(o svc.Attachment) bool { return o.PolicyID == a.PolicyID && o.Principal == a.Principal }) {
			b.Attachments = append(b.Attachments, a)
		}
	}
	for _, bank := range []string{"a", "a::b", "z"} {
		if w.IntN(2) == 0 {
			b.BankPolicies = append(b.BankPolicies, svc.BankPolicy{BankID: bank, Document: w.bankDocument()})
		}
	}
	return b
}

// variant returns a bundle that differs in a few rows.
func (w *worlds) variant(b svc.Bundle) svc.Bundle {
	other := w.bundle()
	b.Users, b.Groups, b.ServiceAccounts = slices.Clone(b.Users), slices.Clone(b.Groups), slices.Clone(b.ServiceAccounts)
	b.Policies, b.BankPolicies = slices.Clone(b.Policies), slices.Clone(b.BankPolicies)
	for range 1 + w.IntN(3) {
		switch w.IntN(8) {
		case 0:
			b.Users[w.IntN(len(b.Users))].Inactive = w.IntN(2) == 0
		case 1:
			b.Groups[w.IntN(len(b.Groups))].Members = other.Groups[0].Members
		case 2:
			i := w.IntN(len(b.ServiceAccounts))
			b.ServiceAccounts[i] = other.ServiceAccounts[i]
		case 3:
			b.BankPolicies = other.BankPolicies
		case 4:
			b.Attachments = other.Attachments
		default:
			i := w.IntN(len(b.Policies))
			b.Policies[i].Document = w.edited(b.Policies[i].Document)
		}
	}
	return b
}

// edited returns a document of which one statement is another.
func (w *worlds) edited(document json.RawMessage) json.RawMessage {
	d := decoded(document)
	if len(d.Statements) == 0 {
		return w.document()
	}
	d.Statements[w.IntN(len(d.Statements))] = w.statement()
	return encoded(d)
}

type drawnDocument struct {
	Version    string           `json:"version"`
	Statements []map[string]any `json:"statements"`
}

func (w *worlds) document() json.RawMessage {
	d := drawnDocument{Version: "2026-03-24", Statements: []map[string]any{}}
	for n := range w.IntN(5) {
		st := w.statement()
		if n > 0 && w.IntN(5) == 0 {
			st = d.Statements[0] // once more
		}
		d.Statements = append(d.Statements, st)
	}
	return encoded(d)
}

func (w *worlds) statement() map[string]any {
	s := map[string]any{"effect": "allow", "actions": w.some(drawnActions), "banks": w.some(drawnBanks)}
	if w.IntN(5) == 0 {
		s["effect"] = "deny"
		return s
	}
	for _, p := range []struct {
		key   string
		oneIn int
		draw  func() any
	}{
		{"recall_budget", 4, func() any { return w.one([]string{"low", "mid", "high"}) }},
		{"recall_max_tokens", 4, func() any { return w.IntN(3) }},
		{"llm_model", 2, func() any { return w.one([]string{"m", "n"}) }},
		{"retain_strategy", 3, func() any { return w.one([]string{"x", "y"}) }},
		{"retain_roles", 4, func() any { return w.some([]string{"user", "tool"})[:w.IntN(2)] }},
		{"recall_tag_groups", 4, func() any { return []any{map[string]any{"k": w.IntN(2)}} }},
	} {
		if w.IntN(p.oneIn) == 0 {
			s[p.key] = p.draw()
		}
	}
	return s
}

func (w *worlds) bankDocument() json.RawMessage {
	d := map[string]any{"version": "2026-03-24"}
	if w.IntN(2) == 0 {
		d["default_strategy"] = w.one([]string{"x", "y"})
	}
	var strategies, openings []any
	for _, c := range [][2]string{{"provider", "slack"}, {"channel", "c"}, {"channel", "d"}, {"topic", "t"}, {"topic", "u"}} {
		if w.IntN(3) == 0 {
			strategies = append(strategies, map[string]any{"scope": c[0], "value": c[1], "strategy": w.one([]string{"x", "y"})})
		}
		if w.IntN(3) == 0 {
			openings = append(openings, map[string]any{"scope": c[0], "value": c[1], "actions": w.some(drawnActions)[:w.IntN(2)]})
		}
	}
	d["strategy_overrides"] = strategies
	public := map[string]any{"overrides": openings}
	if w.IntN(2) == 0 {
		public["default"] = map[string]any{"actions": w.some(drawnActions), "recall_budget": w.one([]string{"low", "mid"})}
	}
	if w.IntN(3) > 0 {
		d["public_access"] = public
	}
	return encoded(d)
}

func decoded(document json.RawMessage) (d drawnDocument) {
	if err := json.Unmarshal(document, &d); err != nil {
		panic(err)
	}
	return d
}

func encoded(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

func (w *worlds) policy() string { return fmt.Sprint("p", w.IntN(4)) }

func (w *worlds) one(of []string) string { return of[w.IntN(len(of))] }

// some draws one to three, each once.
func (w *worlds) some(of []string) []string {
	out := []string{}
	for range 1 + w.IntN(3) {
		out = append(out, w.one(of))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// spoiled draws documents that do not parse, which no Service would have written.
func (w *worlds) spoiled() (b svc.Bundle) {
	if w.IntN(6) == 0 {
		b.Policies = []svc.Policy{{ID: w.policy(), Document: []byte(`{"version":"1999-12-31"}`)}}
	}
	if w.IntN(6) == 0 {
		b.BankPolicies = []svc.BankPolicy{{BankID: "a::b", Document: []byte(`{}`)}}
	}
	return b
}

// host returns a service of its own that holds a bundle.
func (w *worlds) host(t *testing.T, b svc.Bundle) *host {
	t.Helper()
	h := newHost(t, func(c *svc.Config) { c.Events.OnEvent = nil })
	is.New(t).NoErr(h.Access.Apply(t.Context(), svc.Host, b))
	return h
}

// principals are those of a world, and one that is not in it.
func principals() (all []svc.Principal) {
	for _, id := range []string{"u0", "u1", "u2", "u3", "u4", "nobody"} {
		all = append(all, svc.Principal{Kind: svc.KindUser, ID: id})
	}
	for _, id := range []string{"s0", "s1", "s2"} {
		all = append(all, svc.Principal{Kind: svc.KindServiceAccount, ID: id})
	}
	return all
}

func (h *host) decide(t *testing.T, p svc.Principal, action, bank string, in svc.Context) svc.Decision {
	t.Helper()
	return must(h.Decide(t.Context(), p, literal(action), bank, in))
}

// literal returns an action that no narrower pattern covers than a pattern, and other actions as
// they are: Decide refuses patterns.
func literal(action string) string {
	if strings.HasSuffix(action, "*") {
		return action + "x"
	}
	return action
}

// TestServiceAnswersAsTheReference: worlds are written to a store, and what Resolve and Decide make of them is what the reference
// makes of their principals.
func TestServiceAnswersAsTheReference(t *testing.T) {
	seen := map[svc.Outcome]int{}
	for seed := range uint64(longtest.Times(20, 60)) {
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
	is.New(t).True(min(seen[svc.Allow], seen[svc.ExplicitDeny], seen[svc.ImplicitDeny]) >= longtest.Times(5, 50)) // worlds are varied
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
