package policy_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/policy/policytest"
)

func TestNewSchemaRefuses(t *testing.T) {
	good := policy.Parameter{Name: "row_limit", Type: policy.Integer, Merge: policy.Greatest, Narrow: policy.Lesser}
	with := func(change func(p *policy.Parameter)) policy.Parameter {
		p := good
		change(&p)
		return p
	}
	for _, tc := range []struct {
		table []policy.Parameter
		words string
	}{
		{[]policy.Parameter{good, good}, `parameter 1 ("row_limit")`},
		{[]policy.Parameter{with(func(p *policy.Parameter) { p.Type = 0 })}, "Type"},
		{[]policy.Parameter{with(func(p *policy.Parameter) { p.Merge = 0 })}, "Merge"},
		{[]policy.Parameter{with(func(p *policy.Parameter) { p.Narrow = 0 })}, "Narrow"},
		{[]policy.Parameter{with(func(p *policy.Parameter) { p.Type = policy.Text })}, "Merge"},
		{[]policy.Parameter{with(func(p *policy.Parameter) { p.Merge = policy.Union })}, "Merge"},
		{[]policy.Parameter{with(func(p *policy.Parameter) { p.Narrow = policy.Intersect })}, "Narrow"},
		{[]policy.Parameter{with(func(p *policy.Parameter) { p.Type = policy.LevelText })}, "Levels"},
		{[]policy.Parameter{with(func(p *policy.Parameter) { p.Levels = []string{"a"} })}, "Levels"},
		{[]policy.Parameter{with(func(p *policy.Parameter) { p.Type, p.Levels = policy.LevelText, []string{"a", "a"} })}, "Levels"},
		{[]policy.Parameter{with(func(p *policy.Parameter) { p.Name = "Row" })}, "name"},
		{[]policy.Parameter{with(func(p *policy.Parameter) { p.Name = "banks" })}, "reserved"},
		{[]policy.Parameter{with(func(p *policy.Parameter) { p.Name = strings.Repeat("a", 65) })}, "name"},
	} {
		_, err := policy.NewSchema(tc.table)
		if err == nil || !strings.Contains(err.Error(), tc.words) || !strings.Contains(err.Error(), tc.table[0].Name) {
			t.Errorf("%+v: %v, want %q", tc.table, err, tc.words)
		}
	}
}

// table is a drawn table of parameters.
type table struct {
	*rand.Rand
	list []policy.Parameter
}

func newTable(seed uint64) *table {
	d := &table{Rand: rand.New(rand.NewPCG(seed, 2))}
	merges := map[policy.Type][]policy.Merge{
		policy.Integer: {policy.Greatest, policy.Least, policy.Closest}, policy.Text: {policy.Closest},
		policy.TextList:  {policy.Union, policy.All, policy.Closest},
		policy.LevelText: {policy.Greatest, policy.Least, policy.Closest}, policy.ObjectList: {policy.All, policy.Closest},
	}
	narrows := map[policy.Type][]policy.Narrow{
		policy.Integer: {policy.Lesser, policy.Greater, policy.Replace}, policy.Text: {policy.Replace},
		policy.TextList:  {policy.Intersect, policy.Unite, policy.Append, policy.Replace},
		policy.LevelText: {policy.Lesser, policy.Greater, policy.Replace}, policy.ObjectList: {policy.Intersect, policy.Append, policy.Replace},
	}
	for i := range d.IntN(6) {
		p := policy.Parameter{Name: fmt.Sprint("p", i), Type: policy.Type(1 + d.IntN(5))}
		p.Merge = merges[p.Type][d.IntN(len(merges[p.Type]))]
		p.Narrow = narrows[p.Type][d.IntN(len(narrows[p.Type]))]
		if p.Type == policy.LevelText {
			p.Levels = []string{"z", "b", "m", "a"}
		}
		if p.Type == policy.Text && d.IntN(2) == 0 && i == 0 {
			p.Name = "retain_strategy"
		}
		d.list = append(d.list, p)
	}
	return d
}

// value draws a value of a parameter.
func (d *table) value(p policy.Parameter) any {
	word := func() string { return []string{"x", "b", "a", "ä"}[d.IntN(4)] }
	switch p.Type {
	case policy.Integer:
		return d.IntN(3)
	case policy.Text:
		return word()
	case policy.LevelText:
		return p.Levels[d.IntN(len(p.Levels))]
	case policy.TextList:
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

// TestVariablesByHand: a policy with variables decides as one with their values in place of them.
func TestVariablesByHand(t *testing.T) {
	expanded := 0
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		for range 20 {
			p, q := w.Principal(), w.Request()
			s := p.Subject
			s.UserID = w.Text("alice", "project", "a::b", "*", ":x", "")
			by := policytest.Statement{
				Effect: "allow", Actions: []string{"bank:*"},
				Banks: []string{w.Text("${user}", "${group}", "${user}::*", "project::${group}", "${group}::${user}")},
			}
			hand := s
			group := w.Text("alice", "project", "notes", "x:", "")
			s.Grants = append(slices.Clone(s.Grants), policy.Grant{PolicyID: "variable", Group: group, Document: policytest.Document(by)})
			var left []policytest.Statement
			if bank, ok := byHand(by.Banks[0], s.UserID, group); ok {
				by.Banks, left = []string{bank}, []policytest.Statement{by}
				expanded++
			}
			hand.Grants = append(slices.Clone(hand.Grants), policy.Grant{PolicyID: "variable", Group: group, Document: policytest.Document(left...)})
			q.Bank = w.Text(q.Bank, "alice", "project", "project::notes", "project::alice", "alice::x")
			is.Equal(outcomeOf(evaluate(s, q)), outcomeOf(evaluate(hand, q)))
		}
	})
	varied(t, expanded)
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
		return c.Compile(subject("alice", bank)).Shared() == c.Compile(subject("bob", bank)).Shared()
	}
	is.True(shared("notes"))
	is.True(shared("${group}::*"))
	is.True(!shared("${user}::*"))
}
