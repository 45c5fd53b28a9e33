package memstore

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
)

// kind is one kind of rows of access, with the lists of one call.
type kind[K comparable, R any] struct {
	target   event.TargetKind
	stored   map[K]R
	named    []K  // rows to find, or to remove
	from, to *[]R // rows to write, and rows that are found
	key      func(R) K
	clone    func(R) R
	compare  func(a, b K) int  // the order of lists
	after    func(id string) K // the key of a row, by the ID of its target
	// These may be nil.
	brief  func(R) R                     // clone for a list of the kind
	extent func(R) int                   // the number of channels or members
	refers func(R) bool                  // finds a row by what it refers to
	wanted func(R, *svc.AccessPage) bool // finds a row for a page
}

func byID[R any](
	target event.TargetKind, stored map[string]R, named []string, from, to *[]R,
	key func(R) string, clone func(R) R,
) *kind[string, R] {
	return &kind[string, R]{
		target: target, stored: stored, named: named, from: from, to: to, key: key, clone: clone,
		compare: strings.Compare, after: same[string],
	}
}

// kinds returns all kinds of rows, in the order of the fields of [svc.Bundle].
func (r *rows) kinds(from, to *svc.Bundle, n *svc.AccessNames) []anyKind {
	users := byID(event.TargetUser, r.users, n.Users, &from.Users, &to.Users,
		func(u svc.User) string { return u.ID }, cloneUser)
	users.brief, users.wanted = withoutChannels, hasText
	users.extent = func(u svc.User) int { return len(u.Channels) }
	groups := byID(event.TargetGroup, r.groups, n.Groups, &from.Groups, &to.Groups,
		func(g svc.Group) string { return g.ID }, cloneGroup)
	groups.brief, groups.wanted = withoutMembers, hasMember
	groups.extent = func(g svc.Group) int { return len(g.Members) }
	accounts := byID(event.TargetServiceAccount, r.serviceAccounts, n.ServiceAccounts,
		&from.ServiceAccounts, &to.ServiceAccounts,
		func(a svc.ServiceAccount) string { return a.ID }, same)
	accounts.wanted = func(a svc.ServiceAccount, page *svc.AccessPage) bool {
		return or(page.User, a.OwnerUserID) && or(page.Policy, a.ScopingPolicyID)
	}
	accounts.refers = func(a svc.ServiceAccount) bool {
		return slices.Contains(n.AccountsOf, a.OwnerUserID) ||
			slices.Contains(n.UsesOf, a.ScopingPolicyID)
	}
	return []anyKind{
		users, groups, accounts,
		byID(event.TargetPolicy, r.policies, n.Policies, &from.Policies, &to.Policies,
			func(p svc.Policy) string { return p.ID }, clonePolicy),
		&kind[svc.AttachmentKey, svc.Attachment]{
			target: event.TargetAttachment, stored: r.attachments, named: n.Attachments,
			from: &from.Attachments, to: &to.Attachments, key: func(a svc.Attachment) svc.AttachmentKey {
				return svc.AttachmentKey{PolicyID: a.PolicyID, Principal: a.Principal}
			},
			clone: same[svc.Attachment], compare: byPrincipal, wanted: isTo,
			after: func(id string) svc.AttachmentKey { return svc.Target{ID: id}.Attachment() },
			refers: func(a svc.Attachment) bool {
				return slices.Contains(n.AttachmentsTo, a.Principal) ||
					slices.Contains(n.UsesOf, a.PolicyID)
			},
		},
		byID(event.TargetBankPolicy, r.bankPolicies, n.BankPolicies, &from.BankPolicies,
			&to.BankPolicies, func(p svc.BankPolicy) string { return p.BankID }, cloneBankPolicy),
		byID(event.TargetTest, r.tests, n.Tests, &from.Tests, &to.Tests,
			func(t svc.AccessTest) string { return t.ID }, same),
	}
}

// anyKind is a kind whose types are its own.
type anyKind interface {
	find()
	// page finds the rows of one chunk of a list, unless they are of another kind.
	page(page *svc.AccessPage)
	write(s *Store)
	remove(s *Store)
	// move moves rows, channels and members while there is room. Then none is left for other kinds.
	move(room *int)
}

func (k *kind[K, R]) find() {
	keys := k.named
	if k.refers != nil {
		keys = slices.Clone(keys)
		for key, row := range k.stored {
			if k.refers(row) {
				keys = append(keys, key)
			}
		}
	}
	found := map[K]bool{}
	for _, key := range keys {
		if row, there := k.stored[key]; there && !found[key] {
			found[key] = true
			*k.to = append(*k.to, k.clone(row))
		}
	}
}

func (k *kind[K, R]) page(page *svc.AccessPage) {
	clone := k.clone
	if page.Kind == k.target && k.brief != nil {
		clone = k.brief
	} else if page.Kind != k.target && page.Kind != "" {
		return
	}
	var keys []K
	for key, row := range k.stored {
		if k.wanted == nil || k.wanted(row, page) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, k.compare)
	keys = cut(keys, page, k.after(page.After), k.compare)
	*k.to = make([]R, len(keys))
	for i, key := range keys {
		(*k.to)[i] = clone(k.stored[key])
	}
}

func (k *kind[K, R]) write(s *Store) {
	for _, row := range *k.from {
		put(s, k.stored, k.key(row), k.clone(row))
	}
}

func (k *kind[K, R]) remove(s *Store) {
	for _, key := range k.named {
		drop(s, k.stored, key)
	}
}

func (k *kind[K, R]) move(room *int) {
	rows, n := *k.from, 0
	for ; n < len(rows) && *room > 0; n++ {
		*room--
		if k.extent != nil {
			*room -= k.extent(rows[n])
		}
	}
	if *k.from, *k.to = rows[n:], rows[:n:n]; n > 0 {
		*room = 0
	}
}

// byPrincipal is the order of attachments.
func byPrincipal(a, b svc.AttachmentKey) int {
	return cmp.Or(cmp.Compare(a.Principal.Type, b.Principal.Type),
		cmp.Compare(a.Principal.ID, b.Principal.ID), cmp.Compare(a.PolicyID, b.PolicyID))
}

func compareChannels(a, b svc.Channel) int {
	return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.SenderID, b.SenderID))
}

// cloneUser returns a copy whose channels are sorted, and not nil.
func cloneUser(user svc.User) svc.User {
	user.Email = cloneText(user.Email)
	user.Channels = append([]svc.Channel{}, user.Channels...)
	slices.SortFunc(user.Channels, compareChannels)
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
