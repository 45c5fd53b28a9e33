package storetest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
)

var readAccessRules = []rule{
	{"ReadAccess yields every row as it was written: users, groups, service accounts, policies, " +
		"attachments, bank policies, each kind in byte order of its keys", func(c *checker) {
		c.apply(oddities())
		want := sortedBundle(oddities())
		for _, user := range want.Users {
			slices.SortFunc(user.Channels, compareChannels)
		}
		for _, group := range want.Groups {
			slices.Sort(group.Members)
		}
		slices.SortStableFunc(want.Attachments, func(a, b svc.Attachment) int {
			return cmp.Or(cmp.Compare(a.Principal.Type, b.Principal.Type),
				cmp.Compare(a.Principal.ID, b.Principal.ID))
		})
		c.same("rows", c.allAccess(), want)
	}},
	{"ReadAccess yields no nil list of channels or members", func(c *checker) {
		c.apply(svc.Bundle{Users: users("alice"), Groups: []svc.Group{{ID: "empty"}}})
		rows := c.allAccess()
		if rows.Users[0].Channels == nil || rows.Groups[0].Members == nil {
			c.fail("a user's channels or a group's members are nil")
		}
	}},
	{"ReadAccess yields nothing for an empty store", func(c *checker) {
		c.same("rows", c.allAccess(), svc.Bundle{})
	}},
	{"ReadAccess with Bare leaves out names, emails and channels, " +
		"and nothing else", func(c *checker) {
		b := memorable()
		c.apply(b)
		bare := sortedBundle(b)
		for i, user := range bare.Users {
			bare.Users[i] = svc.User{ID: user.ID, Inactive: user.Inactive}
		}
		for i, group := range bare.Groups {
			bare.Groups[i].DisplayName = ""
			bare.Groups[i].Members = slices.Sorted(slices.Values(group.Members))
		}
		for i := range bare.ServiceAccounts {
			bare.ServiceAccounts[i].DisplayName = ""
		}
		for i := range bare.Policies {
			bare.Policies[i].DisplayName = ""
		}
		for _, read := range []svc.AccessRead{{Bare: true}, {Bare: true, Named: new(allOf(b))}} {
			rows, _ := c.readAccess(read)
			c.same("rows", sortedBundle(rows), bare)
		}
	}},
	{"ReadAccess with Named yields what ChangeAccess reads", func(c *checker) {
		b := memorable()
		c.apply(b)
		named := svc.AccessNames{
			Users: []string{"bob", "nobody"}, Groups: []string{"not hers"},
			MembersOf: []string{"empty"}, Policies: []string{"c"},
			Members:         []svc.Membership{{Group: "hers", User: "alice"}},
			Channels:        []svc.Channel{{Provider: "chat", SenderID: "1"}},
			ServiceAccounts: []string{"bot"}, BankPolicies: []string{"bank"}, Tests: []string{"t"},
			Attachments: []svc.AttachmentKey{keyOf(attach("d", svc.GrantedToUser, "bob", 0))},
			GroupsOf:    []string{"alice"}, AccountsOf: []string{"carol"}, UsesOf: []string{"a"},
			AttachmentsTo: []svc.GrantedTo{{Type: svc.GrantedToGroup, ID: "hers"}},
		}
		rows, changes := c.readAccess(svc.AccessRead{Named: &named})
		c.same("rows", sortedBundle(rows), sortedBundle(c.current(named)))
		c.same("changes", changes, svc.StoreChanges{Generation: c.generation()})
		rows, _ = c.readAccess(svc.AccessRead{Named: &svc.AccessNames{}})
		c.same("rows without names", rows, svc.Bundle{})
	}},
	{"ReadAccess with Since yields the rows of access that changed after it, " +
		"and returns their targets", func(c *checker) {
		c.apply(memorable())
		since := c.generation()
		c.ok(createAndChange(c.ctx, c.Store, newKey("k", alice, at(0))))
		member := svc.Membership{Group: "hers", User: "carol"}
		left := svc.Membership{Group: "hers", User: "bob"}
		channel := svc.Channel{Provider: "chat", SenderID: "1:1"}
		carol := svc.User{ID: "carol", DisplayName: "Carol", Channels: []svc.Channel{channel}}
		c.write(svc.AccessWrite{
			Bundle: svc.Bundle{Users: []svc.User{carol}},
			Join:   []svc.Membership{member}, Leave: []svc.Membership{left},
			Targets: []svc.Target{
				joined(member), joined(left), {Kind: event.TargetChannel, ID: channel.String()},
			},
			Renamed: []svc.Target{{Kind: event.TargetPolicy, ID: "a"}},
		})
		grant := attach("d", svc.GrantedToGroup, "not hers", 7)
		c.apply(svc.Bundle{Attachments: []svc.Attachment{grant}})
		rows, changes := c.readAccess(svc.AccessRead{Since: since})
		c.same("rows", rows, svc.Bundle{
			Users:       []svc.User{carol},
			Groups:      []svc.Group{{ID: "hers", Members: []string{"carol"}}},
			Policies:    []svc.Policy{newPolicy("a")},
			Attachments: []svc.Attachment{grant},
		})
		c.same("changes", changes, svc.StoreChanges{
			Generation: since + 3,
			Targets: []svc.Target{
				joined(member), joined(left), {Kind: event.TargetChannel, ID: channel.String()},
				{Kind: event.TargetAttachment, ID: "d/group/not hers"},
			},
			Renamed: []svc.Target{{Kind: event.TargetPolicy, ID: "a"}},
		})
		rows, changes = c.readAccess(svc.AccessRead{Since: since + 3})
		c.same("rows of no change", rows, svc.Bundle{})
		c.same("no change", changes, svc.StoreChanges{Generation: since + 3})
	}},
	{"ReadAccess with Since yields all members of a group " +
		"when an event.TargetMember has no Holder", func(c *checker) {
		c.apply(memorable())
		since := c.generation()
		c.write(svc.AccessWrite{
			Join:    []svc.Membership{{Group: "hers", User: "carol"}},
			Targets: []svc.Target{{Kind: event.TargetMember, ID: "hers"}},
		})
		rows, _ := c.readAccess(svc.AccessRead{Since: since})
		c.same("rows", rows, svc.Bundle{Groups: []svc.Group{
			{ID: "hers", Members: []string{"alice", "bob", "carol"}},
		}})
	}},
	{"ReadAccess with Since is a Reset with every row after an event.TargetAccess, " +
		"and for a generation that the store does not remember", func(c *checker) {
		c.apply(memorable())
		generation := c.generation()
		write := svc.Bundle{Users: users("dave")}.Write()
		write.Targets = []svc.Target{{Kind: event.TargetAccess}}
		c.write(write)
		all := c.allAccess()
		for _, since := range []int64{generation, generation + 2, 1 << 62} {
			rows, changes := c.readAccess(svc.AccessRead{Since: since})
			c.same("rows", rows, all)
			c.same("changes", changes, svc.StoreChanges{Generation: generation + 1, Reset: true})
		}
	}},
	{"ReadAccess returns the error of yield unwrapped, and yields nothing more", func(c *checker) {
		c.apply(memorable())
		for _, read := range []svc.AccessRead{{}, {Named: new(allOf(memorable()))}} {
			parts := 0
			_, err := c.ReadAccess(c.ctx, read, func(svc.Bundle) error {
				parts++
				return errRefused
			})
			if err != errRefused || parts != 1 {
				c.fail("ReadAccess yielded %d parts and returned %v, want one part and exactly %v",
					parts, err, errRefused)
			}
		}
	}},
	{"ReadAccess in a transaction reads what the transaction wrote", func(c *checker) {
		c.ok(c.Atomically(c.ctx, func(ctx context.Context, tx svc.Store) error {
			c.ok(change(ctx, tx, memorable()))
			rows := 0
			_, err := tx.ReadAccess(ctx, svc.AccessRead{}, func(part svc.Bundle) error {
				rows += len(part.Users)
				return nil
			})
			c.same("users", rows, len(memorable().Users))
			return err
		}))
	}},
	{"ReadAccess is one consistent snapshot: " +
		"it never mixes rows from before and after a change", func(c *checker) {
		c.neverMixes(func() svc.AccessSnapshot { return c.asSnapshot(svc.AccessRead{}) })
	}},
	{"ReadAccess with Since is one consistent snapshot: its rows are of its generation, " +
		"and the next call has all later changes", func(c *checker) {
		c.neverMixes(func() svc.AccessSnapshot {
			since := max(1, must(c.Access(c.ctx, svc.AccessQuery{})).Generation-1)
			seen := c.asSnapshot(svc.AccessRead{Since: since})
			if seen.Generation == since {
				return must(c.Access(c.ctx, svc.AccessQuery{Identity: alice, BankID: "b"}))
			}
			return seen
		})
	}},
}

