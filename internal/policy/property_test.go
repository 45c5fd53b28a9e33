package policy_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/policy/policytest"
)

// TestDenyByDefault: a principal is allowed exactly what a naive reading of its statements allows.
// Without statements it is allowed nothing.
func TestDenyByDefault(t *testing.T) {
	seen := map[policy.Outcome]int{}
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		p, q := w.Principal(), w.Request()
		if p.Kind != policy.User && p.Kind != policy.ServiceAccount || p.Subject.Closed != "" || broken(w, p.Subject, q) {
			return
		}
		got := evaluate(p.Subject, q)
		seen[got.Outcome]++
		is.Equal(got.Outcome, naive(w, p.Subject, q))
		is.True(got.Reason != "")
		if got.Outcome != policy.Allow {
			is.Equal(outcomeOf(got), outcome{Outcome: got.Outcome}) // a denial carries no parameters and no strategy
		}
		p.Subject.Grants = nil
		is.True(evaluate(p.Subject, q).Outcome != policy.Allow)
	})
	varied(t, seen[policy.Allow], seen[policy.ExplicitDeny], seen[policy.ImplicitDeny])
}

// varied fails when too few cases tested a property.
func varied(t *testing.T, seen ...int) {
	t.Helper()
	enough := 10
	if fewer() {
		enough = 1
	}
	if slices.Min(seen) < enough {
		t.Errorf("the worlds are not varied: seen %v times", seen)
	}
}

// naive decides only by whether any statement denies and any allows.
func naive(w *policytest.World, s policy.Subject, q policytest.Request) policy.Outcome {
	effects := func(id, group string) (allow, deny bool) {
		for _, st := range w.Policy(id).Statements {
			if st.Banks = allByHand(st.Banks, s.UserID, group); st.Covers(q.Action, q.Bank) {
				allow, deny = allow || st.Effect == "allow", deny || st.Effect == "deny"
			}
		}
		return allow, deny
	}
	var allowed, denied bool
	for _, g := range s.Grants {
		a, d := effects(g.PolicyID, g.Group)
		allowed, denied = allowed || a, denied || d
	}
	for _, n := range slices.Concat(s.Scoping, s.Narrowing) {
		a, d := effects(n.ID, "")
		allowed, denied = allowed && a, denied || d
	}
	switch {
	case denied:
		return policy.ExplicitDeny
	case allowed:
		return policy.Allow
	}
	return policy.ImplicitDeny
}

// broken reports whether a document that counts does not parse.
func broken(w *policytest.World, s policy.Subject, q policytest.Request) bool {
	if q.BankPolicy != nil {
		if _, err := policy.Memory.ParseBankDocument(q.BankPolicy.Document); err != nil {
			return true
		}
	}
	return slices.ContainsFunc(documents(s), faulty)
}

// TestAnotherDenyAlwaysDenies: an added deny denies, whatever its pattern, position and priority.
func TestAnotherDenyAlwaysDenies(t *testing.T) {
	spelled := 0
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		p, q := w.Principal(), w.Request()
		if p.Kind != policy.User && p.Kind != policy.ServiceAccount || p.Subject.Closed != "" {
			return
		}
		for _, action := range actionSpellings(q.Action) {
			for _, bank := range bankSpellings(q.Bank) {
				if policy.HasVariables(bank) {
					continue // is a pattern for other banks, or none
				}
				spelled++
				more := policytest.Document(policytest.Statement{Effect: "deny", Actions: []string{"x", action}, Banks: []string{bank, "x"}})
				for _, s := range everywhere(p.Subject, more) {
					if got := evaluate(s, q); got.Outcome != policy.ExplicitDeny {
						t.Fatalf("%s %q asks %+v, denied by %q on %q: %s", p.Kind, p.ID, q, action, bank, got.Reason)
					}
				}
			}
		}
	})
	varied(t, spelled)
}

// actionSpellings returns every pattern that covers an action.
func actionSpellings(action string) []string {
	spellings := prefixes(action, ":")
	if action == "bank:memories:list" || action == "bank:memories:get" {
		spellings = append(spellings, "bank:recall")
	}
	return append(spellings, literal(action)...)
}

func bankSpellings(bank string) []string {
	return append(append(prefixes(bank, "::"), "*"), literal(bank)...)
}

