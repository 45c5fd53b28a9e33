package policy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/policy/policytest"
	"github.com/extsvc/svc/internal/strictjson"
	"github.com/extsvc/svc/parameter"
)

func TestNewSchemaRefuses(t *testing.T) {
	good := parameter.Definition{Name: "row_limit", Type: parameter.Integer, Merge: parameter.Greatest, Narrow: parameter.Lesser}
	with := func(change func(p *parameter.Definition)) parameter.Definition {
		p := good
		change(&p)
		return p
	}
	for _, tc := range []struct {
		table []parameter.Definition
		words string
	}{
		{[]parameter.Definition{good, good}, `parameter 1 ("row_limit")`},
		{[]parameter.Definition{with(func(p *parameter.Definition) { p.Type = 0 })}, "Type"},
		{[]parameter.Definition{with(func(p *parameter.Definition) { p.Merge = 0 })}, "Merge"},
		{[]parameter.Definition{with(func(p *parameter.Definition) { p.Narrow = 0 })}, "Narrow"},
		{[]parameter.Definition{with(func(p *parameter.Definition) { p.Type = parameter.Text })}, "Merge"},
		{[]parameter.Definition{with(func(p *parameter.Definition) { p.Merge = parameter.Union })}, "Merge"},
		{[]parameter.Definition{with(func(p *parameter.Definition) { p.Narrow = parameter.Intersect })}, "Narrow"},
		{[]parameter.Definition{with(func(p *parameter.Definition) { p.Type = parameter.Level })}, "Levels"},
		{[]parameter.Definition{with(func(p *parameter.Definition) { p.Levels = []string{"a"} })}, "Levels"},
		{[]parameter.Definition{with(func(p *parameter.Definition) { p.Type, p.Levels = parameter.Level, []string{"a", "a"} })}, "Levels"},
		{[]parameter.Definition{with(func(p *parameter.Definition) { p.Name = "Row" })}, "name"},
		{[]parameter.Definition{with(func(p *parameter.Definition) { p.Name = "banks" })}, "reserved"},
		{[]parameter.Definition{with(func(p *parameter.Definition) { p.Name = strings.Repeat("a", 65) })}, "name"},
	} {
		_, err := policy.NewSchema(tc.table)
		expect.Holds(t, err != nil && strings.Contains(err.Error(), tc.words) && strings.Contains(err.Error(), tc.table[0].Name), tc.table, ": ", err)
	}
}

type table struct {
	*rand.Rand
	list []parameter.Definition
}

func newTable(seed uint64) *table {
	d := &table{Rand: rand.New(rand.NewPCG(seed, 2))}
	merges := map[parameter.Type][]parameter.Merge{
		parameter.Integer: {parameter.Greatest, parameter.Least, parameter.Closest}, parameter.Text: {parameter.Closest},
		parameter.TextList: {parameter.Union, parameter.All, parameter.Closest},
		parameter.Level:    {parameter.Greatest, parameter.Least, parameter.Closest}, parameter.ObjectList: {parameter.All, parameter.Closest},
	}
	narrows := map[parameter.Type][]parameter.Narrow{
		parameter.Integer: {parameter.Lesser, parameter.Greater, parameter.Replace}, parameter.Text: {parameter.Replace},
		parameter.TextList: {parameter.Intersect, parameter.Unite, parameter.Append, parameter.Replace},
		parameter.Level:    {parameter.Lesser, parameter.Greater, parameter.Replace}, parameter.ObjectList: {parameter.Intersect, parameter.Append, parameter.Replace},
	}
	for i := range d.IntN(6) {
		p := parameter.Definition{Name: fmt.Sprint("p", i), Type: parameter.Type(1 + d.IntN(5))}
		p.Merge = merges[p.Type][d.IntN(len(merges[p.Type]))]
		p.Narrow = narrows[p.Type][d.IntN(len(narrows[p.Type]))]
		if p.Type == parameter.Level {
			p.Levels = []string{"z", "b", "m", "a"}
		}
		if p.Type == parameter.Text && d.IntN(2) == 0 && i == 0 {
			p.Name = "retain_strategy"
		}
		d.list = append(d.list, p)
	}
	return d
}

