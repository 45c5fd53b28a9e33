package storetest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/limits"
)

var changeAccessRules = []rule{
	{"ChangeAccess passes to change exactly the named rows " +
		"that exist, whole and each once", func(c *checker) {
		b := household()
		b.BankPolicies = []svc.BankPolicy{newBank("bank", `{"n":1.0}`), newBank("other", `{}`)}
		b.Tests = []svc.AccessTest{newTest("t", true), newTest("u", false)}
		c.apply(b)
		got := sortedBundle(c.current(svc.AccessNames{
			Users:     []string{"carol", "nobody", "alice", "carol"},
			Groups:    []string{"hers", "none", "empty", "not hers"},
			MembersOf: []string{"hers", "none", "hers"},
			Members: []svc.Membership{
				{Group: "hers", User: "bob"}, {Group: "empty", User: "bob"},
				{Group: "none", User: "bob"}, {Group: "hers", User: "carol"},
			},
			ServiceAccounts: []string{"bot", "none", "alice", "bot"},
			Policies:        []string{"c", "none", "c", "a"},
			BankPolicies:    []string{"bank", "none", "bank"},
			Tests:           []string{"t", "none", "t"},
			Attachments: []svc.AttachmentKey{
				keyOf(attach("c", svc.GrantedToGroup, "hers", 0)),
				keyOf(attach("c", svc.GrantedToUser, "hers", 0)),
				keyOf(attach("c", svc.GrantedToGroup, "hers", 0)),
				keyOf(attach("a", svc.GrantedToUser, "alice", 0)),
			},
		}))
		c.same("current", got, svc.Bundle{
			Users: []svc.User{b.Users[0], b.Users[2]},
			Groups: []svc.Group{
				{ID: "empty"}, {ID: "hers", Members: []string{"alice", "bob"}}, {ID: "not hers"},
			},
			ServiceAccounts: []svc.ServiceAccount{b.ServiceAccounts[0]},
			Policies:        []svc.Policy{newPolicy("a"), newPolicy("c")},
			Attachments: []svc.Attachment{
				attach("a", svc.GrantedToUser, "alice", 5),
				attach("c", svc.GrantedToGroup, "hers", 1<<63-1),
			},
			BankPolicies: []svc.BankPolicy{b.BankPolicies[0]},
			Tests:        []svc.AccessTest{b.Tests[0]},
		})
	}},
	{"ChangeAccess passes an empty bundle when nothing is named", func(c *checker) {
		c.apply(household())
		c.same("current", c.current(svc.AccessNames{}), svc.Bundle{})
	}},
	{"ChangeAccess passes the users that hold a named channel, " +
		"each once even when also named", func(c *checker) {
		channels := []svc.Channel{{Provider: "a", SenderID: "1"}, {Provider: "a", SenderID: "2"}}
		alice := svc.User{ID: "alice", Channels: channels}
		bob := svc.User{ID: "bob", Channels: []svc.Channel{{Provider: "b", SenderID: "1"}}}
		c.apply(svc.Bundle{Users: append(users("carol"), alice, bob)})
		one := c.current(svc.AccessNames{Channels: channels[:1]})
		c.same("of one", one.Users, []svc.User{alice})
		unheld := []svc.Channel{{Provider: "a", SenderID: "3"}}
		c.same("of none", len(c.current(svc.AccessNames{Channels: unheld}).Users), 0)
		held := append(channels, bob.Channels...)
		named := svc.AccessNames{Users: []string{"alice"}, Channels: held}
		c.same("of all", sortedBundle(c.current(named)).Users, []svc.User{alice, bob})
	}},
	{"ChangeAccess passes channels and members sorted, and never nil", func(c *checker) {
		var channels []svc.Channel
		for _, id := range scrambled(odd) {
			channels = append(channels, svc.Channel{
				Provider: fmt.Sprint("p", len(id)%3), SenderID: id,
			})
		}
		members := scrambled(odd)
		c.apply(svc.Bundle{
			Users:  append(users(odd...), svc.User{ID: "many", Channels: channels}),
			Groups: []svc.Group{{ID: "empty"}, {ID: "many", Members: members}},
		})
		slices.SortFunc(channels, compareChannels)
		current := sortedBundle(c.current(svc.AccessNames{
			Users: []string{"many", "a"}, MembersOf: []string{"many", "empty"},
		}))
		c.same("channels", current.Users[1].Channels, channels)
		c.same("members", current.Groups[1].Members, odd)
		if current.Users[0].Channels == nil || current.Groups[0].Members == nil {
			c.fail("a user's channels or a group's members are nil")
		}
	}},
	{"ChangeAccess replaces whole rows", func(c *checker) {
		c.apply(household())
		bank := newBank("bank", `{}`)
		c.apply(svc.Bundle{BankPolicies: []svc.BankPolicy{bank}})
		bank.Document = json.RawMessage(`{"changed":1}`)
		b := svc.Bundle{
			Users: []svc.User{{
				ID: "alice", DisplayName: "New", Inactive: true,
				Channels: []svc.Channel{{Provider: "chat", SenderID: "2"}},
			}},
			Groups: []svc.Group{
				{ID: "hers", DisplayName: "New", Members: []string{"alice", "bob"}},
			},
			ServiceAccounts: []svc.ServiceAccount{
				{ID: "bot", DisplayName: "New", OwnerUserID: "bob", Inactive: true},
			},
			Policies: []svc.Policy{
				{ID: "a", DisplayName: "New", Document: json.RawMessage(`{"changed":1}`)},
			},
			Attachments:  []svc.Attachment{attach("a", svc.GrantedToUser, "alice", 6)},
			BankPolicies: []svc.BankPolicy{bank},
		}
		c.apply(b)
		c.same("rows", c.current(allOf(b)), b)
	}},
	{"ChangeAccess keeps rows that the bundle does not hold", func(c *checker) {
		before := household()
		c.apply(before)
		c.apply(svc.Bundle{
			Users: users("dave"), Groups: []svc.Group{{ID: "new"}},
			Policies:        []svc.Policy{newPolicy("new")},
			ServiceAccounts: []svc.ServiceAccount{{ID: "new", OwnerUserID: "dave"}},
			Attachments:     []svc.Attachment{attach("new", svc.GrantedToUser, "dave", 0)},
		})
		for i := range before.Groups {
			slices.Sort(before.Groups[i].Members)
		}
		c.same("rows", sortedBundle(c.current(allOf(before))), sortedBundle(before))
	}},
	{"ChangeAccess passes of a group the named memberships alone, " +
		"or all its members", func(c *checker) {
		c.apply(svc.Bundle{
			Users: users("a", "b", "c"),
			Groups: []svc.Group{
				{ID: "g", Members: []string{"a", "b"}}, {ID: "h", Members: []string{"a", "c"}},
			},
		})
		some := []svc.Membership{
			{Group: "g", User: "b"}, {Group: "h", User: "c"}, {Group: "g", User: "c"},
			{Group: "h", User: "a"}, {Group: "g", User: "nobody"}, {Group: "none", User: "a"},
			{Group: "g", User: "b"},
		}
		for _, read := range []struct {
			named svc.AccessNames
			g, h  []string
		}{
			{svc.AccessNames{Groups: []string{"g", "h"}}, nil, nil},
			{svc.AccessNames{Members: some}, []string{"b"}, []string{"a", "c"}},
			{svc.AccessNames{Members: some, MembersOf: []string{"g"}},
				[]string{"a", "b"}, []string{"a", "c"}},
			{svc.AccessNames{MembersOf: []string{"h"}, Groups: []string{"g", "h"}},
				nil, []string{"a", "c"}},
		} {
			groups := sortedBundle(c.current(read.named)).Groups
			c.same("groups", groups, []svc.Group{
				{ID: "g", Members: read.g}, {ID: "h", Members: read.h},
			})
			if groups[0].Members == nil {
				c.fail("a group's members are nil")
			}
		}
	}},
	{"ChangeAccess passes the groups, service accounts and attachments " +
		"that refer to named users, principals and policies, each once", func(c *checker) {
		c.apply(household())
		c.apply(svc.Bundle{ServiceAccounts: []svc.ServiceAccount{
			{ID: "second", OwnerUserID: "alice"},
			{ID: "third", OwnerUserID: "bob", ScopingPolicyID: "narrow"},
		}})
		names := svc.AccessNames{
			GroupsOf: []string{"bob", "carol", "nobody"}, AccountsOf: []string{"alice", "nobody"},
			AttachmentsTo: []svc.GrantedTo{
				{Type: svc.GrantedToGroup, ID: "hers"}, {Type: svc.GrantedToUser, ID: "bob"},
				{Type: svc.GrantedToUser, ID: "hers"},
			},
			UsesOf: []string{"narrow", "a", "d", "none"},
		}
		want := svc.Bundle{
			Groups: []svc.Group{
				{ID: "hers", Members: []string{"bob"}}, {ID: "not hers", Members: []string{"bob"}},
			},
			ServiceAccounts: []svc.ServiceAccount{
				household().ServiceAccounts[0], {ID: "second", OwnerUserID: "alice"},
				{ID: "third", OwnerUserID: "bob", ScopingPolicyID: "narrow"},
			},
			Attachments: []svc.Attachment{
				attach("a", svc.GrantedToUser, "alice", 5),
				attach("c", svc.GrantedToGroup, "hers", 1<<63-1),
				attach("d", svc.GrantedToGroup, "not hers", 0),
				attach("d", svc.GrantedToUser, "bob", 0),
			},
		}
		c.same("current", sortedBundle(c.current(names)), want)
		names.Members = []svc.Membership{
			{Group: "hers", User: "alice"}, {Group: "hers", User: "bob"},
		}
		names.Groups, names.ServiceAccounts = []string{"hers"}, []string{"bot", "free"}
		names.Attachments = []svc.AttachmentKey{keyOf(attach("d", svc.GrantedToUser, "bob", 0))}
		want.Groups[0].Members = []string{"alice", "bob"}
		want.ServiceAccounts = slices.Insert(want.ServiceAccounts, 1,
			household().ServiceAccounts[1])
		c.same("named by several fields", sortedBundle(c.current(names)), want)
		whole := svc.AccessNames{GroupsOf: []string{"bob"}, MembersOf: []string{"hers"}}
		c.same("with MembersOf", sortedBundle(c.current(whole)).Groups, want.Groups)
	}},
	{"ChangeAccess adds the memberships of Join and removes those of Leave, " +
		"whether they exist or not, and ignores Members", func(c *checker) {
		c.apply(svc.Bundle{
			Users: users("a", "b", "c", "d"),
			Groups: []svc.Group{
				{ID: "g", Members: []string{"a", "b", "d"}}, {ID: "h", Members: []string{"a"}},
			},
		})
		c.write(svc.AccessWrite{
			Bundle: svc.Bundle{Groups: []svc.Group{
				{ID: "g", DisplayName: "New", Members: []string{"b"}}, {ID: "i"},
			}},
			Join: []svc.Membership{
				{Group: "g", User: "c"}, {Group: "g", User: "d"}, {Group: "i", User: "a"},
			},
			Leave: []svc.Membership{
				{Group: "g", User: "b"}, {Group: "h", User: "b"}, {Group: "i", User: "c"},
			},
			Targets: []svc.Target{{Kind: event.TargetAccess}},
		})
		c.same("groups", c.allAccess().Groups, []svc.Group{
			{ID: "g", DisplayName: "New", Members: []string{"a", "c", "d"}},
			{ID: "h", Members: []string{"a"}}, {ID: "i", Members: []string{"a"}},
		})
	}},
	{"a change of access with Join or Leave alone is written", func(c *checker) {
		member := svc.Membership{Group: "hers", User: "carol"}
		c.apply(household())
		c.write(svc.AccessWrite{
			Join: []svc.Membership{member}, Targets: []svc.Target{joined(member)},
		})
		named := svc.AccessNames{Members: []svc.Membership{member}}
		c.same("after Join", c.current(named).Groups[0].Members, []string{"carol"})
		c.write(svc.AccessWrite{
			Leave: []svc.Membership{member}, Targets: []svc.Target{joined(member)},
		})
		c.same("after Leave", len(c.current(named).Groups[0].Members), 0)
	}},
	{"ChangeAccess reports a rising number of rows, channels and memberships, " +
		"at last that of all", func(c *checker) {
		c.apply(svc.Bundle{
			Users: users("a"), Groups: []svc.Group{{ID: "g", Members: []string{"a"}}},
		})
		write := household().Write()
		write.Leave = []svc.Membership{{Group: "g", User: "a"}}
		c.same("rows reported", c.progress(write), write.Size())
	}},
	{"a user has exactly the channels written last", func(c *checker) {
		channel := func(id string) svc.Channel { return svc.Channel{Provider: "p", SenderID: id} }
		c.apply(svc.Bundle{
			Users: append(users("bob", "carol"), svc.User{
				ID: "alice", Channels: []svc.Channel{channel("1"), channel("2")},
			}),
		})
		c.apply(svc.Bundle{
			Users: []svc.User{{ID: "alice", Channels: []svc.Channel{channel("2"), channel("3")}}},
		})
		for id, holder := range map[string]*svc.User{
			"1": nil, "2": {ID: "alice"}, "3": {ID: "alice"},
		} {
			c.same("holder of "+id, c.access(svc.AccessQuery{Channel: channel(id)}).User, holder)
		}
		c.apply(svc.Bundle{Users: []svc.User{{ID: "alice", Channels: []svc.Channel{}}}})
		current := c.current(svc.AccessNames{Users: []string{"alice"}})
		c.same("channels after clearing", current.Users[0].Channels, []svc.Channel{})
	}},
	{"a user has the grants of a group exactly while it is a member", func(c *checker) {
		c.apply(svc.Bundle{
			Users: users("alice"), Groups: []svc.Group{{ID: "g"}},
			Policies:    []svc.Policy{newPolicy("p")},
			Attachments: []svc.Attachment{attach("p", svc.GrantedToGroup, "g", 0)},
		})
		number := func() int { return len(c.access(svc.AccessQuery{Identity: alice}).Grants) }
		member := []svc.Membership{{Group: "g", User: "alice"}}
		targets := []svc.Target{joined(member[0])}
		c.same("number of grants before", number(), 0)
		c.write(svc.AccessWrite{Join: member, Targets: targets})
		c.same("number of grants of the member", number(), 1)
		c.write(svc.AccessWrite{Leave: member, Targets: targets})
		c.same("number of grants afterwards", number(), 0)
	}},
	{"one change can move a channel between users, " +
		"listed in either order, and swap two channels", func(c *checker) {
		one := svc.Channel{Provider: "p", SenderID: "1"}
		two := svc.Channel{Provider: "p", SenderID: "2"}
		user := func(id string, channels ...svc.Channel) svc.User {
			return svc.User{ID: id, Channels: channels}
		}
		c.apply(svc.Bundle{Users: []svc.User{user("alice", one), user("bob", two)}})
		for _, users := range [][]svc.User{
			{user("alice", two), user("bob", one)}, {user("bob", two, one), user("alice")},
			{user("bob"), user("alice", one, two)}, {user("alice", two), user("carol", one)},
		} {
			c.apply(svc.Bundle{Users: users})
			for _, user := range users {
				for _, channel := range user.Channels {
					holder := c.access(svc.AccessQuery{Channel: channel}).User
					c.same("holder", holder, &svc.User{ID: user.ID})
				}
			}
		}
	}},
	{"names of maximum length, with slashes where allowed, " +
		"work for users, channels, members, attachments and bank policies", func(c *checker) {
		b := longNames()
		c.apply(b)
		c.same("rows", c.current(allOf(b)), b)
		user, bank := b.Users[0], b.BankPolicies[0]
		snapshot := c.access(svc.AccessQuery{Channel: user.Channels[0], BankID: bank.BankID})
		c.same("the holder of a channel", snapshot.User, &users(user.ID)[0])
		c.same("the policy of a bank", snapshot.BankPolicy, &bank)
		c.same("number of grants", len(snapshot.Grants), 1)
	}},
	{"one bundle can hold rows and the rows that they refer to", func(c *checker) {
		b := household()
		c.apply(b)
		c.same("grants", c.access(svc.AccessQuery{Identity: alice}).Grants, alicesGrants())
	}},
	{"ChangeAccess returns the error of change unwrapped and writes nothing", func(c *checker) {
		c.apply(household())
		before := c.current(allOf(household()))
		err := c.ChangeAccess(c.ctx, allOf(household()), func(svc.Bundle) (svc.AccessWrite, error) {
			return upheaval().Write(), errRefused
		})
		if err != errRefused {
			c.fail("ChangeAccess returned %v, want exactly %v", err, errRefused)
		}
		c.same("rows", sortedBundle(c.current(allOf(household()))), sortedBundle(before))
	}},
	{"ChangeAccess writes nothing when change panics, " +
		"and the store stays usable", func(c *checker) {
		c.apply(household())
		before := c.current(allOf(household()))
		refuse := func(svc.Bundle) (svc.AccessWrite, error) { panic(errRefused) }
		c.panics(func() { c.ok(c.ChangeAccess(c.ctx, svc.AccessNames{}, refuse)) })
		c.same("rows", sortedBundle(c.current(allOf(household()))), sortedBundle(before))
		c.apply(upheaval())
	}},
	{"ChangeAccess, or its lock, in a transaction blocks others that change access or rely on it " +
		"until the end, even if it wrote nothing", func(c *checker) {
		write := func() error { return change(c.ctx, c.Store, svc.Bundle{Users: users("alice")}) }
		rely := func() error {
			return c.Atomically(c.ctx, func(ctx context.Context, tx svc.Store) error {
				return lockAndRead(ctx, tx, svc.Locks{RelyOnAccess: true})
			})
		}
		for _, others := range []func() error{write, rely} {
			c.holds(func(ctx context.Context, tx svc.Store) error {
				return change(ctx, tx, svc.Bundle{})
			}, others)
			c.holds(func(ctx context.Context, tx svc.Store) error {
				return lockAndRead(ctx, tx, svc.Locks{ChangeAccess: true})
			}, others)
		}
	}},
	{"a transaction that relies on access " +
		"blocks changes of access until its end", func(c *checker) {
		c.holds(func(ctx context.Context, tx svc.Store) error {
			return lockAndRead(ctx, tx, svc.Locks{RelyOnAccess: true})
		}, func() error { return change(c.ctx, c.Store, svc.Bundle{Users: users("alice")}) })
	}},
	{"ChangeAccess writes nothing when change returns an empty bundle, " +
		"even if it modified its argument", func(c *checker) {
		c.apply(household())
		before, generation := c.current(allOf(household())), c.generation()
		named := allOf(household())
		c.ok(c.ChangeAccess(c.ctx, named, func(current svc.Bundle) (svc.AccessWrite, error) {
			c.same("current", sortedBundle(current), sortedBundle(before))
			current.Users[0].DisplayName, current.Policies[0].Document[0] = "changed", '['
			for _, g := range current.Groups { // in any order, some without members
				clear(g.Members)
			}
			return svc.Bundle{Users: []svc.User{}, Groups: []svc.Group{}}.Write(), nil
		}))
		c.same("rows", sortedBundle(c.current(allOf(household()))), sortedBundle(before))
		c.same("generation", c.generation(), generation)
	}},
	{"concurrent changes of access are serialized: none is lost", func(c *checker) {
		c.apply(svc.Bundle{Users: []svc.User{{ID: "alice"}}})
		named := svc.AccessNames{Users: []string{"alice"}}
		c.together(5, func(int, int) {
			c.ok(c.ChangeAccess(c.ctx, named, func(b svc.Bundle) (svc.AccessWrite, error) {
				b.Users[0].DisplayName += "."
				return b.Write(), nil
			}))
		})
		c.same("number of changes", len(c.current(named).Users[0].DisplayName), racers*5)
	}},
}

