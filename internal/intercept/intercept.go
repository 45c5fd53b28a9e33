// Package intercept wraps a store for tests: a function sees the calls, and may fail them.
package intercept

import (
	"context"
	"time"

	"github.com/extsvc/svc"
)

// Store passes its calls to Around. It passes those that wait, those of the outbox and those that
// keep files or answers to the store itself.
type Store struct {
	svc.FullStore
	Around func(Call) error
	Inside bool // Around also gets the calls of transactions
}

// Call is a call of a store.
type Call struct {
	Method string
	Args   []any        // without the context and functions
	Do     func() error // makes the call
	Result any          // a pointer to what Do has returned, or to the key that it has changed; nil: an error alone
}

func result[T any](s *Store, method string, do func() (T, error), args ...any) (result T, err error) {
	err = s.Around(Call{method, args, func() (err error) {
		result, err = do()
		return err
	}, &result})
	return result, err
}

func (s *Store) do(method string, do func() error, args ...any) error {
	return s.Around(Call{method, args, do, nil})
}

func (s *Store) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.do("Atomically", func() error {
		return s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
			if s.Inside {
				tx = &Store{tx.(svc.FullStore), s.Around, true}
			}
			return fn(ctx, tx)
		})
	})
}

func (s *Store) CreateSource(ctx context.Context, source svc.Source) error {
	return s.do("CreateSource", func() error { return s.FullStore.CreateSource(ctx, source) }, source)
}

func (s *Store) Source(ctx context.Context, key svc.SourceKey) (svc.Source, error) {
	return result(s, "Source", func() (svc.Source, error) { return s.FullStore.Source(ctx, key) }, key)
}

func (s *Store) Sources(ctx context.Context, page svc.SourcePage) ([]svc.Source, error) {
	return result(s, "Sources", func() ([]svc.Source, error) { return s.FullStore.Sources(ctx, page) }, page)
}

func (s *Store) ChangeSource(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
	return s.do("ChangeSource", func() error { return s.FullStore.ChangeSource(ctx, key, change) }, key)
}

func (s *Store) DeleteSource(ctx context.Context, key svc.SourceKey) error {
	return s.do("DeleteSource", func() error { return s.FullStore.DeleteSource(ctx, key) }, key)
}

func (s *Store) CreateTemplate(ctx context.Context, template svc.Template) error {
	return s.do("CreateTemplate", func() error { return s.FullStore.CreateTemplate(ctx, template) }, template)
}

func (s *Store) Template(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
	return result(s, "Template", func() (svc.Template, error) { return s.FullStore.Template(ctx, key) }, key)
}

func (s *Store) Templates(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
	return result(s, "Templates", func() ([]svc.Template, error) { return s.FullStore.Templates(ctx, page) }, page)
}

func (s *Store) TemplateVersions(
	ctx context.Context, key svc.TemplateKey, before int64, limit int,
) ([]svc.TemplateVersion, error) {
	return result(s, "TemplateVersions", func() ([]svc.TemplateVersion, error) {
		return s.FullStore.TemplateVersions(ctx, key, before, limit)
	}, key, before, limit)
}

func (s *Store) ChangeTemplate(
	ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error),
) error {
	return s.do("ChangeTemplate", func() error { return s.FullStore.ChangeTemplate(ctx, key, change) }, key)
}

func (s *Store) Installations(ctx context.Context, page svc.InstallationPage) ([]svc.Installation, error) {
	return result(s, "Installations", func() ([]svc.Installation, error) {
		return s.FullStore.Installations(ctx, page)
	}, page)
}

func (s *Store) RebindTemplates(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
	return result(s, "RebindTemplates", func() ([]svc.TemplateKey, error) {
		return s.FullStore.RebindTemplates(ctx, source, url)
	}, source, url)
}

func (s *Store) DeleteTemplate(ctx context.Context, key svc.TemplateKey, check func(svc.Template) error) error {
	return s.do("DeleteTemplate", func() error { return s.FullStore.DeleteTemplate(ctx, key, check) }, key)
}

func (s *Store) CreateAPIKey(ctx context.Context, key svc.APIKey) error {
	return s.do("CreateAPIKey", func() error { return s.FullStore.CreateAPIKey(ctx, key) }, key)
}

func (s *Store) APIKeys(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
	return result(s, "APIKeys", func() ([]svc.APIKey, error) { return s.FullStore.APIKeys(ctx, page) }, page)
}

func (s *Store) ChangeAPIKey(
	ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error),
) error {
	_, err := result(s, "ChangeAPIKey", func() (changed svc.APIKey, err error) {
		err = s.FullStore.ChangeAPIKey(ctx, holder, id, func(key *svc.APIKey) (bool, error) {
			write, err := change(key)
			changed = *key
			return write, err
		})
		return changed, err
	}, holder, id)
	return err
}

func (s *Store) RevokeAPIKeys(
	ctx context.Context, holder svc.Identity, at time.Time, limit int,
) ([]string, error) {
	return result(s, "RevokeAPIKeys", func() ([]string, error) {
		return s.FullStore.RevokeAPIKeys(ctx, holder, at, limit)
	}, holder, at, limit)
}

func (s *Store) UseAPIKeys(ctx context.Context, uses []svc.LastUse) error {
	return s.do("UseAPIKeys", func() error { return s.FullStore.UseAPIKeys(ctx, uses) }, uses)
}

func (s *Store) Lock(ctx context.Context, locks svc.Locks) error {
	return s.do("Lock", func() error { return s.FullStore.Lock(ctx, locks) }, locks)
}

func (s *Store) Access(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
	return result(s, "Access", func() (svc.AccessSnapshot, error) { return s.FullStore.Access(ctx, query) }, query)
}

func (s *Store) ReadAccess(
	ctx context.Context, read svc.AccessRead, yield func(svc.Bundle) error,
) (svc.StoreChanges, error) {
	return result(s, "ReadAccess", func() (svc.StoreChanges, error) {
		return s.FullStore.ReadAccess(ctx, read, yield)
	}, read)
}

func (s *Store) ChangeAccess(
	ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error),
) error {
	return s.do("ChangeAccess", func() error { return s.FullStore.ChangeAccess(ctx, named, change) }, named)
}

func (s *Store) AuditRecords(ctx context.Context, page svc.AuditQuery) ([]svc.AuditRecord, error) {
	return result(s, "AuditRecords", func() ([]svc.AuditRecord, error) {
		return s.FullStore.AuditRecords(ctx, page)
	}, page)
}

func (s *Store) QueueAudit(
	ctx context.Context, events []svc.Event, chain func(svc.AuditRecord, []svc.Event) []svc.AuditRecord,
) error {
	return s.do("QueueAudit", func() error { return s.FullStore.QueueAudit(ctx, events, chain) }, events)
}

func (s *Store) Answer(ctx context.Context, key []byte, now time.Time) (svc.StoredAnswer, error) {
	return result(s, "Answer", func() (svc.StoredAnswer, error) { return s.FullStore.Answer(ctx, key, now) }, key, now)
}
