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

func (s *store) check(call string) error {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(call)
}

func (s *store) CreateSource(ctx context.Context, source svc.Source) error {
	if err := s.check("CreateSource"); err != nil {
		return err
	}
	return s.FullStore.CreateSource(ctx, source)
}

func (s *store) Sources(ctx context.Context, page svc.SourcePage) ([]svc.Source, error) {
	if err := s.check("Sources"); err != nil {
		return nil, err
	}
	return s.FullStore.Sources(ctx, page)
}

func (s *store) CreateTemplate(ctx context.Context, template svc.Template) error {
	if err := s.check("CreateTemplate"); err != nil {
		return err
	}
	return s.FullStore.CreateTemplate(ctx, template)
}

func (s *store) Template(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
	if err := s.check("Template"); err != nil {
		return svc.Template{}, err
	}
	return s.FullStore.Template(ctx, key)
}

func (s *store) Templates(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
	if err := s.check("Templates"); err != nil {
		return nil, err
	}
	return s.FullStore.Templates(ctx, page)
}

func (s *store) TemplateVersions(ctx context.Context, key svc.TemplateKey, before int64, limit int) ([]svc.TemplateVersion, error) {
	if err := s.check("TemplateVersions"); err != nil {
		return nil, err
	}
	return s.FullStore.TemplateVersions(ctx, key, before, limit)
}

func (s *store) Installations(ctx context.Context, page svc.InstallationPage) ([]svc.Installation, error) {
	if err := s.check("Installations"); err != nil {
		return nil, err
	}
	return s.FullStore.Installations(ctx, page)
}

func (s *store) RebindTemplates(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
	if err := s.check("RebindTemplates"); err != nil {
		return nil, err
	}
	return s.FullStore.RebindTemplates(ctx, source, url)
}

func (s *store) DeleteTemplate(ctx context.Context, key svc.TemplateKey, check func(svc.Template) error) error {
	if err := s.check("DeleteTemplate"); err != nil {
		return err
	}
	return s.FullStore.DeleteTemplate(ctx, key, check)
}

func (s *store) ChangeTemplate(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
	if err := s.check("ChangeTemplate"); err != nil {
		return err
	}
	return s.FullStore.ChangeTemplate(ctx, key, change)
}

func (s *store) CreateAPIKey(ctx context.Context, key svc.APIKey) error {
	if err := s.check("CreateAPIKey"); err != nil {
		return err
	}
	return s.FullStore.CreateAPIKey(ctx, key)
}

func (s *store) APIKeys(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
	if err := s.check("APIKeys"); err != nil {
		return nil, err
	}
	return s.FullStore.APIKeys(ctx, page)
}

func (s *store) ChangeAPIKey(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
	if err := s.check("ChangeAPIKey"); err != nil {
		return err
	}
	return s.FullStore.ChangeAPIKey(ctx, holder, id, change)
}

func (s *store) RevokeAPIKeys(ctx context.Context, holder svc.Identity, at time.Time, limit int) ([]string, error) {
	if err := s.check("RevokeAPIKeys"); err != nil {
		return nil, err
	}
	return s.FullStore.RevokeAPIKeys(ctx, holder, at, limit)
}

func (s *store) Access(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
	if err := s.check("Access"); err != nil {
		return svc.AccessSnapshot{}, err
	}
	return s.FullStore.Access(ctx, query)
}

func (s *store) ReadAccess(ctx context.Context, read svc.AccessRead, yield func(svc.Bundle) error) (svc.StoreChanges, error) {
	if err := s.check("ReadAccess"); err != nil {
		return svc.StoreChanges{}, err
	}
	return s.FullStore.ReadAccess(ctx, read, yield)
}

func (s *store) Source(ctx context.Context, key svc.SourceKey) (svc.Source, error) {
	if err := s.check("Source"); err != nil {
		return svc.Source{}, err
	}
	return s.FullStore.Source(ctx, key)
}

func (s *store) DeleteSource(ctx context.Context, key svc.SourceKey) error {
	if err := s.check("DeleteSource"); err != nil {
		return err
	}
	return s.FullStore.DeleteSource(ctx, key)
}

func (s *store) AuditRecords(ctx context.Context, page svc.AuditQuery) ([]svc.AuditRecord, error) {
	if err := s.check("AuditRecords"); err != nil {
		return nil, err
	}
	return s.FullStore.AuditRecords(ctx, page)
}

func (s *store) AppendAudit(ctx context.Context, next func(svc.AuditRecord) []svc.AuditRecord) error {
	if err := s.check("AppendAudit"); err != nil {
		return err
	}
	return s.FullStore.AppendAudit(ctx, next)
}

// Atomically also plants the faults in the store of the transaction.
func (s *store) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
		return fn(ctx, &store{FullStore: tx.(svc.FullStore), before: s.check})
	})
}
