// Package accessindex holds the rows of access that decisions need, in memory, and moves with their
// changes. A change costs what it changes, not what exists.
package accessindex

import (
	"slices"

	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/policy"
)

// Index holds users, memberships, service accounts, policies, attachments and policies of banks.
// Use [New] or [NewIndexed]. No other call may run during one that changes it; others may run concurrently.
//
// Rows may come in any order, and may name rows that come later or never. A missing row gives
// nothing. A user takes about 140 bytes, with an id of 16 bytes and two groups.
type Index struct {
	users    numbers[[]int32] // the groups of each
	groups   numbers[group]
	accounts numbers[account]
	policies numbers[held]
	banks    map[string][]byte
	shut     []string

	present, active set                    // users with a row; those that are not inactive
	userOrder       order                  // of the present
	accountOrder    order                  // of all
	direct          map[int32][]attachment // of users
	owned           map[int32][]int32      // the service accounts of users
	broken          set                    // indexed policies that do not parse
	index           index                  // nil: the Index does not answer WhoCan

	schema *policy.Schema
	// personal counts the policies whose documents may name the user.
	personal int
	// variable has, by policy, the indexed statements with variables in their bank patterns.
	variable map[int32][]int32

	texts, memberships, attachments int64 // for Size
}

// group is a group with members or attachments. Its own row decides nothing.
type group struct {
	members  []int32
	attached []attachment
}

// attachment is a policy as it reaches a user or a group.
type attachment struct {
	policy   int32
	priority int64
}

// account is the row of a service account.
type account struct {
	owner    int32 // a user
	scoping  int32 // a policy; none: it is not narrowed
	inactive bool
}

const none = int32(-1)

// held is a policy and what refers to it.
type held struct {
	present               bool
	personal              bool // the document may name the user
	document              []byte
	parsed                *policy.Document // nil: it does not parse, or WhoCan is not answered
	users, groups, scoped []int32          // scoped: service accounts that it narrows
}

// Principal is a user or a group that a policy is attached to.
type Principal struct {
	ID    string
	Group bool
}

// New returns an empty Index that does not answer WhoCan.
func New(schema *policy.Schema) *Index {
	return &Index{
		schema: schema, variable: map[int32][]int32{},
		banks: map[string][]byte{}, direct: map[int32][]attachment{}, owned: map[int32][]int32{},
	}
}

// NewIndexed returns an empty Index.
func NewIndexed(schema *policy.Schema) *Index {
	r := New(schema)
	r.index = index{}
	return r
}

// These are the bytes that a row takes without its texts.
const (
	userBytes       = 96
	accountBytes    = 128
	membershipBytes = 12
	attachmentBytes = 64
)

// Size estimates the bytes of the Index.
func (r *Index) Size() int64 {
	return r.texts + userBytes*int64(len(r.users.of)) + accountBytes*int64(len(r.accounts.of)) +
		membershipBytes*r.memberships + attachmentBytes*r.attachments
}

// SetUser writes the row of a user.
func (r *Index) SetUser(id string, inactive bool) {
	n := r.user(id)
	if !r.present.has(n) {
		r.present.add(n)
		r.userOrder.add(r.users.ids, n)
	}
	if r.active.remove(n); !inactive {
		r.active.add(n)
	}
}

// DeleteUser removes a user with a row, its memberships and its attachments.
func (r *Index) DeleteUser(id string) {
	n, found := r.users.find(id)
	if !found || !r.present.has(n) {
		return
	}
	for _, g := range slices.Clone(r.users.rows[n]) {
		r.part(g, n)
	}
	for _, a := range slices.Clone(r.direct[n]) {
		r.Detach(r.policies.ids[a.policy], Principal{ID: id})
	}
	r.active.remove(n)
	r.present.remove(n)
	r.userOrder.remove(r.users.ids, n)
	r.tidyUser(n)
}

// user returns the number of a user, with or without a row.
func (r *Index) user(id string) int32 {
	known := len(r.users.of)
	n := r.users.number(id)
	if len(r.users.of) > known {
		r.texts += cache.Allocated(len(id))
	}
	return n
}

// tidyUser forgets a user without a row that nothing refers to.
func (r *Index) tidyUser(n int32) {
	if !r.present.has(n) && len(r.users.rows[n])+len(r.direct[n])+len(r.owned[n]) == 0 {
		r.texts -= cache.Allocated(len(r.users.ids[n]))
		r.users.release(n)
	}
}

// Join makes a user a member of a group, if it is none.
func (r *Index) Join(groupID, userID string) {
	g, u := r.groups.number(groupID), r.user(userID)
	if slices.Contains(r.users.rows[u], g) {
		return
	}
	r.memberships++
	r.users.rows[u] = append(r.users.rows[u], g)
	r.groups.rows[g].members = append(r.groups.rows[g].members, u)
}

