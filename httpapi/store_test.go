package httpapi_test

import (
	"context"
	"sync"
	"time"

	"github.com/extsvc/svc"
)

// store is a memstore into which faults are planted.
type store struct {
	svc.FullStore
	mu     sync.Mutex
	before func(call string) error
}

func (s *store) plant(before func(call string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

// check does a call, unless a fault is planted before it.
func (s *store) check(call string, do func() error) error {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil {
		if err := before(call); err != nil {
			return err
		}
	}
	return do()
}

// checked is check for a call that returns a value.
func checked[T any](s *store, call string, do func() (T, error)) (value T, err error) {
	err = s.check(call, func() error {
		value, err = do()
		return err
	})
	return value, err
}

func (s *store) CreateSource(ctx context.Context, source svc.Source) error {
	return s.check("CreateSource", func() error { return s.FullStore.CreateSource(ctx, source) })
}

func (s *store) Sources(ctx context.Context, page svc.SourcePage) ([]svc.Source, error) {
	return checked(s, "Sources", func() ([]svc.Source, error) { return s.FullStore.Sources(ctx, page) })
}

func (s *store) CreateTemplate(ctx context.Context, template svc.Template) error {
	return s.check("CreateTemplate", func() error { return s.FullStore.CreateTemplate(ctx, template) })
}

func (s *store) Template(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
	return checked(s, "Template", func() (svc.Template, error) { return s.FullStore.Template(ctx, key) })
}

func (s *store) Templates(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
	return checked(s, "Templates", func() ([]svc.Template, error) { return s.FullStore.Templates(ctx, page) })
}

func (s *store) TemplateVersions(ctx context.Context, key svc.TemplateKey, before int64, limit int) ([]svc.TemplateVersion, error) {
	return checked(s, "TemplateVersions", func() ([]svc.TemplateVersion, error) { return s.FullStore.TemplateVersions(ctx, key, before, limit) })
}

func (s *store) Installations(ctx context.Context, page svc.InstallationPage) ([]svc.Installation, error) {
	return checked(s, "Installations", func() ([]svc.Installation, error) { return s.FullStore.Installations(ctx, page) })
}

func (s *store) RebindTemplates(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
	return checked(s, "RebindTemplates", func() ([]svc.TemplateKey, error) { return s.FullStore.RebindTemplates(ctx, source, url) })
}

func (s *store) DeleteTemplate(ctx context.Context, key svc.TemplateKey, check func(svc.Template) error) error {
	return s.check("DeleteTemplate", func() error { return s.FullStore.DeleteTemplate(ctx, key, check) })
}

func (s *store) ChangeTemplate(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
	return s.check("ChangeTemplate", func() error { return s.FullStore.ChangeTemplate(ctx, key, change) })
}

func (s *store) CreateAPIKey(ctx context.Context, key svc.APIKey) error {
	return s.check("CreateAPIKey", func() error { return s.FullStore.CreateAPIKey(ctx, key) })
}

func (s *store) APIKeys(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
	return checked(s, "APIKeys", func() ([]svc.APIKey, error) { return s.FullStore.APIKeys(ctx, page) })
}

func (s *store) ChangeAPIKey(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
	return s.check("ChangeAPIKey", func() error { return s.FullStore.ChangeAPIKey(ctx, holder, id, change) })
}

func (s *store) RevokeAPIKeys(ctx context.Context, holder svc.Identity, at time.Time, limit int) ([]string, error) {
	return checked(s, "RevokeAPIKeys", func() ([]string, error) { return s.FullStore.RevokeAPIKeys(ctx, holder, at, limit) })
}

func (s *store) Access(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
	return checked(s, "Access", func() (svc.AccessSnapshot, error) { return s.FullStore.Access(ctx, query) })
}

func (s *store) ReadAccess(ctx context.Context, read svc.AccessRead, yield func(svc.Bundle) error) (svc.StoreChanges, error) {
	return checked(s, "ReadAccess", func() (svc.StoreChanges, error) { return s.FullStore.ReadAccess(ctx, read, yield) })
}

func (s *store) Source(ctx context.Context, key svc.SourceKey) (svc.Source, error) {
	return checked(s, "Source", func() (svc.Source, error) { return s.FullStore.Source(ctx, key) })
}

func (s *store) ChangeSource(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
	return s.check("ChangeSource", func() error { return s.FullStore.ChangeSource(ctx, key, change) })
}

func (s *store) DeleteSource(ctx context.Context, key svc.SourceKey) error {
	return s.check("DeleteSource", func() error { return s.FullStore.DeleteSource(ctx, key) })
}

func (s *store) AuditRecords(ctx context.Context, page svc.AuditQuery) ([]svc.AuditRecord, error) {
	return checked(s, "AuditRecords", func() ([]svc.AuditRecord, error) { return s.FullStore.AuditRecords(ctx, page) })
}

func (s *store) QueueAudit(ctx context.Context, events []svc.Event, chain func(svc.AuditRecord, []svc.Event) []svc.AuditRecord) error {
	return s.check("QueueAudit", func() error { return s.FullStore.QueueAudit(ctx, events, chain) })
}

// Atomically also plants the faults in the store of the transaction.
func (s *store) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
		return fn(ctx, &store{FullStore: tx.(svc.FullStore), before: func(call string) error { return s.check(call, func() error { return nil }) }})
	})
}
