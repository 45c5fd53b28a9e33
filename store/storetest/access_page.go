package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
)

var accessPageRules = []rule{
	{"a page has whole rows of one kind in byte order of their keys, " +
		"users without channels and groups without members", func(c *checker) {
		c.apply(oddities())
		all := c.allAccess()
		for i := range all.Users {
			all.Users[i].Channels = nil
		}
		for i := range all.Groups {
			all.Groups[i].Members = nil
		}
		for kind, want := range map[event.TargetKind]svc.Bundle{
			event.TargetUser: {Users: all.Users}, event.TargetGroup: {Groups: all.Groups},
			event.TargetServiceAccount: {ServiceAccounts: all.ServiceAccounts},
			event.TargetPolicy:         {Policies: all.Policies},
			event.TargetAttachment:     {Attachments: all.Attachments},
			event.TargetBankPolicy:     {BankPolicies: all.BankPolicies},
		} {
			got := c.accessPage(svc.AccessPage{Kind: kind, Limit: 1000})
			c.same("page of kind "+string(kind), got, want)
			if kind == event.TargetUser && got.Users[0].Channels != nil ||
				kind == event.TargetGroup && got.Groups[0].Members != nil {
				c.fail("a user has channels, or a group members, which are not nil")
			}
		}
	}},
	{"the pages of a list have each row once, for every chunk size", func(c *checker) {
		c.apply(oddities())
		id := odd[len(odd)/2]
		for _, list := range []svc.AccessPage{
			{Kind: event.TargetUser}, {Kind: event.TargetUser, Text: "A"},
			{Kind: event.TargetGroup}, {Kind: event.TargetGroup, User: id},
			{Kind: event.TargetServiceAccount}, {Kind: event.TargetServiceAccount, Policy: id},
			{Kind: event.TargetPolicy}, {Kind: event.TargetBankPolicy}, {Kind: event.TargetTest},
			{Kind: event.TargetAttachment},
			{Kind: event.TargetAttachment, Group: "everybody"},
			{Kind: event.TargetAttachment, Policy: id}, {Kind: event.TargetChannel, User: id},
			{Kind: event.TargetMember, Group: "everybody"},
		} {
			want := c.listed(list, 1000)
			for _, limit := range []int{1, 7, len(want)} {
				c.same("ids of "+show(list), c.listed(list, limit), want)
			}
		}
	}},
	{"a page of groups, service accounts or attachments has only those of its user, " +
		"group and policy", func(c *checker) {
		c.apply(household())
		c.apply(svc.Bundle{ServiceAccounts: []svc.ServiceAccount{
			{ID: "also", OwnerUserID: "bob", ScopingPolicyID: "narrow"},
			{ID: "hers", OwnerUserID: "alice", ScopingPolicyID: "unused"},
		}})
		for _, list := range []struct {
			page svc.AccessPage
			want []string
		}{
			{svc.AccessPage{Kind: event.TargetGroup, User: "bob"}, []string{"hers", "not hers"}},
			{svc.AccessPage{Kind: event.TargetGroup, User: "carol"}, nil},
			{svc.AccessPage{Kind: event.TargetServiceAccount, User: "alice"},
				[]string{"bot", "hers"}},
			{svc.AccessPage{Kind: event.TargetServiceAccount, Policy: "narrow"},
				[]string{"also", "bot"}},
			{svc.AccessPage{Kind: event.TargetServiceAccount, User: "alice", Policy: "narrow"},
				[]string{"bot"}},
			{svc.AccessPage{Kind: event.TargetAttachment, User: "alice"},
				[]string{"a/user/alice", "b/user/alice"}},
			{svc.AccessPage{Kind: event.TargetAttachment, User: "hers"}, nil},
			{svc.AccessPage{Kind: event.TargetAttachment, Group: "hers"}, []string{"c/group/hers"}},
			{svc.AccessPage{Kind: event.TargetAttachment, Policy: "d"},
				[]string{"d/group/not hers", "d/user/bob"}},
			{svc.AccessPage{Kind: event.TargetAttachment, Policy: "d", User: "bob"},
				[]string{"d/user/bob"}},
			{svc.AccessPage{Kind: event.TargetAttachment, Policy: "a", Group: "hers"}, nil},
			{svc.AccessPage{Kind: event.TargetAttachment, Policy: "none"}, nil},
		} {
			c.same("ids of "+show(list.page), c.listed(list.page, 10), list.want)
		}
	}},
	{"a page of channels or members has those of one user or group, as one row " +
		"with nothing else", func(c *checker) {
		c.apply(oddities())
		id := odd[len(odd)/2]
		c.same("channels", c.accessPage(svc.AccessPage{Kind: event.TargetChannel, User: id, Limit: 1000}),
			svc.Bundle{Users: []svc.User{{ID: id, Channels: []svc.Channel{
				{Provider: "P", SenderID: id}, {Provider: "p", SenderID: id},
				{Provider: "p", SenderID: "also " + id},
			}}}})
		members := svc.AccessPage{Kind: event.TargetMember, Group: "everybody", Limit: 1000}
		c.same("members", c.accessPage(members),
			svc.Bundle{Groups: []svc.Group{{ID: "everybody", Members: odd}}})
		for _, empty := range []svc.AccessPage{
			{Kind: event.TargetChannel, User: "unknown"}, {Kind: event.TargetMember, Group: "unknown"},
			{Kind: event.TargetMember, Group: id},
		} {
			c.same("ids of "+show(empty), c.listed(empty, 10), []string(nil))
		}
	}},
	{"a page of users with a text has those whose id, name or email begins with it, " +
		"with letters in either case", func(c *checker) {
		c.apply(svc.Bundle{Users: []svc.User{
			{ID: "1", DisplayName: "Zoe Adams", Email: new("z.adams@b.example")},
			{ID: "2", DisplayName: "zOe bell", Email: new("ZOEBELL@b.example")},
			{ID: "3", DisplayName: "x zoe"}, {ID: "4", DisplayName: "Zo\u00c9"},
			{ID: "5", DisplayName: "zo\u00e9"}, {ID: "6", DisplayName: "100%"},
			{ID: "7", DisplayName: "100_000"}, {ID: "8", DisplayName: "1000"},
			{ID: "ZO", DisplayName: "?"}, {ID: "zo", DisplayName: "\u0130"},
			{ID: "9", DisplayName: strings.Repeat("Long name ", 10) + "A", Email: new("")},
			{ID: "91", DisplayName: strings.Repeat("long name ", 10) + "b"},
			{ID: "92", DisplayName: "\U0010fffd\U0010fffd"}, {ID: "93", DisplayName: `a\b`},
		}})
		for text, want := range map[string][]string{
			"zo": {"1", "2", "4", "5", "ZO", "zo"}, "ZOE": {"1", "2"}, "z.A": {"1"},
			"zo\u00e9": {"4", "5"}, "ZO\u00c9": {"4", "5"}, "zoe": {"1", "2"}, "zoeb": {"2"},
			"100%": {"6"}, "100_": {"7"}, "%": nil, "_": nil, "i": {"zo"}, "\u0130": {"zo"},
			"?": {"ZO"}, "9": {"9", "91", "92", "93"}, strings.Repeat("LONG NAME ", 10): {"9", "91"},
			strings.Repeat("long name ", 10) + "B": {"91"}, "\U0010fffd": {"92"},
			"\U0010fffd\U0010fffd\U0010fffd": nil, `A\B`: {"93"}, "'": nil, "zoe adams ": nil,
		} {
			page := svc.AccessPage{Kind: event.TargetUser, Text: text}
			c.same("users by "+text, c.listed(page, 3), want)
		}
	}},
	{"a page leaves out Skip rows behind After, which need not exist any more", func(c *checker) {
		c.apply(svc.Bundle{Users: users("a", "c", "d", "e", "f", "x"), Groups: []svc.Group{
			{ID: "g", Members: []string{"a", "c", "d", "e", "f"}},
		}})
		for _, list := range []svc.AccessPage{
			{Kind: event.TargetUser}, {Kind: event.TargetMember, Group: "g"},
		} {
			list.After, list.Skip, list.Limit = "b", 1, 2
			c.same("ids of "+show(list), pageIDs(list.Kind, c.accessPage(list)), []string{"d", "e"})
			list.Skip = 10
			c.same("ids of "+show(list), pageIDs(list.Kind, c.accessPage(list)), []string(nil))
		}
		c.apply(svc.Bundle{Users: []svc.User{{ID: "1", DisplayName: "x"}, {ID: "2", DisplayName: "x"}}})
		found := svc.AccessPage{Kind: event.TargetUser, Text: "x", Skip: 1, Limit: 1}
		c.same("found", pageIDs(found.Kind, c.accessPage(found)), []string{"2"})
	}},
	{"a page comes with the generation, and with Bare it leaves out names", func(c *checker) {
		c.apply(memorable())
		for _, kind := range []event.TargetKind{
			event.TargetUser, event.TargetGroup, event.TargetServiceAccount, event.TargetPolicy,
		} {
			page := svc.AccessPage{Kind: kind, Limit: 2}
			want := c.accessPage(page)
			want.Bare()
			rows, changes := c.readAccess(svc.AccessRead{Page: &page, Bare: true})
			c.same("rows", rows, want)
			c.same("changes", changes, svc.StoreChanges{Generation: c.generation()})
		}
	}},
}

