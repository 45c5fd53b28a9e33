package memstore

import (
	"slices"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/text"
)

// page returns copies of the rows of one chunk of a list.
func (s *Store) page(page svc.AccessPage) (b svc.Bundle) {
	switch page.Kind {
	case event.TargetUser:
		b.Users = chunk(s.users, page, page.After, strings.Compare, withoutChannels,
			func(u svc.User) bool { return has(u, page.Text) })
	case event.TargetGroup:
		b.Groups = chunk(s.groups, page, page.After, strings.Compare, withoutMembers,
			func(g svc.Group) bool {
				return page.User == "" || slices.Contains(g.Members, page.User)
			})
	case event.TargetServiceAccount:
		b.ServiceAccounts = chunk(s.serviceAccounts, page, page.After, strings.Compare, same,
			func(a svc.ServiceAccount) bool {
				return or(page.User, a.OwnerUserID) && or(page.Policy, a.ScopingPolicyID)
			})
	case event.TargetPolicy:
		b.Policies = chunk(s.policies, page, page.After, strings.Compare, clonePolicy,
			func(svc.Policy) bool { return true })
	case event.TargetBankPolicy:
		b.BankPolicies = chunk(s.bankPolicies, page, page.After, strings.Compare, cloneBankPolicy,
			func(svc.BankPolicy) bool { return true })
	case event.TargetTest:
		b.Tests = chunk(s.tests, page, page.After, strings.Compare, same, func(svc.AccessTest) bool { return true })
	case event.TargetAttachment:
		after := svc.Target{ID: page.After}.Attachment()
		b.Attachments = chunk(s.attachments, page, after, byPrincipal, same,
			func(a svc.Attachment) bool {
				return or(page.Policy, a.PolicyID) &&
					to(page.User, svc.GrantedToUser, a) && to(page.Group, svc.GrantedToGroup, a)
			})
	case event.TargetChannel:
		after := svc.Target{ID: page.After}.Channel()
		channels := cut(s.users[page.User].Channels, page, after, compareChannels)
		for some := range slices.Chunk(channels, partSize) {
			b.Users = append(b.Users, cloneUser(svc.User{ID: page.User, Channels: some}))
		}
	case event.TargetMember:
		members := cut(s.groups[page.Group].Members, page, page.After, strings.Compare)
		if len(members) > 0 {
			b.Groups = []svc.Group{cloneGroup(svc.Group{ID: page.Group, Members: members})}
		}
	}
	return b
}

// or reports whether a filter is "" or the value.
func or(filter, value string) bool { return filter == "" || filter == value }

// to reports whether id is "" or a is an attachment to it.
func to(id, kind string, a svc.Attachment) bool {
	return id == "" || a.Principal == svc.GrantedTo{Type: kind, ID: id}
}

// has reports whether a text finds a user.
func has(user svc.User, text string) bool {
	return begins(user.ID, text) || begins(user.DisplayName, text) ||
		user.Email != nil && begins(*user.Email, text)
}

// begins is strings.HasPrefix for which upper and lower case are the same.
func begins(s, prefix string) bool { return strings.HasPrefix(text.Fold(s), text.Fold(prefix)) }

func withoutMembers(group svc.Group) svc.Group {
	group.Members = nil
	return group
}

// chunk returns copies of the wanted rows of a page, whose list starts behind the key after.
func chunk[K comparable, R any](
	rows map[K]R, page svc.AccessPage, after K, compare func(a, b K) int,
	clone func(R) R, wanted func(R) bool,
) []R {
	var keys []K
	for key, row := range rows {
		if wanted(row) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, compare)
	return pick(rows, cut(keys, page, after, compare), clone)
}

// cut returns those of the sorted keys that are on the page.
func cut[K any](keys []K, page svc.AccessPage, after K, compare func(a, b K) int) []K {
	from, _ := slices.BinarySearchFunc(keys, after, func(key, after K) int {
		if compare(key, after) > 0 {
			return 1
		}
		return -1
	})
	keys = keys[min(from+page.Skip, len(keys)):]
	return keys[:min(page.Limit, len(keys))]
}