// largeAccessRules are slow: -short skips them.
var largeAccessRules = []rule{
	{"ReadAccess yields parts of at most 5,000 rows, channels and memberships", func(c *checker) {
		var b svc.Bundle
		for i := range 5500 {
			b.Users = append(b.Users, svc.User{ID: fmt.Sprintf("%04d", i), Inactive: i%3 == 0})
		}
		all := column(b.Users, userID)
		b.Groups = []svc.Group{
			{ID: "a"}, {ID: "g", Members: all}, {ID: "h"}, {ID: "i", Members: all[:3]},
		}
		c.apply(b)
		for _, read := range []svc.AccessRead{{}, {Bare: true}, {Named: new(allOf(b))}} {
			var rows svc.Bundle
			_, err := c.ReadAccess(c.ctx, read, func(part svc.Bundle) error {
				n := len(part.Users) + len(part.Groups)
				for _, group := range part.Groups {
					n += len(group.Members)
				}
				if n > 5000 {
					return fmt.Errorf("a part has %d", n)
				}
				return collect(&rows)(part)
			})
			c.ok(err)
			c.same("rows", sortedBundle(rows), b)
		}
	}},
}

// asSnapshot reads the rows that neverMixes writes.
func (c *checker) asSnapshot(read svc.AccessRead) (seen svc.AccessSnapshot) {
	rows, changes := c.readAccess(read)
	seen.Generation = changes.Generation
	for i := range rows.Users {
		seen.User = &rows.Users[i]
	}
	for i := range rows.BankPolicies {
		seen.BankPolicy = &rows.BankPolicies[i]
	}
	for i := range min(len(rows.Attachments), len(rows.Policies)) {
		seen.Grants = append(seen.Grants, svc.Grant{
			Policy: rows.Policies[i], Priority: rows.Attachments[i].Priority,
		})
	}
	return seen
}

