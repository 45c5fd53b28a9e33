package oracle_test

import (
	"cmp"
	"maps"
	"slices"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
)

// attempts draw one call each.
var attempts = []func(c *scene) attempt{
	(*scene).createUser, (*scene).patchUser, (*scene).patchUser, (*scene).deleteUser, (*scene).addChannel, (*scene).addChannel,
	(*scene).removeChannel, (*scene).createGroup, (*scene).patchGroup, (*scene).deleteGroup, (*scene).addMembers, (*scene).addMembers,
	(*scene).removeMembers, (*scene).createPolicy, (*scene).patchPolicy, (*scene).patchPolicy, (*scene).deletePolicy,
	(*scene).attach, (*scene).attach, (*scene).attach, (*scene).detach, (*scene).detach, (*scene).createAccount, (*scene).patchAccount,
	(*scene).deleteAccount, (*scene).createOwn, (*scene).changeOwn, (*scene).setBank, (*scene).setBank, (*scene).removeBank,
	(*scene).write, (*scene).write, (*scene).prune, (*scene).issueKey, (*scene).issueKey, (*scene).changeKey,
}

func (c *scene) createUser() attempt {
	u := svc.User{ID: c.one(append(sceneUsers, "u5", "u6")), Inactive: c.IntN(4) == 0}
	u.DisplayName = u.ID
	if c.IntN(2) == 0 {
		u.Channels = []svc.Channel{c.sender()}
	}
	a := attempt{name: "Users.Create", need: []string{action.UsersWrite}, call: func(by svc.Principal) error {
		_, err := c.s.Users.Create(c.ctx, by, u)
		return err
	}}
	if has(c.rows.users, u.ID) || slices.ContainsFunc(u.Channels, c.rows.held) {
		a.refused = string(svc.CodeExists)
	} else {
		a.after = c.rows.changed(svc.Bundle{Users: []svc.User{u}})
	}
	return a
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

func (c *scene) addChannel() attempt {
	id, ch := c.one(sceneUsers), c.sender()
	u, found := c.rows.users[id]
	a := attempt{
		name: "Users.AddChannel", need: []string{action.UsersWrite}, wrong: unless(found, svc.CodeNotFound),
		call: func(by svc.Principal) error { return c.s.Users.AddChannel(c.ctx, by, id, ch) },
	}
	if c.rows.held(ch) {
		a.refused = string(svc.CodeExists)
	} else {
		u.Channels = append(slices.Clone(u.Channels), ch)
		a.after = c.rows.changed(svc.Bundle{Users: []svc.User{u}})
	}
	return a
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

func (c *scene) createGroup() attempt {
	g := svc.Group{ID: c.one(append(sceneGroups, "g3"))}
	g.DisplayName, g.Members = g.ID, c.some(sceneUsers)
	a := attempt{name: "Groups.Create", need: []string{action.GroupsWrite}, call: func(by svc.Principal) error {
		_, err := c.s.Groups.Create(c.ctx, by, g)
		return err
	}}
	if !c.allUsers(g.Members) {
		a.wrong = string(svc.CodeInvalid)
	} else if has(c.rows.groups, g.ID) {
		a.refused = string(svc.CodeExists)
	} else {
		a.after = c.rows.changed(svc.Bundle{Groups: []svc.Group{g}})
	}
	return a
}

func (c *scene) allUsers(ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return !has(c.rows.users, id) })
}

