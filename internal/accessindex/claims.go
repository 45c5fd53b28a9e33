package accessindex

import (
	"slices"

	"github.com/extsvc/svc/internal/policy"
)

// claim is a statement that matches a request for some of the principals that have its policy:
// those with the values that its variables need.
type claim struct {
	place
	effect   effect
	users    []int32 // by a grant
	accounts []int32 // by their scoping policy
}

func (r *Index) statement(p place) *policy.Statement {
	return &r.policies.rows[p.policy].parsed.Statements[p.statement]
}

// claims returns the claims of a request. A statement may have several.
func (r *Index) claims(action, bank string) (all []claim) {
	for n, statements := range r.variable {
		for _, i := range statements {
			at := place{n, i}
			st := r.statement(at)
			if !st.CoversAction(action) {
				continue
			}
			for _, pattern := range st.Banks {
				if !policy.HasVariables(pattern) {
					continue
				}
				if user, group, ok := policy.Solve(pattern, bank); ok {
					c := claim{place: at, effect: effectOf(st)}
					c.users, c.accounts = r.reachedAs(n, user, group)
					all = append(all, c)
				}
			}
		}
	}
	return all
}

// reachedAs returns who has a policy as a user and through a group; "": as any.
func (r *Index) reachedAs(n int32, user, group string) (users, accounts []int32) {
	p := &r.policies.rows[n]
	if group == "" {
		users = append(users, p.users...)
	}
	for _, g := range p.groups {
		if group == "" || r.groups.ids[g] == group {
			users = append(users, r.groups.rows[g].members...)
		}
	}
	if group == "" { // a scoping policy comes through no group
		accounts = slices.Clone(p.scoped)
	}
	if user != "" {
		is := func(u int32) bool { return r.users.ids[u] == user }
		users = slices.DeleteFunc(users, func(u int32) bool { return !is(u) })
		accounts = slices.DeleteFunc(accounts, func(a int32) bool {
			return !is(r.accounts.rows[a].owner)
		})
	}
	return users, accounts
}

// ofAccounts returns the effects of claims on the service accounts that they narrow.
func ofAccounts(claims []claim) map[int32]effect {
	effects := map[int32]effect{}
	for _, c := range claims {
		for _, n := range c.accounts {
			effects[n] |= c.effect
		}
	}
	return effects
}
