package oracle_test

import (
	"maps"
	"slices"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
)

// creating completes an attempt to create a service account.
func (c *scene) creating(a attempt, row svc.ServiceAccount) attempt {
	switch {
	case !has(c.rows.users, row.OwnerUserID) || row.ScopingPolicyID != "" && !c.rows.knows(row.ScopingPolicyID):
		a.wrong = string(svc.CodeInvalid)
	case has(c.rows.accounts, row.ID):
		a.refused = string(svc.CodeExists)
	default:
		a.after = c.rows.changed(svc.Bundle{ServiceAccounts: []svc.ServiceAccount{row}})
	}
	return a
}

func (c *scene) deleteAccount() attempt {
	id := c.one(sceneAccounts)
	row, found := c.rows.accounts[id]
	tags, refused := c.tags(row.ETag(), found)
	after := c.rows.clone()
	after.dropAccount(id)
	return attempt{
		name: "ServiceAccounts.Delete", need: []string{action.AccountsManage}, wrong: unless(found, svc.CodeNotFound), refused: refused,
		after: after,
		call:  func(by svc.Principal) error { return c.s.ServiceAccounts.Delete(c.ctx, by, id, tags...) },
	}
}

// owner returns the user whose service accounts the caller has; "": none.
func (c *scene) owner() string {
	if c.by.Kind == svc.KindServiceAccount {
		return c.rows.accounts[c.by.ID].OwnerUserID
	}
	return c.by.ID
}

func (c *scene) createOwn() attempt {
	row := c.drawnAccount(c.one(append(sceneAccounts, "s3")))
	row.OwnerUserID = ""
	given := row
	a := attempt{name: "MyServiceAccounts.Create", need: []string{action.AccountsWrite}}
	a.call = func(by svc.Principal) error { return errorOf(c.s.MyServiceAccounts.Create(c.ctx, by, given)) }
	row.OwnerUserID = c.owner()
	switch {
	case c.by.Kind == svc.KindHost:
		a.first = refusedAtOnce
	case row.OwnerUserID == "":
		a.wrong = refusedAtOnce
	case row.ScopingPolicyID != "" && !c.readable(row.ScopingPolicyID):
		a.wrong = string(svc.CodeInvalid)
	case !has(c.rows.users, row.OwnerUserID):
		a.wrong = refusedAtOnce
	default:
		return c.creating(a, row)
	}
	return a
}

func (c *scene) changeOwn() attempt {
	id := c.one(sceneAccounts)
	row, found := c.rows.accounts[id]
	a := attempt{name: "MyServiceAccounts.Patch", need: []string{action.AccountsWrite}, after: c.rows.clone()}
	a.wrong = unless(found && row.OwnerUserID == c.owner(), svc.CodeNotFound)
	if c.by.Kind == svc.KindHost {
		a.first = refusedAtOnce
	} else if c.owner() == "" {
		a.wrong = refusedAtOnce
	}
	tags, refused := c.tags(row.ETag(), found)
	a.refused = refused
	if c.IntN(2) == 0 {
		row.DisplayName = "mine"
		if a.wrong == "" && row.ScopingPolicyID != "" && !c.rows.knows(row.ScopingPolicyID) {
			a.wrong = string(svc.CodeInvalid) // a row that is written refers to rows that exist
		}
		a.after = c.rows.changed(svc.Bundle{ServiceAccounts: []svc.ServiceAccount{row}})
		patch := svc.ServiceAccountPatch{DisplayName: &row.DisplayName}
		a.call = func(by svc.Principal) error {
			return errorOf(c.s.MyServiceAccounts.Patch(c.ctx, by, id, patch, tags...))
		}
		return a
	}
	a.name = "MyServiceAccounts.Delete"
	a.after.dropAccount(id)
	a.call = func(by svc.Principal) error { return c.s.MyServiceAccounts.Delete(c.ctx, by, id, tags...) }
	return a
}

