package svc_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/policy/policytest"
)

// WhoCan names those whom Decide allows it, and no others.
func TestWhoCanIsWhoIsAllowed(t *testing.T) {
	seen := map[bool]int{}
	forEachWorld(t, 5, 125, func(t *testing.T, w *worlds) {
		h := w.host(t, w.bundle())
		h.write(t, w.spoiled())
		for _, action := range askedActions {
			for _, bank := range askedBanks {
				got := must(h.Policies.WhoCan(t.Context(), svc.Host, action, bank))
				want := map[svc.Kind][]string{}
				for _, p := range principals() {
					allowed := h.decide(t, p, action, bank, svc.Context{}).Allowed()
					if seen[allowed]++; allowed {
						want[p.Kind] = append(want[p.Kind], p.ID)
					}
				}
				right := slices.Equal(got.Users, want[svc.KindUser]) && slices.Equal(got.ServiceAccounts, want[svc.KindServiceAccount])
				expect.Holds(t, right, action, " on ", bank, ": ", got.Users, got.ServiceAccounts, ", allowed are ", want)
				for _, in := range askedPlaces {
					if allowed := h.decide(t, svc.Unmapped, action, bank, in).Allowed(); public(got.Public, in) != allowed {
						t.Errorf("%s on %s in %+v: public %+v, allowed %v", action, bank, in, got.Public, allowed)
					}
				}
			}
		}
	})
	expect.Holds(t, min(seen[true], seen[false]) >= 1000, "the worlds are varied: ", seen)
}

// public reads a PublicReach as its comment says.
func public(p svc.PublicReach, in svc.Context) bool {
	for _, part := range []struct{ scope, value string }{{"topic", in.Topic}, {"channel", in.Channel}, {"provider", in.Provider}} {
		for _, o := range p.Overrides {
			if string(o.Scope) == part.scope && o.Value == part.value {
				return o.Allowed
			}
		}
	}
	return p.Default
}

// Simulate answers as Resolve does once the bundle is applied to a copy, refuses what Apply refuses, and writes nothing.
func TestSimulateIsApplyAndResolve(t *testing.T) {
	seen := map[string]int{}
	forEachWorld(t, 15, 300, func(t *testing.T, w *worlds) {
		base, spoiled := w.bundle(), w.spoiled()
		overlay := w.overlay(base)
		h, applied := w.host(t, base), w.host(t, base)
		h.write(t, spoiled)
		applied.write(t, spoiled)
		before := whole(t, h)
		refused := applied.Access.Apply(t.Context(), svc.Host, overlay)
		for range 20 {
			q := w.query()
			got, err := h.Policies.Simulate(t.Context(), svc.Host, overlay, q)
			if refused != nil {
				same := err != nil && err.Error() == refused.Error() && svc.ErrorCode(err) == svc.ErrorCode(refused)
				expect.Holds(t, same, "simulated: ", err, ", applied: ", refused)
				seen[string(svc.ErrorCode(err))]++
				continue
			}
			want, resolveErr := applied.Policies.Resolve(t.Context(), svc.Host, q)
			if err != nil || resolveErr != nil {
				t.Fatal(err, resolveErr)
			}
			revision := before.revision
			if want.Revision != before.revision {
				revision += "+simulated"
			}
			expect.Equal(t, []string{"revision", before.revision, want.Revision}, got.Revision, revision)
			got.Revision = want.Revision
			expect.Equal(t, q, string(encoded(got)), string(encoded(want)))
			seen[string(got.Outcome)]++
		}
		expect.Equal(t, "nothing is written", whole(t, h), before)
	})
	for _, kind := range []string{"allow", "explicit_deny", "implicit_deny", "invalid_request", "already_exists"} {
		expect.Holds(t, seen[kind] >= longtest.Times(3, 20), "the worlds are varied: ", seen)
	}
}

type stored struct{ revision, rows string }

func whole(t *testing.T, h *host) stored {
	rows := allAccess(t, h.store)
	return stored{sprintf("%d", rows.Generation), string(encoded(rows))}
}

// change is how an answer changes, seen from both sides.
type change struct {
	Change        svc.ChangeKind
	Before, After svc.Parameters
}

func changeOf(before, after svc.Decision) change {
	c := change{svc.Unchanged, before.Parameters(), after.Parameters()}
	switch {
	case !before.Allowed() && after.Allowed():
		c.Change = svc.NewlyAllowed
	case before.Allowed() && !after.Allowed():
		c.Change = svc.NewlyDenied
	case !reflect.DeepEqual(c.Before, c.After):
		c.Change = svc.OtherParameters
	default:
		return change{Change: svc.Unchanged}
	}
	return c
}

