// Package intercept wraps a store for tests: a function sees the calls, and may fail them.
package intercept

import (
	"context"
	"reflect"
	"slices"
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

// write passes on a call of a method that returns only an error.
func (s *Store) write(ctx context.Context, name string, method any, args ...any) error {
	return s.pass(ctx, Call{Method: name, Writes: true}, method, args)
}

// writeFor is write for a method that also returns a value.
func writeFor[T any](
	ctx context.Context, s *Store, name string, method any, args ...any,
) (value T, err error) {
	err = s.pass(ctx, Call{Method: name, Writes: true, Result: &value}, method, args)
	return value, err
}

// read passes on a call of a method that writes nothing.
func read[T any](
	ctx context.Context, s *Store, name string, method any, args ...any,
) (value T, err error) {
	err = s.pass(ctx, Call{Method: name, Result: &value}, method, args)
	return value, err
}

// background are the methods that a Store passes to Around only with All.
var background = []string{"Changes", "AwaitChange", "ClaimEvents", "CountEvents"}

// pass passes on a call. method is that of [svc.FullStore], or a function that wraps it.
func (s *Store) pass(ctx context.Context, call Call, method any, args []any) error {
	call.Args, call.Funcs = parts(args)
	call.own, call.on = s.FullStore, func(on svc.FullStore) error {
		in := []reflect.Value{reflect.ValueOf(on), reflect.ValueOf(ctx)}
		for _, arg := range args {
			in = append(in, reflect.ValueOf(arg))
		}
		out := reflect.ValueOf(method).Call(in)
		if call.Result != nil {
			reflect.ValueOf(call.Result).Elem().Set(out[0])
		}
		err, _ := out[len(out)-1].Interface().(error)
		return err
	}
	if !s.All && slices.Contains(background, call.Method) {
		return call.Do()
	}
	return s.Around(ctx, call)
}

// parts takes values and functions apart. All functions of a method are its last arguments.
func parts(args []any) (values, functions []any) {
	n := len(args)
	for n > 0 && reflect.TypeOf(args[n-1]).Kind() == reflect.Func {
		n--
	}
	return args[:n:n], args[n:]
}

func (s *Store) Atomically(ctx context.Context, fn inTx) error {
	return s.write(ctx, "Atomically", func(on svc.FullStore, ctx context.Context, fn inTx) error {
		return on.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
			if s.Inside {
				tx = &Store{tx.(svc.FullStore), s.Around, true, s.All}
			}
			return fn(ctx, tx)
		})
	}, fn)
}

func (s *Store) ChangeAPIKey(ctx context.Context, holder svc.Identity, id string, change changeKey) error {
	_, err := writeFor[svc.APIKey](ctx, s, "ChangeAPIKey", func(
		on svc.FullStore, ctx context.Context, holder svc.Identity, id string, change changeKey,
	) (changed svc.APIKey, err error) {
		err = on.ChangeAPIKey(ctx, holder, id, func(key *svc.APIKey) (bool, error) {
			write, err := change(key)
			changed = *key
			return write, err
		})
		return changed, err
	}, holder, id, change)
	return err
}

type (
	inTx      = func(context.Context, svc.Store) error
	changeKey = func(*svc.APIKey) (bool, error)
	chain     = func(svc.AuditRecord, []svc.Event) []svc.AuditRecord
)

func (s *Store) CreateSource(ctx context.Context, source svc.Source) error {
	return s.write(ctx, "CreateSource", svc.FullStore.CreateSource, source)
}

func (s *Store) Source(ctx context.Context, key svc.SourceKey) (svc.Source, error) {
	return read[svc.Source](ctx, s, "Source", svc.FullStore.Source, key)
}

func (s *Store) Sources(ctx context.Context, page svc.SourcePage) ([]svc.Source, error) {
	return read[[]svc.Source](ctx, s, "Sources", svc.FullStore.Sources, page)
}

func (s *Store) ChangeSource(
	ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error),
) error {
	return s.write(ctx, "ChangeSource", svc.FullStore.ChangeSource, key, change)
}

func (s *Store) DeleteSource(ctx context.Context, key svc.SourceKey) error {
	return s.write(ctx, "DeleteSource", svc.FullStore.DeleteSource, key)
}

func (s *Store) KeepSourceFile(ctx context.Context, key svc.SourceKey, file svc.SourceFile) error {
	return s.write(ctx, "KeepSourceFile", svc.FullStore.KeepSourceFile, key, file)
}

func (s *Store) SourceFile(
	ctx context.Context, key svc.SourceKey, path string,
) (svc.SourceFile, error) {
	return read[svc.SourceFile](ctx, s, "SourceFile", svc.FullStore.SourceFile, key, path)
}

func (s *Store) CreateTemplate(ctx context.Context, template svc.Template) error {
	return s.write(ctx, "CreateTemplate", svc.FullStore.CreateTemplate, template)
}

func (s *Store) Template(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
	return read[svc.Template](ctx, s, "Template", svc.FullStore.Template, key)
}

func (s *Store) Templates(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
	return read[[]svc.Template](ctx, s, "Templates", svc.FullStore.Templates, page)
}

func (s *Store) TemplateVersions(
	ctx context.Context, key svc.TemplateKey, before int64, limit int,
) ([]svc.TemplateVersion, error) {
	return read[[]svc.TemplateVersion](ctx, s, "TemplateVersions", svc.FullStore.TemplateVersions, key, before, limit)
}

func (s *Store) ChangeTemplate(
	ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error),
) error {
	return s.write(ctx, "ChangeTemplate", svc.FullStore.ChangeTemplate, key, change)
}

