package accessindex

import (
	"encoding/binary"
	"slices"

	"github.com/extsvc/svc/internal/policy"
)

// Rows names rows of each kind, by their ids. An id without a row is no error.
type Rows struct {
	Users, Groups, Accounts, Policies, Banks []string

	All  bool // for Touched: all users, with what they own, in addition
	Each bool // for Touched: the users are no party, because a new document may name them
}

// Add names the rows of other as well.
func (r *Rows) Add(other Rows) {
	r.Users = slices.Concat(r.Users, other.Users)
	r.Groups = slices.Concat(r.Groups, other.Groups)
	r.Accounts = slices.Concat(r.Accounts, other.Accounts)
	r.Policies = slices.Concat(r.Policies, other.Policies)
	r.Banks = slices.Concat(r.Banks, other.Banks)
}

// Parties groups all principals: the members of a party have the same policies in the same ways.
// Two parties may still be equal. Users come first, then by id of the first member.
func (r *Index) Parties() [][]policy.Member {
	all := parties{Index: r}
	for _, chunk := range r.userOrder {
		for _, u := range chunk {
			all.user(u)
		}
	}
	for _, chunk := range r.accountOrder {
		for _, n := range chunk {
			all.account(n)
		}
	}
	return all.list
}

// Touched groups the principals whose rights may depend on the rows that are named, and on what is
// attached to them. Each named user and service account is its own party, also without a row. As
// long as no others change, the first member of a party stands for all of it.
func (r *Index) Touched(by Rows) [][]policy.Member {
	touched := parties{Index: r, each: by.Each}
	var users, accounts set
	if by.All {
		users = slices.Clone(r.present)
	}
	for _, id := range by.Groups {
		if g, found := r.groups.find(id); found {
			touched.groups.add(g)
			users.addAll(r.groups.rows[g].members)
		}
	}
	for _, id := range by.Policies {
		n, found := r.policies.find(id)
		if !found {
			continue
		}
		p := &r.policies.rows[n]
		users.addAll(p.users)
		accounts.addAll(p.scoped)
		for _, g := range p.groups {
			users.addAll(r.groups.rows[g].members)
		}
	}
	for _, id := range by.Users {
		touched.alone(policy.User, id)
		if u, found := r.users.find(id); found {
			users.remove(u)
			accounts.addAll(r.owned[u])
		}
	}
	users.each(func(u int32) {
		touched.user(u)
		accounts.addAll(r.owned[u])
	})
	for _, id := range by.Accounts {
		touched.alone(policy.ServiceAccount, id)
		if n, found := r.accounts.find(id); found {
			accounts.remove(n)
		}
	}
	accounts.each(touched.account)
	return touched.list
}

// parties groups users that are alike.
type parties struct {
	*Index
	each   bool // each user is a party
	groups set  // those that count although nothing is attached to them
	list   [][]policy.Member
	alike  map[string]int // by what reaches a user, its place in list
	key    []byte
	of     []int32
}

func (p *parties) alone(kind policy.Kind, id string) {
	p.list = append(p.list, []policy.Member{{Kind: kind, ID: id}})
}

func (p *parties) account(n int32) { p.alone(policy.ServiceAccount, p.accounts.ids[n]) }

// user adds a user with a row to the party of those with the same attachments and groups.
func (p *parties) user(u int32) {
	if !p.present.has(u) {
		return
	}
	p.of = p.of[:0]
	for _, g := range p.users.rows[u] {
		if len(p.Index.groups.rows[g].attached) > 0 || p.groups.has(g) {
			p.of = append(p.of, g)
		}
	}
	slices.Sort(p.of)
	p.key = append(p.key[:0], '-')
	if p.active.has(u) {
		p.key[0] = '+'
	}
	// The number of groups comes first, so that no group reads like an attachment.
	p.key = binary.LittleEndian.AppendUint32(p.key, uint32(len(p.of)))
	for _, g := range p.of {
		p.key = binary.LittleEndian.AppendUint32(p.key, uint32(g))
	}
	for _, a := range p.direct[u] {
		p.key = binary.LittleEndian.AppendUint32(p.key, uint32(a.policy))
		p.key = binary.LittleEndian.AppendUint64(p.key, uint64(a.priority))
	}
	if p.each || p.personal > 0 && p.named(u) {
		p.key = binary.LittleEndian.AppendUint32(p.key, uint32(u))
	}
	at, known := p.alike[string(p.key)]
	if !known {
		if at = len(p.list); p.alike == nil {
			p.alike = map[string]int{}
		}
		p.alike[string(p.key)] = at
		p.list = append(p.list, nil)
	}
	p.list[at] = append(p.list[at], policy.Member{Kind: policy.User, ID: p.users.ids[u]})
}

// Personal reports whether one of the policies has a document that may name its user.
func (r *Index) Personal(policies []string) bool {
	return slices.ContainsFunc(policies, func(id string) bool {
		n, found := r.policies.find(id)
		return found && r.policies.rows[n].personal
	})
}

// named reports whether a document that reaches a user may name the user.
func (p *parties) named(u int32) bool {
	personal := func(a attachment) bool { return p.policies.rows[a.policy].personal }
	return slices.ContainsFunc(p.direct[u], personal) ||
		slices.ContainsFunc(p.users.rows[u], func(g int32) bool {
			return slices.ContainsFunc(p.Index.groups.rows[g].attached, personal)
		})
}
