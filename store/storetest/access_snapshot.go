package storetest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/extsvc/svc"
)

var snapshotRules = []rule{
	{"Access of an empty query, of unknown ids or in an empty store " +
		"returns only nil fields and no error", func(c *checker) {
		queries := []svc.AccessQuery{
			{}, {Identity: alice, BankID: "b"},
			{Identity: asAccount("alice")},
			{Channel: svc.Channel{Provider: "p", SenderID: "1"}}, {KeyID: "k", BankID: "b"},
		}
		for _, query := range queries {
			c.snapshot(query, svc.AccessSnapshot{})
		}
		bank := newBank("B", `{}`)
		c.apply(svc.Bundle{Users: users("Alice"), BankPolicies: []svc.BankPolicy{bank}})
		c.ok(c.CreateAPIKey(c.ctx, newKey("K", alice, at(0))))
		for _, query := range queries {
			c.snapshot(query, svc.AccessSnapshot{})
		}
	}},
	{"Access of a user returns the user without channels, " +
		"its groups, and the grants of the user and of its groups", func(c *checker) {
		c.apply(household())
		c.apply(svc.Bundle{
			Groups: []svc.Group{{ID: "without attachments", Members: []string{"alice"}}},
		})
		c.snapshot(svc.AccessQuery{Identity: alice}, svc.AccessSnapshot{
			User:   &svc.User{ID: "alice", Email: new("a@b.example")},
			Groups: []string{"hers", "without attachments"}, Grants: alicesGrants(),
		})
	}},
	{"a bare Access leaves out groups and grants alone", func(c *checker) {
		c.apply(household())
		c.ok(c.CreateAPIKey(c.ctx, newKey("k", alice, at(0))))
		for _, query := range []svc.AccessQuery{
			{Identity: alice}, {KeyID: "k"}, {Identity: alice, ScopingPolicyID: "own"},
			{Identity: asAccount("bot")}, {Channel: svc.Channel{Provider: "chat", SenderID: "1"}},
		} {
			want := c.access(query)
			want.Groups, want.Grants, query.Bare = nil, nil, true
			c.snapshot(query, want)
		}
	}},
	{"Access of a channel equals Access of the user that holds it", func(c *checker) {
		c.apply(household())
		c.snapshot(svc.AccessQuery{Channel: svc.Channel{Provider: "chat", SenderID: "1"}},
			svc.AccessSnapshot{
				User:   &svc.User{ID: "alice", Email: new("a@b.example")},
				Groups: []string{"hers"}, Grants: alicesGrants(),
			})
		for _, channel := range []svc.Channel{
			{Provider: "chat", SenderID: "2"}, {Provider: "Chat", SenderID: "1"},
			{Provider: "1", SenderID: "chat"}, {Provider: "chat"},
		} {
			c.snapshot(svc.AccessQuery{Channel: channel}, svc.AccessSnapshot{})
		}
	}},
	{"a policy that is attached to a user and to its groups " +
		"gives one grant per attachment, and these share its document", func(c *checker) {
		c.apply(svc.Bundle{
			Users: users("alice"),
			Groups: []svc.Group{
				{ID: "g", Members: []string{"alice"}}, {ID: "h", Members: []string{"alice"}},
			},
			Policies: []svc.Policy{newPolicy("p")},
			Attachments: []svc.Attachment{
				attach("p", svc.GrantedToUser, "alice", 1), attach("p", svc.GrantedToGroup, "g", 2),
				attach("p", svc.GrantedToGroup, "h", 2),
			},
		})
		grants := c.access(svc.AccessQuery{Identity: alice}).Grants
		c.same("grants", grants, []svc.Grant{
			grant("p", svc.GrantedToGroup, "g", 2), grant("p", svc.GrantedToGroup, "h", 2),
			grant("p", svc.GrantedToUser, "alice", 1),
		})
		for _, g := range grants {
			c.same("shared", &g.Document[0] == &grants[0].Document[0], true)
		}
	}},
	{"a group and a user with the same id do not share policies", func(c *checker) {
		c.apply(svc.Bundle{
			Users: users("x", "y"), Groups: []svc.Group{{ID: "x", Members: []string{"y"}}},
			Policies: []svc.Policy{newPolicy("group's"), newPolicy("user's")},
			Attachments: []svc.Attachment{
				attach("group's", svc.GrantedToGroup, "x", 0),
				attach("user's", svc.GrantedToUser, "x", 0),
			},
		})
		for id, policy := range map[string]string{"x": "user's", "y": "group's"} {
			grants := c.access(svc.AccessQuery{Identity: asUser(id)}).Grants
			if len(grants) != 1 || grants[0].ID != policy {
				c.fail("user %s has the grants %s, want that of the %s policy",
					id, show(grants), policy)
			}
		}
	}},
	{"Access of a service account returns the account, its owner, " +
		"the owner's grants and its scoping policy", func(c *checker) {
		c.apply(household())
		bot := svc.ServiceAccount{
			ID: "bot", DisplayName: "Bot", OwnerUserID: "alice", ScopingPolicyID: "narrow",
		}
		c.snapshot(svc.AccessQuery{Identity: asAccount("bot")}, svc.AccessSnapshot{
			ServiceAccount: &bot, User: &svc.User{ID: "alice", Email: new("a@b.example")},
			Groups: []string{"hers"}, Grants: alicesGrants(),
			Scoping: new(newPolicy("narrow")),
		})
	}},
	{"Access of a service account " +
		"that is not narrowed returns no scoping policy", func(c *checker) {
		c.apply(household())
		free := svc.ServiceAccount{ID: "free", OwnerUserID: "carol"}
		c.snapshot(svc.AccessQuery{Identity: asAccount("free")},
			svc.AccessSnapshot{ServiceAccount: &free, User: &svc.User{ID: "carol"}})
	}},
	{"Access of a key returns the key, revoked or not, " +
		"and what Access of its holder returns", func(c *checker) {
		c.apply(household())
		for _, holder := range []svc.Identity{alice, asAccount("bot"), asAccount("free")} {
			of := c.access(svc.AccessQuery{Identity: holder})
			bare := svc.APIKey{
				ID: "bare " + holder.ID, Holder: holder, Prefix: "p", Hash: []byte{0},
				CreatedAt: at(999_999),
			}
			revoked := newKey("revoked "+holder.ID, holder, at(1))
			revoked.RevokedAt = at(2)
			c.snapshotOfKey(newKey("full "+holder.ID, holder, at(0)), of)
			c.snapshotOfKey(bare, of)
			c.snapshotOfKey(revoked, of)
		}
	}},
	{"Access also returns the policy that narrows the key, " +
		"or the scoping policy that the query names", func(c *checker) {
		c.apply(household())
		for _, holder := range []svc.Identity{
			alice, asAccount("bot"), asAccount("free"), asUser("nobody"),
		} {
			want := c.access(svc.AccessQuery{Identity: holder})
			want.Narrowing = new(newPolicy("unused"))
			c.snapshot(svc.AccessQuery{Identity: holder, ScopingPolicyID: "unused"}, want)
			key := newKey("narrowed "+holder.ID, holder, at(0))
			key.ScopingPolicyID = "unused"
			c.snapshotOfKey(key, want)
			want.Narrowing = nil
			c.snapshot(svc.AccessQuery{Identity: holder, ScopingPolicyID: "gone"}, want)
			gone := newKey("gone "+holder.ID, holder, at(0))
			gone.ScopingPolicyID = "gone"
			c.snapshotOfKey(gone, want)
		}
	}},
	{"Access of a key returns the rows that exist " +
		"when the holder or its owner has no row", func(c *checker) {
		account := svc.ServiceAccount{ID: "orphan", OwnerUserID: "nobody"}
		c.apply(svc.Bundle{ServiceAccounts: []svc.ServiceAccount{account}})
		c.snapshotOfKey(newKey("user's", alice, at(0)), svc.AccessSnapshot{})
		c.snapshotOfKey(newKey("none's", asAccount("alice"), at(0)), svc.AccessSnapshot{})
		of := svc.AccessSnapshot{ServiceAccount: &account}
		c.snapshotOfKey(newKey("orphan's", asAccount("orphan"), at(0)), of)
	}},
	{"grants hold whole policies, " +
		"whatever characters their names and documents hold", func(c *checker) {
		b := svc.Bundle{Users: users("alice")}
		var want []svc.Grant
		for i, text := range []string{
			"", " ", ",", "'", `"`, "\x1e\x1f", "\n\r\t", "a\x01b", "\u00e9|\U0001f600",
			strings.Repeat("x", 1024),
		} {
			document := must(json.Marshal(text))
			policy := svc.Policy{ID: fmt.Sprint("p", i), DisplayName: text, Document: document}
			b.Policies = append(b.Policies, policy)
			b.Attachments = append(b.Attachments, attach(policy.ID, svc.GrantedToUser, "alice", 0))
			granted := grant(policy.ID, svc.GrantedToUser, "alice", 0)
			granted.Policy = policy
			want = append(want, granted)
		}
		c.apply(b)
		c.same("grants", c.access(svc.AccessQuery{Identity: alice}).Grants, want)
	}},
	{"a user and a service account " +
		"with the same id are distinct, and so are their keys", func(c *checker) {
		account := svc.ServiceAccount{ID: "alice", OwnerUserID: "bob"}
		c.apply(svc.Bundle{
			Users: users("alice", "bob"), ServiceAccounts: []svc.ServiceAccount{account},
		})
		for _, holder := range []svc.Identity{alice, asAccount("alice")} {
			want := svc.AccessSnapshot{User: &svc.User{ID: "alice", DisplayName: "alice"}}
			if holder != alice {
				want = svc.AccessSnapshot{
					ServiceAccount: &account, User: &svc.User{ID: "bob", DisplayName: "bob"},
				}
			}
			c.snapshot(svc.AccessQuery{Identity: holder}, want)
			c.snapshotOfKey(newKey(string(holder.Kind), holder, at(0)), want)
		}
	}},
	{"Access returns inactive users and service accounts like active ones: " +
		"the store does not judge", func(c *checker) {
		user := svc.User{ID: "alice", Inactive: true}
		account := svc.ServiceAccount{ID: "bot", OwnerUserID: "alice", Inactive: true}
		held := user
		held.Channels = []svc.Channel{{Provider: "p", SenderID: "1"}}
		c.apply(svc.Bundle{
			Users: []svc.User{held}, ServiceAccounts: []svc.ServiceAccount{account},
			Policies:    []svc.Policy{newPolicy("p")},
			Attachments: []svc.Attachment{attach("p", svc.GrantedToUser, "alice", 0)},
		})
		want := svc.AccessSnapshot{
			User: &user, Grants: []svc.Grant{grant("p", svc.GrantedToUser, "alice", 0)},
		}
		c.snapshot(svc.AccessQuery{Identity: alice}, want)
		c.snapshot(svc.AccessQuery{Channel: held.Channels[0]}, want)
		c.snapshotOfKey(newKey("user's", alice, at(0)), want)
		want.ServiceAccount = &account
		c.snapshot(svc.AccessQuery{Identity: asAccount("bot")}, want)
		c.snapshotOfKey(newKey("account's", asAccount("bot"), at(0)), want)
	}},
	{"Access returns the bank's policy when a bank is named, for every identity", func(c *checker) {
		b := household()
		b.BankPolicies = []svc.BankPolicy{newBank("bank", `{"n":1.0}`), newBank("bank::x", `{}`)}
		c.apply(b)
		c.ok(c.CreateAPIKey(c.ctx, newKey("k", alice, at(0))))
		for _, query := range []svc.AccessQuery{
			{}, {Identity: alice},
			{Identity: asAccount("bot")},
			{Identity: asUser("nobody")},
			{KeyID: "k"}, {KeyID: "none"}, {Channel: svc.Channel{Provider: "chat", SenderID: "1"}},
		} {
			for bank, want := range map[string]*svc.BankPolicy{
				"bank": &b.BankPolicies[0], "": nil, "bank:": nil,
			} {
				query.BankID = bank
				c.same("policy of the bank "+bank, c.access(query).BankPolicy, want)
			}
		}
	}},
	{"Access is one consistent snapshot: " +
		"it never mixes rows from before and after a change", func(c *checker) {
		c.neverMixes(func() svc.AccessSnapshot {
			return must(c.Access(c.ctx, svc.AccessQuery{Identity: alice, BankID: "b"}))
		})
	}},
}