func (d *table) value(p parameter.Definition) any {
	word := func() string { return []string{"x", "b", "a", "ä"}[d.IntN(4)] }
	switch p.Type {
	case parameter.Integer:
		return d.IntN(3)
	case parameter.Text:
		return word()
	case parameter.Level:
		return p.Levels[d.IntN(len(p.Levels))]
	case parameter.TextList:
		list := []string{}
		for range d.IntN(4) {
			list = append(list, word())
		}
		return list
	}
	list := []json.RawMessage{}
	for range d.IntN(3) {
		list = append(list, json.RawMessage([]string{`{"a":1}`, `{"a":1.0}`, `{"b":2}`}[d.IntN(3)]))
	}
	return list
}

// document writes statements with parameters of the table in place of their own.
func (d *table) document(statements []policytest.Statement) []byte {
	all := []any{}
	for _, st := range statements {
		written := map[string]any{"effect": st.Effect, "actions": st.Actions, "banks": st.Banks}
		for _, p := range d.list {
			if st.Effect == "allow" && d.IntN(2) == 0 {
				written[p.Name] = d.value(p)
			}
		}
		all = append(all, written)
	}
	raw, err := json.Marshal(map[string]any{"version": policy.Version, "statements": all})
	if err != nil {
		panic(err)
	}
	return raw
}

// TestAnyTable: with any table, the engine and the reference give the same answers, and what a
// principal can do is what is decided.
func TestAnyTable(t *testing.T) {
	allowed, lost, capable, seed := 0, 0, 0, uint64(0)
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		seed++
		d := newTable(seed)
		schema, err := policy.NewSchema(d.list)
		is.NoErr(err)
		compiler, documents := policy.NewCompiler(schema), map[string][]byte{}
		for _, p := range w.Policies {
			documents[p.ID] = d.document(p.Statements)
			is.True(checkLoose(t, schema, documents[p.ID]))
		}
		for range 10 {
			p, q := w.Principal(), w.Request()
			q.BankPolicy = nil
			s := rewritten(p.Subject, func(id string, _ []byte) []byte { return documents[id] })
			rights := compiler.Compile(s)
			want := policytest.EvaluateWith(schema, s, q)
			got := rights.Explain(policy.Request{Action: q.Action, Bank: q.Bank, Context: context(q)})
			is.Equal(got, want)
			is.True(agrees(decide(rights, q), want))
			again, in := policy.Decision{}, context(q)
			rights.Note(q.Action, q.Bank, nil, 1)
			is.True(!rights.Again(&again, q.Action, q.Bank, &in, 1) || agrees(again, want))
			list, err := compiler.Apart(t.Context()).Compile(s).Capabilities(nil)
			is.NoErr(err)
			patterns := func(c policy.Capability) (string, string) { return c.Action, c.Bank }
			for _, c := range policytest.Closest(list, patterns, q.Action, q.Bank) {
				is.Equal([]any{c.Outcome, c.Parameters}, []any{want.Outcome, want.Parameters})
				capable++
			}
			if want.Outcome == policy.Allow && len(want.Parameters) > 0 {
				allowed++
			}
			for _, e := range want.Trace {
				lost += len(e.Lost)
			}
		}
	})
	varied(t, allowed, lost, capable)
}

// TestValuesOfVariables: a pattern with a value that reads as more than a segment, or as none, covers nothing.
func TestValuesOfVariables(t *testing.T) {
	for value, covers := range map[string]bool{
		"alice": true, "a:b": true, "a::b": false, "*": false, "a*": false, ":x": false, "x:": false, "": false,
	} {
		for _, variable := range []string{policy.UserVariable, policy.GroupVariable} {
			s := user(on(allow("bank:*"), "notes::"+variable+"::x"))
			s.UserID, s.Grants[0].Group = value, value
			q := policytest.Request{Action: "bank:recall", Bank: "notes::" + value + "::x"}
			is.New(t).Equal(evaluate(s, q).Outcome == policy.Allow, covers)
		}
	}
}

// byHand puts values in place of variables. A value must be a segment.
func byHand(pattern, user, group string) (string, bool) {
	for variable, value := range map[string]string{"${user}": user, "${group}": group} {
		segment := value != "" && !strings.ContainsAny(value, "*") && strings.Trim(value, ":") == value && !strings.Contains(value, "::")
		if strings.Contains(pattern, variable) && !segment {
			return "", false
		}
		pattern = strings.ReplaceAll(pattern, variable, value)
	}
	return pattern, true
}

