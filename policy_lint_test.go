package svc_test

import (
	_ "embed"
	"reflect"
	"slices"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/longtest"
)

func active(b svc.Bundle) svc.Bundle { // in which nobody is inactive
	b.Users, b.ServiceAccounts = slices.Clone(b.Users), slices.Clone(b.ServiceAccounts)
	for i := range b.Users {
		b.Users[i].Inactive = false
	}
	for i := range b.ServiceAccounts {
		b.ServiceAccounts[i].Inactive = false
	}
	return b
}

type statementOf struct {
	policy string
	number int
}

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

type said struct {
	outcome    svc.Outcome
	parameters string
}

// answers are those to everybody about everything that is asked.
func answers(t *testing.T, h *host) map[string]said {
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
		expect.Holds(t, !changes(needless...), "without these nothing changes: ", needless)
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
	varied := seen["statement_needless"] >= 3 && seen["statement_shadowed"] >= longtest.Times(0, 3)
	expect.Holds(t, varied && seen["needed"] >= longtest.Times(20, 50), "the worlds are varied: ", seen)
}

func traced(t *testing.T, h *host, who svc.Principal, policy string) bool {
	return slices.ContainsFunc(resolved(t, h, who, "bank:recall", "a").Trace, func(e svc.TraceEntry) bool { return e.PolicyID == policy })
}

func resolved(t *testing.T, h *host, who svc.Principal, action, bank string) svc.Resolution {
	q := svc.Question{Action: action, Bank: bank, UserID: who.ID}
	if who.Kind == svc.KindServiceAccount {
		q.ServiceAccountID = who.ID
	}
	return must(h.Policies.Resolve(t.Context(), svc.Host, q))
}

// allDenied reports whether a deny covers all that a statement matches, for whoever has it.
func allDenied(t *testing.T, h *host, s statementOf) bool {
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

//go:embed testdata/linted.json
var linted string

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
	is.True(svc.Lint(svc.Bundle{}, []string{}) != nil)
}
