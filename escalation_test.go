package svc_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
)

// escalationWorld has people of every rank, and policies that narrow in every way.
const escalationWorld = `{
	"users": [{"id": "root"}, {"id": "lite"}, {"id": "peer"}, {"id": "plain"}, {"id": "barred"}, {"id": "idle", "is_active": false}],
	"groups": [{"id": "help", "members": ["lite", "peer", "barred"]}],
	"service_accounts": [
		{"id": "root-free", "owner_user_id": "root"}, {"id": "root-read", "owner_user_id": "root", "scoping_policy_id": "read"},
		{"id": "lite-free", "owner_user_id": "lite"}, {"id": "lite-bank", "owner_user_id": "lite", "scoping_policy_id": "bank"},
		{"id": "idle-free", "owner_user_id": "idle"}],
	"policies": [
		{"id": "all", "document": {"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["iam:*", "template:*", "bank:*"], "banks": ["*"]}]}},
		{"id": "users", "document": {"version": "2026-03-24", "statements": [
			{"effect": "allow", "actions": ["iam:users:*"], "banks": ["*"]}, {"effect": "allow", "actions": ["bank:recall"], "banks": ["notes"]}]}},
		{"id": "read", "document": {"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["iam:users:read", "bank:recall"], "banks": ["*"]}]}},
		{"id": "bank", "document": {"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["bank:*"], "banks": ["notes", "team::*"]}]}},
		{"id": "write", "document": {"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["iam:users:write"], "banks": ["*"]}]}},
		{"id": "no", "document": {"version": "2026-03-24", "statements": [{"effect": "deny", "actions": ["iam:users:write"], "banks": ["*"]}]}}],
	"attachments": [
		{"policy_id": "all", "principal_type": "user", "principal_id": "root"},
		{"policy_id": "all", "principal_type": "user", "principal_id": "idle"},
		{"policy_id": "users", "principal_type": "group", "principal_id": "help"},
		{"policy_id": "bank", "principal_type": "user", "principal_id": "plain"},
		{"policy_id": "no", "principal_type": "user", "principal_id": "barred"}]}`

var (
	escalationHolders = []svc.Identity{
		user("root").Identity(), user("lite").Identity(), user("peer").Identity(), user("plain").Identity(), user("barred").Identity(),
		user("idle").Identity(), user("unknown").Identity(), account("root-free").Identity(), account("root-read").Identity(),
		account("lite-free").Identity(), account("lite-bank").Identity(), account("idle-free").Identity(),
	}
	escalationPolicies = []string{"", "", "all", "users", "read", "bank", "write", "no"}
	escalationAsked    = func() (asked [][2]string) {
		for _, action := range []string{"iam:users:read", "iam:users:write", "iam:*", "iam:audit:read", "template:admin", "template:*", "bank:recall", "bank:memories:list", "bank:retain", "bank:*"} {
			for _, bank := range []string{"*", "notes", "team", "team::a", "other"} {
				asked = append(asked, [2]string{action, bank})
			}
		}
		return asked
	}()
)

// credential is a key, or a session of the host.
type credential struct {
	key     svc.IssuedKey
	holder  svc.Identity
	session *svc.Principal // instead of a key
}

// climber makes credentials out of credentials.
type climber struct {
	*host
	t     *testing.T
	rand  *rand.Rand
	have  []credential
	drawn int
	made  []creation
}

// creation is how somebody who is not the host came to a credential.
type creation struct {
	by   svc.Principal
	does string
	got  credential
}

func pick[E any](c *climber, list []E) E { return list[c.rand.IntN(len(list))] }

// principal is who a credential makes its bearer: nobody when it is not accepted.
func (c *climber) principalOf(credential credential) (svc.Principal, bool) {
	if credential.session != nil {
		return *credential.session, true
	}
	p, err := c.Authenticate(c.t.Context(), string(credential.key.Key))
	return p, err == nil
}