// told is what a list of differences says of a request; false: those that are closest disagree.
func told(list []svc.Difference, action, bank string) (c change, agreed bool) {
	c.Change = svc.Unchanged
	for i, d := range policytest.Closest(list, func(d svc.Difference) (string, string) { return d.Action, d.Bank }, action, bank) {
		said := change{d.Change, d.Before, d.After}
		if i > 0 && !reflect.DeepEqual(said, c) {
			return c, false
		}
		c = said
	}
	return c, true
}

func TestDiffIsWhatChanges(t *testing.T) {
	seen := map[svc.ChangeKind]int{}
	forEachWorld(t, 5, 125, func(t *testing.T, w *worlds) {
		before := w.bundle()
		after := w.variant(before)
		if w.IntN(5) == 0 {
			after = w.bundle()
		}
		d := must(svc.Diff(before, after))
		checkDiff(t, d, w.host(t, before), w.host(t, after), seen)
		same, err := svc.Diff(after, after)
		expect.Holds(t, err == nil && reflect.DeepEqual(same, svc.AccessDiff{}), "a bundle does not differ from itself: ", same, err)
	})
	for _, c := range []svc.ChangeKind{svc.NewlyAllowed, svc.NewlyDenied, svc.OtherParameters, svc.Unchanged} {
		expect.Holds(t, seen[c] >= 200, "the worlds are varied: ", seen)
	}
}

func checkDiff(t *testing.T, d svc.AccessDiff, before, after *host, seen map[svc.ChangeKind]int) {
	t.Helper()
	for _, p := range principals() {
		var list []svc.Difference
		groups := 0
		for _, g := range d.Principals {
			if slices.Contains(g.Principals, p.Identity()) {
				list = g.Differences
				groups++
			}
		}
		expect.Holds(t, groups == 0 || groups == 1 && len(list) > 0, p.ID, " is in groups, with differences: ", groups, len(list))
		for _, action := range askedActions {
			for _, bank := range askedBanks {
				b, a := before.decide(t, p, action, bank, svc.Context{}), after.decide(t, p, action, bank, svc.Context{})
				want := changeOf(b, a)
				got, agreed := told(list, action, bank)
				seen[got.Change]++
				expect.Holds(t, agreed && reflect.DeepEqual(got, want), fmt.Sprintf("%s: %s on %s: told %+v (agreed: %v), changes %+v, by %+v", p.ID, action, bank, got, agreed, want, list))
				if a.Allowed() && want.Change == svc.Unchanged && action == "bank:recall" {
					for _, in := range askedPlaces {
						checkStrategy(t, d.Strategies, bank, in, before.decide(t, p, action, bank, in), after.decide(t, p, action, bank, in))
					}
				}
			}
		}
		for _, e := range list {
			got, _ := told(list, e.Action, e.Bank)
			expect.Equal(t, []any{"it is its own witness", e}, got.Change, e.Change)
		}
	}
	checkPublic(t, d.Public, before, after)
}

// checkStrategy checks what is told of a bank's strategy, by somebody who is allowed before and after.
func checkStrategy(t *testing.T, list []svc.StrategyDiff, bank string, in svc.Context, before, after svc.Decision) {
	t.Helper()
	text := func(d svc.Decision) *string {
		if s, ok := d.Strategy(); ok {
			return &s
		}
		return nil
	}
	b, a := text(before), text(after)
	own := before.Parameters().RetainStrategy != nil
	isTold := false
	for _, s := range list {
		if s.Bank != bank {
			continue
		}
		isTold = isTold || matches(s.Context, in) && reflect.DeepEqual(s.Before, b) && reflect.DeepEqual(s.After, a)
		expect.Holds(t, s.Context != in || own || reflect.DeepEqual(s.Before, b) && reflect.DeepEqual(s.After, a), s, " on ", bank, " in ", in, ": ", or(b), ", ", or(a))
	}
	expect.Holds(t, reflect.DeepEqual(a, b) || isTold, "the strategy of ", bank, " in ", in, " changes from ", or(b), " to ", or(a), ", and is not told: ", list)
}

// matches reports whether a context is one of those that a witness may stand for.
func matches(witness, in svc.Context) bool {
	part := func(w, s string) bool { return w == "" || w == s }
	return part(witness.Provider, in.Provider) && part(witness.Channel, in.Channel) && part(witness.Topic, in.Topic)
}

