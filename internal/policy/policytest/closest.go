package policytest

import (
	"slices"
	"strings"

	"github.com/extsvc/svc/internal/policy"
)

// Closest returns the elements of a list whose patterns cover a request and that have no closer
// element. The comment of policy.Capability defines closer.
func Closest[E any](
	list []E,
	patterns func(E) (action, bank string),
	action, bank string,
) (found []E) {
	near := func(e E) (a, b int) {
		actionPattern, bankPattern := patterns(e)
		return nearness(actionPattern, action, policy.MatchAction),
			nearness(bankPattern, bank, policy.MatchBank)
	}
	for _, e := range list {
		a, b := near(e)
		if a > 0 && b > 0 && !slices.ContainsFunc(list, func(o E) bool {
			oa, ob := near(o)
			return oa >= a && ob >= b && (oa > a || ob > b)
		}) {
			found = append(found, e)
		}
	}
	return found
}

// nearness returns how close a pattern is to a string. 0: the pattern does not cover it.
func nearness(pattern, s string, covers func(pattern, s string) bool) int {
	switch {
	case !covers(pattern, s):
		return 0
	case pattern == s && !strings.HasSuffix(pattern, "*"):
		return 1 << 20
	case pattern == "bank:recall":
		return 1 << 19
	}
	return len(pattern)
}
