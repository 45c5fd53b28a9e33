package policy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc/internal/policy"
	"github.com/matryer/is"
)

// The decision is the naive one: any matching deny, else an allow of each side.
func TestDecisionIsTheNaiveOne(t *testing.T) {
	seen := map[policy.Outcome]int{}
	forEachWorld(t, func(is *is.I, w *world) {
		for _, s := range []policy.Subject{w.subject(), w.serviceAccount()} {
			r := w.request()
			got := evaluate(s, r)
			is.Equal(got.Outcome, naive(w, s, r))
			is.True(got.Reason != "")
			seen[got.Outcome]++
			if got.Outcome != policy.Allow {
				is.Equal(got.Parameters, policy.Parameters{}) // a denial carries no parameters
				is.True(got.Strategy == nil)
			}
		}
	})
	is.New(t).True(min(seen[policy.Allow], seen[policy.ExplicitDeny], seen[policy.ImplicitDeny]) >= 30) // worlds are varied
}

func naive(w *world, s policy.Subject, r policy.Request) policy.Outcome {
	effects := func(id string) (allow, deny bool) {
		for _, st := range w.policies[int(id[0]-'0')] {
			if st.matches(r.Action, r.Bank) {
				allow, deny = allow || st.Effect == "allow", deny || st.Effect == "deny"
			}
		}
		return allow, deny
	}
	var allowed, denied bool
	for _, g := range s.Grants {
		a, d := effects(g.PolicyID)
		allowed, denied = allowed || a, denied || d
	}
	if s.Scoping != nil {
		a, d := effects(s.Scoping.ID)
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

func TestAnotherAllowTakesNothingAway(t *testing.T) {
	forEachWorld(t, func(is *is.I, w *world) {
		s, r := w.serviceAccount(), w.request()
		before := evaluate(s, r)
		more := w.statement()
		more.Effect = "allow"
		s.Grants = append(slices.Clone(s.Grants), policy.Grant{PolicyID: "more", Document: document([]statement{more})})
		after := evaluate(s, r)
		is.True(before.Outcome != policy.Allow || after.Outcome == policy.Allow)
		is.Equal(before.Outcome == policy.ExplicitDeny, after.Outcome == policy.ExplicitDeny)
	})
}

func TestOrderOfGrantsDoesNotMatter(t *testing.T) {
	forEachWorld(t, func(is *is.I, w *world) {
		s, r := w.subject(), w.request()
		before, err := json.Marshal(evaluate(s, r))
		is.NoErr(err)
		w.Shuffle(len(s.Grants), func(i, j int) { s.Grants[i], s.Grants[j] = s.Grants[j], s.Grants[i] })
		given := slices.Clone(s.Grants)
		after, err := json.Marshal(evaluate(s, r))
		is.NoErr(err)
		is.Equal(string(before), string(after))
		is.Equal(given, s.Grants) // the caller's slice stays as it was
	})
}

func TestServiceAccountIsWithinItsOwner(t *testing.T) {
	allowed := 0
	forEachWorld(t, func(is *is.I, w *world) {
		s, r := w.serviceAccount(), w.request()
		narrowed := evaluate(s, r)
		if narrowed.Outcome != policy.Allow {
			return
		}
		allowed++
		s.Kind, s.Scoping = policy.User, nil
		owner := evaluate(s, r)
		is.Equal(owner.Outcome, policy.Allow)
		o, n := owner.Parameters, narrowed.Parameters
		is.True(o.RecallBudget == nil || level(*n.RecallBudget) <= level(*o.RecallBudget))
		is.True(o.RecallMaxTokens == nil || *n.RecallMaxTokens <= *o.RecallMaxTokens)
		is.True(o.RetainEveryNTurns == nil || *n.RetainEveryNTurns >= *o.RetainEveryNTurns)
		is.True(o.RetainRoles == nil || n.RetainRoles != nil && subset(n.RetainRoles, o.RetainRoles))
		is.True(subset(o.RetainTags, n.RetainTags))
		is.True(subset(o.ExcludeProviders, n.ExcludeProviders))
		is.True(len(o.RecallTagGroups) <= len(n.RecallTagGroups))
	})
	is.New(t).True(allowed >= 30) // worlds are varied
}

func level(budget string) int { return slices.Index([]string{"low", "mid", "high"}, budget) }

func subset(a, b []string) bool {
	return !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}

// Whatever lost names a matched statement of the trace that sets the parameter.
func TestLossesNameTheirWinner(t *testing.T) {
	losses := 0
	forEachWorld(t, func(is *is.I, w *world) {
		got := evaluate(w.serviceAccount(), w.request())
		sets := map[string]map[string]json.RawMessage{}
		for _, e := range got.Trace {
			if e.Code == policy.CodeAllowMatched {
				sets[fmt.Sprintf("%s#%d", e.PolicyID, e.Statement)] = keys(is, e.Sets)
			}
		}
		for _, e := range got.Trace {
			own := keys(is, e.Sets)
			for parameter, winner := range e.Lost {
				losses++
				is.True(sets[winner][parameter] != nil)
				is.True(string(sets[winner][parameter]) != string(own[parameter]))
			}
		}
	})
	is.New(t).True(losses >= 30) // worlds are varied
}

func keys(is *is.I, s policy.Sets) (m map[string]json.RawMessage) {
	raw, err := json.Marshal(s)
	is.NoErr(err)
	is.NoErr(json.Unmarshal(raw, &m))
	return m
}

// Within is compared with asking for every action there is.
func TestWithinIsExact(t *testing.T) {
	seen := map[bool]int{}
	forEachWorld(t, func(is *is.I, w *world) {
		target, caller := w.subject(), w.serviceAccount()
		w.maybe(func() { target.Grants = append(target.Grants, caller.Grants...) })
		w.maybe(func() { caller = w.subject() })
		w.maybe(func() { caller.Grants = append(caller.Grants, target.Grants...) })
		var vouched []string
		w.maybe(func() { vouched = w.some(actionPatterns) })

		t, c := compiler.Compile(target), compiler.Compile(caller)
		exceeding, ok := policy.Within(t, c, vouched)
		is.Equal(ok, !anyExceeds(t, c, vouched))
		is.Equal(ok, exceeding == "")
		is.True(ok || exceeds(t, c, vouched, exceeding))
		seen[ok]++
	})
	is.New(t).True(min(seen[true], seen[false]) >= 100) // worlds are varied
}

func anyExceeds(target, caller *policy.Rights, vouched []string) bool {
	return slices.ContainsFunc(controlActions, func(a string) bool { return exceeds(target, caller, vouched, a) })
}

func exceeds(target, caller *policy.Rights, vouched []string, action string) bool {
	return target.Permits(nil, action) && !caller.Permits(vouched, action)
}

// controlActions are the control plane's part of the universe, those left out
// that no pattern tells apart from one that is in.
var controlActions = func() []string {
	byClass := map[string]string{}
	for _, a := range actions {
		if strings.HasPrefix(a, "iam:") || strings.HasPrefix(a, "template:") {
			class := ""
			for _, p := range actionPatterns {
				class += fmt.Sprint(policy.MatchAction(p, a))
			}
			byClass[class] = a
		}
	}
	var all []string
	for _, a := range byClass {
		all = append(all, a)
	}
	return all
}()
