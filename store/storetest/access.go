package storetest

import (
	"encoding/json"
	"fmt"

	"github.com/extsvc/svc"
)

var accessRules = []rule{
	{"User returns the user as it was written, its channels sorted by provider and sender", func(c *checker) {
		full := svc.User{
			ID: "alice", DisplayName: "Alice", Email: new("a@b.example"), Inactive: true,
			Channels: []svc.Channel{{Provider: "sms", SenderID: "9"}, {Provider: "chat", SenderID: "b"}, {Provider: "chat", SenderID: "B"}, {Provider: "chat", SenderID: "a:1"}},
		}
		empty := svc.User{ID: "empty", Email: new("")}
		c.apply(svc.Bundle{Users: []svc.User{full, empty, {ID: "bare"}}})
		full.Channels = []svc.Channel{{Provider: "chat", SenderID: "B"}, {Provider: "chat", SenderID: "a:1"}, {Provider: "chat", SenderID: "b"}, {Provider: "sms", SenderID: "9"}}
		for _, want := range []svc.User{full, empty, {ID: "bare"}} {
			user, err := c.User(c.ctx, want.ID)
			c.ok(err)
			c.same("user", user, want)
		}
	}},
	{"ServiceAccount returns the service account as it was written", func(c *checker) {
		accounts := []svc.ServiceAccount{
			{ID: "full", DisplayName: "Full", OwnerUserID: "alice", ScopingPolicyID: "p", Inactive: true},
			{ID: "bare", OwnerUserID: "alice"},
		}
		c.apply(svc.Bundle{Users: users("alice"), Policies: []svc.Policy{newPolicy("p")}, ServiceAccounts: accounts})
		for _, want := range accounts {
			account, err := c.ServiceAccount(c.ctx, want.ID)
			c.ok(err)
			c.same("service account", account, want)
		}
	}},
	{"User and ServiceAccount answer ErrNotFound for an unknown id, and never take one for the other", func(c *checker) {
		c.apply(svc.Bundle{Users: users("alice"), ServiceAccounts: []svc.ServiceAccount{{ID: "bot", OwnerUserID: "alice"}}})
		for _, id := range []string{"bot", "Alice", "alice ", "nobody", ""} {
			_, err := c.User(c.ctx, id)
			c.is("User "+id, err, svc.ErrNotFound)
		}
		for _, id := range []string{"alice", "Bot", "bot ", ""} {
			_, err := c.ServiceAccount(c.ctx, id)
			c.is("ServiceAccount "+id, err, svc.ErrNotFound)
		}
	}},
	{"a user, a channel, a bank policy and a grant are found under their own id alone, whatever that id is", func(c *checker) {
		var b svc.Bundle
		for i, id := range odd {
			b.Users = append(b.Users, svc.User{ID: id, DisplayName: fmt.Sprint(i), Channels: []svc.Channel{{Provider: "p", SenderID: id}}})
			b.Policies = append(b.Policies, newPolicy(id))
			b.Attachments = append(b.Attachments, attach(id, svc.GrantedToUser, id, int64(i)))
			b.BankPolicies = append(b.BankPolicies, svc.BankPolicy{BankID: id, Document: json.RawMessage(fmt.Sprint(i))})
		}
		c.apply(b)
		for i, id := range odd {
			want := svc.AccessSnapshot{
				User: &svc.User{ID: id, DisplayName: fmt.Sprint(i)}, BankPolicy: &b.BankPolicies[i],
				Grants: []svc.Grant{{Policy: newPolicy(id), Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: id}, Priority: int64(i)}},
			}
			c.snapshot(svc.AccessQuery{Identity: svc.Identity{Kind: svc.KindUser, ID: id}, BankID: id}, want)
			c.snapshot(svc.AccessQuery{Channel: svc.Channel{Provider: "p", SenderID: id}, BankID: id}, want)
		}
	}},
}

