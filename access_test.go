package svc_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/lists"
	"github.com/extsvc/svc/internal/longtest"
)

func TestDecideReadsOnce(t *testing.T) {
	is := is.New(t)
	h, store := watched(t)
	h.warm(t, store, user("alice"), "notes")
	before := store.reads.Load()
	for i := range 1000 {
		is.True(must(h.Decide(t.Context(), user("alice"), fmt.Sprint("bank:", i), "notes", svc.Context{})).Allowed())
	}
	is.Equal(store.reads.Load(), before)
	must(h.Decide(t.Context(), user("alice"), "bank:recall", "other", svc.Context{}))
	is.Equal(store.reads.Load(), before+1) // for the policy of the other bank
}

// Who goes by one id is told apart, also when all of them are remembered: by kind, and by what narrows them.
func TestDecideTellsNamesakesApart(t *testing.T) {
	h, store := watched(t)
	narrowed := svc.Principal{Kind: svc.KindUser, ID: "alice", ScopingPolicyID: "narrow"}
	for range 3 {
		for i, by := range []svc.Principal{user("alice"), narrowed, account("alice")} {
			h.warm(t, store, by, "other")
			is.New(t).Equal(must(h.Decide(t.Context(), by, "bank:recall", "other", svc.Context{})).Allowed(), i == 0)
		}
	}
}

// What is remembered of a request is decided with the bank's policy as it is now, also when nothing else has changed.
func TestDecideSeesABanksNewPolicy(t *testing.T) {
	h, store := watched(t)
	other := newHost(t, func(c *svc.Config) { c.Store = h.store })
	strategy := func() string {
		d := must(h.Decide(t.Context(), account("ci"), "bank:recall", "notes", svc.Context{}))
		strategy, _ := d.Strategy()
		return strategy
	}
	for i := range 20 {
		h.warm(t, store, account("ci"), "notes")
		strategy()
		want := fmt.Sprint("strategy-", i)
		bundle := fmt.Sprintf(`{"bank_policies": [{"bank_id": "notes", "document": {"version": "2026-03-24", "default_strategy": %q}}]}`, want)
		if i%2 == 1 {
			other.apply(t, bundle)
			eventually(t, func() bool { return strategy() == want })
			continue
		}
		h.apply(t, bundle)
		expect.Equal(t, "the strategy at once", strategy(), want)
	}
}

// Copies outlive the store for five seconds. Then there is no answer, and above all no allow.
func TestDecideWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		h, store := watched(t)
		h.warm(t, store, user("alice"), "notes")
		store.down.Store(true)
		is.True(must(h.Decide(t.Context(), user("alice"), "bank:recall", "notes", svc.Context{})).Allowed())
		wantCode(t, errorOf(h.Decide(t.Context(), user("alice"), "bank:recall", "other", svc.Context{})), svc.CodeUnavailable, "")
		pass(5 * time.Second)
		d, err := h.Decide(t.Context(), user("alice"), "bank:recall", "notes", svc.Context{})
		wantCode(t, err, svc.CodeUnavailable, "")
		is.True(!d.Allowed())
		store.down.Store(false)
		h.warm(t, store, user("alice"), "notes")
	})
}

// While bundles are applied, here and by another service, every answer is of one revision: the parameter that the policy gives
// and the strategy that the bank gives are always of the same bundle.
func TestDecideOfOneRevision(t *testing.T) {
	for name, states := range map[string]int{"each new": revisions, "two by turns": 2} {
		t.Run(name, func(t *testing.T) { decideOfOneRevision(t, states) })
	}
}

func decideOfOneRevision(t *testing.T, states int) {
	h, _ := watched(t)
	other := newHost(t, func(c *svc.Config) { c.Store = h.store })
	bundle := func(revision int) string {
		return fmt.Sprintf(`{"policies": [{"id": "wide", "document": {"version": "2026-03-24", "statements": [
			{"effect": "allow", "actions": ["bank:*"], "banks": ["*"], "recall_max_tokens": %[1]d}]}}],
			"bank_policies": [{"bank_id": "notes", "document": {"version": "2026-03-24", "default_strategy": "%[1]d"}},
				{"bank_id": "more", "document": {"version": "2026-03-24", "default_strategy": "%[1]d"}}]}`, revision%states)
	}
	h.apply(t, bundle(0))
	var applied atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				least := applied.Load()
				d, err := h.Decide(t.Context(), user("alice"), "bank:recall", []string{"notes", "more"}[i%2], svc.Context{})
				if err != nil {
					t.Error(err)
					return
				}
				strategy, _ := d.Strategy()
				if tokens := *d.Parameters().RecallMaxTokens; fmt.Sprint(tokens) != strategy {
					t.Errorf("tokens of %d, strategy of %s", tokens, strategy)
				} else if states == revisions && tokens < least {
					t.Errorf("revision %d, after %d was applied here", tokens, least)
				}
			}
		})
	}
	for revision := 1; revision < revisions && !t.Failed(); revision++ {
		if revision%3 == 0 {
			other.apply(t, bundle(revision))
			continue
		}
		h.apply(t, bundle(revision))
		applied.Store(int64(revision))
		time.Sleep(time.Duration(revision%4) * 100 * time.Microsecond)
	}
	stop.Store(true)
	wg.Wait()
}