// rights are the requests that a principal is allowed.
func (c *climber) rights(p svc.Principal) map[[2]string]bool {
	rights := map[[2]string]bool{}
	for _, asked := range escalationAsked {
		d, err := c.Decide(c.t.Context(), p, asked[0], asked[1], svc.Context{})
		if err != nil {
			c.t.Fatal(err)
		}
		rights[asked] = d.Allowed()
	}
	return rights
}

// step has somebody do something with keys, and checks the credential that comes of it.
func (c *climber) step() {
	caller := pick(c, c.have)
	by, accepted := c.principalOf(caller)
	if !accepted {
		return
	}
	own := by.Identity() == caller.holder && c.rand.IntN(2) == 0
	got, does, ok := c.try(by, own)
	if !ok {
		return
	}
	c.have = append(c.have, got)
	c.made = append(c.made, creation{by, does, got})
	c.check(c.made[len(c.made)-1])
}

// check looks for rights that somebody has come to.
func (c *climber) check(made creation) {
	p, accepted := c.principalOf(made.got)
	if !accepted {
		return
	}
	by := made.by
	may, mayNow := c.rights(by), c.rights(p)
	for asked, allowed := range mayNow {
		controls := asked[1] == "*" && !strings.HasPrefix(asked[0], "bank:")
		if allowed && !may[asked] && (controls || by.Kind == svc.KindServiceAccount || by.ScopingPolicyID != "") {
			c.t.Errorf("%+v, who %s, has with it %v, which it has not itself: %+v", by, made.does, asked, p)
		}
	}
}

// try is one call that may end with a credential.
func (c *climber) try(by svc.Principal, own bool) (got credential, does string, ok bool) {
	ctx, holder, in := c.t.Context(), pick(c, escalationHolders), svc.NewAPIKey{ScopingPolicyID: pick(c, escalationPolicies)}
	known := pick(c, c.have) // whose key the caller has come to know
	if own {
		holder = by.Identity()
	}
	got = credential{key: known.key, holder: known.holder}
	var err error
	switch c.rand.IntN(6) {
	case 0, 1:
		does = "issues"
		got.holder = holder
		if own {
			got.key, err = c.Keys.Issue(ctx, by, svc.Me, in)
		} else {
			got.key, err = c.Keys.Issue(ctx, by, holder, in)
		}
	case 2:
		does = "rotates"
		if own {
			got.key, err = c.Keys.Rotate(ctx, by, svc.Me, known.key.ID, time.Hour)
		} else {
			got.key, err = c.Keys.Rotate(ctx, by, known.holder, known.key.ID, time.Hour)
		}
	case 3:
		does = "enables"
		patch := svc.APIKeyPatch{Disabled: new(false), ExpiresAt: &time.Time{}}
		if own {
			_, err = c.Keys.Patch(ctx, by, svc.Me, known.key.ID, patch)
		} else {
			_, err = c.Keys.Patch(ctx, by, known.holder, known.key.ID, patch)
		}
	case 4:
		does = "imports"
		c.drawn++
		text := fmt.Sprint("sk-", c.drawn)
		got.holder, got.key.Key = holder, svc.Secret(text)
		got.key.APIKey, err = c.Keys.Import(ctx, by, holder, svc.ImportedKey{NewAPIKey: in, Prefix: "sk-", Hash: plainDigest(text)})
	default: // somebody else puts a key to rest, so that there is something to enable
		if known.session == nil {
			_, _ = c.Keys.Patch(ctx, svc.Host, known.holder, known.key.ID, svc.APIKeyPatch{Disabled: new(true)})
		}
		return credential{}, "", false
	}
	return got, does, err == nil
}

