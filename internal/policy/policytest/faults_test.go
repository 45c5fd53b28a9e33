package policytest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/policy"
)

// TestFaultsAreFound: the comparison finds every planted fault, in the rules and in the code around the engine: those
// that show in one question of some hundreds, or in fewer. With the race detector only some faults are planted.
func TestFaultsAreFound(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	most := 0
	for _, name := range planted(ruleFaults) {
		t.Run("rule/"+name, func(t *testing.T) {
			l := newLaw()
			ruleFaults[name](l)
			most = max(most, mustDiffer(t, newEngine(), l))
		})
	}
	for _, name := range planted(engineFaults) {
		t.Run("engine/"+name, func(t *testing.T) {
			most = max(most, mustDiffer(t, engineFaults[name](newEngine()), law))
		})
	}
	t.Logf("%d faults in the rules and %d around the engine, each found by the %dth question", len(ruleFaults), len(engineFaults), most)
}

func planted[F any](faults map[string]F) []string {
	names := slices.Sorted(maps.Keys(faults))
	if longtest.Raced {
		return names[:len(names)/4]
	}
	return names
}

func mustDiffer(t *testing.T, e engine, l *rules) int {
	c := compare(e, l, 50_000)
	if c.difference == "" {
		t.Errorf("not found in %d questions", c.asked)
	}
	t.Logf("found after %d questions", c.asked)
	return c.asked
}

// ruleFaults break the reference.
var ruleFaults = map[string]func(*rules){
	"a broken document beats a deny": deciding(func(f *findings) {
		if f.broken != nil {
			f.denied = nil
		}
	}),
	"an action ends at a NUL": actions(func(p, a string) bool {
		before, _, _ := strings.Cut(a, "\x00")
		return policy.MatchAction(p, before)
	}),
	"a bank in capitals is the same": func(l *rules) {
		l.coversBank = func(p, b string) bool { return policy.MatchBank(p, strings.ToLower(b)) }
	},
	"a bank is cut at 64 bytes": func(l *rules) {
		l.coversBank = func(p, b string) bool { return policy.MatchBank(p, b[:min(len(b), 64)]) }
	},
	"of two prefixes the shorter is closer": func(l *rules) {
		l.closer = func(a, b string) int {
			return cmp.Or(cmp.Compare(closeness(a), closeness(b)), cmp.Compare(len(b), len(a)))
		}
	},
	"no tokens are like unset ones": merging("recall_max_tokens", func(c []candidate) candidate {
		return least(append(slices.DeleteFunc(slices.Clone(c), func(c candidate) bool { return c.value == int64(0) }), most(c)))
	}),
	"of equal tokens the last": merging("recall_max_tokens", func(c []candidate) candidate {
		reversed := slices.Clone(c)
		slices.Reverse(reversed)
		return most(reversed)
	}),
	"one statement gives the model and the provider": func(l *rules) {
		l.mergeScalars["llm_provider"] = func(c []candidate) candidate {
			if i := slices.IndexFunc(c, func(c candidate) bool { return l.value(c.gives, "llm_model") != nil }); i >= 0 {
				return c[i]
			}
			return ranked(c)
		}
	},
	"the lesser policy id's model":         ranking(1, 2, 3, -4, 5),
	"the later statement's model":          ranking(1, 2, 3, 4, -5),
	"the priority before the bank pattern": ranking(1, 3, 2, 4, 5),
	"the policy id before the priority":    ranking(1, 2, 4, 3, 5),
	"the statement before the policy id":   ranking(1, 2, 3, 5, 4),
	"a literal bank is like a prefix":      func(l *rules) { l.closer = func(a, b string) int { return cmp.Compare(len(a), len(b)) } },
	"an account has its owner's tokens":    func(l *rules) { l.narrowScalars["recall_max_tokens"] = owners },
	"an account has its owner's strategy":  func(l *rules) { l.narrowScalars["retain_strategy"] = owners },
	"an account has all roles of both":     func(l *rules) { l.narrowList["retain_roles"] = union },
	"an account has the tags of both only": func(l *rules) { l.narrowList["retain_tags"] = intersection },
	"a key gets more tokens":               func(l *rules) { l.lessenScalars["recall_max_tokens"] = higher },
	"a key has all roles of both":          func(l *rules) { l.lessenList["retain_roles"] = union },
	"a key avoids less than its holder":    func(l *rules) { l.lessenList["exclude_providers"] = intersection },
	"the last statement's tags": func(l *rules) {
		l.mergeList["retain_tags"] = func(a, b []string) []string {
			if b == nil {
				return a
			}
			return union(b, b)
		}
	},
	"of equal tag groups the last stays": grouping(lastStays),
	"tag groups are equal in any order":  grouping(distinct(sortedBytes)),
	"the last tag groups come first": func(l *rules) {
		l.joinGroups = func(a, b []json.RawMessage) []json.RawMessage { return concatenation(b, a) }
	},
	"a channel is more specific than a topic": func(l *rules) { l.scopes = []policy.Scope{policy.Channel, policy.Topic, policy.Provider} },
	"topics are not looked at":                func(l *rules) { l.scopes = []policy.Scope{policy.Channel, policy.Provider} },
}

