package policy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/jcs"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/policy/policytest"
)

// TestOrderOfPoliciesDoesNotMatter: only priority and id order policies.
func TestOrderOfPoliciesDoesNotMatter(t *testing.T) {
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		s, q := w.Principal().Subject, w.Request()
		before := evaluate(s, q)
		s.Grants = slices.Clone(s.Grants)
		w.Shuffle(len(s.Grants), func(i, j int) { s.Grants[i], s.Grants[j] = s.Grants[j], s.Grants[i] })
		given := slices.Clone(s.Grants)
		is.Equal(before, evaluate(s, q))
		is.Equal(given, s.Grants) // the caller's slice stays as it was
	})
}

// TestOrderOfStatementsMattersForTiesOnly: of two statements of one policy, the earlier gives a
// single value, and its tag groups come first. Nothing else depends on their order.
func TestOrderOfStatementsMattersForTiesOnly(t *testing.T) {
	moved := 0
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		s, q := w.Principal().Subject, w.Request()
		shuffled := map[string][]byte{}
		for _, p := range w.Policies {
			shuffled[p.ID] = p.Document
			if p.Statements != nil {
				all := slices.Clone(p.Statements)
				w.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
				shuffled[p.ID] = policytest.Document(all...)
			}
		}
		before := evaluate(s, q)
		after := evaluate(rewritten(s, func(id string, _ []byte) []byte { return shuffled[id] }), q)
		is.Equal(untied(before), untied(after))
		if fmt.Sprint(before.Trace) != fmt.Sprint(after.Trace) {
			moved++
		}
	})
	varied(t, moved)
}

// untied returns an outcome without the values that a tie decides.
func untied(r policy.Result) outcome {
	o := outcomeOf(r)
	o.Strategy, o.RetainStrategy, o.LLMModel, o.LLMProvider = nil, nil, nil, nil
	o.RecallTagGroups = slices.Clone(o.RecallTagGroups)
	for i, group := range o.RecallTagGroups {
		if form, err := jcs.Canonical(group); err == nil {
			o.RecallTagGroups[i] = form
		}
	}
	slices.SortFunc(o.RecallTagGroups, func(a, b json.RawMessage) int { return slices.Compare(a, b) })
	return o
}

// TestAttachingTwiceChangesNothing: a second attachment the same way changes nothing, not even the
// trace. Another way of no higher rank changes no outcome.
func TestAttachingTwiceChangesNothing(t *testing.T) {
	twice := 0
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		p, q := w.Principal(), w.Request()
		before := evaluate(p.Subject, q)
		s := p.Subject
		for _, g := range p.Subject.Grants {
			twice++
			s.Grants = append(s.Grants[:len(s.Grants):len(s.Grants)], g)
		}
		is.Equal(before, evaluate(s, q))
		for _, g := range p.Subject.Grants {
			g.Group = "crowd"
			g.Priority = max(g.Priority-w.Int64N(2), -1<<62)
			s.Grants = append(s.Grants, g)
		}
		if !slices.ContainsFunc(p.Subject.Grants, func(g policy.Grant) bool { return g.Priority < -1<<62 }) {
			is.Equal(outcomeOf(before), outcomeOf(evaluate(s, q)))
		}
	})
	varied(t, twice)
}

// TestMergeIsAssociative: the statements of a policy give the same result when they are spread over
// policies of neighbouring rank.
func TestMergeIsAssociative(t *testing.T) {
	spread := 0
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		p, q := w.Principal(), w.Request()
		if slices.ContainsFunc(slices.Concat(p.Subject.Scoping, p.Subject.Narrowing), func(n policy.Named) bool { return w.Policy(n.ID).Statements == nil }) {
			return
		}
		s := p.Subject
		s.Grants = spaced(s.Grants)
		whole := evaluate(s, q)
		for range 3 {
			split := s
			split.Grants = nil
			groups := map[string][][]policytest.Statement{} // by policy: its grants have one document
			for _, p := range w.Policies {
				groups[p.ID] = grouped(w, p.Statements)
			}
			for _, g := range s.Grants {
				if w.Policy(g.PolicyID).Statements == nil {
					split.Grants = append(split.Grants, g) // does not parse
					continue
				}
				for i, group := range groups[g.PolicyID] {
					part := g
					part.PolicyID = fmt.Sprintf("%s.%d", g.PolicyID, i)
					part.Priority -= int64(i)
					part.Document = policytest.Document(group...)
					split.Grants = append(split.Grants, part)
					spread++
				}
			}
			is.Equal(outcomeOf(whole), outcomeOf(evaluate(split, q)))
			for i := range split.Grants {
				split.Grants[i].Priority = 0
			}
			is.Equal(untied(whole), untied(evaluate(split, q))) // also with equal priority, except for ties
		}
	})
	varied(t, spread)
}

