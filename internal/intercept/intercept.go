// Package intercept wraps a store for tests: a function sees the calls, and may fail them.
package intercept

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/extsvc/svc"
)

// Store passes its calls to Around, except those that claim events or look for changes.
type Store struct {
	svc.FullStore
	Around func(ctx context.Context, call Call) error
	Inside bool // Around also gets the calls of transactions
	All    bool // Around also gets calls that claim events or look for changes
}

// Call is a call of a store.
type Call struct {
	Method string
	Writes bool
	Args   []any // without the context and functions
	// Result is a pointer to what the call has returned, or to the key that it has changed. Nil: it
	// has returned only an error.
	Result any
	Funcs  []any // the functions that it got

	own svc.FullStore
	on  func(svc.FullStore) error
}

// Do makes the call.
func (c Call) Do() error { return c.on(c.own) }

// On makes the call on another store.
func (c Call) On(other svc.FullStore) error { return c.on(other) }

// Planted is a Store in which a function runs before the calls of requests, also in transactions.
type Planted struct {
	Store
	before atomic.Pointer[func(method string) error]
}

// NewPlanted returns a store with nothing planted.
func NewPlanted(store svc.FullStore) *Planted {
	p := &Planted{}
	p.Store = Store{FullStore: store, Inside: true, Around: func(_ context.Context, call Call) error {
		before := p.before.Load()
		switch {
		case before == nil, call.Method == "Atomically": // the calls inside are seen
		case call.Method == "ChainAudit", call.Method == "UseAPIKeys": // in the background
		default:
			if err := (*before)(call.Method); err != nil {
				return err
			}
		}
		return call.Do()
	}}
	return p
}

// Plant sets what runs before each call. Its errors are those of the call. nil: nothing runs.
func (p *Planted) Plant(before func(method string) error) {
	if before == nil {
		p.before.Store(nil)
		return
	}
	p.before.Store(&before)
}

func (s *Store) write(ctx context.Context, method string, on func(svc.FullStore) error, args ...any) error {
	values, functions := parts(args)
	return s.Around(ctx, Call{method, true, values, nil, functions, s.FullStore, on})
}

func result[T any](
	ctx context.Context, s *Store, method string, writes bool, on func(svc.FullStore) (T, error), args ...any,
) (result T, err error) {
	values, functions := parts(args)
	err = s.Around(ctx, Call{method, writes, values, &result, functions, s.FullStore, func(store svc.FullStore) (err error) {
		result, err = on(store)
		return err
	}})
	return result, err
}

// parts takes values and functions apart. All functions of a method are its last arguments.
func parts(args []any) (values, functions []any) {
	n := len(args)
	for n > 0 && reflect.TypeOf(args[n-1]).Kind() == reflect.Func {
		n--
	}
	return args[:n:n], args[n:]
}

func (s *Store) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.write(ctx, "Atomically", func(on svc.FullStore) error {
		return on.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
			if s.Inside {
				tx = &Store{tx.(svc.FullStore), s.Around, true, s.All}
			}
			return fn(ctx, tx)
		})
	}, fn)
}

func (s *Store) ChangeAPIKey(
	ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error),
) error {
	_, err := result(ctx, s, "ChangeAPIKey", true, func(on svc.FullStore) (changed svc.APIKey, err error) {
		err = on.ChangeAPIKey(ctx, holder, id, func(key *svc.APIKey) (bool, error) {
			write, err := change(key)
			changed = *key
			return write, err
		})
		return changed, err
	}, holder, id, change)
	return err
}

type chain = func(svc.AuditRecord, []svc.Event) []svc.AuditRecord

func (s *Store) CreateSource(ctx context.Context, source svc.Source) error {
	return s.write(ctx, "CreateSource", func(on svc.FullStore) error {
		return on.CreateSource(ctx, source)
	}, source)
}

func (s *Store) Source(ctx context.Context, key svc.SourceKey) (svc.Source, error) {
	return result(ctx, s, "Source", false, func(on svc.FullStore) (svc.Source, error) {
		return on.Source(ctx, key)
	}, key)
}

func (s *Store) Sources(ctx context.Context, page svc.SourcePage) ([]svc.Source, error) {
	return result(ctx, s, "Sources", false, func(on svc.FullStore) ([]svc.Source, error) {
		return on.Sources(ctx, page)
	}, page)
}

func (s *Store) ChangeSource(
	ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error),
) error {
	return s.write(ctx, "ChangeSource", func(on svc.FullStore) error {
		return on.ChangeSource(ctx, key, change)
	}, key, change)
}

