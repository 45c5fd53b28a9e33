package policytest

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/extsvc/svc/internal/policy"
)

// ruleFaults break the reference.
var ruleFaults = map[string]func(*rules){
	"an allow beats a deny": deciding(func(f *findings) {
		if f.allowed != nil && !slices.Contains(f.within, nil) {
			f.denied = nil
		}
	}),
	"a deny is not told from no allow":      deciding(func(f *findings) { f.denied = nil }),
	"a document that is broken is left out": deciding(func(f *findings) { f.broken = nil }),
	"what is closed is open":                deciding(func(f *findings) { f.closed = "" }),
	"a deny opens what is closed": deciding(func(f *findings) {
		if f.denied != nil {
			f.closed = ""
		}
	}),
	"a broken document beats a deny": deciding(func(f *findings) {
		if f.broken != nil {
			f.denied = nil
		}
	}),

	"recall does not cover memories": actions(func(p, a string) bool {
		return policy.MatchAction(p, a) && (p != "bank:recall" || a == p)
	}),
	"memories cover recall": actions(func(p, a string) bool {
		return policy.MatchAction(p, a) || strings.HasPrefix(p, "bank:memories:") && a == "bank:recall"
	}),
	"recall covers all memories": actions(func(p, a string) bool {
		return policy.MatchAction(p, a) || p == "bank:recall" && strings.HasPrefix(a, "bank:memories:")
	}),
	"an action prefix covers its base": actions(func(p, a string) bool {
		return policy.MatchAction(p, a) || p == a+":*"
	}),
	"an action prefix wants more behind it": actions(func(p, a string) bool {
		return policy.MatchAction(p, a) && p != a+"*"
	}),
	"an action prefix ends before its colon": actions(func(p, a string) bool {
		return policy.MatchAction(p, a) || strings.HasSuffix(p, ":*") && strings.HasPrefix(a, strings.TrimSuffix(p, ":*"))
	}),
	"an action prefix covers one segment": actions(func(p, a string) bool {
		return policy.MatchAction(p, a) && strings.Count(a, ":") <= strings.Count(p, ":")
	}),
	"a pattern that is asked for is one":   actions(func(p, a string) bool { return policy.MatchAction(p, a) || policy.MatchAction(a, p) }),
	"an action in capitals is the same":    actions(func(p, a string) bool { return policy.MatchAction(p, strings.ToLower(a)) }),
	"blanks around an action do not count": actions(func(p, a string) bool { return policy.MatchAction(p, strings.TrimSpace(a)) }),
	"an action ends at a NUL": actions(func(p, a string) bool {
		before, _, _ := strings.Cut(a, "\x00")
		return policy.MatchAction(p, before)
	}),
	"a bank prefix covers its base":       banks(func(p, b string) bool { return policy.MatchBank(p, b) || p == b+"::*" }),
	"a bank prefix wants more behind it":  banks(func(p, b string) bool { return policy.MatchBank(p, b) && p != b+"*" }),
	"a star does not cover the bank star": banks(func(p, b string) bool { return policy.MatchBank(p, b) && b != "*" }),
	"a star covers no empty bank":         banks(func(p, b string) bool { return policy.MatchBank(p, b) && b != "" }),
	"a bank prefix ends at one colon": banks(func(p, b string) bool {
		return policy.MatchBank(p, b) || strings.HasSuffix(p, "::*") && strings.HasPrefix(b, strings.TrimSuffix(p, ":*"))
	}),
	"a bank prefix covers one segment": banks(func(p, b string) bool {
		return policy.MatchBank(p, b) && (p == "*" || strings.Count(b, "::") <= strings.Count(p, "::"))
	}),
	"a bank in capitals is the same": banks(func(p, b string) bool { return policy.MatchBank(p, strings.ToLower(b)) }),
	"a bank is cut at 64 bytes":      banks(func(p, b string) bool { return policy.MatchBank(p, b[:min(len(b), 64)]) }),

	"the first bank pattern is shown": func(l *rules) { l.closer = func(_, _ string) int { return 0 } },
	"the widest bank pattern is shown": func(l *rules) {
		l.closer = func(a, b string) int { return closer(b, a) }
	},
	"of two prefixes the shorter is closer": func(l *rules) {
		l.closer = func(a, b string) int {
			return cmp.Or(cmp.Compare(closeness(a), closeness(b)), cmp.Compare(len(b), len(a)))
		}
	},

	"the least priority comes first": ordered(func(a, b policy.Grant) int { return cmp.Compare(a.Priority, b.Priority) }),
	"the greatest id comes first":    ordered(func(a, b policy.Grant) int { return -cmp.Compare(a.Priority, b.Priority) }, byPolicyReversed),
	"groups come before the user":    ordered(byPriority, byPolicy, func(a, b policy.Grant) int { return cmp.Compare(b.Group, a.Group) }),
	"the user comes before priority": ordered(func(a, b policy.Grant) int { return cmp.Compare(a.Group, b.Group) }),
	"a priority has 32 bits":         ordered(func(a, b policy.Grant) int { return cmp.Compare(int32(b.Priority), int32(a.Priority)) }),
	"priorities are subtracted":      ordered(func(a, b policy.Grant) int { return cmp.Compare(b.Priority-a.Priority, 0) }),
	"a policy counts once in all":    func(l *rules) { l.again = func(a, b policy.Grant) bool { return a.PolicyID == b.PolicyID } },
	"a policy counts each time":      func(l *rules) { l.again = func(_, _ policy.Grant) bool { return false } },
	"one policy a way counts":        func(l *rules) { l.again = func(a, b policy.Grant) bool { return a.Group == b.Group } },
	"a policy counts once a priority": func(l *rules) {
		l.again = func(a, b policy.Grant) bool { return sameWay(a, b) && a.Priority == b.Priority }
	},

	"the lowest budget":              merging("recall_budget", least),
	"the first budget in the ABC":    merging("recall_budget", func(c []candidate) candidate { return slices.MaxFunc(c, asText) }),
	"the budget of the highest rank": merging("recall_budget", ranked),
	"the fewest tokens":              merging("recall_max_tokens", least),
	"as many tokens as come last":    merging("recall_max_tokens", func(c []candidate) candidate { return c[len(c)-1] }),
	"no tokens are like unset ones": merging("recall_max_tokens", func(c []candidate) candidate {
		return least(append(slices.DeleteFunc(slices.Clone(c), func(c candidate) bool { return c.value == int64(0) }), most(c)))
	}),
	"the most turns":                merging("retain_every_n_turns", most),
	"the turns of the highest rank": merging("retain_every_n_turns", ranked),
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

	"a group's model over the user's":      ranking(-1, 2, 3, 4, 5),
	"the user and its groups are equal":    ranking(2, 3, 4, 5),
	"the wider bank pattern's model":       ranking(1, -2, 3, 4, 5),
	"bank patterns do not count":           ranking(1, 3, 4, 5),
	"the lower priority's model":           ranking(1, 2, -3, 4, 5),
	"priority does not count":              ranking(1, 2, 4, 5),
	"the lesser policy id's model":         ranking(1, 2, 3, -4, 5),
	"policy ids do not count":              ranking(1, 2, 3, 5),
	"the later statement's model":          ranking(1, 2, 3, 4, -5),
	"the bank pattern before the user":     ranking(2, 1, 3, 4, 5),
	"the priority before the bank pattern": ranking(1, 3, 2, 4, 5),
	"the policy id before the priority":    ranking(1, 2, 4, 3, 5),
	"the statement before the policy id":   ranking(1, 2, 3, 5, 4),
	"a literal bank is like a prefix":      func(l *rules) { l.closer = func(a, b string) int { return cmp.Compare(len(a), len(b)) } },

	"an account gets the higher budget":     narrowing("recall_budget", higher),
	"an account gets more tokens":           narrowing("recall_max_tokens", higher),
	"an account retains more often":         narrowing("retain_every_n_turns", lower),
	"an account has the scoping's budget":   narrowing("recall_budget", scopings),
	"an account has its owner's tokens":     narrowing("recall_max_tokens", owners),
	"an account has its owner's strategy":   narrowing("retain_strategy", owners),
	"an account has its owner's model":      narrowing("llm_model", owners),
	"an account has its owner's provider":   narrowing("llm_provider", owners),
	"an account has all roles of both":      narrowingList("retain_roles", union),
	"an account has the scoping's roles":    narrowingList("retain_roles", func(_, s []string) []string { return s }),
	"an account has the tags of both only":  narrowingList("retain_tags", intersection),
	"an account avoids less than its owner": narrowingList("exclude_providers", intersection),
	"no roles in common are roles unset":    narrowingList("retain_roles", func(o, s []string) []string { return unsetWhenEmpty(intersection(o, s)) }),
	"unset roles have nothing in common":    narrowingList("retain_roles", bothSet),
	"empty roles give way like unset ones":  narrowingList("retain_roles", func(o, s []string) []string { return intersection(unsetWhenEmpty(o), unsetWhenEmpty(s)) }),
	"a key gets the higher budget":          lessening("recall_budget", higher),
	"a key gets more tokens":                lessening("recall_max_tokens", higher),
	"a key retains more often":              lessening("retain_every_n_turns", lower),
	"a key has the narrowing's strategy":    lessening("retain_strategy", scopings),
	"a key has the narrowing's model":       lessening("llm_model", scopings),
	"a key has the narrowing's provider":    lessening("llm_provider", scopings),
	"a key's budget is not narrowed":        lessening("recall_budget", owners),
	"a key has all roles of both":           lesseningList("retain_roles", union),
	"a key's roles are not narrowed":        lesseningList("retain_roles", func(h, _ []string) []string { return h }),
	"no roles in common are a key's unset":  lesseningList("retain_roles", func(h, n []string) []string { return unsetWhenEmpty(intersection(h, n)) }),
	"a key has the tags of both":            lesseningList("retain_tags", union),
	"a key avoids less than its holder":     lesseningList("exclude_providers", intersection),
	"a key avoids no more than its holder":  lesseningList("exclude_providers", func(h, _ []string) []string { return h }),
	"roles are merged to what all have":     mergingList("retain_roles", intersection),
	"the last statement's tags": mergingList("retain_tags", func(a, b []string) []string {
		if b == nil {
			return a
		}
		return union(b, b)
	}),
	"an empty list is unset":                 mergingList("retain_tags", func(a, b []string) []string { return unsetWhenEmpty(union(a, b)) }),
	"tags keep their repeats":                mergingList("retain_tags", withRepeats),
	"tags are not sorted":                    mergingList("retain_tags", unsorted),
	"tags are sorted without regard to case": mergingList("retain_tags", sortedFolded),

	"tag groups are compared as text":    grouping(distinct(asWritten)),
	"of equal tag groups the last stays": grouping(lastStays),
	"equal tag groups all stay":          grouping(func(all []json.RawMessage) []json.RawMessage { return all }),
	"tag groups are equal in any order":  grouping(distinct(sortedBytes)),
	"the last tag groups come first": func(l *rules) {
		l.joinGroups = func(a, b []json.RawMessage) []json.RawMessage { return concatenation(b, a) }
	},
	"no tag groups are tag groups unset": func(l *rules) {
		l.joinGroups = func(a, b []json.RawMessage) []json.RawMessage {
			if all := concatenation(a, b); len(all) > 0 {
				return all
			}
			return nil
		}
	},

	"a provider is more specific than a channel": func(l *rules) { l.scopes = []policy.Scope{policy.Topic, policy.Provider, policy.Channel} },
	"a channel is more specific than a topic":    func(l *rules) { l.scopes = []policy.Scope{policy.Channel, policy.Topic, policy.Provider} },
	"topics are not looked at":                   func(l *rules) { l.scopes = []policy.Scope{policy.Channel, policy.Provider} },
	"providers are not looked at":                func(l *rules) { l.scopes = []policy.Scope{policy.Topic, policy.Channel} },
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

func banks(covers func(pattern, bank string) bool) func(*rules) {
	return func(l *rules) { l.coversBank = covers }
}

func byPriority(a, b policy.Grant) int       { return cmp.Compare(b.Priority, a.Priority) }
func byPolicy(a, b policy.Grant) int         { return cmp.Compare(a.PolicyID, b.PolicyID) }
func byPolicyReversed(a, b policy.Grant) int { return cmp.Compare(b.PolicyID, a.PolicyID) }

// ordered sorts by these criteria first, then by the correct ones.
func ordered(compare ...func(a, b policy.Grant) int) func(*rules) {
	return func(l *rules) {
		l.order = func(a, b policy.Grant) int {
			for _, c := range compare {
				if r := c(a, b); r != 0 {
					return r
				}
			}
			return gatheringOrder(a, b)
		}
	}
}

func merging(parameter string, pick func([]candidate) candidate) func(*rules) {
	return func(l *rules) { l.mergeScalars[parameter] = pick }
}

func asText(a, b candidate) int {
	return strings.Compare(string(a.value.(policy.Level)), string(b.value.(policy.Level)))
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

func narrowing(parameter string, pick func(owner, scoping any) any) func(*rules) {
	return func(l *rules) { l.narrowScalars[parameter] = pick }
}

func lessening(parameter string, pick func(holder, narrowing any) any) func(*rules) {
	return func(l *rules) { l.lessenScalars[parameter] = pick }
}

func lesseningList(parameter string, join func(holder, narrowing []string) []string) func(*rules) {
	return func(l *rules) { l.lessenList[parameter] = join }
}

func owners(owner, _ any) any { return owner }

func narrowingList(parameter string, join func(owner, scoping []string) []string) func(*rules) {
	return func(l *rules) { l.narrowList[parameter] = join }
}

func mergingList(parameter string, join func(a, b []string) []string) func(*rules) {
	return func(l *rules) { l.mergeList[parameter] = join }
}

func unsetWhenEmpty(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return list
}

func bothSet(owner, scoping []string) []string {
	if owner == nil || scoping == nil {
		return nil
	}
	return intersection(owner, scoping)
}

func withRepeats(a, b []string) []string {
	if a == nil && b == nil {
		return nil
	}
	return append([]string{}, slices.Sorted(slices.Values(slices.Concat(a, b)))...)
}

func unsorted(a, b []string) []string {
	all := union(a, b)
	slices.Reverse(all)
	return all
}

func sortedFolded(a, b []string) []string {
	all := union(a, b)
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(strings.ToLower(a), strings.ToLower(b)) })
	return all
}

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

// distinct keeps the first group of each key.
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

func asWritten(group json.RawMessage) string { return string(group) }

func sortedBytes(group json.RawMessage) string {
	return string(slices.Sorted(slices.Values([]byte(strings.ReplaceAll(string(group), "1.0", "1")))))
}

func lastStays(all []json.RawMessage) []json.RawMessage {
	slices.Reverse(all)
	all = concatenation(all, nil)
	slices.Reverse(all)
	return all
}
