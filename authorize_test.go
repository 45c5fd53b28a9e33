package svc_test

import (
	"context"
	"errors"
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
	wantCode(t, errorOf(h.Keys.Issue(t.Context(), user("helper"), user("root").Identity(), svc.NewAPIKey{})), svc.CodeForbidden, "")
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
				return errorOf(h.Keys.Rotate(t.Context(), c.by, svc.Me, own.ID, svc.Rotation{Overlap: time.Hour}))
			},
			"changes": func() error { _, err := h.Keys.Patch(t.Context(), c.by, svc.Me, own.ID, svc.APIKeyPatch{}); return err },
		} {
			if err := do(); allowed(t, err) != c.mine {
				t.Errorf("%+v %s a key of its own: %v", c.by, what, err)
			}
		}
		for name, holder := range holders {
			key := must(h.Keys.Issue(t.Context(), svc.Host, holder, svc.NewAPIKey{}))
			for what, do := range map[string]func() error{
				"issues": func() error { _, err := h.Keys.Issue(t.Context(), c.by, holder, svc.NewAPIKey{}); return err },
				"rotates": func() error {
					return errorOf(h.Keys.Rotate(t.Context(), c.by, holder, key.ID, svc.Rotation{Overlap: time.Hour}))
				},
				"changes": func() error {
					return errorOf(h.Keys.Patch(t.Context(), c.by, holder, key.ID, svc.APIKeyPatch{}))
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

// brokenStore fails in everything that comes after authorization.
type brokenStore struct {
	svc.FullStore
	err error
}

func (s *brokenStore) CreateSource(context.Context, svc.Source) error { return s.err }
func (s *brokenStore) Source(context.Context, svc.SourceKey) (svc.Source, error) {
	return svc.Source{}, s.err
}
func (s *brokenStore) Sources(context.Context, svc.SourcePage) ([]svc.Source, error) {
	return nil, s.err
}
func (s *brokenStore) ChangeSource(context.Context, svc.SourceKey, func(*svc.Source) (bool, error)) error {
	return s.err
}
func (s *brokenStore) DeleteSource(context.Context, svc.SourceKey) error  { return s.err }
func (s *brokenStore) CreateTemplate(context.Context, svc.Template) error { return s.err }
func (s *brokenStore) Template(context.Context, svc.TemplateKey) (svc.Template, error) {
	return svc.Template{}, s.err
}
func (s *brokenStore) Templates(context.Context, svc.TemplatePage) ([]svc.Template, error) {
	return nil, s.err
}
func (s *brokenStore) ChangeTemplate(context.Context, svc.TemplateKey, func(*svc.Template) (bool, error)) error {
	return s.err
}
func (s *brokenStore) TemplateVersions(context.Context, svc.TemplateKey, int64, int) ([]svc.TemplateVersion, error) {
	return nil, s.err
}
func (s *brokenStore) Atomically(context.Context, func(context.Context, svc.Store) error) error {
	return s.err
}
func (s *brokenStore) Answer(context.Context, []byte, time.Time) (svc.StoredAnswer, error) {
	return svc.StoredAnswer{}, s.err
}
func (s *brokenStore) CountAnswers(context.Context, []byte, time.Time, int) (int, error) {
	return 0, s.err
}
func (s *brokenStore) DeleteAnswers(context.Context, []byte) error                   { return s.err }
func (s *brokenStore) KeepAnswer(context.Context, svc.StoredAnswer, time.Time) error { return s.err }
func (s *brokenStore) QueueAudit(context.Context, []svc.Event, func(svc.AuditRecord, []svc.Event) []svc.AuditRecord) error {
	return s.err
}
func (s *brokenStore) AuditRecords(context.Context, svc.AuditQuery) ([]svc.AuditRecord, error) {
	return nil, s.err
}
func (s *brokenStore) Changes(context.Context, int64) (svc.StoreChanges, error) {
	return svc.StoreChanges{}, s.err
}
func (s *brokenStore) KeepSourceFile(context.Context, svc.SourceKey, svc.SourceFile) error {
	return s.err
}
func (s *brokenStore) SourceFile(context.Context, svc.SourceKey, string) (svc.SourceFile, error) {
	return svc.SourceFile{}, s.err
}
func (s *brokenStore) Installations(context.Context, svc.InstallationPage) ([]svc.Installation, error) {
	return nil, s.err
}
func (s *brokenStore) RebindTemplates(context.Context, svc.SourceKey, string) ([]svc.TemplateKey, error) {
	return nil, s.err
}
func (s *brokenStore) DeleteTemplate(context.Context, svc.TemplateKey, func(svc.Template) error) error {
	return s.err
}
func (s *brokenStore) CreateAPIKey(context.Context, svc.APIKey) error { return s.err }
func (s *brokenStore) APIKeys(context.Context, svc.APIKeyPage) ([]svc.APIKey, error) {
	return nil, s.err
}
func (s *brokenStore) ChangeAPIKey(context.Context, svc.Identity, string, func(*svc.APIKey) (bool, error)) error {
	return s.err
}
func (s *brokenStore) RevokeAPIKeys(context.Context, svc.Identity, time.Time, int) ([]string, error) {
	return nil, s.err
}
func (s *brokenStore) Lock(context.Context, svc.Locks) error                     { return s.err }
func (s *brokenStore) KeepValue(context.Context, string, []byte) ([]byte, error) { return nil, s.err }
func (s *brokenStore) Access(context.Context, svc.AccessQuery) (svc.AccessSnapshot, error) {
	return svc.AccessSnapshot{}, s.err
}
func (s *brokenStore) ChangeAccess(context.Context, svc.AccessNames, func(svc.Bundle) (svc.AccessWrite, error)) error {
	return s.err
}

// callAll calls every method of a service as the host, and one as a user.
func callAll(t *testing.T, h *host) map[string]error {
	t.Helper()
	ctx, by := t.Context(), svc.Host
	_, register := h.Sources.Register(ctx, by, svc.NewSource{URL: acme})
	_, resealed := h.Sources.Reseal(ctx, by)
	_, made := h.Templates.Create(ctx, by, svc.NewTemplate{ID: "x", Content: content("X", "1")})
	_, template := h.Templates.Read(ctx, by, "x")
	_, patched := h.Templates.Patch(ctx, by, "x", svc.TemplatePatch{})
	_, installed := h.Templates.Install(ctx, by, svc.Install{TemplateID: "x", SourceName: "acme"})
	_, checked := h.Templates.CheckUpdate(ctx, by, "x")
	_, updated := h.Templates.Update(ctx, by, "x", svc.UpdateRequest{LocalEdits: svc.TakeTheirs})
	_, diffed := h.Templates.Diff(ctx, by, "x")
	_, rolled := h.Templates.Rollback(ctx, by, "x", 1)
	_, issued := h.Keys.Issue(ctx, by, alice.Identity(), svc.NewAPIKey{})
	_, robots := h.Keys.Issue(ctx, by, robot.Identity(), svc.NewAPIKey{})
	_, mine := h.Keys.Issue(ctx, alice, svc.Me, svc.NewAPIKey{})
	_, changed := h.Keys.Patch(ctx, by, alice.Identity(), "k", svc.APIKeyPatch{})
	_, rotated := h.Keys.Rotate(ctx, by, alice.Identity(), "k", svc.Rotation{})
	_, ended := h.Keys.RevokeAll(ctx, by, alice.Identity())
	_, resolved := h.Policies.Resolve(ctx, by, svc.Question{Bank: "b", UserID: "alice"})
	_, asUser := h.Templates.Read(ctx, alice, "x")
	_, all := h.Templates.CheckUpdates(ctx, by, nil)
	_, rebound := h.Sources.Rebind(ctx, by, "acme")
	_, found := h.Sources.Search(ctx, by, svc.CatalogFilter{})
	_, verified := h.Audit.Verify(ctx, by)
	return map[string]error{
		"register": register, "reseal": resealed, "create": made, "read": template, "patch": patched, "install": installed,
		"check": checked, "update": updated, "diff": diffed, "roll back": rolled, "issue": issued, "issue for a robot": robots, "issue mine": mine,
		"change a key": changed, "rotate": rotated, "revoke all": ended, "resolve": resolved, "as a user": asUser,
		"ping": h.Ping(ctx), "check all": all, "re-bind": rebound, "search": found, "verify": verified,
		"apply":     h.Access.Apply(ctx, by, svc.Bundle{Users: []svc.User{{ID: "a"}}}),
		"remove":    h.Sources.Remove(ctx, by, "acme"),
		"sources":   lastError(h.Sources.List(ctx, by)),
		"templates": lastError(h.Templates.List(ctx, by, svc.TemplateQuery{})),
		"events":    lastError(h.Audit.Records(ctx, by, svc.AuditQuery{})),
		"history":   lastError(h.Templates.History(ctx, by, "x")),
		"delete":    h.Templates.Delete(ctx, by, "x"),
		"keys":      lastError(h.Keys.List(ctx, by, alice.Identity(), svc.KeyQuery{})),
		"revoke":    h.Keys.Revoke(ctx, by, alice.Identity(), "k"),
	}
}
