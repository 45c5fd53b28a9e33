package policies_test

import (
	"slices"
	"strings"
)

// outcome is the rules' answer to a query.
type outcome int

const (
	unmatched outcome = iota // no statement matches: denied
	denied                   // a statement denies
	allowed
)

// decide is the rules in their plainest form. Every engine is compared with it.
func decide(statements []statement, action, bank string) outcome {
	out := unmatched
	for _, s := range statements {
		switch {
		case !coveredByOne(spell(s.Actions), action) || !coveredByOne(s.Banks, bank):
		case s.Effect == deny:
			return denied
		default:
			out = allowed
		}
	}
	return out
}

func coveredByOne(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return covers(p, name) })
}

func covers(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

// spell lists the actions that the patterns cover, for engines in which no literal covers others.
func spell(actions []string) []string {
	if !slices.Contains(actions, "bank:recall") {
		return actions
	}
	return distinct(slices.Concat(actions, []string{"bank:memories:list", "bank:memories:get"}))
}

// distinct returns the strings in order, without repeats.
func distinct(of []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(of, func(s string) bool {
		again := seen[s]
		seen[s] = true
		return again
	})
}
