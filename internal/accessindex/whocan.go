package accessindex

import (
	"slices"

	"github.com/extsvc/svc/internal/policy"
)

// WhoCan lists the principals that may do something, and the statements that decide it.
type WhoCan struct {
	Users, ServiceAccounts []string // ids, sorted; never nil
	Public                 policy.PublicReach
	Statements             []StatementRef // those that match, by policy and statement; never nil
}

// StatementRef is a statement of a policy that some principal has that is not closed.
type StatementRef struct {
	Policy    string
	Statement int
	Effect    policy.Effect
}

// effect is what the statements of a policy, or of a group's policies, do to one request.
type effect uint8

const (
	allows effect = 1 << iota
	denies
)

// WhoCan returns the principals that may do an action on a bank: those that Decide allows it,
// without vouching. The caller owns the result. The time follows the number of users that the
// matching statements reach.
func (r *Index) WhoCan(action, bank string) WhoCan {
	of := r.schema.CompileBank(r.Bank(bank)).On(action)
	reach := WhoCan{
		Users: []string{}, ServiceAccounts: []string{}, Statements: []StatementRef{},
		Public: of.Reach(action),
	}
	if of.Broken() {
		return reach
	}
	effects := make([]effect, len(r.policies.rows))
	heldBefore, isHeld := none, false
	var held []place
	for _, p := range r.matching(action, bank) {
		effects[p.policy] |= effectOf(r.statement(p))
		if p.policy != heldBefore {
			heldBefore, isHeld = p.policy, r.isHeld(p.policy)
		}
		if isHeld {
			held = append(held, p)
		}
	}
	claims := r.claims(action, bank)
	for _, c := range claims {
		if r.anyActive(c.users) || slices.ContainsFunc(c.accounts, r.isOpen) {
			held = append(held, c.place)
		}
	}
	slices.SortFunc(held, r.comparePlaces)
	for _, p := range slices.Compact(held) {
		cited := StatementRef{r.policies.ids[p.policy], int(p.statement), r.statement(p).Effect}
		reach.Statements = append(reach.Statements, cited)
	}
	allowed := r.allowed(effects, claims)
	reach.Users = r.userOrder.list(r.users.ids, allowed)
	narrowing := ofAccounts(claims)
	for _, chunk := range r.accountOrder {
		for _, n := range chunk {
			a := &r.accounts.rows[n]
			scoped := a.scoping == none || effects[a.scoping]|narrowing[n] == allows
			if scoped && !a.inactive && allowed.has(a.owner) {
				reach.ServiceAccounts = append(reach.ServiceAccounts, r.accounts.ids[n])
			}
		}
	}
	return reach
}

func effectOf(st *policy.Statement) effect {
	if st.Effect == policy.EffectDeny {
		return denies
	}
	return allows
}

// allowed returns the active users that the effects of policies allow. A deny wins over any allow,
// and a policy that does not parse denies its holders everything.
func (r *Index) allowed(effects []effect, claims []claim) set {
	ofGroups := make([]effect, len(r.groups.rows))
	size := len(r.users.ids)>>6 + 1
	allowed, denied := make(set, size), make(set, size)
	mark := func(e effect, users []int32) {
		in := allowed
		if e&denies != 0 {
			in = denied
		}
		for _, u := range users {
			in[u>>6] |= 1 << (u & 63)
		}
	}
	for n, e := range effects {
		if r.broken.has(int32(n)) {
			e = denies
		}
		if e != 0 {
			mark(e, r.policies.rows[n].users)
			for _, g := range r.policies.rows[n].groups {
				ofGroups[g] |= e
			}
		}
	}
	for g, e := range ofGroups {
		if e != 0 {
			mark(e, r.groups.rows[g].members)
		}
	}
	for _, c := range claims {
		mark(c.effect, c.users)
	}
	for i := range allowed {
		allowed[i] &^= denied[i]
		if i >= len(r.active) {
			allowed[i] = 0
		} else {
			allowed[i] &= r.active[i]
		}
	}
	return allowed
}

// isHeld reports whether a principal that is not closed has a policy, as a grant or as its scoping.
func (r *Index) isHeld(n int32) bool {
	p := &r.policies.rows[n]
	if r.anyActive(p.users) {
		return true
	}
	for _, g := range p.groups {
		if r.anyActive(r.groups.rows[g].members) {
			return true
		}
	}
	return slices.ContainsFunc(p.scoped, r.isOpen)
}

// isOpen reports whether a service account and its owner are active.
func (r *Index) isOpen(n int32) bool {
	a := &r.accounts.rows[n]
	return !a.inactive && r.active.has(a.owner)
}

func (r *Index) anyActive(users []int32) bool {
	return slices.ContainsFunc(users, r.active.has)
}