// prefixes returns the prefix patterns that cover s.
func prefixes(s, end string) []string {
	var out []string
	for i := range len(s) + 1 {
		if strings.HasSuffix(s[:i], end) && writable(s[:i]) {
			out = append(out, s[:i]+"*")
		}
	}
	if len(out) > 6 {
		return append(out[:3], out[len(out)-3:]...)
	}
	return out
}

func literal(s string) []string {
	if !writable(s) {
		return nil
	}
	return []string{s}
}

// writable reports whether a document may hold s, apart from a final asterisk.
func writable(s string) bool { return s != "" && !strings.Contains(s, "*") && utf8.ValidString(s) }

// everywhere returns the subject with a policy attached in every possible way.
func everywhere(s policy.Subject, document []byte) []policy.Subject {
	with := func(g policy.Grant) policy.Subject {
		g.Document = document
		out := s
		out.Grants = append([]policy.Grant{g}, s.Grants...)
		return out
	}
	out := []policy.Subject{
		with(policy.Grant{PolicyID: "a"}),
		with(policy.Grant{PolicyID: "zz", Group: "crowd", Priority: -1 << 63}),
	}
	for i := range len(s.Scoping) + 1 {
		narrowed := s
		narrowed.Scoping = slices.Insert(slices.Clone(s.Scoping), i, policy.Named{ID: "narrow", Document: document})
		out = append(out, narrowed)
	}
	for i := range len(s.Narrowing) + 1 {
		narrowed := s
		narrowed.Narrowing = slices.Insert(slices.Clone(s.Narrowing), i, policy.Named{ID: "narrow", Document: document})
		out = append(out, narrowed)
	}
	return out
}

// TestAnotherAllowTakesNothingAway: an added allow removes no allow and lowers no comparable
// parameter.
func TestAnotherAllowTakesNothingAway(t *testing.T) {
	seen := map[policy.Outcome]int{}
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		p, q := w.Principal(), w.Request()
		before := evaluate(p.Subject, q)
		seen[before.Outcome]++
		more := w.Statement()
		more.Effect = "allow"
		for _, s := range everywhere(p.Subject, policytest.Document(more))[:2] {
			after := evaluate(s, q)
			is.Equal(before.Outcome == policy.ExplicitDeny, after.Outcome == policy.ExplicitDeny)
			if before.Outcome == policy.Allow {
				is.Equal(after.Outcome, policy.Allow)
				is.True(noLess(policytest.MemoryOf(after.Parameters), policytest.MemoryOf(before.Parameters)) || len(p.Subject.Scoping)+len(p.Subject.Narrowing) > 0)
			}
		}
	})
	varied(t, seen[policy.Allow], seen[policy.ExplicitDeny], seen[policy.ImplicitDeny])
}

// noLess reports whether a gives at least what b gives, for comparable parameters.
func noLess(a, b policytest.Memory) bool {
	return (b.RecallBudget == nil || level(*a.RecallBudget) >= level(*b.RecallBudget)) &&
		(b.RecallMaxTokens == nil || *a.RecallMaxTokens >= *b.RecallMaxTokens) &&
		(b.RetainEveryNTurns == nil || *a.RetainEveryNTurns <= *b.RetainEveryNTurns) &&
		subset(b.RetainRoles, a.RetainRoles) && subset(b.RetainTags, a.RetainTags) && subset(b.ExcludeProviders, a.ExcludeProviders) &&
		len(a.RecallTagGroups) >= len(b.RecallTagGroups)
}

func level(budget policy.Level) int {
	return slices.Index([]policy.Level{"low", "mid", "high"}, budget)
}

func subset(a, b []string) bool {
	return !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}

// TestNarrowedIsWithin: a narrowed principal is allowed no more, and has no more of any parameter,
// than when it is narrowed by less. A service account is allowed no more than its owner.
func TestNarrowedIsWithin(t *testing.T) {
	allowed := map[int]int{}
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		for range 20 {
			p, q := w.Principal(), w.Request()
			narrowed := evaluate(p.Subject, q)
			if p.Kind == policy.Unmapped || narrowed.Outcome != policy.Allow || p.Subject.Narrowing != nil {
				continue
			}
			allowed[len(p.Subject.Scoping)]++
			s := p.Subject
			if len(s.Scoping) == 0 {
				s.Kind = policy.User
			} else {
				i := w.IntN(len(s.Scoping))
				s.Scoping = slices.Delete(slices.Clone(s.Scoping), i, i+1)
			}
			wider := evaluate(s, q)
			is.Equal(wider.Outcome, policy.Allow)
			o, n := policytest.MemoryOf(wider.Parameters), policytest.MemoryOf(narrowed.Parameters)
			is.True(o.RecallBudget == nil || level(*n.RecallBudget) <= level(*o.RecallBudget))
			is.True(o.RecallMaxTokens == nil || *n.RecallMaxTokens <= *o.RecallMaxTokens)
			is.True(o.RetainEveryNTurns == nil || *n.RetainEveryNTurns >= *o.RetainEveryNTurns)
			is.True(o.RetainRoles == nil || n.RetainRoles != nil && subset(n.RetainRoles, o.RetainRoles))
			is.True(subset(o.RetainTags, n.RetainTags))
			is.True(subset(o.ExcludeProviders, n.ExcludeProviders))
			is.True(len(o.RecallTagGroups) <= len(n.RecallTagGroups))
		}
	})
	varied(t, allowed[0], allowed[1], allowed[2])
}