var revisions = longtest.Times(40, 300)

// What worlds are made of, and what is asked in them: patterns one under another, and of each class that they make a member or more.
var (
	drawnActions = []string{"bank:*", "bank:recall", "bank:memories:*", "bank:memories:list", "bank:retain", "iam:*", "iam:users:*", "iam:users:read", "bank:"}
	drawnBanks   = []string{"*", "*", "a::*", "a::b::*", "a", "a::", "a::b", "a::b::c", "z"}
	askedActions = lists.Map(append([]string{"bank:memories:get", "bank:memories:", "bank:memories:x", "bank:x", "bank", "iam:users:", "iam:x", "*", "x"},
		drawnActions...), literal)
	askedBanks  = append([]string{"a::b::", "a::b::d", "a::x", "a::b::c::d", "b", "none", "a:b"}, drawnBanks[1:]...)
	askedPlaces = places()
)

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

func (w *worlds) edited(document json.RawMessage) json.RawMessage {
	d := decoded(document)
	if len(d.Statements) == 0 {
		return w.document()
	}
	d.Statements[w.IntN(len(d.Statements))] = w.statement()
	return encoded(d)
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

func (w *worlds) policy() string { return fmt.Sprint("p", w.IntN(4)) }

func (w *worlds) one(of []string) string { return of[w.IntN(len(of))] }

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

func (w *worlds) host(t *testing.T, b svc.Bundle) *host {
	h := newHost(t, func(c *svc.Config) { c.Events.OnEvent = nil })
	is.New(t).NoErr(h.Access.Apply(t.Context(), svc.Host, b))
	return h
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

type drawnDocument struct {
	Version    string           `json:"version"`
	Statements []map[string]any `json:"statements"`
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

// overlay draws a bundle to put over another, one in three of which cannot be applied.
func (w *worlds) overlay(base svc.Bundle) svc.Bundle {
	overlay := w.variant(base)
	overlay.Users = slices.Clip(overlay.Users[:w.IntN(len(overlay.Users))])
	overlay.Attachments = slices.Clip(overlay.Attachments[:w.IntN(len(overlay.Attachments))])
	switch w.IntN(12) {
	case 0:
		overlay.Groups = append(overlay.Groups, svc.Group{ID: "new", Members: []string{"nobody"}})
	case 1:
		overlay.ServiceAccounts = append(overlay.ServiceAccounts, svc.ServiceAccount{ID: "new", OwnerUserID: "u0", ScopingPolicyID: "none"})
	case 2:
		overlay.Users = append(overlay.Users, svc.User{ID: "new", Channels: []svc.Channel{{Provider: "slack", SenderID: "4"}}})
	case 3:
		overlay.Policies = append(overlay.Policies, svc.Policy{ID: "new", Document: []byte(`{"version":"1"}`)})
	case 4:
		overlay.Users = append(overlay.Users, svc.User{ID: "new", Channels: []svc.Channel{{Provider: "web", SenderID: "1"}}})
		overlay.Attachments = append(overlay.Attachments, svc.Attachment{PolicyID: "p0", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "new"}})
	}
	return overlay
}

func (w *worlds) query() svc.Question {
	q := svc.Question{Bank: w.one(askedBanks), Action: w.one(askedActions), Channel: w.one([]string{"", "c"}), Topic: w.one([]string{"", "t"})}
	switch w.IntN(4) {
	case 0:
		q.UserID = w.one([]string{"u0", "u1", "u2", "u3", "u4", "nobody", "new"})
	case 1:
		q.ServiceAccountID = w.one([]string{"s0", "s1", "s2", "nobody", "new"})
	default:
		q.Sender = w.one([]string{"slack:0", "slack:1", "slack:2", "slack:9", "web:1"})
	}
	return q
}