// joined is the target of a membership.
func joined(m svc.Membership) svc.Target {
	return svc.Target{Kind: event.TargetMember, ID: m.Group, Holder: asUser(m.User)}
}

// collect returns a yield function that joins parts in rows.
func collect(rows *svc.Bundle) func(svc.Bundle) error {
	return func(part svc.Bundle) error {
		rows.Users = append(rows.Users, part.Users...)
		for _, g := range part.Groups {
			if n := len(rows.Groups); n > 0 && rows.Groups[n-1].ID == g.ID {
				last := &rows.Groups[n-1]
				last.Members = append(last.Members, g.Members...)
			} else {
				rows.Groups = append(rows.Groups, g)
			}
		}
		rows.ServiceAccounts = append(rows.ServiceAccounts, part.ServiceAccounts...)
		rows.Policies = append(rows.Policies, part.Policies...)
		rows.Attachments = append(rows.Attachments, part.Attachments...)
		rows.BankPolicies = append(rows.BankPolicies, part.BankPolicies...)
		rows.Tests = append(rows.Tests, part.Tests...)
		return nil
	}
}

// oddities returns a row of each kind for every odd id, unsorted.
func oddities() svc.Bundle {
	b := svc.Bundle{Groups: []svc.Group{{ID: "everybody", Members: scrambled(odd)}}}
	for i, id := range scrambled(odd) {
		document := json.RawMessage(fmt.Sprintf(`{"n":%d.0}`, i))
		b.Users = append(b.Users, svc.User{
			ID: id, DisplayName: "user " + id, Email: new(id), Inactive: i%2 == 0,
			Channels: []svc.Channel{
				{Provider: "p", SenderID: id}, {Provider: "P", SenderID: id},
				{Provider: "p", SenderID: "also " + id},
			},
		})
		b.Groups = append(b.Groups, svc.Group{ID: id, DisplayName: "group " + id})
		b.ServiceAccounts = append(b.ServiceAccounts, svc.ServiceAccount{
			ID: id, OwnerUserID: id, ScopingPolicyID: id, Inactive: i%2 == 0,
		})
		b.Policies = append(b.Policies, svc.Policy{
			ID: id, DisplayName: "policy " + id, Document: document,
		})
		b.Attachments = append(b.Attachments,
			attach(id, svc.GrantedToUser, id, int64(i)),
			attach(id, svc.GrantedToGroup, id, -int64(i)),
			attach(id, svc.GrantedToGroup, "everybody", 0))
		b.BankPolicies = append(b.BankPolicies, svc.BankPolicy{BankID: id, Document: document})
		b.Tests = append(b.Tests, newTest(id, i%2 == 0))
	}
	return b
}

func compareChannels(a, b svc.Channel) int {
	return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.SenderID, b.SenderID))
}

// readAccess reads rows of access, and what the store says of them.
func (c *checker) readAccess(read svc.AccessRead) (rows svc.Bundle, changes svc.StoreChanges) {
	changes = must(c.ReadAccess(c.ctx, read, collect(&rows)))
	return rows, changes
}

// allAccess reads every row of access, at the store's generation.
func (c *checker) allAccess() svc.Bundle {
	rows, changes := c.readAccess(svc.AccessRead{})
	c.same("changes", changes, svc.StoreChanges{Generation: c.generation()})
	return rows
}