func deciding(blind func(*findings)) func(*rules) {
	return func(l *rules) {
		l.decide = func(f findings) policy.Outcome {
			blind(&f)
			return decide(f)
		}
	}
}

func actions(covers func(pattern, action string) bool) func(*rules) {
	return func(l *rules) { l.coversAction = covers }
}

func merging(parameter string, pick func([]candidate) candidate) func(*rules) {
	return func(l *rules) { l.mergeScalars[parameter] = pick }
}

// ranking ranks by these criteria, counted from 1. A negative number reverses the criterion.
func ranking(by ...int) func(*rules) {
	var all []criterion
	for _, n := range by {
		if n > 0 {
			all = append(all, criteria[n-1])
		} else {
			all = append(all, func(a, b candidate) int { return criteria[-n-1](b, a) })
		}
	}
	return func(l *rules) {
		for _, name := range []string{"retain_strategy", "llm_model", "llm_provider"} {
			l.mergeScalars[name] = rankedBy(all)
		}
	}
}

func owners(owner, _ any) any { return owner }

// grouping joins tag groups by another rule; nil stays nil.
func grouping(join func(all []json.RawMessage) []json.RawMessage) func(*rules) {
	return func(l *rules) {
		l.joinGroups = func(a, b []json.RawMessage) []json.RawMessage {
			if a == nil && b == nil {
				return nil
			}
			return join(append(append([]json.RawMessage{}, a...), b...))
		}
	}
}

func distinct(key func(json.RawMessage) string) func([]json.RawMessage) []json.RawMessage {
	return func(all []json.RawMessage) []json.RawMessage {
		seen := map[string]bool{}
		return slices.DeleteFunc(all, func(group json.RawMessage) bool {
			again := seen[key(group)]
			seen[key(group)] = true
			return again
		})
	}
}

func sortedBytes(group json.RawMessage) string {
	return string(slices.Sorted(slices.Values([]byte(strings.ReplaceAll(string(group), "1.0", "1")))))
}

func lastStays(all []json.RawMessage) []json.RawMessage {
	slices.Reverse(all)
	all = concatenation(all, nil)
	slices.Reverse(all)
	return all
}

// engineFaults break the code around the engine: its input, its caches, and the use of its answers.
var engineFaults = map[string]func(engine) engine{
	"an override that says no is not final": notFinal,
	"an old policy is kept":                 remembering(func(s policy.Subject, q Request) string { return ids(s) + asked(q) }),
	"priorities are not part of a table":    remembering(func(s policy.Subject, q Request) string { return rights(s, false) + asked(q) }),
	"a class is what stands before two colons": remembering(func(s policy.Subject, q Request) string {
		q.Bank = q.Bank[:max(0, strings.LastIndex(q.Bank, "::"))]
		return rights(s, true) + asked(q)
	}),
	"one with another second scoping policy is the same": remembering(func(s policy.Subject, q Request) string {
		s.Scoping = s.Scoping[:min(1, len(s.Scoping))]
		return rights(s, true) + asked(q)
	}),
	"the order of scoping policies is not part of a table": remembering(func(s policy.Subject, q Request) string {
		s.Scoping = slices.SortedFunc(slices.Values(s.Scoping), func(a, b policy.Named) int { return strings.Compare(a.ID, b.ID) })
		return rights(s, true) + asked(q)
	}),
}

// remembering gives the first decision for a key to all later requests with that key, but with the
// reason of each request.
func remembering(key func(policy.Subject, Request) string) func(engine) engine {
	var kept sync.Map
	return func(e engine) engine {
		return func(s policy.Subject, q Request) answer {
			a := e(s, q)
			first, _ := kept.LoadOrStore(key(s, q), a)
			decided := first.(answer).decided
			decided.Reason = a.decided.Reason
			a.decided = decided
			return a
		}
	}
}

// notFinal uses the public default when an override does not list the action.
func notFinal(e engine) engine {
	return func(s policy.Subject, q Request) answer {
		a := e(s, q)
		if strings.HasPrefix(a.explained.Reason, "denied: public override") {
			q.Provider, q.Channel, q.Topic = "", "", ""
			return e(s, q)
		}
		return a
	}
}

func asked(q Request) string {
	if q.BankPolicy == nil {
		return fmt.Sprintf("%q %q", q.Action, q.Bank)
	}
	return fmt.Sprintf("%q %q %q %q %q %q %s", q.Action, q.Bank, q.Provider, q.Channel, q.Topic, q.BankPolicy.ID, q.BankPolicy.Document)
}

func ids(s policy.Subject) string {
	out := fmt.Sprint(s.Kind, s.Closed, len(s.Scoping) > 0)
	for _, g := range s.Grants {
		out += fmt.Sprintf("|%q %q", g.PolicyID, g.Group)
	}
	return out
}

func rights(s policy.Subject, priorities bool) string {
	out := ids(s) + s.ServiceAccountID
	for _, g := range s.Grants {
		out += string(g.Document)
		if priorities {
			out += fmt.Sprint(g.Priority)
		}
	}
	for _, n := range s.Scoping {
		out += fmt.Sprintf("|%q %s", n.ID, n.Document)
	}
	return out
}
