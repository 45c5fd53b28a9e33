package policy_test

import (
	"path/filepath"
	"reflect"
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

// checkLoose checks that a document that the table accepts stays the same through Loose, and reports
// whether it does accept it. What Loose refuses, every table refuses.
func checkLoose(t *testing.T, schema *policy.Schema, raw []byte) bool {
	t.Helper()
	want, refused := schema.ParseDocument(raw)
	loose, err := policy.ParseLoose(raw)
	if err != nil {
		expect.Holds(t, refused != nil, string(raw), " is refused by all: ", err)
		return false
	}
	again := policy.MarshalLoose(loose)
	if same, err := policy.ParseLoose(again); err != nil || !reflect.DeepEqual(same, loose) {
		t.Errorf("%s became %s: %v", raw, again, err)
	}
	got, err := schema.ParseDocument(again)
	expect.Holds(t, (err == nil) == (refused == nil) && reflect.DeepEqual(got, want), string(raw), " became ", string(again), ": ", err, refused)
	return err == nil
}

func TestLooseCorpus(t *testing.T) {
	is := is.New(t)
	files, err := filepath.Glob("testdata/policies/*.json")
	is.NoErr(err)
	accepted, refused := 0, 0
	count := func(raw []byte) {
		if checkLoose(t, policy.Memory, raw) {
			accepted++
		} else {
			refused++
		}
	}
	for _, file := range files {
		c := load(t, file)
		for _, raw := range c.Policies {
			count(raw)
		}
		for _, stored := range c.Documents {
			count(stored.raw())
		}
	}
	is.True(accepted > 50 && refused > 50)
}

func TestLooseRefuses(t *testing.T) {
	const statement = `{"version":"2026-03-24","statements":[{"effect":"allow","actions":["a"],"banks":["b"],%}]}`
	for set, want := range map[string]string{
		`"a":true`:                  "/statements/0/a: must be an integer, a text, or a list of texts or of objects",
		`"a":{}`:                    "/statements/0/a: must be an integer, a text, or a list of texts or of objects",
		`"a":1.5`:                   "/statements/0/a: must be an integer",
		`"a":-1`:                    "/statements/0/a: must not be negative",
		`"a":""`:                    "/statements/0/a: must not be empty",
		`"a":["x",""]`:              "/statements/0/a/1: must not be empty",
		`"a":["x",{}]`:              "/statements/0/a/1: must be a string",
		`"a":[{},1]`:                "/statements/0/a/1: must be an object",
		`"A/b":1`:                   "/statements/0/A~1b: is not a name of a parameter",
		`"A":null`:                  "/statements/0/A: is not a name of a parameter",
		`"scope":1`:                 "/statements/0/scope: is not a name of a parameter",
		`"effect":"allow"`:          "/statements/0/effect: is a duplicate key",
		`"c":1,"a":1,"effect":"no"`: "/statements/0/effect: is a duplicate key",
	} {
		_, err := policy.ParseLoose([]byte(strings.Replace(statement, "%", set, 1)))
		expect.Holds(t, err != nil && err.Error() == want, set, ": ", err, ", want ", want)
	}
}
