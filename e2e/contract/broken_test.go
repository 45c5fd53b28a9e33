package contract_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc"
)

// broken is a store that fails on request, in every method that requests use.
type broken struct {
	svc.FullStore
	faults atomic.Pointer[faults]
}

// faults are the errors of a store; nil: it works.
type faults struct{ reads, writes error }

func (b *broken) read() error  { return b.faults.Load().reads }
func (b *broken) write() error { return b.faults.Load().writes }

// instead returns err, or calls call when err is nil.
func instead[T any](err error, call func() (T, error)) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return call()
}

func unless(err error, call func() error) error {
	if err != nil {
		return err
	}
	return call()
}

func (b *broken) CreateSource(ctx context.Context, source svc.Source) error {
	return unless(b.write(), func() error { return b.FullStore.CreateSource(ctx, source) })
}

func (b *broken) Source(ctx context.Context, key svc.SourceKey) (svc.Source, error) {
	return instead(b.read(), func() (svc.Source, error) { return b.FullStore.Source(ctx, key) })
}

func (b *broken) Sources(ctx context.Context, page svc.SourcePage) ([]svc.Source, error) {
	return instead(b.read(), func() ([]svc.Source, error) { return b.FullStore.Sources(ctx, page) })
}

func (b *broken) ChangeSource(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
	return unless(b.write(), func() error { return b.FullStore.ChangeSource(ctx, key, change) })
}

func (b *broken) DeleteSource(ctx context.Context, key svc.SourceKey) error {
	return unless(b.write(), func() error { return b.FullStore.DeleteSource(ctx, key) })
}

func (b *broken) CreateTemplate(ctx context.Context, template svc.Template) error {
	return unless(b.write(), func() error { return b.FullStore.CreateTemplate(ctx, template) })
}

func (b *broken) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return unless(b.write(), func() error { return b.FullStore.Atomically(ctx, fn) })
}

func (b *broken) AuditRecords(ctx context.Context, page svc.AuditQuery) ([]svc.AuditRecord, error) {
	return instead(b.read(), func() ([]svc.AuditRecord, error) { return b.FullStore.AuditRecords(ctx, page) })
}

func (b *broken) Template(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
	return instead(b.read(), func() (svc.Template, error) { return b.FullStore.Template(ctx, key) })
}

func (b *broken) Templates(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
	return instead(b.read(), func() ([]svc.Template, error) { return b.FullStore.Templates(ctx, page) })
}

func (b *broken) TemplateVersions(ctx context.Context, key svc.TemplateKey, before int64, limit int) ([]svc.TemplateVersion, error) {
	return instead(b.read(), func() ([]svc.TemplateVersion, error) { return b.FullStore.TemplateVersions(ctx, key, before, limit) })
}

func (b *broken) ChangeTemplate(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
	return unless(b.write(), func() error { return b.FullStore.ChangeTemplate(ctx, key, change) })
}

func (b *broken) Installations(ctx context.Context, page svc.InstallationPage) ([]svc.Installation, error) {
	return instead(b.read(), func() ([]svc.Installation, error) { return b.FullStore.Installations(ctx, page) })
}

func (b *broken) RebindTemplates(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
	return instead(b.write(), func() ([]svc.TemplateKey, error) { return b.FullStore.RebindTemplates(ctx, source, url) })
}

func (b *broken) DeleteTemplate(ctx context.Context, key svc.TemplateKey, check func(svc.Template) error) error {
	return unless(b.write(), func() error { return b.FullStore.DeleteTemplate(ctx, key, check) })
}

func (b *broken) CreateAPIKey(ctx context.Context, key svc.APIKey) error {
	return unless(b.write(), func() error { return b.FullStore.CreateAPIKey(ctx, key) })
}

func (b *broken) APIKeys(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
	return instead(b.read(), func() ([]svc.APIKey, error) { return b.FullStore.APIKeys(ctx, page) })
}

func (b *broken) ChangeAPIKey(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
	return unless(b.write(), func() error { return b.FullStore.ChangeAPIKey(ctx, holder, id, change) })
}

func (b *broken) RevokeAPIKeys(ctx context.Context, holder svc.Identity, at time.Time, limit int) ([]string, error) {
	return instead(b.write(), func() ([]string, error) { return b.FullStore.RevokeAPIKeys(ctx, holder, at, limit) })
}

func (b *broken) Access(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
	return instead(b.read(), func() (svc.AccessSnapshot, error) { return b.FullStore.Access(ctx, query) })
}

func (b *broken) ReadAccess(ctx context.Context, read svc.AccessRead, yield func(svc.Bundle) error) (svc.StoreChanges, error) {
	return instead(b.read(), func() (svc.StoreChanges, error) { return b.FullStore.ReadAccess(ctx, read, yield) })
}

// shelf is a marketplace with one template at any address. It fails on request.
type shelf struct {
	content atomic.Pointer[svc.Content]
	fault   atomic.Pointer[error]
}

func (s *shelf) CheckURL(string) error { return nil }

func (s *shelf) Template(_ context.Context, _ svc.Upstream, id string) (svc.Content, error) {
	if fault := s.fault.Load(); fault != nil {
		return svc.Content{}, *fault
	}
	if id != "notes" {
		return svc.Content{}, &svc.Error{Code: svc.CodeNotFound, Message: "the source has no such template"}
	}
	return *s.content.Load(), nil
}

func (s *shelf) Manifest(context.Context, svc.Upstream, svc.CatalogEntry) (json.RawMessage, error) {
	if fault := s.fault.Load(); fault != nil {
		return nil, *fault
	}
	return json.RawMessage(`{"version":"1"}`), nil
}

func (s *shelf) Catalog(context.Context, svc.Upstream, time.Duration) (svc.Catalog, error) {
	if fault := s.fault.Load(); fault != nil {
		return svc.Catalog{}, *fault
	}
	return svc.Catalog{
		Entries: []svc.CatalogEntry{
			{ID: "notes", Content: *s.content.Load()}, {Index: 1, ID: "support", Content: svc.Content{Name: "Support"}, ManifestFile: "support.json"},
		},
		Problems:  []svc.CatalogProblem{{Index: 2, Reason: "it must be an object"}},
		FetchedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}, nil
}

func (b *broken) Answer(ctx context.Context, key []byte, now time.Time) (svc.StoredAnswer, error) {
	return instead(b.read(), func() (svc.StoredAnswer, error) { return b.FullStore.Answer(ctx, key, now) })
}
