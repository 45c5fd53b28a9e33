package memstore

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
)

// kind is one kind of rows of access.
type kind[K comparable, R any] struct {
	target  event.TargetKind
	stored  func(*rows) *map[K]R
	list    func(*svc.Bundle) *[]R
	named   func(*svc.AccessNames) []K
	key     func(R) K
	clone   func(R) R
	compare func(a, b K) int  // the order of lists
	after   func(id string) K // the key of a row, from the ID of its target
	// These may be nil.
	brief  func(R) R                      // clone for a list of the kind
	extent func(R) int                    // the number of channels or members
	refers func(R, *svc.AccessNames) bool // whether names ask for what the row refers to
	wanted func(R, *svc.AccessPage) bool  // whether the filters of a page let the row pass
}

// byID returns a kind whose key is an id.
func byID[R any](k kind[string, R]) *kind[string, R] {
	k.compare, k.after = strings.Compare, same[string]
	return &k
}

// kinds are all kinds of rows, in the order of the fields of [svc.Bundle].
var kinds = []anyKind{
	byID(kind[string, svc.User]{
		target: event.TargetUser,
		stored: func(r *rows) *map[string]svc.User { return &r.users },
		list:   func(b *svc.Bundle) *[]svc.User { return &b.Users },
		named:  func(n *svc.AccessNames) []string { return n.Users },
		key:    func(u svc.User) string { return u.ID },
		clone:  cloneUser, brief: withoutChannels, wanted: hasText,
		extent: func(u svc.User) int { return len(u.Channels) },
	}),
	byID(kind[string, svc.Group]{
		target: event.TargetGroup,
		stored: func(r *rows) *map[string]svc.Group { return &r.groups },
		list:   func(b *svc.Bundle) *[]svc.Group { return &b.Groups },
		named:  func(n *svc.AccessNames) []string { return n.Groups },
		key:    func(g svc.Group) string { return g.ID },
		clone:  cloneGroup, brief: withoutMembers,
		extent: func(g svc.Group) int { return len(g.Members) },
		wanted: func(g svc.Group, page *svc.AccessPage) bool {
			return page.User == "" || slices.Contains(g.Members, page.User)
		},
	}),
	byID(kind[string, svc.ServiceAccount]{
		target: event.TargetServiceAccount,
		stored: func(r *rows) *map[string]svc.ServiceAccount { return &r.serviceAccounts },
		list:   func(b *svc.Bundle) *[]svc.ServiceAccount { return &b.ServiceAccounts },
		named:  func(n *svc.AccessNames) []string { return n.ServiceAccounts },
		key:    func(a svc.ServiceAccount) string { return a.ID },
		clone:  same[svc.ServiceAccount],
		refers: func(a svc.ServiceAccount, named *svc.AccessNames) bool {
			return slices.Contains(named.AccountsOf, a.OwnerUserID) ||
				slices.Contains(named.UsesOf, a.ScopingPolicyID)
		},
		wanted: func(a svc.ServiceAccount, page *svc.AccessPage) bool {
			return or(page.User, a.OwnerUserID) && or(page.Policy, a.ScopingPolicyID)
		},
	}),
	byID(kind[string, svc.Policy]{
		target: event.TargetPolicy,
		stored: func(r *rows) *map[string]svc.Policy { return &r.policies },
		list:   func(b *svc.Bundle) *[]svc.Policy { return &b.Policies },
		named:  func(n *svc.AccessNames) []string { return n.Policies },
		key:    func(p svc.Policy) string { return p.ID },
		clone:  clonePolicy,
	}),
	&kind[svc.AttachmentKey, svc.Attachment]{
		target: event.TargetAttachment,
		stored: func(r *rows) *map[svc.AttachmentKey]svc.Attachment { return &r.attachments },
		list:   func(b *svc.Bundle) *[]svc.Attachment { return &b.Attachments },
		named:  func(n *svc.AccessNames) []svc.AttachmentKey { return n.Attachments },
		key:    keyOfAttachment, clone: same[svc.Attachment], compare: byPrincipal,
		after: func(id string) svc.AttachmentKey { return svc.Target{ID: id}.Attachment() },
		refers: func(a svc.Attachment, named *svc.AccessNames) bool {
			return slices.Contains(named.AttachmentsTo, a.Principal) ||
				slices.Contains(named.UsesOf, a.PolicyID)
		},
		wanted: func(a svc.Attachment, page *svc.AccessPage) bool {
			return or(page.Policy, a.PolicyID) &&
				to(page.User, svc.GrantedToUser, a) && to(page.Group, svc.GrantedToGroup, a)
		},
	},
	byID(kind[string, svc.BankPolicy]{
		target: event.TargetBankPolicy,
		stored: func(r *rows) *map[string]svc.BankPolicy { return &r.bankPolicies },
		list:   func(b *svc.Bundle) *[]svc.BankPolicy { return &b.BankPolicies },
		named:  func(n *svc.AccessNames) []string { return n.BankPolicies },
		key:    func(p svc.BankPolicy) string { return p.BankID },
		clone:  cloneBankPolicy,
	}),
	byID(kind[string, svc.AccessTest]{
		target: event.TargetTest,
		stored: func(r *rows) *map[string]svc.AccessTest { return &r.tests },
		list:   func(b *svc.Bundle) *[]svc.AccessTest { return &b.Tests },
		named:  func(n *svc.AccessNames) []string { return n.Tests },
		key:    func(t svc.AccessTest) string { return t.ID },
		clone:  same[svc.AccessTest],
	}),
}

