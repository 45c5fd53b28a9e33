package memstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/extsvc/svc"
)

// Access implements [svc.AccessStore].
func (s *Store) Access(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
	if err := s.lock(ctx); err != nil {
		return svc.AccessSnapshot{}, err
	}
	defer s.mu.Unlock()
	snapshot := svc.AccessSnapshot{
		Generation: s.generation,
		Key:        findOrNil(s.keys, query.KeyID, cloneKey),
		BankPolicy: findOrNil(s.bankPolicies, query.BankID, cloneBankPolicy),
		Keys:       s.countKeys(query.KeysOf, query.Most, query.ValidAt),
	}
	who, narrowedBy := query.Identity, query.ScopingPolicyID
	if snapshot.Key != nil {
		who, narrowedBy = snapshot.Key.Holder, snapshot.Key.ScopingPolicyID
	} else if holder, held := s.channels[query.Channel]; held {
		who = svc.Identity{Kind: svc.KindUser, ID: holder}
	}
	snapshot.Narrowing = findOrNil(s.policies, narrowedBy, clonePolicy)
	switch who.Kind {
	case svc.KindUser:
		snapshot.User = findOrNil(s.users, who.ID, withoutChannels)
	case svc.KindServiceAccount:
		if account := findOrNil(s.serviceAccounts, who.ID, same); account != nil {
			snapshot.ServiceAccount = account
			snapshot.User = findOrNil(s.users, account.OwnerUserID, withoutChannels)
			snapshot.Scoping = findOrNil(s.policies, account.ScopingPolicyID, clonePolicy)
		}
	}
	if snapshot.User != nil && !query.Bare {
		snapshot.Grants = s.grants(snapshot.User.ID)
		for id, group := range s.groups {
			if slices.Contains(group.Members, snapshot.User.ID) {
				snapshot.Groups = append(snapshot.Groups, id)
			}
		}
	}
	return snapshot, nil
}

func (s *Store) grants(userID string) []svc.Grant {
	var grants []svc.Grant
	clones := map[string]*svc.Policy{} // the grants of a policy share its document
	for key, attachment := range s.attachments {
		if !s.reaches(key.Principal, userID) {
			continue
		}
		policy := clones[key.PolicyID]
		if policy == nil {
			policy = findOrNil(s.policies, key.PolicyID, clonePolicy)
			clones[key.PolicyID] = policy
		}
		if policy != nil {
			grants = append(grants, svc.Grant{
				Policy: *policy, Principal: key.Principal, Priority: attachment.Priority,
			})
		}
	}
	return grants
}

func (s *Store) reaches(principal svc.GrantedTo, userID string) bool {
	switch principal.Type {
	case svc.GrantedToUser:
		return principal.ID == userID
	case svc.GrantedToGroup:
		return slices.Contains(s.groups[principal.ID].Members, userID)
	}
	return false
}

// ChangeAccess implements [svc.AccessStore].
func (s *Store) ChangeAccess(
	ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error),
) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	write, err := change(s.current(named))
	if err != nil || write.Empty() {
		return err
	}
	channels, err := s.channelsAfter(write)
	if err != nil {
		return err
	}
	s.channels = channels
	gone, unbound := s.remove(write.Remove)
	s.write(write)
	if write.Gone != nil {
		write.Gone(slices.Clone(gone))
	}
	s.record(svc.StoreChanges{
		Targets: slices.Concat(write.Targets, gone, unbound),
		Renamed: slices.Clone(write.Renamed),
	})
	if write.Progress != nil {
		write.Progress(write.Size())
	}
	return nil
}

// current returns the rows that named lists, and the users that hold its channels.
func (s *Store) current(named svc.AccessNames) svc.Bundle {
	users := slices.Clone(named.Users)
	for _, channel := range named.Channels {
		if holder, held := s.channels[channel]; held {
			users = append(users, holder)
		}
	}
	groups := slices.Concat(named.Groups, named.MembersOf)
	members := map[string]map[string]bool{}
	for _, m := range slices.Concat(named.Members, s.membershipsOf(named.GroupsOf)) {
		if members[m.Group] == nil {
			members[m.Group] = map[string]bool{}
			groups = append(groups, m.Group)
		}
		members[m.Group][m.User] = true
	}
	for _, group := range named.MembersOf {
		members[group] = nil // all
	}
	return svc.Bundle{
		Users: pick(s.users, users, cloneUser),
		Groups: pick(s.groups, groups, func(g svc.Group) svc.Group {
			g = cloneGroup(g)
			if some, named := members[g.ID]; some != nil || !named {
				g.Members = slices.DeleteFunc(g.Members, func(id string) bool { return !some[id] })
			}
			return g
		}),
		ServiceAccounts: pick(s.serviceAccounts, s.accountsOf(named), same),
		Policies:        pick(s.policies, named.Policies, clonePolicy),
		Attachments:     pick(s.attachments, s.attachmentsOf(named), same),
		BankPolicies:    pick(s.bankPolicies, named.BankPolicies, cloneBankPolicy),
		Tests:           pick(s.tests, named.Tests, same),
	}
}