func (c *scene) whole() svc.Bundle {
	other := c.rightsWorld()
	other.Policies = append(other.Policies, svc.Policy{ID: "gone", DisplayName: "gone"})
	for i := range other.Policies {
		other.Policies[i].Document = []byte(c.rightsDocument())
	}
	for i := range other.BankPolicies {
		other.BankPolicies[i].Document = []byte(c.openDocument())
	}
	for i := range other.Users {
		if c.IntN(2) == 0 {
			other.Users[i].Channels = []svc.Channel{}
		} else if c.IntN(3) == 0 {
			other.Users[i].Channels = []svc.Channel{c.sender()}
		}
	}
	for i := range other.Groups {
		if c.IntN(2) == 0 {
			other.Groups[i].Members = nil
		}
	}
	other.Policies = slices.DeleteFunc(other.Policies, func(p svc.Policy) bool { return builtinDocuments[p.ID] != nil })
	return other
}

func (c *scene) part() (b svc.Bundle) {
	other := c.whole()
	b.Users, b.Groups, b.ServiceAccounts = drop(c, 5, other.Users), drop(c, 5, other.Groups), drop(c, 5, other.ServiceAccounts)
	b.Policies, b.Attachments, b.BankPolicies = drop(c, 5, other.Policies), drop(c, 8, other.Attachments), drop(c, 5, other.BankPolicies)
	return b
}

func drop[R any](c *scene, n int, rows []R) []R {
	return slices.DeleteFunc(rows, func(R) bool { return c.IntN(n) > 0 })
}

func (c *scene) writeOne() attempt {
	all, b := c.whole(), svc.Bundle{}
	switch c.IntN(8) {
	case 0:
		b.Users = all.Users[c.IntN(len(all.Users)):][:1]
	case 1, 2:
		b.Groups = all.Groups[c.IntN(len(all.Groups)):][:1]
	case 3:
		b.ServiceAccounts = all.ServiceAccounts[c.IntN(len(all.ServiceAccounts)):][:1]
	case 4, 5:
		b.Policies = all.Policies[c.IntN(len(all.Policies)):][:1]
	case 6:
		b.Attachments = []svc.Attachment{{PolicyID: c.oneOf(scenePolicies, sceneBuiltins), Principal: c.principal(), Priority: c.Int64N(2)}}
	default:
		b.BankPolicies = []svc.BankPolicy{{BankID: c.one([]string{"*", "a", "a::b", "z"}), Document: []byte(c.openDocument())}}
	}
	return c.writing(b)
}

func (c *scene) write() attempt { return c.writing(c.part()) }

func (c *scene) writing(b svc.Bundle) attempt {
	how := svc.BundleWrite{DryRun: c.IntN(8) == 0}
	a := attempt{name: "Access.Write", need: lists(b, false), after: c.rows.changed(b), dry: how.DryRun}
	a.wrong = a.after.faulty(b)
	a.call = func(by svc.Principal) error { return c.s.Access.Write(c.ctx, by, b, how) }
	return a
}

// lists are the actions for the lists of a bundle, or for one without rows.
func lists(b svc.Bundle, all bool) (need []string) {
	for i, n := range []int{len(b.Users), len(b.Groups), len(b.ServiceAccounts), len(b.Policies), len(b.Attachments), len(b.BankPolicies)} {
		if n > 0 || all {
			need = append(need, []string{action.UsersWrite, action.GroupsWrite, action.AccountsManage, action.PoliciesWrite,
				action.AttachmentsWrite, action.BanksWrite}[i])
		}
	}
	if need == nil {
		need = []string{action.UsersRead}
	}
	return need
}

// faulty returns the outcome of a bundle that names what is not there after it, or gives a sender to two users.
func (w *accessRows) faulty(b svc.Bundle) string {
	ok := true
	for _, g := range b.Groups {
		for _, member := range g.Members {
			ok = ok && has(w.users, member)
		}
	}
	for _, a := range b.ServiceAccounts {
		ok = ok && has(w.users, a.OwnerUserID) && (a.ScopingPolicyID == "" || w.knows(a.ScopingPolicyID))
	}
	for _, a := range b.Attachments {
		named := has(w.users, a.Principal.ID)
		if a.Principal.Type == svc.GrantedToGroup {
			named = has(w.groups, a.Principal.ID)
		}
		ok = ok && named && w.knows(a.PolicyID)
	}
	if !ok {
		return string(svc.CodeInvalid)
	}
	senders := map[svc.Channel]bool{}
	for _, u := range w.users {
		for _, ch := range u.Channels {
			if senders[ch] {
				return string(svc.CodeExists)
			}
			senders[ch] = true
		}
	}
	return ""
}

