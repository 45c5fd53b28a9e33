package policies_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/casbin/casbin/v2"
	"github.com/casbin/casbin/v2/model"
	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/types"
	minio "github.com/minio/pkg/v3/policy"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/store/memstore"
)

// floor makes two look-ups in Go maps, by action and by bank, and reads a bit that holds the
// decision for the pair. It knows only the actions and banks of the queries.
type floor struct {
	actions, banks map[string]uint
	decided        []uint64 // a bit for each pair
}

func newFloor(w *workload) engine {
	f := &floor{actions: map[string]uint{}, banks: map[string]uint{}}
	for _, q := range fresh(w.queries) {
		number(f.actions, q.action)
		number(f.banks, q.bank)
	}
	f.decided = make([]uint64, len(f.actions)*len(f.banks)/64+1)
	for i, q := range w.queries {
		if w.want[i] == allowed && !f.Decide(q.action, q.bank) {
			f.flip(q)
		}
	}
	return f
}

func number(names map[string]uint, name string) {
	if _, ok := names[name]; !ok {
		names[name] = uint(len(names))
	}
}

func (f *floor) Decide(action, bank string) bool {
	at := f.actions[action]*uint(len(f.banks)) + f.banks[bank]
	return f.decided[at/64]>>(at%64)&1 == 1
}

func (f *floor) flip(q query) {
	at := f.actions[q.action]*uint(len(f.banks)) + f.banks[q.bank]
	f.decided[at/64] ^= 1 << (at % 64)
}

// ours is this project's engine.
type ours struct{ rights *policy.Rights }

var nowhere policy.Context

func (o ours) Decide(action, bank string) bool {
	return o.rights.Decide(action, bank, &nowhere, nil).Allowed()
}

// compiler makes ours. Subjects with equal policies share them.
type compiler struct{ *policy.Compiler }

func newCompiler() compiler { return compiler{policy.NewCompiler(policy.Memory)} }

func (c compiler) compile(s policy.Subject) engine { return ours{c.Compile(s)} }

func newOurs(w *workload) engine { return newCompiler().compile(w.subject) }

// service decides as a host's call does: for a principal, with a check that the cached rights are
// still current.
type service struct {
	*svc.Service
	user svc.Principal
}

func (s service) Decide(action, bank string) bool {
	d, err := s.Service.Decide(context.Background(), s.user, action, bank, svc.Context{})
	return err == nil && d.Allowed()
}

func newService(w *workload) engine {
	made := get(svc.New(svc.Config{Store: memstore.New(), Logger: slog.New(slog.DiscardHandler)}))
	user := svc.Principal{Kind: svc.KindUser, ID: "user"}
	get(0, made.Access.Apply(context.Background(), svc.Host, bundleOf(user.ID, w.subject.Grants)))
	return service{made, user}
}

func bundleOf(user string, grants []policy.Grant) svc.Bundle {
	b, groups := svc.Bundle{Users: []svc.User{{ID: user}}}, map[string]bool{}
	for _, g := range grants {
		to := svc.GrantedTo{Type: svc.GrantedToUser, ID: user}
		if g.Group != "" {
			to = svc.GrantedTo{Type: svc.GrantedToGroup, ID: g.Group}
			if !groups[g.Group] {
				groups[g.Group] = true
				b.Groups = append(b.Groups, svc.Group{ID: g.Group, Members: []string{user}})
			}
		}
		b.Policies = append(b.Policies, svc.Policy{ID: g.PolicyID, Document: g.Document})
		b.Attachments = append(b.Attachments, svc.Attachment{PolicyID: g.PolicyID, Principal: to, Priority: g.Priority})
	}
	return b
}

// cedarSet has one Cedar policy for each statement. It compares a literal with the action or
// resource, and a prefix by "like" with the name in the context. (Prefixes as groups of entities
// took three times as long.)
type cedarSet struct{ *cedar.PolicySet }

func newCedar(w *workload) engine {
	set := cedar.NewPolicySet()
	for i, s := range w.statements {
		p := ast.Permit()
		if s.Effect == deny {
			p = ast.Forbid()
		}
		p.When(cedarAny(spell(s.Actions), ast.Action(), "Action").And(cedarAny(s.Banks, ast.Resource(), "Bank")))
		set.Add(cedar.PolicyID(fmt.Sprintf("statement%d", i)), cedar.NewPolicyFromAST(p))
	}
	return cedarSet{set}
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

// minioPolicy is the merged policies. MinIO merges at every request; here it is done before. A
// statement is a statement, a bank is a bucket, "::*" at its end is a wildcard.
type minioPolicy struct{ minio.Policy }

func newMinio(w *workload) engine {
	var policies []minio.Policy
	for _, statements := range w.policies {
		p := minio.Policy{Version: minio.DefaultVersion}
		for _, s := range statements {
			p.Statements = append(p.Statements, minioStatement(s))
		}
		policies = append(policies, p)
	}
	return minioPolicy{minio.MergePolicies(policies...)}
}

func minioStatement(s statement) minio.Statement {
	effect, actions, banks := minio.Effect(minio.Allow), minio.NewActionSet(), minio.NewResourceSet()
	if s.Effect == deny {
		effect = minio.Deny
	}
	for _, a := range spell(s.Actions) {
		actions.Add(minio.Action(a))
	}
	for _, b := range s.Banks {
		banks.Add(minio.NewResource(b))
	}
	return minio.NewStatement("", effect, actions, banks, nil)
}

func (p minioPolicy) Decide(action, bank string) bool {
	return p.IsAllowed(minio.Args{Action: minio.Action(action), BucketName: bank})
}

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

func newCasbin(w *workload) engine { return casbinEnforcer{newCachedEnforcer(w).Enforcer.Enforce} }

func newCasbinCached(w *workload) engine { return casbinEnforcer{newCachedEnforcer(w).Enforce} }

func newCachedEnforcer(w *workload) *casbin.CachedEnforcer {
	e := get(casbin.NewCachedEnforcer(get(model.NewModelFromString(casbinModel))))
	for _, effect := range []string{deny, allow} {
		get(e.AddPoliciesEx(casbinRules(w.statements, effect))) // skips rules that exist
	}
	return e
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
	return get(e.enforce(action, bank))
}