func (s *Store) DeleteSource(ctx context.Context, key svc.SourceKey) error {
	return s.write(ctx, "DeleteSource", func(on svc.FullStore) error {
		return on.DeleteSource(ctx, key)
	}, key)
}

func (s *Store) KeepSourceFile(ctx context.Context, key svc.SourceKey, file svc.SourceFile) error {
	return s.write(ctx, "KeepSourceFile", func(on svc.FullStore) error {
		return on.KeepSourceFile(ctx, key, file)
	}, key, file)
}

func (s *Store) SourceFile(
	ctx context.Context, key svc.SourceKey, path string,
) (svc.SourceFile, error) {
	return result(ctx, s, "SourceFile", false, func(on svc.FullStore) (svc.SourceFile, error) {
		return on.SourceFile(ctx, key, path)
	}, key, path)
}

func (s *Store) CreateTemplate(ctx context.Context, template svc.Template) error {
	return s.write(ctx, "CreateTemplate", func(on svc.FullStore) error {
		return on.CreateTemplate(ctx, template)
	}, template)
}

func (s *Store) Template(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
	return result(ctx, s, "Template", false, func(on svc.FullStore) (svc.Template, error) {
		return on.Template(ctx, key)
	}, key)
}

func (s *Store) Templates(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
	return result(ctx, s, "Templates", false, func(on svc.FullStore) ([]svc.Template, error) {
		return on.Templates(ctx, page)
	}, page)
}

func (s *Store) TemplateVersions(
	ctx context.Context, key svc.TemplateKey, before int64, limit int,
) ([]svc.TemplateVersion, error) {
	return result(ctx, s, "TemplateVersions", false, func(on svc.FullStore) ([]svc.TemplateVersion, error) {
		return on.TemplateVersions(ctx, key, before, limit)
	}, key, before, limit)
}

func (s *Store) ChangeTemplate(
	ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error),
) error {
	return s.write(ctx, "ChangeTemplate", func(on svc.FullStore) error {
		return on.ChangeTemplate(ctx, key, change)
	}, key, change)
}

func (s *Store) DeleteTemplate(
	ctx context.Context, key svc.TemplateKey, check func(svc.Template) error,
) error {
	return s.write(ctx, "DeleteTemplate", func(on svc.FullStore) error {
		return on.DeleteTemplate(ctx, key, check)
	}, key, check)
}

func (s *Store) Installations(
	ctx context.Context, page svc.InstallationPage,
) ([]svc.Installation, error) {
	return result(ctx, s, "Installations", false, func(on svc.FullStore) ([]svc.Installation, error) {
		return on.Installations(ctx, page)
	}, page)
}

func (s *Store) RebindTemplates(
	ctx context.Context, source svc.SourceKey, url string,
) ([]svc.TemplateKey, error) {
	return result(ctx, s, "RebindTemplates", true, func(on svc.FullStore) ([]svc.TemplateKey, error) {
		return on.RebindTemplates(ctx, source, url)
	}, source, url)
}

func (s *Store) CreateAPIKey(ctx context.Context, key svc.APIKey) error {
	return s.write(ctx, "CreateAPIKey", func(on svc.FullStore) error {
		return on.CreateAPIKey(ctx, key)
	}, key)
}

func (s *Store) APIKeys(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
	return result(ctx, s, "APIKeys", false, func(on svc.FullStore) ([]svc.APIKey, error) {
		return on.APIKeys(ctx, page)
	}, page)
}

func (s *Store) RevokeAPIKeys(
	ctx context.Context, holder svc.Identity, at time.Time, limit int,
) ([]string, error) {
	return result(ctx, s, "RevokeAPIKeys", true, func(on svc.FullStore) ([]string, error) {
		return on.RevokeAPIKeys(ctx, holder, at, limit)
	}, holder, at, limit)
}

func (s *Store) UseAPIKeys(ctx context.Context, uses []svc.LastUse) error {
	return s.write(ctx, "UseAPIKeys", func(on svc.FullStore) error {
		return on.UseAPIKeys(ctx, uses)
	}, uses)
}

func (s *Store) KeepValue(ctx context.Context, name string, value []byte) ([]byte, error) {
	return result(ctx, s, "KeepValue", true, func(on svc.FullStore) ([]byte, error) {
		return on.KeepValue(ctx, name, value)
	}, name, value)
}

func (s *Store) Lock(ctx context.Context, locks svc.Locks) error {
	return s.write(ctx, "Lock", func(on svc.FullStore) error { return on.Lock(ctx, locks) }, locks)
}

func (s *Store) Access(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
	return result(ctx, s, "Access", false, func(on svc.FullStore) (svc.AccessSnapshot, error) {
		return on.Access(ctx, query)
	}, query)
}