// largePageRules are slow: -short skips them.
var largePageRules = []rule{
	{"a page of 10,001 rows comes in parts of at most 5,000", func(c *checker) {
		b := svc.Bundle{Users: make([]svc.User, 10_500), Groups: []svc.Group{{ID: "g"}}}
		for i := range b.Users {
			id := fmt.Sprintf("u%05d", i)
			b.Users[i].ID = id
			b.Groups[0].Members = append(b.Groups[0].Members, id)
			b.Users[0].Channels = append(b.Users[0].Channels, svc.Channel{Provider: "p", SenderID: id})
		}
		c.apply(b)
		for _, page := range []svc.AccessPage{
			{Kind: event.TargetUser}, {Kind: event.TargetUser, Text: "U"},
			{Kind: event.TargetMember, Group: "g"}, {Kind: event.TargetChannel, User: "u00000"},
		} {
			page.Limit = 10_001
			_, err := c.ReadAccess(c.ctx, svc.AccessRead{Page: &page}, func(part svc.Bundle) error {
				if n := len(pageIDs(page.Kind, part)); n > 5000 {
					return fmt.Errorf("a part has %d", n)
				}
				return nil
			})
			c.ok(err)
			want := column(b.Users[:page.Limit], userID)
			if page.Kind == event.TargetChannel {
				want = column(b.Users[0].Channels[:page.Limit], svc.Channel.String)
			}
			c.same("ids of "+show(page), pageIDs(page.Kind, c.accessPage(page)), want)
		}
	}},
	{"a text finds few of many users, and most of them, at the start of the list and at its end", func(
		c *checker,
	) {
		const few, many = 20, 4000
		var b svc.Bundle
		for i := range many {
			u := svc.User{ID: fmt.Sprintf("%04d", i), DisplayName: "common"}
			if i >= many-few {
				u.DisplayName = "Rare"
			} else if i%2 == 0 {
				u.Email = new("Rural")
			}
			b.Users = append(b.Users, u)
		}
		c.apply(b)
		for text, want := range map[string]func(i int) bool{
			"rar": func(i int) bool { return i >= many-few },
			"com": func(i int) bool { return i < many-few },
			"r":   func(i int) bool { return i >= many-few || i%2 == 0 },
			"39":  func(i int) bool { return i/100 == 39 },
		} {
			var ids []string
			for i := range many {
				if want(i) {
					ids = append(ids, b.Users[i].ID)
				}
			}
			page := svc.AccessPage{Kind: event.TargetUser, Text: text}
			c.same("users by "+text, c.listed(page, 100), ids)
			page.After, page.Skip, page.Limit = fmt.Sprintf("%04d", many-few/2), 3, 4
			from, _ := slices.BinarySearch(ids, page.After+" ")
			ids = ids[min(from+3, len(ids)):min(from+7, len(ids))]
			c.same("last users by "+text, column(c.accessPage(page).Users, userID), ids)
		}
	}},
}

