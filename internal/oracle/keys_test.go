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