// TestNarrowingNeverWidens: narrowing by any policy at all leaves of every parameter what the
// holder has, or less, and adds nothing.
func TestNarrowingNeverWidens(t *testing.T) {
	reduced := map[string]int{}
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		for range 5 {
			p, q := w.Principal(), w.Request()
			by := w.Statement()
			by.Effect, by.Actions, by.Banks = "allow", append(by.Actions, "bank:*"), append(by.Banks, "*")
			for _, document := range [][]byte{policytest.Document(by), w.Policies[w.IntN(len(w.Policies))].Document} {
				s := p.Subject
				s.Narrowing = append(slices.Clone(s.Narrowing), policy.Named{ID: "chosen", Document: document})
				got, holder := evaluate(s, q), evaluate(p.Subject, q)
				if p.Kind == policy.Unmapped || got.Outcome != policy.Allow {
					continue
				}
				is.Equal(holder.Outcome, policy.Allow)
				less, more := policytest.MemoryOf(got.Parameters), policytest.MemoryOf(holder.Parameters)
				within(is, less, more)
				is.Equal(got.Strategy, holder.Strategy)
				for _, e := range got.Trace {
					if e.PolicyID == "chosen" {
						sets := policytest.MemoryOf(e.Sets)
						is.True(sets.RetainStrategy == nil && sets.LLMModel == nil && sets.LLMProvider == nil)
						is.True(sets.RetainTags == nil && sets.RecallTagGroups == nil)
					}
				}
				counted(reduced, less, more)
			}
		}
	})
	varied(t, reduced["budget"], reduced["tokens"], reduced["turns"], reduced["roles"], reduced["excluded"], reduced["equal"])
}

// within fails unless a has of everything as much as b or less, and nothing that b lacks.
func within(is *is.I, a, b policytest.Memory) {
	is.Helper()
	is.True((a.RecallBudget == nil) == (b.RecallBudget == nil) && (a.RecallBudget == nil || level(*a.RecallBudget) <= level(*b.RecallBudget)))
	is.True((a.RecallMaxTokens == nil) == (b.RecallMaxTokens == nil) && (a.RecallMaxTokens == nil || *a.RecallMaxTokens <= *b.RecallMaxTokens))
	is.True((a.RetainEveryNTurns == nil) == (b.RetainEveryNTurns == nil) && (a.RetainEveryNTurns == nil || *a.RetainEveryNTurns >= *b.RetainEveryNTurns))
	is.True((a.RetainRoles == nil) == (b.RetainRoles == nil) && subset(a.RetainRoles, b.RetainRoles))
	is.True((a.ExcludeProviders == nil) == (b.ExcludeProviders == nil) && subset(b.ExcludeProviders, a.ExcludeProviders))
	is.Equal([]any{a.RetainTags, a.RecallTagGroups, a.RetainStrategy, a.LLMModel, a.LLMProvider}, []any{b.RetainTags, b.RecallTagGroups, b.RetainStrategy, b.LLMModel, b.LLMProvider})
}

// counted counts the parameters in which a is less than b.
func counted(less map[string]int, a, b policytest.Memory) {
	for what, so := range map[string]bool{
		"budget": a.RecallBudget != nil && *a.RecallBudget != *b.RecallBudget,
		"tokens": a.RecallMaxTokens != nil && *a.RecallMaxTokens != *b.RecallMaxTokens,
		"turns":  a.RetainEveryNTurns != nil && *a.RetainEveryNTurns != *b.RetainEveryNTurns,
		"roles":  len(a.RetainRoles) != len(b.RetainRoles), "excluded": len(a.ExcludeProviders) != len(b.ExcludeProviders),
		"equal": reflect.DeepEqual(a, b),
	} {
		if so {
			less[what]++
		}
	}
}

