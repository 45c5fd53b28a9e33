package svc_test

import (
	"context"
	"testing"
	"time"

	"github.com/extsvc/svc"
)

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
	_, updated := h.Templates.Update(ctx, by, "x", svc.UpdateRequest{Force: true})
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
