package policies_test

import (
	"fmt"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/types"
)

// cedarSet has one Cedar policy for each statement. It compares a literal with the action or
// resource, and a prefix by "like" with the name in the context. (Prefixes as groups of entities
// took three times as long.)
type cedarSet struct{ *cedar.PolicySet }

func newCedar(w *workload) (engine, error) {
	set := cedar.NewPolicySet()
	for i, s := range w.statements {
		p := ast.Permit()
		if s.Effect == deny {
			p = ast.Forbid()
		}
		p.When(cedarAny(spell(s.Actions), ast.Action(), "Action").And(cedarAny(s.Banks, ast.Resource(), "Bank")))
		set.Add(cedar.PolicyID(fmt.Sprintf("statement%d", i)), cedar.NewPolicyFromAST(p))
	}
	return cedarSet{set}, nil
}

// cedarAny is the condition that one of the patterns covers the entity.
func cedarAny(patterns []string, entity ast.Node, kind types.EntityType) ast.Node {
	var any ast.Node
	for i, p := range patterns {
		one := entity.Equal(ast.Value(types.NewEntityUID(kind, types.String(p))))
		if prefix, ok := strings.CutSuffix(p, "*"); ok {
			one = ast.Context().Access(types.String(kind)).Like(types.NewPattern(types.String(prefix), types.Wildcard{}))
		}
		if i == 0 {
			any = one
		} else {
			any = any.Or(one)
		}
	}
	return any
}

func (s cedarSet) Decide(action, bank string) bool {
	decision, _ := cedar.Authorize(s, nil, cedar.Request{
		Action:   cedar.NewEntityUID("Action", types.String(action)),
		Resource: cedar.NewEntityUID("Bank", types.String(bank)),
		Context:  cedar.NewRecord(cedar.RecordMap{"Action": types.String(action), "Bank": types.String(bank)}),
	})
	return decision == cedar.Allow
}