// membershipsOf returns the memberships of users.
func (s *Store) membershipsOf(users []string) (memberships []svc.Membership) {
	for id, group := range s.groups {
		for _, user := range users {
			if slices.Contains(group.Members, user) {
				memberships = append(memberships, svc.Membership{Group: id, User: user})
			}
		}
	}
	return memberships
}

// accountsOf returns the ids of the named service accounts.
func (s *Store) accountsOf(named svc.AccessNames) []string {
	ids := slices.Clone(named.ServiceAccounts)
	for id, account := range s.serviceAccounts {
		if slices.Contains(named.AccountsOf, account.OwnerUserID) ||
			slices.Contains(named.UsesOf, account.ScopingPolicyID) {
			ids = append(ids, id)
		}
	}
	return ids
}

// attachmentsOf returns the keys of the named attachments.
func (s *Store) attachmentsOf(named svc.AccessNames) []svc.AttachmentKey {
	keys := slices.Clone(named.Attachments)
	for key := range s.attachments {
		if slices.Contains(named.AttachmentsTo, key.Principal) ||
			slices.Contains(named.UsesOf, key.PolicyID) {
			keys = append(keys, key)
		}
	}
	return keys
}

// pick returns copies of the rows with the keys, each once.
func pick[K comparable, R any](rows map[K]R, keys []K, clone func(R) R) []R {
	var list []R
	seen := map[K]bool{}
	for _, key := range keys {
		if row, there := rows[key]; there && !seen[key] {
			seen[key] = true
			list = append(list, clone(row))
		}
	}
	return list
}

// channelsAfter returns the holder of each channel after a write.
func (s *Store) channelsAfter(write svc.AccessWrite) (map[svc.Channel]string, error) {
	after := map[svc.Channel]string{}
	gone := map[string]bool{}
	for _, user := range write.Users {
		gone[user.ID] = true
	}
	for _, id := range write.Remove.Users {
		gone[id] = true
	}
	for channel, holder := range s.channels {
		if !gone[holder] && !slices.Contains(write.Remove.Channels, channel) {
			after[channel] = holder
		}
	}
	for _, user := range write.Users {
		for _, channel := range user.Channels {
			if other, held := after[channel]; held && other != user.ID {
				return nil, fmt.Errorf(
					"another user holds the channel %q of %q: remove it there first",
					channel.SenderID, channel.Provider,
				)
			}
			after[channel] = user.ID
		}
	}
	return after, nil
}

// write upserts rows. It stores lists sorted, because reads return them sorted.
func (s *Store) write(b svc.AccessWrite) {
	for _, user := range b.Users {
		user = cloneUser(user)
		slices.SortFunc(user.Channels, compareChannels)
		user.Channels = slices.Compact(user.Channels)
		put(s, s.users, user.ID, user)
	}
	for _, group := range b.Groups {
		group.Members = s.groups[group.ID].Members
		put(s, s.groups, group.ID, group)
	}
	s.changeMembers(b.Join, b.Leave)
	for _, account := range b.ServiceAccounts {
		put(s, s.serviceAccounts, account.ID, account)
	}
	for _, policy := range b.Policies {
		put(s, s.policies, policy.ID, clonePolicy(policy))
	}
	for _, attachment := range b.Attachments {
		put(s, s.attachments, svc.AttachmentKey{
			PolicyID: attachment.PolicyID, Principal: attachment.Principal,
		}, attachment)
	}
	for _, policy := range b.BankPolicies {
		put(s, s.bankPolicies, policy.BankID, cloneBankPolicy(policy))
	}
	for _, test := range b.Tests {
		put(s, s.tests, test.ID, test)
	}
}