var snapshotRules = []rule{
	{"Access of nobody, of the unknown and of an empty store is nil everywhere, and no error", func(c *checker) {
		queries := []svc.AccessQuery{
			{}, {Identity: alice, BankID: "b"}, {Identity: svc.Identity{Kind: svc.KindServiceAccount, ID: "alice"}},
			{Channel: svc.Channel{Provider: "p", SenderID: "1"}},
		}
		for _, query := range queries {
			c.snapshot(query, svc.AccessSnapshot{})
		}
		c.apply(svc.Bundle{Users: users("Alice"), BankPolicies: []svc.BankPolicy{{BankID: "B", Document: json.RawMessage(`{}`)}}})
		for _, query := range queries {
			c.snapshot(query, svc.AccessSnapshot{})
		}
	}},
	{"Access of a user holds the user without channels, and what is attached to it and to its groups", func(c *checker) {
		c.apply(household())
		c.snapshot(svc.AccessQuery{Identity: alice}, svc.AccessSnapshot{User: &svc.User{ID: "alice", Email: new("a@b.example")}, Grants: alicesGrants()})
	}},
	{"Access of a channel is that of the user who holds it", func(c *checker) {
		c.apply(household())
		c.snapshot(svc.AccessQuery{Channel: svc.Channel{Provider: "chat", SenderID: "1"}},
			svc.AccessSnapshot{User: &svc.User{ID: "alice", Email: new("a@b.example")}, Grants: alicesGrants()})
		for _, channel := range []svc.Channel{{Provider: "chat", SenderID: "2"}, {Provider: "Chat", SenderID: "1"}, {Provider: "1", SenderID: "chat"}, {Provider: "chat"}} {
			c.snapshot(svc.AccessQuery{Channel: channel}, svc.AccessSnapshot{})
		}
	}},
	{"an identity is asked about, not the channel, when both are given", func(c *checker) {
		c.apply(household())
		c.snapshot(svc.AccessQuery{Identity: svc.Identity{Kind: svc.KindUser, ID: "carol"}, Channel: svc.Channel{Provider: "chat", SenderID: "1"}},
			svc.AccessSnapshot{User: &svc.User{ID: "carol"}})
	}},
	{"a policy that is attached to a user and to its group gives two grants", func(c *checker) {
		c.apply(svc.Bundle{
			Users: users("alice"), Groups: []svc.Group{{ID: "g", Members: []string{"alice"}}, {ID: "h", Members: []string{"alice"}}},
			Policies: []svc.Policy{newPolicy("p")},
			Attachments: []svc.Attachment{
				attach("p", svc.GrantedToUser, "alice", 1), attach("p", svc.GrantedToGroup, "g", 2), attach("p", svc.GrantedToGroup, "h", 2),
			},
		})
		grant := func(kind, id string, priority int64) svc.Grant {
			return svc.Grant{Policy: newPolicy("p"), Principal: svc.GrantedTo{Type: kind, ID: id}, Priority: priority}
		}
		c.same("grants", c.access(svc.AccessQuery{Identity: alice}).Grants, []svc.Grant{
			grant(svc.GrantedToGroup, "g", 2), grant(svc.GrantedToGroup, "h", 2), grant(svc.GrantedToUser, "alice", 1),
		})
	}},
	{"what is attached to a group does not reach a user with the group's id, nor the other way round", func(c *checker) {
		c.apply(svc.Bundle{
			Users: users("x", "y"), Groups: []svc.Group{{ID: "x", Members: []string{"y"}}},
			Policies:    []svc.Policy{newPolicy("group's"), newPolicy("user's")},
			Attachments: []svc.Attachment{attach("group's", svc.GrantedToGroup, "x", 0), attach("user's", svc.GrantedToUser, "x", 0)},
		})
		for id, policy := range map[string]string{"x": "user's", "y": "group's"} {
			grants := c.access(svc.AccessQuery{Identity: svc.Identity{Kind: svc.KindUser, ID: id}}).Grants
			if len(grants) != 1 || grants[0].ID != policy {
				c.fail("user %s has the grants %s, want that of the %s policy", id, show(grants), policy)
			}
		}
	}},
	{"Access of a service account holds it, its owner, what reaches its owner, and its scoping policy", func(c *checker) {
		c.apply(household())
		bot := svc.ServiceAccount{ID: "bot", DisplayName: "Bot", OwnerUserID: "alice", ScopingPolicyID: "narrow"}
		c.snapshot(svc.AccessQuery{Identity: svc.Identity{Kind: svc.KindServiceAccount, ID: "bot"}}, svc.AccessSnapshot{
			ServiceAccount: &bot, User: &svc.User{ID: "alice", Email: new("a@b.example")}, Grants: alicesGrants(), Scoping: new(newPolicy("narrow")),
		})
	}},
	{"Access of a service account that is not narrowed has no scoping policy", func(c *checker) {
		c.apply(household())
		free := svc.ServiceAccount{ID: "free", OwnerUserID: "carol"}
		c.snapshot(svc.AccessQuery{Identity: svc.Identity{Kind: svc.KindServiceAccount, ID: "free"}},
			svc.AccessSnapshot{ServiceAccount: &free, User: &svc.User{ID: "carol"}})
	}},
	{"a user and a service account with one id are told apart", func(c *checker) {
		account := svc.ServiceAccount{ID: "alice", OwnerUserID: "bob"}
		c.apply(svc.Bundle{Users: users("alice", "bob"), ServiceAccounts: []svc.ServiceAccount{account}})
		c.snapshot(svc.AccessQuery{Identity: alice}, svc.AccessSnapshot{User: &svc.User{ID: "alice", DisplayName: "alice"}})
		c.snapshot(svc.AccessQuery{Identity: svc.Identity{Kind: svc.KindServiceAccount, ID: "alice"}},
			svc.AccessSnapshot{ServiceAccount: &account, User: &svc.User{ID: "bob", DisplayName: "bob"}})
	}},
	{"inactive users and service accounts are handed out like others: judging them is not the store's", func(c *checker) {
		user := svc.User{ID: "alice", Inactive: true}
		account := svc.ServiceAccount{ID: "bot", OwnerUserID: "alice", Inactive: true}
		held := user
		held.Channels = []svc.Channel{{Provider: "p", SenderID: "1"}}
		c.apply(svc.Bundle{
			Users: []svc.User{held}, ServiceAccounts: []svc.ServiceAccount{account}, Policies: []svc.Policy{newPolicy("p")},
			Attachments: []svc.Attachment{attach("p", svc.GrantedToUser, "alice", 0)},
		})
		grants := []svc.Grant{{Policy: newPolicy("p"), Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "alice"}}}
		c.snapshot(svc.AccessQuery{Identity: alice}, svc.AccessSnapshot{User: &user, Grants: grants})
		c.snapshot(svc.AccessQuery{Channel: held.Channels[0]}, svc.AccessSnapshot{User: &user, Grants: grants})
		c.snapshot(svc.AccessQuery{Identity: svc.Identity{Kind: svc.KindServiceAccount, ID: "bot"}},
			svc.AccessSnapshot{ServiceAccount: &account, User: &user, Grants: grants})
	}},
	{"Access holds the bank's policy when a bank is named, whoever asks", func(c *checker) {
		b := household()
		b.BankPolicies = []svc.BankPolicy{{BankID: "bank", Document: json.RawMessage(`{"n":1.0}`)}, {BankID: "bank::x", Document: json.RawMessage(`{}`)}}
		c.apply(b)
		for _, identity := range []svc.Identity{{}, alice, {Kind: svc.KindServiceAccount, ID: "bot"}, {Kind: svc.KindUser, ID: "nobody"}} {
			c.same("bank policy", c.access(svc.AccessQuery{Identity: identity, BankID: "bank"}).BankPolicy, &b.BankPolicies[0])
			c.same("no bank named", c.access(svc.AccessQuery{Identity: identity}).BankPolicy, (*svc.BankPolicy)(nil))
			c.same("another bank", c.access(svc.AccessQuery{Identity: identity, BankID: "bank:"}).BankPolicy, (*svc.BankPolicy)(nil))
		}
	}},
	{"Access is one consistent snapshot: it never mixes what one change wrote with what was before", func(c *checker) {
		bundle := func(n int64) svc.Bundle {
			policy := svc.Policy{ID: "p", DisplayName: fmt.Sprint(n), Document: json.RawMessage(`{}`)}
			return svc.Bundle{
				Users: []svc.User{{ID: "alice", DisplayName: fmt.Sprint(n)}}, Policies: []svc.Policy{policy},
				Attachments:  []svc.Attachment{attach("p", svc.GrantedToUser, "alice", n)},
				BankPolicies: []svc.BankPolicy{{BankID: "b", Document: json.RawMessage(fmt.Sprint(n))}},
			}
		}
		c.apply(bundle(0))
		errs := race(func(i int) error {
			var last svc.AccessSnapshot
			for n := range int64(30) {
				if i == 0 {
					if err := c.ChangeAccess(c.ctx, svc.AccessNames{}, func(svc.Bundle) (svc.Bundle, error) { return bundle(n + 1), nil }); err != nil {
						return err
					}
					continue
				}
				seen, err := c.Access(c.ctx, svc.AccessQuery{Identity: alice, BankID: "b"})
				if err != nil {
					return err
				}
				if err := consistent(last, seen); err != nil {
					return err
				}
				last = seen
			}
			return nil
		})
		for _, err := range errs {
			c.ok(err)
		}
	}},
}