// neverMixes expects consistent reads of a user, its policy and a bank's policy while all change.
func (c *checker) neverMixes(read func() svc.AccessSnapshot) {
	bundle := func(n int64) svc.Bundle {
		policy := svc.Policy{ID: "p", DisplayName: fmt.Sprint(n), Document: json.RawMessage(`{}`)}
		return svc.Bundle{
			Users:        []svc.User{{ID: "alice", DisplayName: fmt.Sprint(n)}},
			Policies:     []svc.Policy{policy},
			Attachments:  []svc.Attachment{attach("p", svc.GrantedToUser, "alice", n)},
			BankPolicies: []svc.BankPolicy{newBank("b", fmt.Sprint(n))},
		}
	}
	c.apply(bundle(0))
	c.together(1, func(i, _ int) {
		var last svc.AccessSnapshot
		for n := range int64(30) {
			if i == 0 {
				c.ok(change(c.ctx, c.Store, bundle(n+1)))
				continue
			}
			seen := read()
			c.consistent(last, seen)
			last = seen
		}
	})
}

// consistent expects that s is consistent in itself, and with the earlier snapshot.
func (c *checker) consistent(earlier, s svc.AccessSnapshot) {
	if s.User == nil || len(s.Grants) != 1 || s.BankPolicy == nil {
		c.fail("a part is missing: %s", show(s))
	}
	n := s.User.DisplayName
	if s.Grants[0].DisplayName != n || fmt.Sprint(s.Grants[0].Priority) != n ||
		string(s.BankPolicy.Document) != n {
		c.fail("rows of different changes: %s", show(s))
	}
	if s.Generation < earlier.Generation || earlier.User != nil &&
		(s.Generation == earlier.Generation) != (earlier.User.DisplayName == n) {
		c.fail("the generation does not match the rows: %s, then %s", show(earlier), show(s))
	}
}

// snapshot expects that Access returns want, whatever the generation.
func (c *checker) snapshot(query svc.AccessQuery, want svc.AccessSnapshot) {
	got := c.access(query)
	want.Generation = got.Generation
	c.same("snapshot for "+show(query), got, want)
}

// snapshotOfKey creates a key and expects that Access returns the key with want.
func (c *checker) snapshotOfKey(key svc.APIKey, want svc.AccessSnapshot) {
	c.ok(c.CreateAPIKey(c.ctx, key))
	want.Key = &key
	c.snapshot(svc.AccessQuery{KeyID: key.ID}, want)
}
