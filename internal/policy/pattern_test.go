package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc/internal/policy"
)

// FuzzPatterns compares the matching of one pattern with its definition, byte by byte.
func FuzzPatterns(f *testing.F) {
	patterns := []string{
		"", "*", ":", "::", ":*", "::*", "bank:recall", "bank:memories:list", "bank:*", "project::*", "project::notes", "a:::*", "\xff::*",
		"**", "a*", "a:*", "a:*:b", "a:*:*", "a::*::b", "a::*::*", "*::a", // the most of these are none
	}
	texts := []string{"bank:memories:get", "bank:", "project::", "a:b", "a::b", "a:::b", "\xff::\x00"}
	for _, s := range patterns {
		for _, t := range slices.Concat(patterns, texts) {
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
