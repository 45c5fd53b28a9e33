package oracle_test

import (
	"maps"
	"slices"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
)

// attempts draw one call each. A row that is created, changed or attached is a bundle of one row, for the Service as well.
var attempts = []func(c *scene) attempt{
	(*scene).writeOne, (*scene).writeOne, (*scene).writeOne, (*scene).writeOne, (*scene).writeOne, (*scene).writeOne, (*scene).writeOne,
	(*scene).patchUser, (*scene).patchUser, (*scene).deleteUser, (*scene).removeChannel, (*scene).deleteGroup, (*scene).removeMembers,
	(*scene).patchPolicy, (*scene).patchPolicy, (*scene).detach, (*scene).detach, (*scene).deleteAccount, (*scene).createOwn, (*scene).changeOwn,
	(*scene).removeBank, (*scene).write, (*scene).write, (*scene).prune, (*scene).issueKey, (*scene).issueKey, (*scene).changeKey,
}

func (c *scene) sender() svc.Channel {
	return sceneSenders[c.IntN(len(sceneSenders))]
}

func (c *scene) patchUser() attempt {
	id, activates := c.one(sceneUsers), false
	for _, who := range sceneUsers { // often one that is inactive, and may have more than the caller
		if c.rows.users[who].Inactive && c.IntN(2) == 0 {
			id, activates = who, true
		}
	}
	u, found := c.rows.users[id]
	var patch svc.UserPatch
	if activates {
		u.Inactive = false
		patch.Inactive = &u.Inactive
	} else if c.IntN(3) == 0 {
		u.DisplayName = c.one([]string{id, "renamed"})
		patch.DisplayName = &u.DisplayName
	} else {
		u.Inactive = c.IntN(2) == 0
		patch.Inactive = &u.Inactive
	}
	tags, refused := c.tags(c.rows.users[id].ETag(), found)
	return attempt{
		name: "Users.Patch", need: []string{action.UsersWrite}, wrong: unless(found, svc.CodeNotFound), refused: refused,
		after: c.rows.changed(svc.Bundle{Users: []svc.User{u}}),
		call:  func(by svc.Principal) error { return errorOf(c.s.Users.Patch(c.ctx, by, id, patch, tags...)) },
	}
}

func (c *scene) deleteUser() attempt {
	id := c.one(append(sceneUsers, "u5"))
	u, found := c.rows.users[id]
	tags, refused := c.tags(u.ETag(), found)
	after := c.rows.clone()
	after.dropUser(id)
	left := found || len(after.keys) < len(c.rows.keys)
	return attempt{
		name: "Users.Delete", need: []string{action.UsersWrite}, wrong: unless(left, svc.CodeNotFound), refused: refused, after: after,
		call: func(by svc.Principal) error { return c.s.Users.Delete(c.ctx, by, id, tags...) },
	}
}

func (c *scene) removeChannel() attempt {
	id, ch := c.one(sceneUsers), c.sender()
	for _, u := range c.rows.users { // mostly one that is mapped
		if slices.Contains(u.Channels, ch) && c.IntN(4) > 0 {
			id = u.ID
		}
	}
	u := c.rows.users[id]
	found := slices.Contains(u.Channels, ch)
	u.Channels = slices.DeleteFunc(append([]svc.Channel{}, u.Channels...), func(have svc.Channel) bool { return have == ch })
	return attempt{
		name: "Users.RemoveChannel", need: []string{action.UsersWrite}, wrong: unless(found, svc.CodeNotFound),
		after: c.rows.changed(svc.Bundle{Users: []svc.User{u}}),
		call:  func(by svc.Principal) error { return c.s.Users.RemoveChannel(c.ctx, by, id, ch) },
	}
}