// consistent says how two snapshots, the later one last, show that they are none.
func consistent(earlier, s svc.AccessSnapshot) error {
	if s.User == nil || len(s.Grants) != 1 || s.BankPolicy == nil {
		return fmt.Errorf("a part is missing: %s", show(s))
	}
	n := s.User.DisplayName
	if s.Grants[0].DisplayName != n || fmt.Sprint(s.Grants[0].Priority) != n || string(s.BankPolicy.Document) != n {
		return fmt.Errorf("a mix: %s", show(s))
	}
	if s.Generation < earlier.Generation || earlier.User != nil && (s.Generation == earlier.Generation) != (earlier.User.DisplayName == n) {
		return fmt.Errorf("the generation does not go with the rows: %s, then %s", show(earlier), show(s))
	}
	return nil
}

// household is a bundle in which alice is reached by two policies of her own, one of her group, and none of others.
func household() svc.Bundle {
	return svc.Bundle{
		Users: []svc.User{
			{ID: "alice", Email: new("a@b.example"), Channels: []svc.Channel{{Provider: "chat", SenderID: "1"}}}, {ID: "bob"}, {ID: "carol"},
		},
		Groups:   []svc.Group{{ID: "hers", Members: []string{"bob", "alice"}}, {ID: "not hers", Members: []string{"bob"}}, {ID: "empty"}},
		Policies: []svc.Policy{newPolicy("a"), newPolicy("b"), newPolicy("c"), newPolicy("d"), newPolicy("narrow"), newPolicy("unused")},
		Attachments: []svc.Attachment{
			attach("a", svc.GrantedToUser, "alice", 5), attach("b", svc.GrantedToUser, "alice", -1<<63), attach("c", svc.GrantedToGroup, "hers", 1<<63-1),
			attach("d", svc.GrantedToUser, "bob", 0), attach("d", svc.GrantedToGroup, "not hers", 0), attach("unused", svc.GrantedToGroup, "empty", 0),
		},
		ServiceAccounts: []svc.ServiceAccount{
			{ID: "bot", DisplayName: "Bot", OwnerUserID: "alice", ScopingPolicyID: "narrow"}, {ID: "free", OwnerUserID: "carol"},
		},
	}
}

func alicesGrants() []svc.Grant {
	return []svc.Grant{
		{Policy: newPolicy("a"), Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "alice"}, Priority: 5},
		{Policy: newPolicy("b"), Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "alice"}, Priority: -1 << 63},
		{Policy: newPolicy("c"), Principal: svc.GrantedTo{Type: svc.GrantedToGroup, ID: "hers"}, Priority: 1<<63 - 1},
	}
}

// snapshot expects what Access answers, the generation apart.
func (c *checker) snapshot(query svc.AccessQuery, want svc.AccessSnapshot) {
	got := c.access(query)
	want.Generation = got.Generation
	c.same("snapshot for "+show(query), got, want)
}
