package policy_test

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/policy"
)

func TestPatternsThatAreNone(t *testing.T) {
	is := is.New(t)
	for _, p := range []string{"", "*", "a*", "a:*:b", "a:*:*"} {
		is.True(policy.ValidAction(p) != nil)
		is.True(!policy.MatchAction(p, p)) // an invalid pattern covers nothing, not even itself
		is.True(!policy.MatchAction(p, "a:b"))
	}
	for _, p := range []string{"", "**", "a*", "a:*", "a::*::b", "*::a"} {
		is.True(!policy.MatchBank(p, p))
		is.True(!policy.MatchBank(p, "a::b"))
	}
}

// FuzzPatterns compares the matching of one pattern with its definition, byte by byte.
func FuzzPatterns(f *testing.F) {
	for _, s := range []string{"", "*", ":", "::", ":*", "::*", "bank:recall", "bank:memories:list", "bank:*", "project::*", "project::notes", "a:::*", "\xff::*"} {
		for _, t := range []string{"", "*", ":", "::", "bank:recall", "bank:memories:get", "bank:", "project::", "project::notes", "a:::b", "\xff::\x00"} {
			f.Add(s, t)
		}
	}
	f.Fuzz(func(t *testing.T, pattern, s string) {
		recall := pattern == "bank:recall" && (s == "bank:memories:list" || s == "bank:memories:get")
		if got, want := policy.MatchAction(pattern, s), covers(pattern, s, ":") || recall; got != want {
			t.Errorf("action pattern %q covers %q: %v", pattern, s, got)
		}
		if got, want := policy.MatchBank(pattern, s), covers(pattern, s, "::") || pattern == "*"; got != want {
			t.Errorf("bank pattern %q covers %q: %v", pattern, s, got)
		}
		if got, want := policy.ValidAction(pattern) == nil, valid(pattern, ":"); got != want {
			t.Errorf("action pattern %q is valid: %v", pattern, got)
		}
	})
}

// covers is the definition for patterns that are a literal, or a prefix that ends with end.
func covers(pattern, s, end string) bool {
	if !valid(pattern, end) {
		return false
	}
	fixed := strings.TrimSuffix(pattern, "*")
	if fixed == pattern && len(s) != len(pattern) || len(s) < len(fixed) {
		return false
	}
	for i := range len(fixed) {
		if s[i] != fixed[i] {
			return false
		}
	}
	return true
}

func valid(pattern, end string) bool {
	return pattern != "" && (!strings.Contains(pattern, "*") || strings.Index(pattern, "*") == len(pattern)-1 && strings.HasSuffix(pattern, end+"*"))
}