// TestWhatDoesNotMatchMayGo: removing a statement that the trace calls "not matched", whichever way
// its policy comes, changes nothing.
func TestWhatDoesNotMatchMayGo(t *testing.T) {
	removed := map[policy.Outcome]int{}
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		p, q := w.Principal(), w.Request()
		before := evaluate(p.Subject, q)
		if p.Kind == policy.Unmapped {
			return
		}
		idle := map[string]bool{}
		for _, e := range before.Trace {
			statement := fmt.Sprint(e.PolicyID, "#", e.Statement)
			// With variables, a statement may match through one group and not through another.
			so, again := idle[statement]
			if idle[statement] = !e.Matched && (so || !again); !e.Matched && e.Statement >= 0 {
				removed[before.Outcome]++
			}
		}
		after := evaluate(rewritten(p.Subject, func(id string, raw []byte) []byte {
			if w.Policy(id).Statements == nil {
				return raw // does not parse
			}
			var left []policytest.Statement
			for i, st := range w.Policy(id).Statements {
				if !idle[fmt.Sprint(id, "#", i)] {
					left = append(left, st)
				}
			}
			return policytest.Document(left...)
		}), q)
		is.Equal(outcomeOf(before), outcomeOf(after))
	})
	varied(t, removed[policy.Allow], removed[policy.ExplicitDeny], removed[policy.ImplicitDeny])
}

// rewritten returns the subject with other documents.
func rewritten(s policy.Subject, rewrite func(id string, raw []byte) []byte) policy.Subject {
	s.Grants = slices.Clone(s.Grants)
	for i := range s.Grants {
		s.Grants[i].Document = rewrite(s.Grants[i].PolicyID, s.Grants[i].Document)
	}
	for _, narrowing := range []*[]policy.Named{&s.Scoping, &s.Narrowing} {
		*narrowing = slices.Clone(*narrowing)
		for i, n := range *narrowing {
			(*narrowing)[i].Document = rewrite(n.ID, n.Document)
		}
	}
	return s
}

// TestExplainIsDecide: both give the same answer, and the trace agrees with it.
func TestExplainIsDecide(t *testing.T) {
	seen := map[policy.Outcome]int{}
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		for range 10 {
			p, q := w.Principal(), w.Request()
			rights := compiler.Compile(p.Subject)
			d, r := decide(rights, q), explain(rights, q)
			seen[d.Outcome()]++
			is.Equal(d.Outcome(), r.Outcome)
			is.Equal(d.Allowed(), r.Outcome == policy.Allow)
			is.Equal(d.Reason(), r.Reason)
			is.Equal(d.Parameters(), r.Parameters)
			strategy, ok := d.Strategy()
			is.Equal(ok, r.Strategy != nil)
			is.True(!ok || strategy == *r.Strategy)
			is.True(r.Trace != nil)
			denies := slices.ContainsFunc(r.Trace, func(e policy.Entry) bool { return e.Code == policy.CodeDenyMatched })
			allows := slices.ContainsFunc(r.Trace, func(e policy.Entry) bool {
				return e.Code == policy.CodeAllowMatched || e.Code == policy.CodePublicAllowed
			})
			is.Equal(r.Outcome == policy.Allow, allows)
			is.True(r.Outcome != policy.Allow || !denies)
			is.True(r.Outcome != policy.ExplicitDeny || denies)
		}
	})
	varied(t, seen[policy.Allow], seen[policy.ExplicitDeny], seen[policy.ImplicitDeny])
}

// TestAgainIsDecide: Again repeats a decision with the bank policy that Note stored, for that
// moment only.
func TestAgainIsDecide(t *testing.T) {
	var moment uint64
	known := map[bool]int{}
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		for range 10 {
			p, q := w.Principal(), w.Request()
			rights, in, bank := compiler.Compile(p.Subject), context(q), policy.Memory.CompileBank(q.BankPolicy)
			moment++
			var d policy.Decision
			is.True(!rights.Again(&d, q.Action, q.Bank, &in, moment))
			rights.Decide(q.Action, q.Bank, &in, bank)
			rights.Note(q.Action, q.Bank, bank, moment)
			again := rights.Again(&d, q.Action, q.Bank, &in, moment)
			is.True(!again || agrees(d, explain(rights, q)))
			known[again]++
		}
	})
	varied(t, known[true], known[false])
}
