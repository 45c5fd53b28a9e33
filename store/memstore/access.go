package memstore

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

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
func (s *Store) current(named svc.AccessNames) (b svc.Bundle) {
	some, whole := map[svc.Membership]bool{}, map[string]bool{}
	named.Groups = slices.Concat(named.Groups, named.MembersOf)
	for _, m := range slices.Concat(named.Members, s.membershipsOf(named.GroupsOf)) {
		some[m] = true
		named.Groups = append(named.Groups, m.Group)
	}
	for _, group := range named.MembersOf {
		whole[group] = true
	}
	named.Users = slices.Concat(named.Users, s.holdersOf(named.Channels))
	for _, k := range s.kinds(&b, &b, &named) {
		k.find()
	}
	for i, g := range b.Groups {
		if !whole[g.ID] {
			b.Groups[i].Members = slices.DeleteFunc(g.Members, func(id string) bool {
				return !some[svc.Membership{Group: g.ID, User: id}]
			})
		}
	}
	return b
}

// holdersOf returns the users that hold channels.
func (s *Store) holdersOf(channels []svc.Channel) (users []string) {
	for _, channel := range channels {
		if holder, held := s.channels[channel]; held {
			users = append(users, holder)
		}
	}
	return users
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

// channelsAfter returns the holder of each channel after a write.
func (s *Store) channelsAfter(write svc.AccessWrite) (map[svc.Channel]string, error) {
	gone := map[string]bool{}
	for _, user := range write.Users {
		gone[user.ID] = true
	}
	for _, id := range write.Remove.Users {
		gone[id] = true
	}
	after := maps.Clone(s.channels)
	maps.DeleteFunc(after, func(channel svc.Channel, holder string) bool {
		return gone[holder] || slices.Contains(write.Remove.Channels, channel)
	})
	for _, user := range write.Users {
		for _, channel := range user.Channels {
			if _, held := after[channel]; held {
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

// write upserts rows.
func (s *Store) write(w svc.AccessWrite) {
	w.Groups = slices.Clone(w.Groups)
	for i, group := range w.Groups {
		w.Groups[i].Members = s.groups[group.ID].Members
	}
	for _, k := range s.kinds(&w.Bundle, &w.Bundle, &w.Remove) {
		k.write(s)
	}
	s.changeMembers(w.Join, w.Leave)
}

// changeMembers adds and removes memberships. It stores members sorted, as reads return them.
func (s *Store) changeMembers(join, leave []svc.Membership) {
	left := map[svc.Membership]bool{}
	joined := map[string][]string{} // who joins, for each group that changes
	for _, m := range leave {
		left[m], joined[m.Group] = true, nil
	}
	for _, m := range join {
		joined[m.Group] = append(joined[m.Group], m.User)
	}
	for id, users := range joined {
		group, there := s.groups[id]
		if !there {
			continue
		}
		users = slices.DeleteFunc(slices.Concat(group.Members, users), func(user string) bool {
			return left[svc.Membership{Group: id, User: user}]
		})
		slices.Sort(users)
		group.Members = slices.Compact(users)
		put(s, s.groups, id, group)
	}
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
		rows = s.page(read.Page)
	case named != nil:
		rows = s.current(*named)
	default:
		rows = s.page(&svc.AccessPage{Limit: math.MaxInt})
	}
	if read.Bare {
		rows.Bare()
	}
	return rows, changes, nil
}

// partSize is the most rows of a part, and the most members of its group.
const partSize = 1000

// inParts calls yield with rows in parts.
func inParts(b svc.Bundle, yield func(svc.Bundle) error) error {
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
	b.Groups = groups
	for !b.Empty() {
		var part svc.Bundle
		room := partSize
		for _, k := range (&rows{}).kinds(&b, &part, &svc.AccessNames{}) {
			k.move(&room)
		}
		if err := yield(part); err != nil {
			return err
		}
	}
	return nil
}