// TestSolve: a pattern with variables covers a bank just with the values that Solve returns.
func TestSolve(t *testing.T) {
	is, solved := is.New(t), 0
	patterns := words(4, "${user}", "${group}", "a", ":", "::")
	for _, p := range patterns {
		patterns = append(patterns, p+"::*")
	}
	banks := words(5, "a", "b", ":")
	for _, pattern := range patterns {
		whole := func(segment string) bool {
			return !policy.HasVariables(segment) || segment == policy.UserVariable || segment == policy.GroupVariable
		}
		if segments := strings.Split(pattern, "::"); slices.ContainsFunc(segments, func(s string) bool { return !whole(s) }) || !policy.HasVariables(pattern) {
			continue
		}
		for _, bank := range banks {
			user, group, ok := policy.Solve(pattern, bank)
			for _, values := range []string{"aa", "ab", "ba", "bb"} {
				u, g := values[:1], values[1:]
				expanded, _ := byHand(pattern, u, g)
				solves := ok && (user == "" || user == u) && (group == "" || group == g)
				if solves != policy.MatchBank(expanded, bank) {
					t.Fatalf("%q covers %q for %q, %q: got %v", pattern, bank, u, g, solves)
				}
				if solves {
					solved++
				}
			}
		}
	}
	is.True(solved > 100)
}

func words(n int, parts ...string) (all []string) {
	last := []string{""}
	for range n {
		var longer []string
		for _, begin := range last {
			for _, part := range parts {
				longer = append(longer, begin+part)
			}
		}
		all, last = append(all, longer...), longer
	}
	return all
}

// TestVariablesShare: users without variables in their policies share a table, and so do users of a
// group whose policy has only the group.
func TestVariablesShare(t *testing.T) {
	is := is.New(t)
	subject := func(user, bank string) policy.Subject {
		document := policytest.Document(policytest.Statement{Effect: "allow", Actions: []string{"bank:*"}, Banks: []string{bank}})
		return policy.Subject{Kind: policy.User, UserID: user, Grants: []policy.Grant{{PolicyID: "p", Group: "team", Document: document}}}
	}
	c := policy.NewCompiler(policy.Memory)
	shared := func(bank string) bool {
		alice, bob, census := subject("alice", bank), subject("bob", bank), &policy.Census{}
		census.Add(given(alice), policy.Member{ID: "alice"})
		census.Add(given(bob), policy.Member{ID: "bob"})
		is.Equal(len(census.Parties) == 1, c.Compile(alice).Shared() == c.Compile(bob).Shared())
		return len(census.Parties) == 1
	}
	is.True(shared("notes"))
	is.True(shared("${group}::*"))
	is.True(!shared("${user}::*"))
}