// changeMembers adds and removes memberships.
func (s *Store) changeMembers(join, leave []svc.Membership) {
	groups := map[string]svc.Group{}
	changed := func(id string) svc.Group {
		if group, there := groups[id]; there {
			return group
		}
		return cloneGroup(s.groups[id])
	}
	left := map[svc.Membership]bool{}
	for _, m := range leave {
		if _, there := s.groups[m.Group]; there {
			left[m] = true
			groups[m.Group] = changed(m.Group)
		}
	}
	for id, group := range groups {
		group.Members = slices.DeleteFunc(group.Members, func(user string) bool {
			return left[svc.Membership{Group: id, User: user}]
		})
		groups[id] = group
	}
	for _, m := range join {
		group := changed(m.Group)
		group.Members = append(group.Members, m.User)
		groups[m.Group] = group
	}
	for id, group := range groups {
		slices.Sort(group.Members)
		group.Members = slices.Compact(group.Members)
		put(s, s.groups, id, group)
	}
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

func clonePolicy(policy svc.Policy) svc.Policy {
	policy.Document = bytes.Clone(policy.Document)
	return policy
}

func cloneBankPolicy(policy svc.BankPolicy) svc.BankPolicy {
	policy.Document = bytes.Clone(policy.Document)
	return policy
}

// ReadAccess implements [svc.AccessStore].
func (s *Store) ReadAccess(
	ctx context.Context, read svc.AccessRead, yield func(svc.Bundle) error,
) (svc.StoreChanges, error) {
	rows, changes, err := s.readAccess(ctx, read)
	if err != nil {
		return svc.StoreChanges{}, err
	}
	if err := inParts(rows, yield); err != nil {
		return svc.StoreChanges{}, err
	}
	return changes, nil
}

// readAccess returns copies of the rows that read asks for.
func (s *Store) readAccess(
	ctx context.Context, read svc.AccessRead,
) (rows svc.Bundle, changes svc.StoreChanges, err error) {
	if err := s.lock(ctx); err != nil {
		return rows, changes, err
	}
	defer s.mu.Unlock()
	changes.Generation = s.generation
	named := read.Named
	if read.Since > 0 {
		var names svc.AccessNames
		if changes, names = s.changesSince(read.Since).OfAccess(); !changes.Reset {
			named = &names
		}
	}
	switch {
	case read.Page != nil:
		rows = s.page(*read.Page)
	case named != nil:
		rows = s.current(*named)
	default:
		rows = s.all()
	}
	if read.Bare {
		rows.Bare()
	}
	return rows, changes, nil
}

// all returns copies of all rows, sorted.
func (s *Store) all() svc.Bundle {
	return svc.Bundle{
		Users:           sorted(s.users, strings.Compare, cloneUser),
		Groups:          sorted(s.groups, strings.Compare, cloneGroup),
		ServiceAccounts: sorted(s.serviceAccounts, strings.Compare, same),
		Policies:        sorted(s.policies, strings.Compare, clonePolicy),
		Attachments:     sorted(s.attachments, byPrincipal, same),
		BankPolicies:    sorted(s.bankPolicies, strings.Compare, cloneBankPolicy),
		Tests:           sorted(s.tests, strings.Compare, same),
	}
}

// byPrincipal is the order of attachments.
func byPrincipal(a, b svc.AttachmentKey) int {
	return cmp.Or(cmp.Compare(a.Principal.Type, b.Principal.Type),
		cmp.Compare(a.Principal.ID, b.Principal.ID), cmp.Compare(a.PolicyID, b.PolicyID))
}

// partSize is the most rows of a part, and the most members of its group.
const partSize = 1000

// inParts calls yield with rows in parts.
func inParts(b svc.Bundle, yield func(svc.Bundle) error) (err error) {
	var groups []svc.Group
	for _, g := range b.Groups {
		members := g.Members
		for ; len(members) > partSize; members = members[partSize:] {
			g.Members = members[:partSize:partSize]
			groups = append(groups, g)
		}
		g.Members = members
		groups = append(groups, g)
	}
	split(&err, b.Users, func(u svc.User) int { return 1 + len(u.Channels) },
		func(users []svc.User) error { return yield(svc.Bundle{Users: users}) })
	split(&err, groups, func(g svc.Group) int { return 1 + len(g.Members) },
		func(groups []svc.Group) error { return yield(svc.Bundle{Groups: groups}) })
	split(&err, b.ServiceAccounts, one, func(accounts []svc.ServiceAccount) error {
		return yield(svc.Bundle{ServiceAccounts: accounts})
	})
	split(&err, b.Policies, one, func(policies []svc.Policy) error {
		return yield(svc.Bundle{Policies: policies})
	})
	split(&err, b.Attachments, one, func(attachments []svc.Attachment) error {
		return yield(svc.Bundle{Attachments: attachments})
	})
	split(&err, b.BankPolicies, one, func(policies []svc.BankPolicy) error {
		return yield(svc.Bundle{BankPolicies: policies})
	})
	split(&err, b.Tests, one, func(tests []svc.AccessTest) error {
		return yield(svc.Bundle{Tests: tests})
	})
	return err
}

// split calls yield with parts of rows until err is set.
func split[R any](err *error, rows []R, weight func(R) int, yield func(part []R) error) {
	for len(rows) > 0 && *err == nil {
		n := 0
		for sum := 0; n < len(rows) && sum < partSize; n++ {
			sum += weight(rows[n])
		}
		*err = yield(rows[:n:n])
		rows = rows[n:]
	}
}

func one[R any](R) int { return 1 }

// sorted returns copies of all rows, sorted by key.
func sorted[K comparable, R any](rows map[K]R, compare func(a, b K) int, clone func(R) R) []R {
	list := make([]R, 0, len(rows))
	for _, key := range slices.SortedFunc(maps.Keys(rows), compare) {
		list = append(list, clone(rows[key]))
	}
	return list
}
