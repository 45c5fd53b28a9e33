package accessindex

import (
	"slices"

	"github.com/extsvc/svc/internal/policy"
)

// Account is the row of a service account.
type Account struct {
	Owner, Scoping string // Scoping "": it is not narrowed
	Inactive       bool
}

// User returns the row of a user.
func (r *Index) User(id string) (inactive, found bool) {
	n, found := r.users.find(id)
	if !found || !r.present.has(n) {
		return false, false
	}
	return !r.active.has(n), true
}

// Account returns the row of a service account.
func (r *Index) Account(id string) (a Account, found bool) {
	n, found := r.accounts.find(id)
	if !found {
		return a, false
	}
	row := r.accounts.rows[n]
	a.Owner, a.Inactive = r.users.ids[row.owner], row.inactive
	if row.scoping != none {
		a.Scoping = r.policies.ids[row.scoping]
	}
	return a, true
}

// Policy returns the document of a policy.
func (r *Index) Policy(id string) (document []byte, found bool) {
	n, found := r.policies.find(id)
	if !found || !r.policies.rows[n].present {
		return nil, false
	}
	return r.policies.rows[n].document, true
}

// Grants returns the policies that reach a user, its own first.
func (r *Index) Grants(user string) (grants []policy.Grant) {
	n, found := r.users.find(user)
	if !found || !r.present.has(n) {
		return nil
	}
	add := func(attached []attachment, group string) {
		for _, a := range attached {
			if p := &r.policies.rows[a.policy]; p.present {
				id := r.policies.ids[a.policy]
				grants = append(grants, policy.Grant{
					PolicyID: id, Group: group, Priority: a.priority, Document: p.document,
				})
			}
		}
	}
	grants = slices.Grow(grants, r.reaching(n))
	add(r.direct[n], "")
	for _, g := range r.users.rows[n] {
		add(r.groups.rows[g].attached, r.groups.ids[g])
	}
	return grants
}

// reaching is about how many policies reach a user.
func (r *Index) reaching(user int32) int {
	size := len(r.direct[user])
	for _, g := range r.users.rows[user] {
		size += len(r.groups.rows[g].attached)
	}
	return size
}

// Reaching is about how many grants the first members of parties have, all counted.
func (r *Index) Reaching(parties [][]policy.Member) (grants int) {
	for _, members := range parties {
		if first := members[0]; first.Kind == policy.User {
			if u, found := r.users.find(first.ID); found {
				grants += r.reaching(u)
			}
		} else if n, found := r.accounts.find(first.ID); found {
			grants += r.reaching(r.accounts.rows[n].owner)
		}
	}
	return grants
}

// Excerpt returns an Index of the rows that are named, and of all rows that the rights of the named
// users and service accounts depend on. It shares documents with r, and does not answer WhoCan.
func (r *Index) Excerpt(of Rows) *Index {
	e := excerpt{Index: New(r.schema), from: r}
	for _, id := range of.Users {
		e.user(id)
	}
	for _, id := range of.Groups {
		if g, found := r.groups.find(id); found {
			e.group(g)
		}
	}
	for _, id := range of.Accounts {
		if n, found := r.accounts.find(id); found {
			a := &r.accounts.rows[n]
			owner, scoping := r.users.ids[a.owner], ""
			e.user(owner)
			if a.scoping != none {
				scoping = r.policies.ids[a.scoping]
				e.policy(a.scoping)
			}
			e.SetAccount(id, owner, scoping, a.inactive)
		}
	}
	for _, id := range of.Policies {
		if n, found := r.policies.find(id); found {
			e.policy(n)
		}
	}
	for _, id := range of.Banks {
		if document, found := r.banks[id]; found {
			e.writeBank(id, document)
		}
	}
	e.shut = r.Shut()
	return e.Index
}

// excerpt copies rows of one Index into another, each once.
type excerpt struct {
	*Index
	from          *Index
	users, groups set
}

func (e *excerpt) user(id string) {
	u, found := e.from.users.find(id)
	if !found || e.users.has(u) {
		return
	}
	e.users.add(u)
	if e.from.present.has(u) {
		e.SetUser(id, !e.from.active.has(u))
	}
	for _, g := range e.from.users.rows[u] {
		e.Join(e.from.groups.ids[g], id)
		e.group(g)
	}
	e.attach(e.from.direct[u], Principal{ID: id})
}

// group copies the attachments of a group. Its members come with the users.
func (e *excerpt) group(g int32) {
	if !e.groups.has(g) {
		e.groups.add(g)
		e.attach(e.from.groups.rows[g].attached, Principal{e.from.groups.ids[g], true})
	}
}

func (e *excerpt) attach(attached []attachment, to Principal) {
	for _, a := range attached {
		e.policy(a.policy)
		e.Attach(e.from.policies.ids[a.policy], to, a.priority)
	}
}

func (e *excerpt) policy(n int32) {
	if p := &e.from.policies.rows[n]; p.present {
		e.SetPolicy(e.from.policies.ids[n], p.document)
	}
}