// accessPage reads one chunk of a list. Channels come as one user, and members as one group.
func (c *checker) accessPage(page svc.AccessPage) svc.Bundle {
	rows, _ := c.readAccess(svc.AccessRead{Page: &page})
	if page.Kind == event.TargetChannel {
		for len(rows.Users) > 1 && rows.Users[0].ID == rows.Users[1].ID {
			rows.Users[0].Channels = append(rows.Users[0].Channels, rows.Users[1].Channels...)
			rows.Users = slices.Delete(rows.Users, 1, 2)
		}
	}
	return rows
}

// listed reads a list in chunks of limit, and returns the ids of its rows.
func (c *checker) listed(page svc.AccessPage, limit int) []string {
	return wholePages(c, limit, func(last string) ([]string, error) {
		page.After, page.Limit = cmp.Or(last, page.After), limit
		return pageIDs(page.Kind, c.accessPage(page)), nil
	})
}

// pageIDs returns what After names, of each row of a page.
func pageIDs(kind event.TargetKind, b svc.Bundle) (ids []string) {
	switch kind {
	case event.TargetChannel:
		for _, u := range b.Users {
			ids = append(ids, column(u.Channels, svc.Channel.String)...)
		}
	case event.TargetMember:
		for _, g := range b.Groups {
			ids = append(ids, g.Members...)
		}
	default:
		ids = column(b.Targets(), func(t svc.Target) string { return t.ID })
	}
	return ids
}