func (c *scene) patchGroup() attempt {
	id, name := c.one(sceneGroups), c.one([]string{"g0", "renamed"})
	g, found := c.rows.groups[id]
	tags, refused := c.tags(g.ETag(), found)
	g.DisplayName = name
	return attempt{
		name: "Groups.Patch", need: []string{action.GroupsWrite}, wrong: unless(found, svc.CodeNotFound), refused: refused,
		after: c.rows.changed(svc.Bundle{Groups: []svc.Group{g}}),
		call: func(by svc.Principal) error {
			return errorOf(c.s.Groups.Patch(c.ctx, by, id, svc.GroupPatch{DisplayName: &name}, tags...))
		},
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

func (c *scene) addMembers() attempt {
	id, users := c.one(sceneGroups), c.some(sceneUsers)
	g, found := c.rows.groups[id]
	a := attempt{
		name: "Groups.AddMembers", need: []string{action.GroupsWrite}, wrong: unless(found, svc.CodeNotFound),
		call: func(by svc.Principal) error { return c.s.Groups.AddMembers(c.ctx, by, id, users...) },
	}
	if found && !c.allUsers(users) {
		a.wrong = string(svc.CodeInvalid)
	}
	g.Members = slices.Concat(g.Members, users)
	a.after = c.rows.changed(svc.Bundle{Groups: []svc.Group{g}})
	return a
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

func (c *scene) createPolicy() attempt {
	p := svc.Policy{ID: c.oneOf(scenePolicies, sceneBuiltins[:1], []string{"p6", "gone", "gone"}), Document: []byte(c.rightsDocument())}
	p.DisplayName = p.ID
	a := attempt{name: "Policies.Create", need: []string{action.PoliciesWrite}, call: func(by svc.Principal) error {
		_, err := c.s.Policies.Create(c.ctx, by, p)
		return err
	}}
	if c.rows.knows(p.ID) {
		a.refused = string(svc.CodeExists)
	} else {
		a.after = c.rows.changed(svc.Bundle{Policies: []svc.Policy{p}})
	}
	return a
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

func (c *scene) deletePolicy() attempt {
	id := c.oneOf(scenePolicies, sceneBuiltins[:2])
	p, found := c.rows.policies[id]
	tags, refused := c.tags(p.ETag(), found)
	a := attempt{
		name: "Policies.Delete", need: []string{action.PoliciesWrite}, wrong: unless(found || c.rows.builtin(id), svc.CodeNotFound),
		refused: refused,
		call:    func(by svc.Principal) error { return c.s.Policies.Delete(c.ctx, by, id, tags...) },
	}
	switch {
	case c.rows.builtin(id):
		a.refused = cmp.Or(refused, string(svc.CodeBuiltin))
	case c.rows.inUse(id):
		a.refused = cmp.Or(refused, string(svc.CodeInUse))
	default:
		a.after = c.rows.clone()
		delete(a.after.policies, id)
	}
	return a
}

func (c *scene) attach() attempt {
	at := svc.Attachment{PolicyID: c.oneOf(scenePolicies, sceneBuiltins), Priority: c.Int64N(2)}
	at.Principal = svc.GrantedTo{Type: svc.GrantedToUser, ID: c.one(sceneUsers)}
	found := has(c.rows.users, at.Principal.ID)
	if c.IntN(3) == 0 {
		at.Principal = svc.GrantedTo{Type: svc.GrantedToGroup, ID: c.one(sceneGroups)}
		found = has(c.rows.groups, at.Principal.ID)
	}
	return attempt{
		name: "Policies.Attach", need: []string{action.AttachmentsWrite}, wrong: unless(found && c.rows.knows(at.PolicyID), svc.CodeInvalid),
		after: c.rows.changed(svc.Bundle{Attachments: []svc.Attachment{at}}),
		call:  func(by svc.Principal) error { return c.s.Policies.Attach(c.ctx, by, at) },
	}
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

func (c *scene) setBank() attempt {
	p := svc.BankPolicy{BankID: c.one([]string{"a", "a::b", "z"}), Document: []byte(c.openDocument())}
	was, found := c.rows.banks[p.BankID]
	tags, refused := c.tags(svc.BankPolicy{BankID: p.BankID, Document: []byte(was)}.ETag(), found)
	return attempt{
		name: "Banks.SetPolicy", need: []string{action.BanksWrite}, refused: refused, after: c.rows.changed(svc.Bundle{BankPolicies: []svc.BankPolicy{p}}),
		call: func(by svc.Principal) error { return errorOf(c.s.Banks.SetPolicy(c.ctx, by, p, tags...)) },
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
