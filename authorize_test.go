package svc_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

const staff = `{
	"users": [{"id":"root"},{"id":"helper"},{"id":"peer"},{"id":"barred"},{"id":"plain"},{"id":"sleeper","is_active":false}],
	"groups": [{"id":"help","members":["helper","peer","barred"]}],
	"service_accounts": [{"id":"ops","owner_user_id":"root"},{"id":"reader","owner_user_id":"root","scoping_policy_id":"read"},
		{"id":"orphan","owner_user_id":"sleeper"}],
	"policies": [
		{"id":"all","document":{"version":"2026-03-24","statements":[{"effect":"allow","actions":["iam:*","template:*"],"banks":["*"]}]}},
		{"id":"users","document":{"version":"2026-03-24","statements":[{"effect":"allow","actions":["iam:users:*"],"banks":["*"]}]}},
		{"id":"read","document":{"version":"2026-03-24","statements":[{"effect":"allow","actions":["iam:users:read"],"banks":["*"]}]}},
		{"id":"one","document":{"version":"2026-03-24","statements":[{"effect":"allow","actions":["template:*"],"banks":["b"]}]}},
		{"id":"no","document":{"version":"2026-03-24","statements":[{"effect":"deny","actions":["iam:users:write"],"banks":["*"]}]}}],
	"attachments": [
		{"policy_id":"all","principal_type":"user","principal_id":"root"},
		{"policy_id":"all","principal_type":"user","principal_id":"sleeper"},
		{"policy_id":"one","principal_type":"user","principal_id":"plain"},
		{"policy_id":"users","principal_type":"group","principal_id":"help"},
		{"policy_id":"no","principal_type":"user","principal_id":"barred"}]}`

func user(id string, vouched ...string) svc.Principal {
	return svc.Principal{Kind: svc.KindUser, ID: id, Actions: vouched}
}

func account(id string, vouched ...string) svc.Principal {
	return svc.Principal{Kind: svc.KindServiceAccount, ID: id, Actions: vouched}
}

// TestWhoMayWhat asks for every action as everybody: r reads users, w writes them, t administers templates.
func TestWhoMayWhat(t *testing.T) {
	h := newHost(t)
	h.apply(t, staff)
	for _, c := range []struct {
		by  svc.Principal
		may string
	}{
		{svc.Host, "rwt"},
		{user("root"), "rwt"},
		{user("helper"), "rw"},
		{user("barred"), "r"},
		{user("barred", "iam:*"), "r"},
		{user("plain"), ""},
		{user("plain", "iam:users:read"), "r"},
		{user("plain", "template:*"), "t"},
		{user("plain", "*"), "rwt"},
		{user("barred", "*"), "rt"},
		{user("sleeper", "*"), ""},
		{account("orphan", "*"), ""},
		{svc.Principal{Kind: svc.KindUser, ID: "plain", Actions: []string{"*"}, ScopingPolicyID: "all"}, ""},
		{user("sleeper"), ""},
		{user("sleeper", "iam:*", "template:*"), ""},
		{user("unknown"), ""},
		{user("unknown", "iam:*", "template:*"), "rwt"},
		{account("ops"), "rt"}, // issues no keys
		{account("reader"), "r"},
		{account("orphan"), ""},
		{account("unknown"), ""},
		{account("unknown", "iam:*"), "r"},
		{svc.Principal{Kind: "ghost", ID: "root"}, ""},
		{svc.Principal{ID: "root", Actions: []string{"iam:*", "template:*"}}, ""},
		{svc.Principal{}, ""},
	} {
		may := ""
		if err := lastError(h.Keys.List(t.Context(), c.by, user("someone").Identity(), svc.KeyQuery{})); allowed(t, err) {
			may += "r"
		}
		if _, err := h.Keys.Issue(t.Context(), c.by, user("someone").Identity(), svc.NewAPIKey{}); allowed(t, err) {
			may += "w"
		}
		if err := lastError(h.Templates.List(t.Context(), c.by, svc.TemplateQuery{})); allowed(t, err) {
			may += "t"
		}
		if may != c.may {
			t.Errorf("%v may %q, want %q", c.by, may, c.may)
		}
	}
}

func allowed(t *testing.T, err error) bool {
	t.Helper()
	if err != nil {
		wantCode(t, err, svc.CodeForbidden, "")
	}
	return err == nil
}