func (s *Store) ReadAccess(
	ctx context.Context, part svc.AccessRead, yield func(svc.Bundle) error,
) (svc.StoreChanges, error) {
	return result(ctx, s, "ReadAccess", false, func(on svc.FullStore) (svc.StoreChanges, error) {
		return on.ReadAccess(ctx, part, yield)
	}, part, yield)
}

func (s *Store) ChangeAccess(
	ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error),
) error {
	return s.write(ctx, "ChangeAccess", func(on svc.FullStore) error {
		return on.ChangeAccess(ctx, named, change)
	}, named, change)
}

func (s *Store) AddEvents(ctx context.Context, events []svc.Event) error {
	return s.write(ctx, "AddEvents", func(on svc.FullStore) error {
		return on.AddEvents(ctx, events)
	}, events)
}

func (s *Store) DeleteEvents(ctx context.Context, ids []uuid.UUID) error {
	return s.write(ctx, "DeleteEvents", func(on svc.FullStore) error {
		return on.DeleteEvents(ctx, ids)
	}, ids)
}

func (s *Store) Answer(ctx context.Context, key []byte, now time.Time) (svc.StoredAnswer, error) {
	return result(ctx, s, "Answer", false, func(on svc.FullStore) (svc.StoredAnswer, error) {
		return on.Answer(ctx, key, now)
	}, key, now)
}

func (s *Store) KeepAnswer(ctx context.Context, answer svc.StoredAnswer, now time.Time) error {
	return s.write(ctx, "KeepAnswer", func(on svc.FullStore) error {
		return on.KeepAnswer(ctx, answer, now)
	}, answer, now)
}

func (s *Store) CountAnswers(
	ctx context.Context, caller []byte, now time.Time, most int,
) (int, error) {
	return result(ctx, s, "CountAnswers", false, func(on svc.FullStore) (int, error) {
		return on.CountAnswers(ctx, caller, now, most)
	}, caller, now, most)
}

func (s *Store) DeleteAnswers(ctx context.Context, caller []byte) error {
	return s.write(ctx, "DeleteAnswers", func(on svc.FullStore) error {
		return on.DeleteAnswers(ctx, caller)
	}, caller)
}

func (s *Store) QueueAudit(ctx context.Context, events []svc.Event, chain chain) error {
	return s.write(ctx, "QueueAudit", func(on svc.FullStore) error {
		return on.QueueAudit(ctx, events, chain)
	}, events, chain)
}

func (s *Store) ChainAudit(ctx context.Context, chain chain) (bool, error) {
	return result(ctx, s, "ChainAudit", true, func(on svc.FullStore) (bool, error) {
		return on.ChainAudit(ctx, chain)
	}, chain)
}

func (s *Store) EraseAudit(ctx context.Context, records []svc.AuditRecord) error {
	return s.write(ctx, "EraseAudit", func(on svc.FullStore) error {
		return on.EraseAudit(ctx, records)
	}, records)
}

func (s *Store) AuditRecords(ctx context.Context, query svc.AuditQuery) ([]svc.AuditRecord, error) {
	return result(ctx, s, "AuditRecords", false, func(on svc.FullStore) ([]svc.AuditRecord, error) {
		return on.AuditRecords(ctx, query)
	}, query)
}

func (s *Store) Changes(ctx context.Context, since int64) (svc.StoreChanges, error) {
	if !s.All {
		return s.FullStore.Changes(ctx, since)
	}
	return result(ctx, s, "Changes", false, func(on svc.FullStore) (svc.StoreChanges, error) {
		return on.Changes(ctx, since)
	}, since)
}

func (s *Store) AwaitChange(ctx context.Context, since int64) error {
	if !s.All {
		return s.FullStore.AwaitChange(ctx, since)
	}
	return s.write(ctx, "AwaitChange", func(on svc.FullStore) error { return on.AwaitChange(ctx, since) }, since)
}

func (s *Store) ClaimEvents(ctx context.Context, now, until time.Time, limit int) ([]svc.Event, error) {
	if !s.All {
		return s.FullStore.ClaimEvents(ctx, now, until, limit)
	}
	return result(ctx, s, "ClaimEvents", true, func(on svc.FullStore) ([]svc.Event, error) {
		return on.ClaimEvents(ctx, now, until, limit)
	}, now, until, limit)
}

func (s *Store) CountEvents(ctx context.Context, most int) (int, error) {
	if !s.All {
		return s.FullStore.CountEvents(ctx, most)
	}
	return result(ctx, s, "CountEvents", false, func(on svc.FullStore) (int, error) { return on.CountEvents(ctx, most) }, most)
}