// No sequence of calls ends with a credential whose control-plane rights exceed those of who made it; nor, where a service account or
// somebody narrowed made it, any right that it lacks.
func TestNoEscalation(t *testing.T) {
	runs := 60
	if testing.Short() {
		runs = 10
	}
	made := 0
	for seed := range runs {
		c := &climber{host: newHost(t, importing), t: t, rand: rand.New(rand.NewPCG(uint64(seed), 1))}
		c.apply(t, escalationWorld)
		for _, holder := range escalationHolders {
			if holder.Kind == svc.KindUser {
				p := svc.Principal{Kind: holder.Kind, ID: holder.ID}
				if c.rand.IntN(3) == 0 {
					p.Actions = []string{pick(c, []string{"iam:users:write", "iam:*", "template:*"})}
				} else if c.rand.IntN(3) == 0 {
					p.ScopingPolicyID = pick(c, escalationPolicies)
				}
				c.have = append(c.have, credential{session: &p, holder: holder})
			}
			key, err := c.Keys.Issue(t.Context(), svc.Host, holder, svc.NewAPIKey{ScopingPolicyID: pick(c, escalationPolicies)})
			if err != nil {
				t.Fatal(err)
			}
			c.have = append(c.have, credential{key: key, holder: holder})
		}
		for range 150 {
			c.step()
		}
		c.apply(t, `{"users": [{"id": "idle", "is_active": true}]}`)
		for _, creation := range c.made {
			c.check(creation)
		}
		if len(c.made) == 0 || t.Failed() {
			t.Fatalf("seed %d: %d credentials made", seed, len(c.made))
		}
		made += len(c.made)
	}
	t.Logf("%d credentials made by others than the host", made)
}

// TestWhoMakesKeys has everybody issue, rotate, change and take over keys of everybody: who may do one may do all.
func TestWhoMakesKeys(t *testing.T) {
	h := newHost(t, importing)
	h.apply(t, staff)
	narrowRoot := svc.Principal{Kind: svc.KindUser, ID: "root", ScopingPolicyID: "all"}
	holders := map[string]svc.Identity{
		"plain": user("plain").Identity(), "root": user("root").Identity(), "helper": user("helper").Identity(), "peer": user("peer").Identity(),
		"its account": account("ops").Identity(), "sibling": account("reader").Identity(),
	}
	for _, c := range []struct {
		by    svc.Principal
		mine  bool   // by the methods for one's own
		whose string // by those that name the holder
	}{
		{user("plain"), true, ""},
		{user("helper"), true, "plain helper peer"}, // which only reads and writes users
		{user("root"), true, "plain root helper peer its account sibling"},
		{account("ops"), false, ""},
		{account("reader"), false, ""},
		{narrowRoot, false, ""},
		{user("nobody"), true, ""},
	} {
		own := issue(t, h, svc.Principal{Kind: svc.KindUser, ID: c.by.ID})
		for what, do := range map[string]func() error{
			"issues":  func() error { _, err := h.Keys.Issue(t.Context(), c.by, svc.Me, svc.NewAPIKey{}); return err },
			"rotates": func() error { _, err := h.Keys.Rotate(t.Context(), c.by, svc.Me, own.ID, time.Hour); return err },
			"changes": func() error { _, err := h.Keys.Patch(t.Context(), c.by, svc.Me, own.ID, svc.APIKeyPatch{}); return err },
		} {
			if err := do(); allowed(t, err) != c.mine {
				t.Errorf("%+v %s a key of its own: %v", c.by, what, err)
			}
		}
		for name, holder := range holders {
			key, err := h.Keys.Issue(t.Context(), svc.Host, holder, svc.NewAPIKey{})
			if err != nil {
				t.Fatal(err)
			}
			for what, do := range map[string]func() error{
				"issues":  func() error { _, err := h.Keys.Issue(t.Context(), c.by, holder, svc.NewAPIKey{}); return err },
				"rotates": func() error { _, err := h.Keys.Rotate(t.Context(), c.by, holder, key.ID, time.Hour); return err },
				"changes": func() error {
					_, err := h.Keys.Patch(t.Context(), c.by, holder, key.ID, svc.APIKeyPatch{})
					return err
				},
				"imports": func() error {
					_, err := h.Keys.Import(t.Context(), c.by, holder, svc.ImportedKey{Prefix: "sk-", Hash: plainDigest(c.by.ID + name + key.ID)})
					return err
				},
			} {
				if err := do(); allowed(t, err) != strings.Contains(c.whose, name) {
					t.Errorf("%+v %s a key of %s: %v", c.by, what, name, err)
				}
			}
		}
	}
}
