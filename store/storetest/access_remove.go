package storetest

import (
	"context"
	"fmt"
	"slices"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
)

var removeAccessRules = []rule{
	{"ChangeAccess removes exactly the rows that Remove names, " +
		"whether they exist or not", func(c *checker) {
		b := memorable()
		b.BankPolicies = append(b.BankPolicies, newBank("other", `{}`))
		b.Tests = append(b.Tests, newTest("other", true))
		c.apply(b)
		c.remove(svc.AccessNames{
			Groups:          []string{"empty", "none"},
			ServiceAccounts: []string{"free", "alice"},
			Policies:        []string{"unused", "none"},
			BankPolicies:    []string{"other", "none"},
			Tests:           []string{"other", "none"},
			Channels:        []svc.Channel{{Provider: "chat", SenderID: "1"}, {Provider: "chat"}},
			Attachments: []svc.AttachmentKey{
				keyOf(attach("unused", svc.GrantedToGroup, "empty", 0)),
				keyOf(attach("d", svc.GrantedToUser, "bob", 0)),
				keyOf(attach("c", svc.GrantedToUser, "hers", 0)),
			},
		})
		want := sortedBundle(b)
		first := &want.Users[0]
		first.Channels = slices.DeleteFunc(first.Channels, func(ch svc.Channel) bool {
			return ch == svc.Channel{Provider: "chat", SenderID: "1"}
		})
		want.Groups = without(want.Groups, groupID, "empty")
		want.ServiceAccounts = without(want.ServiceAccounts, accountID, "free")
		want.Policies = without(want.Policies, policyID, "unused")
		want.BankPolicies = without(want.BankPolicies, bankID, "other")
		want.Tests = without(want.Tests, testID, "other")
		want.Attachments = slices.DeleteFunc(want.Attachments, func(a svc.Attachment) bool {
			return a.PolicyID == "unused" || a.PolicyID == "d" && a.Principal.ID == "bob"
		})
		for _, g := range want.Groups {
			slices.Sort(g.Members)
		}
		c.same("rows", sortedBundle(c.allAccess()), want)
		channel := svc.Channel{Provider: "chat", SenderID: "1"}
		user := c.access(svc.AccessQuery{Channel: channel}).User
		c.same("the holder of a removed channel", user, (*svc.User)(nil))
	}},
	{"a removed user goes with its channels and memberships, " +
		"and a removed group with its memberships", func(c *checker) {
		channel := svc.Channel{Provider: "p", SenderID: "1"}
		c.apply(svc.Bundle{
			Users: append(users("b", "c"), svc.User{ID: "a", Channels: []svc.Channel{channel}}),
			Groups: []svc.Group{
				{ID: "g", Members: []string{"a", "b"}}, {ID: "h", Members: []string{"a", "c"}},
				{ID: "i", Members: []string{"b", "c"}},
			},
		})
		c.remove(svc.AccessNames{Users: []string{"a", "unknown"}, Groups: []string{"i"}})
		c.apply(svc.Bundle{Users: users("a"), Groups: []svc.Group{{ID: "i"}}})
		c.same("users", column(c.allAccess().Users, userID), []string{"a", "b", "c"})
		c.same("groups", c.allAccess().Groups, []svc.Group{
			{ID: "g", Members: []string{"b"}}, {ID: "h", Members: []string{"c"}}, {ID: "i"},
		})
		holder := func() *svc.User { return c.access(svc.AccessQuery{Channel: channel}).User }
		c.same("the holder of the channel", holder(), (*svc.User)(nil))
		held := []svc.Channel{channel}
		c.apply(svc.Bundle{Users: []svc.User{{ID: "a", Channels: held}}})
		w := removal(svc.AccessNames{Users: []string{"a"}})
		w.Users = []svc.User{{ID: "b", Channels: held}}
		c.write(w)
		if user := holder(); user == nil || user.ID != "b" {
			c.fail("the channel of a removed user is not that of the user who gets it")
		}
	}},
	{"a removed user goes with its personal sources and templates, also without a row, " +
		"and nothing else goes", func(c *checker) {
		c.apply(svc.Bundle{Users: users("a", "b")})
		keys := []svc.TemplateKey{templateKey("t"), templateKey("a")}
		for _, owner := range []string{"a", "b", "A", "rowless"} {
			keys = append(keys, personalTemplate(owner, "t"), personalTemplate(owner, "u"))
		}
		for _, key := range keys {
			c.ok(c.CreateTemplate(c.ctx, under(key, installed(key.ID, "x"))))
			c.raiseKey(key, func(*svc.Template) {})
			c.ok(c.CreateSource(c.ctx, newSource(sourceOf(key))))
		}
		c.remove(svc.AccessNames{Users: []string{"a", "rowless"}})
		for _, key := range keys {
			_, noTemplate := c.Template(c.ctx, key)
			_, noSource := c.Source(c.ctx, sourceOf(key))
			if key.Owner == "a" || key.Owner == "rowless" {
				c.is("Template of "+show(key), noTemplate, svc.ErrNotFound)
				c.is("Source of "+show(key), noSource, svc.ErrNotFound)
			} else {
				c.ok(noTemplate)
				c.ok(noSource)
			}
		}
	}},
	{"templates of others lose the URL of a removed user's personal sources, " +
		"also without a row of the source, and Changes reports them", func(c *checker) {
		c.apply(svc.Bundle{Users: users("a")})
		var unbound []svc.Template
		want := []svc.Target{{Kind: event.TargetAccess}}
		for i, source := range []svc.SourceKey{
			personalSource("a", "acme"), personalSource("a", "acme"), personalSource("a", "gone"),
		} {
			t := installedFrom(fmt.Sprint(i), source, "https://old.example")
			c.ok(c.CreateTemplate(c.ctx, t))
			t.Origin.URL = ""
			unbound, want = append(unbound, t), append(want, t.Target())
		}
		kept := []svc.SourceKey{
			personalSource("A", "acme"), personalSource("", "a"), sourceKey("a"),
		}
		for i, source := range kept {
			c.installAt(templateKey(fmt.Sprint("kept ", i)), source, "https://old.example")
		}
		c.installAt(templateKey("without a URL"), personalSource("a", "acme"), "")
		since, gone := c.generation(), []svc.Target{{}}
		w := removal(svc.AccessNames{Users: []string{"a"}})
		w.Gone = func(targets []svc.Target) { gone = targets }
		c.write(w)
		for _, t := range unbound {
			c.same("template", c.template(t.TemplateKey), t)
		}
		for i := range kept {
			url := c.template(templateKey(fmt.Sprint("kept ", i))).Origin.URL
			c.same("another's URL", url, "https://old.example")
		}
		c.same("what Gone received", len(gone), 0)
		c.sameTargets("the removal", c.changes(since).Targets, want)
	}},
	{"a template made after its removed namesake " +
		"has none of its versions, tags and bases", func(c *checker) {
		key := personalTemplate("a", "t")
		c.ok(c.CreateTemplate(c.ctx, under(key, installed("t", "old"))))
		c.raiseKey(key, func(*svc.Template) {})
		c.remove(svc.AccessNames{Users: []string{"a"}})
		template := under(key, handMade("t", "new"))
		c.ok(c.CreateTemplate(c.ctx, template))
		c.same("template", c.template(key), template)
		c.same("number of versions", len(c.versionsOf(key, 100)), 0)
		old := c.templatesOf(svc.TemplatePage{
			Scope: svc.ScopePersonal, Owner: "a", TemplateQuery: tagged("old"),
		})
		c.same("number of templates with the old tag", len(old), 0)
	}},
	{"Gone receives the sources and templates that went once in the transaction, " +
		"and Changes reports them behind Targets, as one mutation", func(c *checker) {
		key := personalTemplate("a", "t")
		c.apply(svc.Bundle{Users: users("a", "b")})
		c.ok(c.CreateTemplate(c.ctx, under(key, installed("t"))))
		c.ok(c.CreateSource(c.ctx, newSource(sourceOf(key))))
		since, targets := c.generation(), []svc.Target{{Kind: event.TargetUser, ID: "a"}}
		want := []svc.Target{key.Target(), sourceOf(key).Target()}
		calls := 0
		c.write(svc.AccessWrite{
			Remove: svc.AccessNames{Users: []string{"a"}}, Targets: targets,
			Renamed: []svc.Target{{Kind: event.TargetUser, ID: "b"}},
			Gone: func(gone []svc.Target) {
				calls++
				c.sameTargets("Gone", gone, want)
				clear(gone)
			},
		})
		c.same("calls of Gone", calls, 1)
		changes := c.changes(since)
		c.same("generation", changes.Generation, since+1)
		c.same("first target", changes.Targets[:1], targets)
		c.sameTargets("the removal", changes.Targets[1:], want)
		c.same("renamed", changes.Renamed, []svc.Target{{Kind: event.TargetUser, ID: "b"}})
		c.write(svc.AccessWrite{
			Bundle: svc.Bundle{Users: users("c")}, Targets: []svc.Target{{Kind: event.TargetAccess}},
			Gone: func(gone []svc.Target) { calls, want = calls+1, gone },
		})
		c.same("calls of Gone", calls, 2)
		c.same("what went with nothing", want, []svc.Target(nil))
	}},
	{"a change of access removes rows before it writes others: a row can be made anew, " +
		"and take what the removed one had", func(c *checker) {
		channel := svc.Channel{Provider: "p", SenderID: "1"}
		c.apply(svc.Bundle{
			Users: append(users("b"), svc.User{
				ID: "a", DisplayName: "Old", Email: new("e"), Inactive: true,
				Channels: []svc.Channel{channel},
			}),
			Groups:      []svc.Group{{ID: "g", Members: []string{"a", "b"}}},
			Policies:    []svc.Policy{newPolicy("p")},
			Attachments: []svc.Attachment{attach("p", svc.GrantedToUser, "a", 1)},
		})
		b := svc.Bundle{
			Users: []svc.User{
				{ID: "a"}, {ID: "b", Channels: []svc.Channel{channel}},
			},
			Policies: []svc.Policy{{
				ID:          "p",
				DisplayName: "New",
				Document:    newPolicy("p").Document,
			}},
			Attachments: []svc.Attachment{attach("p", svc.GrantedToUser, "b", 2)},
		}
		write := b.Write()
		write.Join = []svc.Membership{{Group: "g", User: "a"}}
		write.Remove = svc.AccessNames{
			Users: []string{"a"}, Policies: []string{"p"},
			Attachments: []svc.AttachmentKey{keyOf(attach("p", svc.GrantedToUser, "a", 0))},
		}
		c.write(write)
		b.Groups = []svc.Group{{ID: "g", Members: []string{"a", "b"}}}
		c.same("rows", c.allAccess(), b)
		moved := svc.Bundle{Users: []svc.User{{ID: "a", Channels: []svc.Channel{channel}}}}.Write()
		moved.Remove.Channels = []svc.Channel{channel}
		c.write(moved)
		user := c.access(svc.AccessQuery{Channel: channel}).User
		c.same("the holder of a channel removed and written", user, &svc.User{ID: "a"})
		other := c.current(svc.AccessNames{Users: []string{"b"}}).Users[0]
		c.same("channels of its holder before", other.Channels, []svc.Channel{})
	}},
	{"ChangeAccess counts in Progress what it removes", func(c *checker) {
		b := household()
		c.apply(b)
		write := svc.AccessWrite{
			Remove: svc.AccessNames{
				Users: []string{"carol", "nobody"}, Groups: []string{"empty"},
				ServiceAccounts: []string{"free"}, Policies: []string{"unused"},
				Attachments: []svc.AttachmentKey{
					keyOf(attach("unused", svc.GrantedToGroup, "empty", 0)),
				},
				BankPolicies: []string{"none"}, Channels: b.Users[0].Channels,
			},
			Targets: []svc.Target{{Kind: event.TargetAccess}},
		}
		c.same("rows reported", c.progress(write), 8)
	}},
	{"a failed transaction restores what a change of access removed in it", func(c *checker) {
		key := personalTemplate("alice", "t")
		template := under(key, installed("t", "x"))
		c.apply(household())
		c.ok(c.CreateTemplate(c.ctx, template))
		c.ok(c.CreateSource(c.ctx, newSource(sourceOf(key))))
		before, generation := c.allAccess(), c.generation()
		c.is("Atomically", c.Atomically(c.ctx, func(ctx context.Context, tx svc.Store) error {
			all := allOf(household())
			all.Groups, all.MembersOf = all.MembersOf, nil
			c.ok(removeIn(ctx, tx, all))
			return errRefused
		}), errRefused)
		c.same("rows", c.allAccess(), before)
		c.same("template", c.template(key), template)
		c.same("source", c.source(sourceOf(key)), newSource(sourceOf(key)))
		c.same("generation", c.generation(), generation)
		channel := household().Users[0].Channels[0]
		c.same("holder of a channel", c.access(svc.AccessQuery{Channel: channel}).User.ID, "alice")
	}},
	{"a change of access in a transaction " +
		"sees what an earlier one removed and wrote", func(c *checker) {
		c.apply(household())
		all := allOf(household())
		c.ok(c.Atomically(c.ctx, func(ctx context.Context, tx svc.Store) error {
			c.ok(removeIn(ctx, tx, svc.AccessNames{
				Users:           []string{"carol"},
				ServiceAccounts: []string{"free"},
				Groups:          []string{"hers"},
			}))
			c.ok(change(ctx, tx, svc.Bundle{Users: []svc.User{{ID: "dave"}}}))
			return tx.ChangeAccess(ctx, all, func(b svc.Bundle) (svc.AccessWrite, error) {
				b = sortedBundle(b)
				c.same("users", column(b.Users, userID), []string{"alice", "bob"})
				c.same("accounts", column(b.ServiceAccounts, accountID), []string{"bot"})
				c.same("groups", column(b.Groups, groupID), []string{"empty", "not hers"})
				return svc.AccessWrite{
					Join:    []svc.Membership{{Group: "empty", User: "dave"}},
					Targets: []svc.Target{{Kind: event.TargetAccess}},
				}, nil
			})
		}))
		rows := c.allAccess()
		c.same("users", column(rows.Users, userID), []string{"alice", "bob", "dave"})
		c.same("members", rows.Groups[0].Members, []string{"dave"})
	}},
}

// sourceOf returns the key of a source with the scope and the owner of a template.
func sourceOf(key svc.TemplateKey) svc.SourceKey {
	return svc.SourceKey{Scope: key.Scope, Owner: key.Owner, Name: "source " + key.ID}
}

// removal returns the write of a removal.
func removal(named svc.AccessNames) svc.AccessWrite {
	return svc.AccessWrite{Remove: named, Targets: []svc.Target{{Kind: event.TargetAccess}}}
}

func removeIn(ctx context.Context, s svc.Store, named svc.AccessNames) error {
	return s.ChangeAccess(ctx, svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) {
		return removal(named), nil
	})
}

func (c *checker) remove(named svc.AccessNames) { c.write(removal(named)) }

// without returns the rows but one.
func without[R any](rows []R, id func(R) string, gone string) []R {
	return slices.DeleteFunc(rows, func(row R) bool { return id(row) == gone })
}