// TestNarrowingIsAssociative: narrowing by one policy after another equals narrowing by one policy
// with their joint result. The others narrow what the first leaves.
func TestNarrowingIsAssociative(t *testing.T) {
	joined := 0
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		for range 10 {
			s, q := w.Principal().Subject, policytest.Request{Action: "bank:recall", Bank: "project::notes"}
			whole := evaluate(s, q)
			if len(s.Scoping) < 2 || whole.Outcome != policy.Allow {
				continue
			}
			i := 1 + w.IntN(len(s.Scoping)-1)
			first, second := s, s
			first.Scoping, second.Scoping = s.Scoping[:i], s.Scoping[i:]

			left := second
			left.Grants = []policy.Grant{{PolicyID: "first", Document: said(evaluate(first, q), q)}}
			is.Equal(whole.Parameters, evaluate(left, q).Parameters)

			right := s
			right.Scoping = []policy.Named{{ID: "all", Document: said(evaluate(policy.Subject{
				Kind: policy.User, Grants: []policy.Grant{{PolicyID: "one", Document: s.Scoping[0].Document}}, Scoping: s.Scoping[1:],
			}, q), q)}}
			is.Equal(whole.Parameters, evaluate(right, q).Parameters)
			joined++
		}
	})
	varied(t, joined)
}

// said returns a document that allows the request with the parameters of the answer.
func said(r policy.Result, q policytest.Request) []byte {
	p := policytest.MemoryOf(r.Parameters)
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	return policytest.Document(policytest.Statement{
		Effect: "allow", Actions: []string{q.Action}, Banks: []string{q.Bank},
		RecallBudget: text((*string)(p.RecallBudget)), RecallMaxTokens: p.RecallMaxTokens, RecallTagGroups: p.RecallTagGroups,
		RetainRoles: p.RetainRoles, RetainTags: p.RetainTags, RetainEveryNTurns: p.RetainEveryNTurns, RetainStrategy: text(p.RetainStrategy),
		LLMModel: text(p.LLMModel), LLMProvider: text(p.LLMProvider), ExcludeProviders: p.ExcludeProviders,
	})
}

// spaced gives grants priorities that are far apart and keep their order.
func spaced(grants []policy.Grant) []policy.Grant {
	var out []policy.Grant
	for i, g := range grants {
		if slices.ContainsFunc(out, func(o policy.Grant) bool { return o.PolicyID == g.PolicyID && o.Group == g.Group }) {
			continue
		}
		g.Priority = -1000 * int64(i)
		out = append(out, g)
	}
	return out
}

// grouped cuts a list into runs.
func grouped(w *policytest.World, all []policytest.Statement) [][]policytest.Statement {
	groups := [][]policytest.Statement{nil}
	for _, st := range all {
		if w.IntN(2) == 0 {
			groups = append(groups, nil)
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], st)
	}
	return groups
}

// TestLossesNameTheirWinner: each loss names a matched statement of the trace that sets the
// parameter to another value.
func TestLossesNameTheirWinner(t *testing.T) {
	losses := 0
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		got := evaluate(w.Principal().Subject, w.Request())
		sets := map[string]map[string]json.RawMessage{}
		for _, e := range got.Trace {
			if e.Code == policy.CodeAllowMatched {
				name := fmt.Sprintf("%s#%d", e.PolicyID, e.Statement)
				if sets[name] == nil {
					sets[name] = map[string]json.RawMessage{}
				}
				// A policy that is granted and also narrows has two entries: the second has less.
				maps.Copy(sets[name], keys(is, e.Sets))
			}
		}
		for _, e := range got.Trace {
			own := keys(is, e.Sets)
			for parameter, winner := range e.Lost {
				losses++
				is.Equal(got.Outcome, policy.Allow) // nothing is lost in a denial
				is.True(sets[winner][parameter] != nil)
				is.True(string(sets[winner][parameter]) != string(own[parameter]))
			}
		}
	})
	varied(t, losses)
}

func keys(is *is.I, s policy.Parameters) (m map[string]json.RawMessage) {
	raw, err := json.Marshal(policytest.MemoryOf(s))
	is.NoErr(err)
	is.NoErr(json.Unmarshal(raw, &m))
	return m
}