func (c *scene) deleteGroup() attempt {
	id := c.one(sceneGroups)
	g, found := c.rows.groups[id]
	tags, refused := c.tags(g.ETag(), found)
	after := c.rows.clone()
	after.dropGroup(id)
	return attempt{
		name: "Groups.Delete", need: []string{action.GroupsWrite}, wrong: unless(found, svc.CodeNotFound), refused: refused, after: after,
		call: func(by svc.Principal) error { return c.s.Groups.Delete(c.ctx, by, id, tags...) },
	}
}

func (c *scene) removeMembers() attempt {
	id, user := c.one(sceneGroups), c.one(sceneUsers)
	g := c.rows.groups[id]
	if len(g.Members) > 0 && c.IntN(4) > 0 {
		user = c.one(g.Members)
	}
	found := slices.Contains(g.Members, user)
	g.Members = slices.DeleteFunc(append([]string{}, g.Members...), func(have string) bool { return have == user })
	return attempt{
		name: "Groups.RemoveMembers", need: []string{action.GroupsWrite}, wrong: unless(found, svc.CodeNotFound),
		after: c.rows.changed(svc.Bundle{Groups: []svc.Group{g}}),
		call:  func(by svc.Principal) error { return c.s.Groups.RemoveMembers(c.ctx, by, id, user) },
	}
}

// builtin reports whether a policy is built in, and no row has its id.
func (w *accessRows) builtin(id string) bool { return w.knows(id) && !has(w.policies, id) }

func (c *scene) patchPolicy() attempt {
	id := c.oneOf(scenePolicies, scenePolicies, sceneBuiltins[:2])
	if c.by.ScopingPolicyID != "" && c.IntN(2) == 0 {
		id = c.by.ScopingPolicyID
	}
	p, found := c.rows.policies[id]
	found = found || c.rows.builtin(id)
	tag := p.ETag()
	var patch svc.PolicyPatch
	if c.IntN(5) == 0 {
		p.DisplayName = "renamed"
		patch.DisplayName = &p.DisplayName
	} else {
		p.Document = []byte(c.rightsDocument())
		patch.Document = p.Document
	}
	a := attempt{name: "Policies.Patch", need: []string{action.PoliciesWrite}, wrong: unless(found, svc.CodeNotFound)}
	var tags []string
	if c.rows.builtin(id) {
		a.refused = string(svc.CodeBuiltin)
	} else {
		tags, a.refused = c.tags(tag, found)
		a.after = c.rows.changed(svc.Bundle{Policies: []svc.Policy{p}})
	}
	a.call = func(by svc.Principal) error { return errorOf(c.s.Policies.Patch(c.ctx, by, id, patch, tags...)) }
	return a
}

func (c *scene) detach() attempt {
	key := svc.AttachmentKey{PolicyID: c.one(scenePolicies), Principal: c.principal()}
	if all := slices.SortedFunc(maps.Keys(c.rows.attached), svc.AttachmentKey.Compare); len(all) > 0 && c.IntN(5) > 0 {
		key = all[c.IntN(len(all))]
	}
	after := c.rows.clone()
	delete(after.attached, key)
	return attempt{
		name: "Policies.Detach", need: []string{action.AttachmentsWrite}, wrong: unless(has(c.rows.attached, key), svc.CodeNotFound),
		after: after,
		call:  func(by svc.Principal) error { return c.s.Policies.Detach(c.ctx, by, key) },
	}
}

func (c *scene) removeBank() attempt {
	bank := c.one([]string{"a", "a::b", "z"})
	was, found := c.rows.banks[bank]
	tags, refused := c.tags(svc.BankPolicy{BankID: bank, Document: []byte(was)}.ETag(), found)
	after := c.rows.clone()
	delete(after.banks, bank)
	return attempt{
		name: "Banks.RemovePolicy", need: []string{action.BanksWrite}, wrong: unless(found, svc.CodeNotFound), refused: refused, after: after,
		call: func(by svc.Principal) error { return c.s.Banks.RemovePolicy(c.ctx, by, bank, tags...) },
	}
}