// A document that is written has at most so many elements in each of its lists: one more is refused, where it stands.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		format, element string
		most            int
		at              string // of the first one too many
	}{
		{`"statements":[{"effect":"allow","actions":["a:b"],"banks":[%s]}]`, `"b%d"`, 999, "/statements/0/banks/999"},
		{`"statements":[{"effect":"allow","actions":[%s],"banks":["b"]}]`, `"a:b%d"`, 999, "/statements/0/banks/0"},
		{`"statements":[{"effect":"allow","actions":["a:b"],"banks":["b"],"retain_tags":[%s]}]`, `"t%d"`, 1000, "/statements/0/retain_tags"},
		{`"statements":[{"effect":"allow","actions":["a:b"],"banks":["b"],"recall_tag_groups":[%s]}]`, `{"any":["t%d"]}`, 1000, "/statements/0/recall_tag_groups"},
		{`"statements":[{"effect":"deny","actions":[%s],"banks":["b"]}]`, `"a:b%d"`, 999, "/statements/0/banks/0"},
		{`"statements":[%s]`, `{"effect":"allow","actions":["a:b%d"],"banks":["b"]}`, 500, "/statements/500/actions/0"},
		{`"statements":[{"effect":"allow","actions":["a:b"],"banks":["b"],"retain_roles":[%s]}]`, `"r%d"`, 1000, "/statements/0/retain_roles"},
		{`"statements":[{"effect":"allow","actions":["a:b"],"banks":["b"],"exclude_providers":[%s]}]`, `"p%d"`, 1000, "/statements/0/exclude_providers"},
		{`"strategy_overrides":[{"scope":"topic","value":"t","strategy":"s"}],"public_access":{"overrides":[%s]}`,
			`{"scope":"topic","value":"v%d","actions":[]}`, 999, "/public_access/overrides/999"},
		{`"public_access":{"default":{"actions":["a:b"]},"overrides":[{"scope":"topic","value":"v","actions":[%s]}]}`,
			`"a:b%d"`, 9999, "/public_access/overrides/0/actions/9999"},
		{`"strategy_overrides":[%s]`, `{"scope":"topic","value":"v%d","strategy":"s"}`, 1000, "/strategy_overrides/1000"},
		{`"public_access":{"default":{"actions":[%s]}}`, `"a:b%d"`, 10_000, "/public_access/default/actions/10000"},
		{`"public_access":{"default":{"actions":["a:b"],"retain_tags":[%s]}}`, `"t%d"`, 1000, "/public_access/default/retain_tags"},
		{`"public_access":{"overrides":[%s]}`, `{"scope":"topic","value":"v%d","actions":[]}`, 1000, "/public_access/overrides/1000"},
		{`"public_access":{"overrides":[{"scope":"topic","value":"v","actions":[%s]}]}`, `"a:b%d"`, 10_000, "/public_access/overrides/0/actions/10000"},
		{`"public_access":{"overrides":[{"scope":"topic","value":"v","actions":["a:b"],"retain_tags":[%s]}]}`, `"t%d"`, 1000, "/public_access/overrides/0/retain_tags"},
	} {
		check := policy.Memory.CheckBankSize
		if strings.HasPrefix(c.format, `"statements"`) {
			check = policy.Memory.CheckSize
		}
		elements := []string{}
		for i := range c.most + 1 {
			elements = append(elements, fmt.Sprintf(c.element, i))
		}
		document := func(n int) []byte {
			return fmt.Appendf(nil, `{"version":"2026-03-24",`+c.format+`}`, strings.Join(elements[:n], ","))
		}
		expect.Equal(t, c.at, check(document(c.most)), nil)
		err, refused := errors.AsType[*strictjson.Error](check(document(c.most + 1)))
		expect.Holds(t, refused && err.Pointer == c.at, c.at, ": ", err)
	}
}

// The fields of a struct are set and read in the order of the table.
func TestFields(t *testing.T) {
	var s struct {
		Budget       *string
		MaxTokens    *int64
		Groups       []json.RawMessage
		Roles, Tags  []string
		EveryN       *int64
		Strategy     *string
		Model, Maker *string
		Excluded     []string
	}
	values := map[string]any{"recall_budget": "low", "recall_max_tokens": int64(3), "retain_tags": []string{"t"}, "llm_model": "m", "exclude_providers": []string{}}
	for name, value := range values {
		is.New(t).True(policy.SetField(&s, name, value) && policy.SetField(&s, name, nil) && policy.SetField(&s, name, struct{}{}))
	}
	is.New(t).True(!policy.SetField(&s, "row_limit", nil) && !policy.SetField(&s, "row_limit", 1))
	n := 0
	for name, value := range policy.Fields(s) {
		n++
		expect.Equal(t, name, fmt.Sprintf("%T %v", value, value), fmt.Sprintf("%T %v", values[name], values[name]))
	}
	is.New(t).Equal(n, 10)
}

// Where nothing is public nothing is reached, and nothing decided allows nothing.
func TestReach(t *testing.T) {
	is := is.New(t)
	for document, want := range map[string]string{
		`{"version":"2026-03-24"}`: "{false []}",
		`{"version":"2026-03-24","public_access":{"default":{"actions":["a:*"]},"overrides":[{"scope":"topic","value":"v","actions":[]},` +
			`{"scope":"channel","value":"c","actions":["a:b"]}]}}`: "{true [{topic v false} {channel c true}]}",
		`{"version":"2026-03-24","public_access":{"default":{"actions":["a:c"]}}}`: "{false []}",
	} {
		is.Equal(fmt.Sprint(policy.Memory.CompileBank(&policy.Named{ID: "b", Document: []byte(document)}).Reach("a:b")), want)
	}
	is.Equal(fmt.Sprint((*policy.Bank)(nil).Reach("a:b")), "{false []}")
	is.Equal(policy.Decision{}.Parameter("llm_model"), nil)
	is.Equal(policy.Decision{}.Schema(), policy.Memory)
	is.True((*policy.Rights)(nil).Share() == nil && compiler.Compile(policy.Subject{Kind: policy.Unmapped}).Share() == nil && policy.ValidVouch("*") == nil)
}