// TestEveryMethodAuthorizes: whoever has no rights can do nothing, and is told before anything is looked up.
func TestEveryMethodAuthorizes(t *testing.T) {
	h, _ := withTemplate(t)
	plain := user("plain")
	_, resolve := h.Policies.Resolve(t.Context(), plain, svc.Question{Bank: "b", UserID: "u"})
	_, register := h.Sources.Register(t.Context(), plain, svc.NewSource{URL: "https://example.com/b"})
	_, template := h.Templates.Read(t.Context(), plain, "nothing")
	_, made := h.Templates.Create(t.Context(), plain, svc.NewTemplate{ID: "x", Content: content("X", "1")})
	_, patched := h.Templates.Patch(t.Context(), plain, "nothing", svc.TemplatePatch{})
	_, installed := h.Templates.Install(t.Context(), plain, svc.Install{TemplateID: "x", SourceName: "nothing"})
	_, checked := h.Templates.CheckUpdate(t.Context(), plain, "nothing")
	_, updated := h.Templates.Update(t.Context(), plain, "nothing", svc.UpdateRequest{})
	_, issued := h.Keys.Issue(t.Context(), plain, plain.Identity(), svc.NewAPIKey{})
	for name, err := range map[string]error{
		"resolve": resolve, "register": register, "template": template, "create": made, "patch": patched,
		"install": installed, "check": checked, "update": updated, "issue": issued,
		"apply":     h.Access.Apply(t.Context(), admin, svc.Bundle{}),
		"remove":    h.Sources.Remove(t.Context(), plain, "nothing"),
		"sources":   lastError(h.Sources.List(t.Context(), plain)),
		"templates": lastError(h.Templates.List(t.Context(), plain, svc.TemplateQuery{})),
		"delete":    h.Templates.Delete(t.Context(), plain, "nothing"),
		"keys":      lastError(h.Keys.List(t.Context(), plain, plain.Identity(), svc.KeyQuery{})),
		"revoke":    h.Keys.Revoke(t.Context(), plain, plain.Identity(), "nothing"),
	} {
		if svc.ErrorCode(err) != svc.CodeForbidden {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if acts := h.actions(); len(acts) > 0 {
		t.Error("something happened:", acts)
	}
}

// A holder whose policy does not parse just now may be an administrator when it is mended.
func TestCeilingOfWhatCannotBeRead(t *testing.T) {
	h := newHost(t)
	h.apply(t, staff)
	h.write(t, svc.Bundle{Policies: []svc.Policy{{ID: "all", DisplayName: "all", Document: []byte("{")}}})
	h = newHost(t, func(c *svc.Config) { c.Store = h.store })
	_, err := h.Keys.Issue(t.Context(), user("helper"), user("root").Identity(), svc.NewAPIKey{})
	wantCode(t, err, svc.CodeForbidden, "")
}

// The public administers nothing, whatever the bank policy of the control plane gives to it.
func TestThePublicAdministersNothing(t *testing.T) {
	h := newHost(t)
	h.apply(t, `{"bank_policies": [{"bank_id": "*", "document": {"version": "2026-03-24",
		"public_access": {"default": {"actions": ["iam:*", "template:*"]}}}}]}`)
	wantCode(t, lastError(h.Templates.List(t.Context(), svc.Unmapped, svc.TemplateQuery{})), svc.CodeForbidden, "")
	wantCode(t, lastError(h.Keys.List(t.Context(), svc.Unmapped, alice.Identity(), svc.KeyQuery{})), svc.CodeForbidden, "")
}

// TestCeiling: nobody issues or revokes keys of somebody who may more than oneself.
func TestCeiling(t *testing.T) {
	h := newHost(t)
	h.apply(t, staff)
	for _, c := range []struct {
		by     svc.Principal
		holder string
		within bool
	}{
		{svc.Host, "root", true},
		{user("root"), "root", true},
		{user("root"), "helper", true},
		{user("helper"), "plain", true}, // template:* on one bank is not the control plane
		{user("helper"), "peer", true},
		{user("helper"), "barred", true},
		{user("helper"), "root", false},
		{user("helper"), "sleeper", false}, // who may wake up
		{user("helper", "iam:*", "template:*"), "root", true},
		{user("helper"), "unknown", true},
	} {
		holder := user(c.holder).Identity()
		_, err := h.Keys.Issue(t.Context(), c.by, holder, svc.NewAPIKey{})
		if allowed(t, err) != c.within {
			t.Errorf("%v issues a key of %s: %v", c.by, c.holder, err)
		}
		key := issue(t, h, user(c.holder))
		if err := h.Keys.Revoke(t.Context(), c.by, holder, key.ID); allowed(t, err) != c.within {
			t.Errorf("%v revokes a key of %s: %v", c.by, c.holder, err)
		}
	}
}

func TestStoreFaults(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	for want, cause := range map[svc.Code]error{
		svc.CodeUnavailable: svc.ErrUnavailable,
		svc.CodeChanged:     svc.ErrChanged,
		svc.CodeInternal:    errors.New("disk on fire"),
	} {
		b := newHost(t, func(c *svc.Config) { c.Store = &brokenStore{h.store.(svc.FullStore), cause} })
		keeping := newHost(t, func(c *svc.Config) { c.Store, c.Events.Keep = &brokenStore{h.store.(svc.FullStore), cause}, true })
		calls := callAll(t, b)
		for name, err := range callAll(t, keeping) {
			if calls[name+", keeping events"] = err; svc.ErrorCode(calls[name]) == svc.CodeNotFound {
				delete(calls, name) // it reads what is not kept
			}
		}
		for name, err := range calls {
			if svc.ErrorCode(err) != want || !errors.Is(err, cause) {
				t.Errorf("%s: got %v, want %s", name, err, want)
			}
			if e, _ := errors.AsType[*svc.Error](err); e != nil {
				is.True(e.Message != "" && e.Message != cause.Error())
			}
		}
		is.Equal(append(b.actions(), keeping.actions()...), nil)
	}
}

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
		d, err := c.Decide(c.t.Context(), p, literal(asked[0]), asked[1], svc.Context{})
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
			got.key, err = c.Keys.Rotate(ctx, by, svc.Me, known.key.ID, svc.Rotation{Overlap: time.Hour})
		} else {
			got.key, err = c.Keys.Rotate(ctx, by, known.holder, known.key.ID, svc.Rotation{Overlap: time.Hour})
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
			"issues": func() error { _, err := h.Keys.Issue(t.Context(), c.by, svc.Me, svc.NewAPIKey{}); return err },
			"rotates": func() error {
				_, err := h.Keys.Rotate(t.Context(), c.by, svc.Me, own.ID, svc.Rotation{Overlap: time.Hour})
				return err
			},
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
				"issues": func() error { _, err := h.Keys.Issue(t.Context(), c.by, holder, svc.NewAPIKey{}); return err },
				"rotates": func() error {
					_, err := h.Keys.Rotate(t.Context(), c.by, holder, key.ID, svc.Rotation{Overlap: time.Hour})
					return err
				},
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