// prune writes most of the world again, and a few other rows: the rest goes.
func (c *scene) prune() attempt {
	b := c.kept(c.part())
	how := svc.BundleWrite{Prune: true, DryRun: c.IntN(8) == 0}
	a := attempt{name: "Access.Write, Prune", need: lists(b, true), after: c.rows.clone(), dry: how.DryRun}
	named := rowsOf(b)
	for id := range c.rows.users {
		if !has(named.users, id) {
			a.after.dropPerson(id)
		}
	}
	for id := range c.rows.groups {
		if !has(named.groups, id) {
			a.after.dropGroup(id)
		}
	}
	for id := range c.rows.accounts {
		if !has(named.accounts, id) {
			a.after.dropAccount(id)
		}
	}
	for id := range c.rows.policies {
		if !has(named.policies, id) {
			delete(a.after.policies, id)
			if c.rows.narrows(id) > 0 {
				a.refused = string(svc.CodeInUse)
			}
		}
	}
	a.after.attached, a.after.banks = named.attached, named.banks
	a.after.put(b)
	a.wrong = a.after.faulty(b)
	a.call = func(by svc.Principal) error { return c.s.Access.Write(c.ctx, by, b, how) }
	return a
}

// kept adds most rows of the world to a bundle that has others.
func (c *scene) kept(b svc.Bundle) svc.Bundle {
	named, all := rowsOf(b), c.rows.bundle()
	n := 1 + c.IntN(30)
	b.Users = append(b.Users, most(c, n, all.Users, func(u svc.User) bool { return !has(named.users, u.ID) })...)
	b.Groups = append(b.Groups, most(c, n, all.Groups, func(g svc.Group) bool { return !has(named.groups, g.ID) })...)
	b.ServiceAccounts = append(b.ServiceAccounts, most(c, n, all.ServiceAccounts, func(a svc.ServiceAccount) bool { return !has(named.accounts, a.ID) })...)
	for _, p := range all.Policies { // a bundle cannot have what is broken
		if !has(named.policies, p.ID) && (c.IntN(n) > 0 || builtinDocuments[p.ID] != nil) && !c.o.read(p.Document, "", "").broken {
			b.Policies = append(b.Policies, p)
		}
	}
	b.Attachments = append(b.Attachments, most(c, n, all.Attachments, func(a svc.Attachment) bool {
		return !has(named.attached, svc.AttachmentKey{PolicyID: a.PolicyID, Principal: a.Principal})
	})...)
	b.BankPolicies = append(b.BankPolicies, most(c, n, all.BankPolicies, func(p svc.BankPolicy) bool {
		return !has(named.banks, p.BankID) && c.o.open(p.BankID, string(p.Document)).shut == (rights{})
	})...)
	return b
}

func most[R any](c *scene, n int, rows []R, right func(R) bool) []R {
	return slices.DeleteFunc(rows, func(row R) bool { return !right(row) || c.IntN(n) == 0 })
}

func (w *accessRows) bundle() (b svc.Bundle) {
	b = svc.Bundle{Users: sorted(w.users), Groups: sorted(w.groups), ServiceAccounts: sorted(w.accounts), Policies: sorted(w.policies)}
	for key, priority := range w.attached {
		b.Attachments = append(b.Attachments, svc.Attachment{PolicyID: key.PolicyID, Principal: key.Principal, Priority: priority})
	}
	slices.SortFunc(b.Attachments, func(x, y svc.Attachment) int {
		return svc.AttachmentKey{PolicyID: x.PolicyID, Principal: x.Principal}.Compare(svc.AttachmentKey{PolicyID: y.PolicyID, Principal: y.Principal})
	})
	for _, id := range slices.Sorted(maps.Keys(w.banks)) {
		b.BankPolicies = append(b.BankPolicies, svc.BankPolicy{BankID: id, Document: []byte(w.banks[id])})
	}
	return b
}

func sorted[V any](m map[string]V) (all []V) {
	for _, id := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[id])
	}
	return all
}
