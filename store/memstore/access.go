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
	if snapshot.User != nil {
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
	for key, attachment := range s.attachments {
		if !s.reaches(key.Principal, userID) {
			continue
		}
		if policy := findOrNil(s.policies, key.PolicyID, clonePolicy); policy != nil {
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
	ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.Bundle, error),
) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	bundle, err := change(s.current(named))
	if err != nil || bundle.Empty() {
		return err
	}
	channels, err := s.channelsAfter(bundle.Users)
	if err != nil {
		return err
	}
	s.channels = channels
	s.write(bundle)
	s.recordChange(bundle.Targets()...)
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
	return svc.Bundle{
		Users:           pick(s.users, users, cloneUser),
		Groups:          pick(s.groups, named.Groups, cloneGroup),
		ServiceAccounts: pick(s.serviceAccounts, named.ServiceAccounts, same),
		Policies:        pick(s.policies, named.Policies, clonePolicy),
		Attachments:     pick(s.attachments, named.Attachments, same),
		BankPolicies:    pick(s.bankPolicies, named.BankPolicies, cloneBankPolicy),
	}
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

// channelsAfter returns the holder of each channel after users are written.
func (s *Store) channelsAfter(users []svc.User) (map[svc.Channel]string, error) {
	after := map[svc.Channel]string{}
	written := map[string]bool{}
	for _, user := range users {
		written[user.ID] = true
	}
	for channel, holder := range s.channels {
		if !written[holder] {
			after[channel] = holder
		}
	}
	for _, user := range users {
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
func (s *Store) write(b svc.Bundle) {
	for _, user := range b.Users {
		user = cloneUser(user)
		slices.SortFunc(user.Channels, compareChannels)
		user.Channels = slices.Compact(user.Channels)
		put(s, s.users, user.ID, user)
	}
	for _, group := range b.Groups {
		group = cloneGroup(group)
		slices.Sort(group.Members)
		group.Members = slices.Compact(group.Members)
		put(s, s.groups, group.ID, group)
	}
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

// AllAccess implements [svc.AccessStore].
func (s *Store) AllAccess(ctx context.Context) (svc.AccessRows, error) {
	if err := s.lock(ctx); err != nil {
		return svc.AccessRows{}, err
	}
	defer s.mu.Unlock()
	return svc.AccessRows{Generation: s.generation, Bundle: svc.Bundle{
		Users:           sorted(s.users, strings.Compare, cloneUser),
		Groups:          sorted(s.groups, strings.Compare, cloneGroup),
		ServiceAccounts: sorted(s.serviceAccounts, strings.Compare, same),
		Policies:        sorted(s.policies, strings.Compare, clonePolicy),
		Attachments:     sorted(s.attachments, svc.AttachmentKey.Compare, same),
		BankPolicies:    sorted(s.bankPolicies, strings.Compare, cloneBankPolicy),
	}}, nil
}

// sorted returns copies of all rows, sorted by key.
func sorted[K comparable, R any](rows map[K]R, compare func(a, b K) int, clone func(R) R) []R {
	list := make([]R, 0, len(rows))
	for _, key := range slices.SortedFunc(maps.Keys(rows), compare) {
		list = append(list, clone(rows[key]))
	}
	return list
}