func (s *Store) DeleteTemplate(
	ctx context.Context, key svc.TemplateKey, check func(svc.Template) error,
) error {
	return s.write(ctx, "DeleteTemplate", svc.FullStore.DeleteTemplate, key, check)
}

func (s *Store) Installations(
	ctx context.Context, page svc.InstallationPage,
) ([]svc.Installation, error) {
	return read[[]svc.Installation](ctx, s, "Installations", svc.FullStore.Installations, page)
}

func (s *Store) RebindTemplates(
	ctx context.Context, source svc.SourceKey, url string,
) ([]svc.TemplateKey, error) {
	return writeFor[[]svc.TemplateKey](ctx, s, "RebindTemplates", svc.FullStore.RebindTemplates, source, url)
}

func (s *Store) CreateAPIKey(ctx context.Context, key svc.APIKey) error {
	return s.write(ctx, "CreateAPIKey", svc.FullStore.CreateAPIKey, key)
}

func (s *Store) APIKeys(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
	return read[[]svc.APIKey](ctx, s, "APIKeys", svc.FullStore.APIKeys, page)
}

func (s *Store) RevokeAPIKeys(
	ctx context.Context, holder svc.Identity, at time.Time, limit int,
) ([]string, error) {
	return writeFor[[]string](ctx, s, "RevokeAPIKeys", svc.FullStore.RevokeAPIKeys, holder, at, limit)
}

func (s *Store) UseAPIKeys(ctx context.Context, uses []svc.LastUse) error {
	return s.write(ctx, "UseAPIKeys", svc.FullStore.UseAPIKeys, uses)
}

func (s *Store) KeepValue(ctx context.Context, name string, value []byte) ([]byte, error) {
	return writeFor[[]byte](ctx, s, "KeepValue", svc.FullStore.KeepValue, name, value)
}

func (s *Store) Lock(ctx context.Context, locks svc.Locks) error {
	return s.write(ctx, "Lock", svc.FullStore.Lock, locks)
}

func (s *Store) Access(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
	return read[svc.AccessSnapshot](ctx, s, "Access", svc.FullStore.Access, query)
}

func (s *Store) ReadAccess(
	ctx context.Context, part svc.AccessRead, yield func(svc.Bundle) error,
) (svc.StoreChanges, error) {
	return read[svc.StoreChanges](ctx, s, "ReadAccess", svc.FullStore.ReadAccess, part, yield)
}

func (s *Store) ChangeAccess(
	ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error),
) error {
	return s.write(ctx, "ChangeAccess", svc.FullStore.ChangeAccess, named, change)
}

func (s *Store) AddEvents(ctx context.Context, events []svc.Event) error {
	return s.write(ctx, "AddEvents", svc.FullStore.AddEvents, events)
}

func (s *Store) DeleteEvents(ctx context.Context, ids []uuid.UUID) error {
	return s.write(ctx, "DeleteEvents", svc.FullStore.DeleteEvents, ids)
}

func (s *Store) Answer(ctx context.Context, key []byte, now time.Time) (svc.StoredAnswer, error) {
	return read[svc.StoredAnswer](ctx, s, "Answer", svc.FullStore.Answer, key, now)
}

func (s *Store) KeepAnswer(ctx context.Context, answer svc.StoredAnswer, now time.Time) error {
	return s.write(ctx, "KeepAnswer", svc.FullStore.KeepAnswer, answer, now)
}

func (s *Store) CountAnswers(
	ctx context.Context, caller []byte, now time.Time, most int,
) (int, error) {
	return read[int](ctx, s, "CountAnswers", svc.FullStore.CountAnswers, caller, now, most)
}

func (s *Store) DeleteAnswers(ctx context.Context, caller []byte) error {
	return s.write(ctx, "DeleteAnswers", svc.FullStore.DeleteAnswers, caller)
}

func (s *Store) QueueAudit(ctx context.Context, events []svc.Event, chain chain) error {
	return s.write(ctx, "QueueAudit", svc.FullStore.QueueAudit, events, chain)
}

func (s *Store) ChainAudit(ctx context.Context, chain chain) (bool, error) {
	return writeFor[bool](ctx, s, "ChainAudit", svc.FullStore.ChainAudit, chain)
}

func (s *Store) EraseAudit(ctx context.Context, records []svc.AuditRecord) error {
	return s.write(ctx, "EraseAudit", svc.FullStore.EraseAudit, records)
}

func (s *Store) AuditRecords(ctx context.Context, query svc.AuditQuery) ([]svc.AuditRecord, error) {
	return read[[]svc.AuditRecord](ctx, s, "AuditRecords", svc.FullStore.AuditRecords, query)
}

func (s *Store) Changes(ctx context.Context, since int64) (svc.StoreChanges, error) {
	return read[svc.StoreChanges](ctx, s, "Changes", svc.FullStore.Changes, since)
}

func (s *Store) AwaitChange(ctx context.Context, since int64) error {
	return s.write(ctx, "AwaitChange", svc.FullStore.AwaitChange, since)
}

func (s *Store) ClaimEvents(ctx context.Context, now, until time.Time, limit int) ([]svc.Event, error) {
	return writeFor[[]svc.Event](ctx, s, "ClaimEvents", svc.FullStore.ClaimEvents, now, until, limit)
}

func (s *Store) CountEvents(ctx context.Context, most int) (int, error) {
	return read[int](ctx, s, "CountEvents", svc.FullStore.CountEvents, most)
}
