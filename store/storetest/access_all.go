package storetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/extsvc/svc"
)

var accessRowsRules = []rule{
	{"AllAccess returns every row as it was written, in byte order of ids; " +
		"attachments by policy, principal type and principal id", func(c *checker) {
		c.apply(oddities())
		want := sortedBundle(oddities())
		for _, user := range want.Users {
			slices.SortFunc(user.Channels, compareChannels)
		}
		for _, group := range want.Groups {
			slices.Sort(group.Members)
		}
		c.same("rows", c.allAccess(), svc.AccessRows{Generation: c.generation(), Bundle: want})
	}},
	{"AllAccess never returns a nil list", func(c *checker) {
		for _, b := range []svc.Bundle{
			{}, {Users: users("alice"), Groups: []svc.Group{{ID: "empty"}}},
		} {
			c.apply(b)
			rows := c.allAccess()
			c.same("users", rows.Users, b.Users)
			if rows.Users == nil || rows.Groups == nil || rows.ServiceAccounts == nil ||
				rows.Policies == nil || rows.Attachments == nil || rows.BankPolicies == nil {
				c.fail("a list of rows is nil: %#v", rows)
			}
			for i := range b.Users {
				if rows.Users[i].Channels == nil || rows.Groups[i].Members == nil {
					c.fail("a user's channels or a group's members are nil")
				}
			}
		}
	}},
	{"AllAccess is one consistent snapshot: " +
		"it never mixes rows from before and after a change", func(c *checker) {
		c.neverMixes(func() (svc.AccessSnapshot, error) {
			rows, err := c.AllAccess(c.ctx)
			if err != nil {
				return svc.AccessSnapshot{}, err
			}
			snapshot := svc.AccessSnapshot{
				Generation: rows.Generation, User: &rows.Users[0],
				BankPolicy: &rows.BankPolicies[0],
			}
			for i, attachment := range rows.Attachments {
				snapshot.Grants = append(snapshot.Grants, svc.Grant{
					Policy: rows.Policies[i], Priority: attachment.Priority,
				})
			}
			return snapshot, nil
		})
	}},
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
	}
	return b
}

func compareChannels(a, b svc.Channel) int {
	return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.SenderID, b.SenderID))
}

func (c *checker) allAccess() svc.AccessRows {
	rows, err := c.AllAccess(c.ctx)
	c.ok(err)
	return rows
}
