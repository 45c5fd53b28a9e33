package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/policy/policytest"
)

// compiler is shared by all tests, as all principals of a service share one.
var compiler = policy.NewCompiler(policy.Memory)

func evaluate(s policy.Subject, q policytest.Request) policy.Result {
	return explain(compiler.Compile(s), q)
}

func explain(rights *policy.Rights, q policytest.Request) policy.Result {
	return rights.Explain(policy.Request{Action: q.Action, Bank: q.Bank, Context: context(q), Policy: policy.Memory.CompileBank(q.BankPolicy)})
}

func decide(rights *policy.Rights, q policytest.Request) policy.Decision {
	in := context(q)
	return rights.Decide(q.Action, q.Bank, &in, policy.Memory.CompileBank(q.BankPolicy))
}

func context(q policytest.Request) policy.Context {
	return policy.Context{Provider: q.Provider, Channel: q.Channel, Topic: q.Topic}
}

// fewer: try properties on fewer worlds. The race detector looks for other faults, and is slow.
func fewer() bool { return testing.Short() || longtest.Raced || !longtest.InCI() }

func forEachWorld(t *testing.T, property func(is *is.I, w *policytest.World)) {
	is, worlds := is.New(t), uint64(500)
	if fewer() {
		worlds = 100
	}
	var seed uint64
	defer func() {
		if t.Failed() {
			t.Log("seed", seed)
		}
	}()
	for seed = range worlds {
		property(is, policytest.NewWorld(seed))
	}
}

// outcome is the part of a decision that its receiver uses.
type outcome struct {
	policy.Outcome
	policytest.Memory
	Strategy *string
}

func outcomeOf(r policy.Result) outcome {
	return outcome{r.Outcome, policytest.MemoryOf(r.Parameters), r.Strategy}
}

// varied fails when too few cases tested a property.
func varied(t *testing.T, seen ...int) {
	t.Helper()
	enough := 10
	if fewer() {
		enough = 1
	}
	expect.Holds(t, slices.Min(seen) >= enough, "the worlds are varied: ", seen)
}

func broken(w *policytest.World, s policy.Subject, q policytest.Request) bool {
	if q.BankPolicy != nil {
		if _, err := policy.Memory.ParseBankDocument(q.BankPolicy.Document); err != nil {
			return true
		}
	}
	return slices.ContainsFunc(documents(s), faulty)
}

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
		expect.Equal(t, []any{"an action pattern covers", pattern, s}, policy.MatchAction(pattern, s), covers(pattern, s, ":") || recall)
		expect.Equal(t, []any{"a bank pattern covers", pattern, s}, policy.MatchBank(pattern, s), covers(pattern, s, "::") || pattern == "*")
		expect.Equal(t, []any{"an action pattern is valid", pattern}, policy.ValidAction(pattern) == nil, valid(pattern, ":"))
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
