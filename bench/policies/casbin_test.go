package policies_test

import (
	"github.com/casbin/casbin/v2"
	"github.com/casbin/casbin/v2/model"
)

// casbinModel has a rule for each pair of an action pattern and a bank pattern. keyMatch covers the
// same as the patterns.
const casbinModel = `
[request_definition]
r = act, bank

[policy_definition]
p = act, bank, eft

[policy_effect]
e = some(where (p.eft == allow)) && !some(where (p.eft == deny))

[matchers]
m = keyMatch(r.act, p.act) && keyMatch(r.bank, p.bank)
`

// casbinEnforcer is an Enforcer or a CachedEnforcer. The denies come first, because the first match
// ends the search.
type casbinEnforcer struct {
	enforce func(asked ...any) (bool, error)
}

func newCasbin(w *workload) (engine, error) {
	e, err := newCachedEnforcer(w)
	if err != nil {
		return nil, err
	}
	return casbinEnforcer{e.Enforcer.Enforce}, nil
}

func newCasbinCached(w *workload) (engine, error) {
	e, err := newCachedEnforcer(w)
	if err != nil {
		return nil, err
	}
	return casbinEnforcer{e.Enforce}, nil
}

func newCachedEnforcer(w *workload) (*casbin.CachedEnforcer, error) {
	m, err := model.NewModelFromString(casbinModel)
	if err != nil {
		return nil, err
	}
	e, err := casbin.NewCachedEnforcer(m)
	if err != nil {
		return nil, err
	}
	for _, effect := range []string{deny, allow} {
		if _, err := e.AddPoliciesEx(casbinRules(w.statements, effect)); err != nil { // skips rules that exist
			return nil, err
		}
	}
	return e, nil
}

func casbinRules(statements []statement, effect string) [][]string {
	var rules [][]string
	for _, s := range statements {
		if s.Effect != effect {
			continue
		}
		for _, a := range spell(s.Actions) {
			for _, b := range s.Banks {
				rules = append(rules, []string{a, b, effect})
			}
		}
	}
	return rules
}

func (e casbinEnforcer) Decide(action, bank string) bool {
	ok, err := e.enforce(action, bank)
	if err != nil {
		panic(err)
	}
	return ok
}