func checkPublic(t *testing.T, list []svc.PublicDiff, before, after *host) {
	t.Helper()
	for _, bank := range []string{"a", "a::b", "z", "none"} {
		for _, in := range askedPlaces {
			for _, action := range askedActions {
				want := changeOf(before.decide(t, svc.Unmapped, action, bank, in), after.decide(t, svc.Unmapped, action, bank, in))
				isTold := want.Change == svc.Unchanged
				for _, p := range list {
					got, agreed := told(p.Differences, action, bank)
					right := agreed && p.Bank == bank && reflect.DeepEqual(got, want)
					isTold = isTold || right && matches(p.Context, in)
					expect.Holds(t, p.Bank != bank || p.Context != in || right, "public ", action, " on ", bank, " in ", in, ": told ", got, ", changes ", want)
				}
				expect.Holds(t, isTold, fmt.Sprintf("public %s on %s in %+v changes, and is not told: %+v, by %+v", action, bank, in, want, list))
			}
		}
	}
}

func TestDiffRefuses(t *testing.T) {
	good := svc.Bundle{Users: []svc.User{{ID: "a"}}}
	wantCode(t, errorOf(svc.Diff(svc.Bundle{Users: []svc.User{{ID: "a/b"}}}, good)), svc.CodeInvalid, "/before/users/0/id")
	_, err := svc.Diff(good, svc.Bundle{Groups: []svc.Group{{ID: "g", Members: []string{"a"}}}})
	wantCode(t, err, svc.CodeInvalid, "/after/groups/0/members/0")
	h := newHost(t)
	_, err = h.Access.Preview(t.Context(), svc.Host, svc.Bundle{Policies: []svc.Policy{{ID: "p", Document: []byte(`{}`)}}}, svc.BundleWrite{})
	wantCode(t, err, svc.CodeInvalid, "/policies/0/document/version")
	wantCode(t, errorOf(h.Access.Preview(t.Context(), svc.Principal{Kind: svc.KindUser, ID: "a"}, good, svc.BundleWrite{})), svc.CodeForbidden, "")
}

// crowd is a group with policies, whose members differ in the priority of a policy of their own.
func crowd(members, policies int) svc.Bundle {
	b := svc.Bundle{Groups: []svc.Group{{ID: "g"}}}
	for i := range policies {
		id := fmt.Sprint("p", i)
		b.Policies = append(b.Policies, svc.Policy{ID: id, Document: document(statement("allow", 1, 1))})
		b.Attachments = append(b.Attachments, attached(id, svc.GrantedToGroup, "g"))
	}
	for i := range members {
		id := fmt.Sprint("u", i)
		b.Users, b.Groups[0].Members = append(b.Users, svc.User{ID: id}), append(b.Groups[0].Members, id)
		own := attached("p0", svc.GrantedToUser, id)
		own.Priority = int64(i)
		b.Attachments = append(b.Attachments, own)
	}
	return b
}

// Members of a group times policies of the group have no end. What would gather too many costs nothing.
func TestTooMuchIsRefusedBeforeItCosts(t *testing.T) {
	h, b := newHost(t), crowd(1600, 3000)
	is.New(t).NoErr(h.Access.Apply(t.Context(), svc.Host, b))
	renamed, attach := svc.Bundle{Policies: []svc.Policy{b.Policies[1]}}, svc.Bundle{Attachments: []svc.Attachment{b.Attachments[1]}}
	renamed.Policies[0].DisplayName, attach.Attachments[0].Priority = "another", 7
	must(h.Policies.WhoCan(t.Context(), svc.Host, "", "b")) // has read all rows
	for name, do := range map[string]func() error{
		"preview":    func() error { return errorOf(h.Access.Preview(t.Context(), svc.Host, renamed, svc.BundleWrite{})) },
		"attach":     func() error { return h.Access.Write(t.Context(), admin, attach, svc.BundleWrite{}) },
		"dry run":    func() error { return h.Access.Write(t.Context(), admin, renamed, svc.BundleWrite{DryRun: true}) },
		"attach one": func() error { return h.Policies.Attach(t.Context(), admin, attach.Attachments[0]) },
	} {
		cost := allocated(func() { wantCode(t, do(), svc.CodeTooComplex, "") })
		expect.Holds(t, cost <= 32<<20 || longtest.Raced, name, ": bytes: ", cost)
	}
}

func TestLintLeavesOutWhatTakesTooLong(t *testing.T) {
	longtest.Test(t, "that Lint has a budget")
	findings := svc.Lint(crowd(20_000, 3500), nil)
	is.New(t).Equal([]svc.FindingCode{findings[0].Code}, []svc.FindingCode{svc.FindingCode(svc.CodeTooComplex)})
}
