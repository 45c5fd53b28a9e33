package storetest

import (
	"fmt"

	"github.com/extsvc/svc"
)

var accessRules = []rule{
	{"a user is read as it was written, " +
		"with channels sorted by provider and sender", func(c *checker) {
		full := svc.User{
			ID: "alice", DisplayName: "Alice", Email: new("a@b.example"), Inactive: true,
			Channels: []svc.Channel{
				{Provider: "sms", SenderID: "9"}, {Provider: "chat", SenderID: "b"},
				{Provider: "chat", SenderID: "B"}, {Provider: "chat", SenderID: "a:1"},
			},
		}
		empty := svc.User{ID: "empty", Email: new("")}
		c.apply(svc.Bundle{Users: []svc.User{full, empty, {ID: "bare"}}})
		full.Channels = []svc.Channel{
			{Provider: "chat", SenderID: "B"}, {Provider: "chat", SenderID: "a:1"},
			{Provider: "chat", SenderID: "b"}, {Provider: "sms", SenderID: "9"},
		}
		for _, want := range []svc.User{full, empty, {ID: "bare"}} {
			named := svc.AccessNames{Users: []string{want.ID}}
			c.same("user", c.current(named).Users, []svc.User{want})
			want.Channels = nil
			c.same("user of a snapshot", c.user(want.ID), &want)
		}
	}},
	{"a service account is read as it was written", func(c *checker) {
		full := svc.ServiceAccount{
			ID: "full", DisplayName: "Full", OwnerUserID: "alice", ScopingPolicyID: "p",
			Inactive: true,
		}
		accounts := []svc.ServiceAccount{full, {ID: "bare", OwnerUserID: "alice"}}
		c.apply(svc.Bundle{
			Users: users("alice"), Policies: []svc.Policy{newPolicy("p")},
			ServiceAccounts: accounts,
		})
		for _, want := range accounts {
			c.same("service account", c.serviceAccount(want.ID), &want)
		}
	}},
	{"Access returns no user and no service account for an unknown id, " +
		"or for an id of the other kind", func(c *checker) {
		c.apply(svc.Bundle{Users: users("alice"), ServiceAccounts: []svc.ServiceAccount{{
			ID: "bot", OwnerUserID: "alice",
		}}})
		for _, id := range []string{"bot", "Alice", "alice ", "nobody", ""} {
			c.same("user "+id, c.user(id), (*svc.User)(nil))
		}
		for _, id := range []string{"alice", "Bot", "bot ", ""} {
			c.same("service account "+id, c.serviceAccount(id), (*svc.ServiceAccount)(nil))
		}
	}},
	{"users, keys, channels, bank policies and grants are found " +
		"under exactly their own id, whatever its characters", func(c *checker) {
		var b svc.Bundle
		for i, id := range odd {
			b.Users = append(b.Users, svc.User{
				ID: id, DisplayName: fmt.Sprint(i),
				Channels: []svc.Channel{{Provider: "p", SenderID: id}},
			})
			b.Policies = append(b.Policies, newPolicy(id))
			b.Attachments = append(b.Attachments, attach(id, svc.GrantedToUser, id, int64(i)))
			b.BankPolicies = append(b.BankPolicies, newBank(id, fmt.Sprint(i)))
		}
		c.apply(b)
		for _, id := range odd {
			c.ok(c.CreateAPIKey(c.ctx, newKey(id, asUser(id), at(0))))
		}
		for i, id := range odd {
			want := svc.AccessSnapshot{
				User: &svc.User{ID: id, DisplayName: fmt.Sprint(i)}, BankPolicy: &b.BankPolicies[i],
				Grants: []svc.Grant{grant(id, svc.GrantedToUser, id, int64(i))},
			}
			c.snapshot(svc.AccessQuery{Identity: asUser(id), BankID: id}, want)
			channel := svc.Channel{Provider: "p", SenderID: id}
			c.snapshot(svc.AccessQuery{Channel: channel, BankID: id}, want)
			want.Key = new(newKey(id, asUser(id), at(0)))
			c.snapshot(svc.AccessQuery{KeyID: id, BankID: id}, want)
		}
	}},
}

// user reads a user, without its channels; nil: there is none.
func (c *checker) user(id string) *svc.User {
	return c.access(svc.AccessQuery{Identity: asUser(id)}).User
}

// serviceAccount reads a service account; nil: there is none.
func (c *checker) serviceAccount(id string) *svc.ServiceAccount {
	return c.access(svc.AccessQuery{Identity: asAccount(id)}).ServiceAccount
}

// household returns a bundle: two own policies and one group policy reach alice, the others do not.
func household() svc.Bundle {
	return svc.Bundle{
		Users: []svc.User{
			{
				ID: "alice", Email: new("a@b.example"),
				Channels: []svc.Channel{{Provider: "chat", SenderID: "1"}},
			},
			{ID: "bob"}, {ID: "carol"},
		},
		Groups: []svc.Group{
			{ID: "hers", Members: []string{"bob", "alice"}},
			{ID: "not hers", Members: []string{"bob"}}, {ID: "empty"},
		},
		Policies: []svc.Policy{
			newPolicy("a"), newPolicy("b"), newPolicy("c"), newPolicy("d"), newPolicy("narrow"),
			newPolicy("unused"),
		},
		Attachments: []svc.Attachment{
			attach("a", svc.GrantedToUser, "alice", 5),
			attach("b", svc.GrantedToUser, "alice", -1<<63),
			attach("c", svc.GrantedToGroup, "hers", 1<<63-1),
			attach("d", svc.GrantedToUser, "bob", 0),
			attach("d", svc.GrantedToGroup, "not hers", 0),
			attach("unused", svc.GrantedToGroup, "empty", 0),
		},
		ServiceAccounts: []svc.ServiceAccount{
			{ID: "bot", DisplayName: "Bot", OwnerUserID: "alice", ScopingPolicyID: "narrow"},
			{ID: "free", OwnerUserID: "carol"},
		},
	}
}

func alicesGrants() []svc.Grant {
	return []svc.Grant{
		grant("a", svc.GrantedToUser, "alice", 5),
		grant("b", svc.GrantedToUser, "alice", -1<<63),
		grant("c", svc.GrantedToGroup, "hers", 1<<63-1),
	}
}