// anyKind is a kind whose types are its own.
type anyKind interface {
	make(*rows)
	// find adds copies of the rows that named asks for to b, each once.
	find(r *rows, named *svc.AccessNames, b *svc.Bundle)
	// page adds copies of one chunk of a list to b, unless its rows are of another kind.
	page(r *rows, page *svc.AccessPage, b *svc.Bundle)
	write(s *Store, b *svc.Bundle)
	remove(s *Store, named *svc.AccessNames)
	// split calls yield with the rows of b, in parts.
	split(b *svc.Bundle, yield func(svc.Bundle) error) error
}

func (k *kind[K, R]) make(r *rows) { *k.stored(r) = map[K]R{} }

func (k *kind[K, R]) find(r *rows, named *svc.AccessNames, b *svc.Bundle) {
	stored, list, found := *k.stored(r), k.list(b), map[K]bool{}
	keys := k.named(named)
	if k.refers != nil {
		keys = slices.Clone(keys)
		for key, row := range stored {
			if k.refers(row, named) {
				keys = append(keys, key)
			}
		}
	}
	for _, key := range keys {
		if row, there := stored[key]; there && !found[key] {
			found[key] = true
			*list = append(*list, k.clone(row))
		}
	}
}

func (k *kind[K, R]) page(r *rows, page *svc.AccessPage, b *svc.Bundle) {
	if page.Kind != k.target && page.Kind != "" {
		return
	}
	var keys []K
	stored, list, clone := *k.stored(r), k.list(b), k.clone
	if page.Kind != "" && k.brief != nil {
		clone = k.brief
	}
	for key, row := range stored {
		if k.wanted == nil || k.wanted(row, page) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, k.compare)
	for _, key := range cut(keys, page, k.after(page.After), k.compare) {
		*list = append(*list, clone(stored[key]))
	}
}

func (k *kind[K, R]) write(s *Store, b *svc.Bundle) {
	for _, row := range *k.list(b) {
		put(s, *k.stored(s.rows), k.key(row), k.clone(row))
	}
}

func (k *kind[K, R]) remove(s *Store, named *svc.AccessNames) {
	for _, key := range k.named(named) {
		drop(s, *k.stored(s.rows), key)
	}
}

func (k *kind[K, R]) split(b *svc.Bundle, yield func(svc.Bundle) error) (err error) {
	for rows := *k.list(b); len(rows) > 0 && err == nil; {
		n := 0
		for sum := 0; n < len(rows) && sum < partSize; n++ {
			sum++
			if k.extent != nil {
				sum += k.extent(rows[n])
			}
		}
		var part svc.Bundle
		*k.list(&part) = rows[:n:n]
		err, rows = yield(part), rows[n:]
	}
	return err
}

func keyOfAttachment(a svc.Attachment) svc.AttachmentKey {
	return svc.AttachmentKey{PolicyID: a.PolicyID, Principal: a.Principal}
}

// byPrincipal is the order of attachments.
func byPrincipal(a, b svc.AttachmentKey) int {
	return cmp.Or(cmp.Compare(a.Principal.Type, b.Principal.Type),
		cmp.Compare(a.Principal.ID, b.Principal.ID), cmp.Compare(a.PolicyID, b.PolicyID))
}

func compareChannels(a, b svc.Channel) int {
	return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.SenderID, b.SenderID))
}

// cloneUser returns a copy whose channels are not nil.
func cloneUser(user svc.User) svc.User {
	user.Email = cloneText(user.Email)
	user.Channels = append([]svc.Channel{}, user.Channels...)
	return user
}

func withoutChannels(user svc.User) svc.User {
	user.Email = cloneText(user.Email)
	user.Channels = nil
	return user
}

// cloneGroup returns a copy whose members are not nil.
func cloneGroup(group svc.Group) svc.Group {
	group.Members = append([]string{}, group.Members...)
	return group
}

func withoutMembers(group svc.Group) svc.Group {
	group.Members = nil
	return group
}

func clonePolicy(policy svc.Policy) svc.Policy {
	policy.Document = bytes.Clone(policy.Document)
	return policy
}

func cloneBankPolicy(policy svc.BankPolicy) svc.BankPolicy {
	policy.Document = bytes.Clone(policy.Document)
	return policy
}
