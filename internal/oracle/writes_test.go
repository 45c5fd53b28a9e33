package oracle_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

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

// holder draws whose keys an attempt is about: row tells whether a service account exists.
func (c *scene) holder() (holder, real svc.Identity, row bool) {
	holder = svc.Identity{Kind: svc.KindUser, ID: c.one(append(sceneUsers, "u5"))}
	if c.IntN(3) == 0 {
		return holder, holder, true
	}
	id := c.one(sceneAccounts)
	real = svc.Identity{Kind: svc.KindServiceAccount, ID: id}
	account, row := c.rows.accounts[id]
	if holder = real; c.IntN(2) == 0 && c.by.Kind != svc.KindHost {
		holder, row = svc.MyAccount(id), row && account.OwnerUserID == c.by.ID
	}
	return holder, real, row
}

// onKeys begins an attempt on the keys of a holder.
func (c *scene) onKeys(name string) (attempt, svc.Identity) {
	holder, real, row := c.holder()
	a := attempt{name: name, wrong: unless(row, svc.CodeNotFound), key: &keyAttempt{holder: real}}
	switch {
	case c.by.Kind == svc.KindServiceAccount || c.by.ScopingPolicyID != "":
		a.first = refusedAtOnce
	case real.Kind == svc.KindUser:
		a.need = []string{action.UsersWrite}
	case holder == real:
		a.need = []string{action.AccountsManage}
	default:
		a.need = []string{action.AccountKeysWrite}
	}
	return a, holder
}

func (c *scene) issueKey() attempt {
	a, holder := c.onKeys("Keys.Issue")
	in := svc.NewAPIKey{}
	if c.IntN(3) == 0 {
		in.ScopingPolicyID = c.oneOf(scenePolicies, sceneBuiltins)
	}
	if a.wrong == "" && in.ScopingPolicyID != "" && !c.readable(in.ScopingPolicyID) {
		a.wrong = string(svc.CodeInvalid)
	}
	if c.IntN(2) == 0 {
		a.name = "Keys.Import"
		a.call = func(by svc.Principal) error {
			c.drawn++
			key, err := c.s.Keys.Import(c.ctx, by, holder, svc.ImportedKey{NewAPIKey: in, Prefix: "sk-", Hash: digest(fmt.Sprint(c.seed, "-", c.drawn))})
			c.keep(key, err)
			return err
		}
		return a
	}
	a.call = func(by svc.Principal) error {
		key, err := c.s.Keys.Issue(c.ctx, by, holder, in)
		c.keep(key.APIKey, err)
		return err
	}
	return a
}

// readable reports whether the caller may know a policy, to narrow something by it.
func (c *scene) readable(id string) bool {
	if !c.rows.knows(id) || c.rows.builtin(id) || c.by.Kind == svc.KindHost {
		return c.rows.knows(id)
	}
	if c.o.allows(c.o.may(c.rows, c.by), action.PoliciesRead) {
		return true
	}
	for key := range c.rows.attached {
		if key.PolicyID == id && c.rows.reaches(key.Principal, c.owner()) {
			return true
		}
	}
	return false
}

func (c *scene) keep(key svc.APIKey, err error) {
	if err == nil {
		c.rows.keys = maps.Clone(c.rows.keys)
		c.rows.keys[key.ID] = heldKey{key.Holder, key.ScopingPolicyID, false}
	}
}

func (c *scene) changeKey() attempt {
	a, holder := c.onKeys("Keys.Patch")
	id := "none"
	for _, name := range slices.Sorted(maps.Keys(c.rows.keys)) {
		if c.rows.keys[name].holder == a.key.holder {
			id = name
		}
	}
	a.wrong = cmp.Or(a.wrong, unless(id != "none", svc.CodeNotFound))
	if overlap := time.Duration(c.IntN(2)) * time.Hour; c.IntN(2) == 0 {
		a.name = "Keys.Rotate"
		if c.rows.keys[id].rotated {
			a.refused = string(svc.CodeExists)
		}
		a.call = func(by svc.Principal) error {
			key, err := c.s.Keys.Rotate(c.ctx, by, holder, id, svc.Rotation{Overlap: overlap})
			if c.keep(key.APIKey, err); err == nil && overlap == 0 {
				delete(c.rows.keys, id)
			} else if err == nil {
				old := c.rows.keys[id]
				old.rotated = true
				c.rows.keys[id] = old
			}
			return err
		}
		return a
	}
	disabled := c.IntN(2) == 0
	a.key.reduces = disabled
	a.call = func(by svc.Principal) error {
		return errorOf(c.s.Keys.Patch(c.ctx, by, holder, id, svc.APIKeyPatch{Disabled: &disabled}))
	}
	return a
}