// Leave ends the memberships of users in a group, if they exist. Its work does not grow with the
// product of the group and the users.
func (r *Index) Leave(groupID string, userIDs ...string) {
	g, known := r.groups.find(groupID)
	if !known {
		return
	}
	gone := make(map[int32]bool, len(userIDs))
	for _, id := range userIDs {
		if u, found := r.users.find(id); found && drop(&r.users.rows[u], g) {
			gone[u] = true
			r.memberships--
		}
	}
	if len(gone) == 0 {
		return
	}
	members := &r.groups.rows[g].members
	*members = slices.DeleteFunc(*members, func(u int32) bool { return gone[u] })
	for u := range gone {
		r.tidyUser(u)
	}
	r.tidyGroup(g)
}

// Empty removes all members of a group.
func (r *Index) Empty(groupID string) {
	g, found := r.groups.find(groupID)
	if !found {
		return
	}
	members := r.groups.rows[g].members
	r.groups.rows[g].members = nil
	r.memberships -= int64(len(members))
	for _, u := range members {
		drop(&r.users.rows[u], g)
		r.tidyUser(u)
	}
	r.tidyGroup(g)
}

// DeleteGroup removes the members and the attachments of a group.
func (r *Index) DeleteGroup(id string) {
	g, found := r.groups.find(id)
	if !found {
		return
	}
	for _, a := range slices.Clone(r.groups.rows[g].attached) {
		r.Detach(r.policies.ids[a.policy], Principal{ID: id, Group: true})
	}
	r.Empty(id)
}

// part ends one membership. It is much quicker than Leave, which may end many.
func (r *Index) part(g, u int32) {
	if !drop(&r.users.rows[u], g) {
		return
	}
	r.memberships--
	drop(&r.groups.rows[g].members, u)
	r.tidyGroup(g)
}

func (r *Index) tidyGroup(g int32) {
	if row := &r.groups.rows[g]; len(row.members)+len(row.attached) == 0 {
		r.groups.release(g)
	}
}

// drop removes a number from a list whose order does not matter. It reports whether it was there.
func drop(list *[]int32, n int32) bool {
	at := slices.Index(*list, n)
	if at < 0 {
		return false
	}
	last := len(*list) - 1
	(*list)[at] = (*list)[last]
	*list = (*list)[:last]
	return true
}

// SetAccount writes the row of a service account. scoping "": it is not narrowed.
func (r *Index) SetAccount(id, owner, scoping string, inactive bool) {
	r.DeleteAccount(id)
	r.texts += cache.Allocated(len(id))
	n := r.accounts.number(id)
	a := account{r.user(owner), none, inactive}
	r.owned[a.owner] = append(r.owned[a.owner], n)
	if scoping != "" {
		a.scoping = r.policies.number(scoping)
		of := &r.policies.rows[a.scoping].scoped
		*of = append(*of, n)
	}
	r.accounts.rows[n] = a
	r.accountOrder.add(r.accounts.ids, n)
}

// DeleteAccount removes a service account, if it exists.
func (r *Index) DeleteAccount(id string) {
	n, found := r.accounts.find(id)
	if !found {
		return
	}
	a := r.accounts.rows[n]
	owned := r.owned[a.owner]
	if drop(&owned, n); len(owned) == 0 {
		delete(r.owned, a.owner)
	} else {
		r.owned[a.owner] = owned
	}
	r.tidyUser(a.owner)
	if a.scoping != none {
		drop(&r.policies.rows[a.scoping].scoped, n)
		r.tidyPolicy(a.scoping)
	}
	r.accountOrder.remove(r.accounts.ids, n)
	r.accounts.release(n)
	r.texts -= cache.Allocated(len(id))
}

// Bank returns the policy of a bank; nil: it has none.
func (r *Index) Bank(id string) *policy.Named {
	document, found := r.banks[id]
	if !found {
		return nil
	}
	return &policy.Named{ID: id, Document: document}
}

// Banks returns the policies of all banks, in no order.
func (r *Index) Banks() []policy.Named {
	var all []policy.Named
	for id, document := range r.banks {
		all = append(all, policy.Named{ID: id, Document: document})
	}
	return all
}

// SetBank writes the policy of a bank.
func (r *Index) SetBank(id string, document []byte) {
	r.DeleteBank(id)
	r.writeBank(id, document)
	for _, shut := range r.schema.Shut([]policy.Named{{ID: id, Document: document}}) {
		at, _ := slices.BinarySearch(r.shut, shut)
		r.shut = slices.Insert(r.shut, at, shut)
	}
}

// writeBank writes the policy of a bank that has none, without a look whether it parses.
func (r *Index) writeBank(id string, document []byte) {
	r.banks[id] = document
	r.texts += cache.Allocated(len(id)) + cache.Allocated(len(document)) + attachmentBytes
}

// DeleteBank removes the policy of a bank, if it has one.
func (r *Index) DeleteBank(id string) {
	document, found := r.banks[id]
	if !found {
		return
	}
	r.texts -= cache.Allocated(len(id)) + cache.Allocated(len(document)) + attachmentBytes
	delete(r.banks, id)
	if at, is := slices.BinarySearch(r.shut, id); is {
		r.shut = slices.Delete(r.shut, at, at+1)
	}
}

// Shut returns the banks that [policy.Schema.Shut] finds among all banks. The caller owns the list.
func (r *Index) Shut() []string { return slices.Clone(r.shut) }
