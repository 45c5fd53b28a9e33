package policies_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
)

// opaQuery is a prepared query. Data and input are in the form that OPA evaluates.
type opaQuery struct{ rego.PreparedEvalQuery }

// newOPARules has a Rego rule for each pair of an action pattern and a bank pattern, in expressions
// that OPA indexes.
func newOPARules(w *workload) engine {
	var module strings.Builder
	module.WriteString("package svc\ndefault allowed := false\nallowed if { not deny; allow }\n")
	for _, s := range w.statements {
		for _, a := range spell(s.Actions) {
			for _, b := range s.Banks {
				fmt.Fprintf(&module, "%s if { %s; %s }\n", s.Effect, opaCovers(a, "input.action"), opaCovers(b, "input.bank"))
			}
		}
	}
	return newOPA(module.String(), map[string]any{})
}

// opaCovers returns the expression that is true when the pattern covers ref.
func opaCovers(pattern, ref string) string {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return fmt.Sprintf("startswith(%s, %q)", ref, prefix)
	}
	return fmt.Sprintf("%s == %q", ref, pattern)
}

// opaModule looks up, in the data, the patterns that may cover the query.
const opaModule = `package svc
default allowed := false
allowed if {
	not denied
	some a in actions
	some b in banks
	data.allow[a][b]
}
denied if {
	some a in actions
	some b in banks
	data.deny[a][b]
}
actions := array.concat([input.action], [p | some i in indexof_n(input.action, ":"); p := concat("", [substring(input.action, 0, i), ":*"])])
banks := array.concat([input.bank, "*"], [p | some i in indexof_n(input.bank, "::"); p := concat("", [substring(input.bank, 0, i), "::*"])])
`

// newOPAData has the policies as data: objects by effect, action pattern and bank pattern.
func newOPAData(w *workload) engine {
	data := map[string]any{allow: map[string]any{}, deny: map[string]any{}}
	for _, s := range w.statements {
		actions := data[s.Effect].(map[string]any)
		for _, a := range spell(s.Actions) {
			if actions[a] == nil {
				actions[a] = map[string]any{}
			}
			for _, b := range s.Banks {
				actions[a].(map[string]any)[b] = true
			}
		}
	}
	return newOPA(opaModule, data)
}

func newOPA(module string, data map[string]any) engine {
	store := inmem.NewFromObjectWithOpts(data, inmem.OptReturnASTValuesOnRead(true))
	query := rego.New(rego.Query("data.svc.allowed"), rego.Module("svc.rego", module), rego.Store(store))
	return opaQuery{get(query.PrepareForEval(context.Background()))}
}

var opaAction, opaBank = ast.InternedTerm("action"), ast.InternedTerm("bank")

func (q opaQuery) Decide(action, bank string) bool {
	input := ast.NewObject([2]*ast.Term{opaAction, ast.StringTerm(action)}, [2]*ast.Term{opaBank, ast.StringTerm(bank)})
	results, err := q.Eval(context.Background(), rego.EvalParsedInput(input))
	if err != nil {
		panic(err)
	}
	return results.Allowed()
}