// lockAndRead takes locks and reads: a store may take them with the next call that has an answer.
func lockAndRead(ctx context.Context, tx svc.Store, locks svc.Locks) error {
	return cmp.Or(tx.Lock(ctx, locks), second(tx.Access(ctx, svc.AccessQuery{})))
}

// longNames returns rows whose names have maximum length, of 4-byte characters that do not
// compress.
func longNames() svc.Bundle {
	id := func(seed uint64) string { return noise(seed, limits.IDLength, '\U00020000', 40_000) }
	foreign := func(seed uint64) string {
		return `/\` + noise(seed, limits.IDLength-3, '\U00020000', 40_000) + "/"
	}
	return svc.Bundle{
		Users: []svc.User{{ID: id(1), DisplayName: id(1), Channels: []svc.Channel{{
			Provider: id(2), SenderID: foreign(3),
		}}}},
		Groups:       []svc.Group{{ID: id(4), DisplayName: id(4), Members: []string{id(1)}}},
		Policies:     []svc.Policy{newPolicy(id(5))},
		Attachments:  []svc.Attachment{attach(id(5), svc.GrantedToGroup, id(4), 1)},
		BankPolicies: []svc.BankPolicy{newBank(foreign(6), `{"n":1.0}`)},
		Tests:        []svc.AccessTest{newTest(id(7), true)},
	}
}

// upheaval returns a bundle that changes and adds rows of every kind in household.
func upheaval() svc.Bundle {
	return svc.Bundle{
		Users:           append(users("new"), svc.User{ID: "alice", DisplayName: "upheaval"}),
		Groups:          []svc.Group{{ID: "hers"}, {ID: "new", Members: []string{"new"}}},
		ServiceAccounts: []svc.ServiceAccount{{ID: "bot", OwnerUserID: "new"}},
		Policies:        []svc.Policy{{ID: "a", Document: json.RawMessage(`[]`)}},
		Attachments:     []svc.Attachment{attach("a", svc.GrantedToUser, "alice", 99)},
		BankPolicies:    []svc.BankPolicy{newBank("b", `[]`)},
		Tests:           []svc.AccessTest{newTest("t", false), newTest("v", true)},
	}
}

// progress writes a change of access, and returns how many rows it reports at last.
func (c *checker) progress(write svc.AccessWrite) (reported int) {
	write.Progress = func(done int) {
		if done <= reported {
			c.fail("Progress got %d after %d", done, reported)
		}
		reported = done
	}
	c.write(write)
	return reported
}

// allOf names all rows of a bundle.
func allOf(b svc.Bundle) svc.AccessNames {
	return svc.AccessNames{
		Users: column(b.Users, userID), MembersOf: column(b.Groups, groupID),
		ServiceAccounts: column(b.ServiceAccounts, accountID),
		Policies:        column(b.Policies, policyID), BankPolicies: column(b.BankPolicies, bankID),
		Tests: column(b.Tests, testID), Attachments: column(b.Attachments, keyOf),
	}
}

// sortedBundle returns the bundle with its rows sorted by key.
func sortedBundle(b svc.Bundle) svc.Bundle {
	return svc.Bundle{
		Users: sortedRows(b.Users, userID), Groups: sortedRows(b.Groups, groupID),
		ServiceAccounts: sortedRows(b.ServiceAccounts, accountID),
		Policies:        sortedRows(b.Policies, policyID),
		BankPolicies:    sortedRows(b.BankPolicies, bankID),
		Tests:           sortedRows(b.Tests, testID),
		Attachments: sortedRows(b.Attachments, func(a svc.Attachment) string {
			return a.PolicyID + "\x00" + a.Principal.Type + "\x00" + a.Principal.ID
		}),
	}
}

func userID(u svc.User) string              { return u.ID }
func groupID(g svc.Group) string            { return g.ID }
func accountID(a svc.ServiceAccount) string { return a.ID }
func policyID(p svc.Policy) string          { return p.ID }
func bankID(p svc.BankPolicy) string        { return p.BankID }
func testID(t svc.AccessTest) string        { return t.ID }

func sortedRows[R any](rows []R, key func(R) string) []R {
	return slices.SortedFunc(slices.Values(rows), func(a, b R) int {
		return strings.Compare(key(a), key(b))
	})
}
