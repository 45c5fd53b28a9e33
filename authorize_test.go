package svc_test

import (
	"errors"
	"testing"

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
