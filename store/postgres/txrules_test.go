package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/storetest"
)

// TestStoreInPgxTransactions runs all rules of storetest on a Store over a pool of a host that uses
// pgx. The pool is the smallest one, with the simplest protocol. Each call runs in a transaction.
func TestStoreInPgxTransactions(t *testing.T) {
	longtest.Test(t, "the rules of storetest")
	t.Parallel()
	url := pgtest.With(t, migrated(t), "synchronous_commit", "off")
	db, pool := pgtest.Open(t, url), newPool(t, url, atMost(1), func(config *pgxpool.Config) {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	})
	options := postgres.Options{SynchronousCommit: "off", NoNotify: true}
	store := unlimited(over(t, pool, options), options)
	storetest.Run(t, func(t *testing.T) svc.Store {
		empty(t, db, store)
		return inTxs{store, pool}
	})
}

// inTxs is a Store whose calls are transactions of the host, except those that make no sense in one.
type inTxs struct {
	*postgres.Store
	pool *pgxpool.Pool
}

// write makes a call in a transaction, as a host does: again when others were in the way.
func (s inTxs) write(ctx context.Context, call func(tx svc.FullStore) error) error {
	err := s.once(ctx, pgx.ReadCommitted, call)
	for try := 1; try < 5 && errors.Is(err, svc.ErrChanged); try++ {
		err = s.once(ctx, pgx.ReadCommitted, call)
	}
	s.Wake() // as a notification does, at once
	return err
}

func (s inTxs) once(
	ctx context.Context, isolation pgx.TxIsoLevel, call func(tx svc.FullStore) error,
) error {
	return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: isolation}, func(tx pgx.Tx) error {
		return call(postgres.Tx(tx))
	})
}

// read makes a call in a transaction that sees one state.
func read[T any](ctx context.Context, s inTxs, call func(tx svc.FullStore) (T, error)) (r T, _ error) {
	err := s.once(ctx, pgx.RepeatableRead, func(tx svc.FullStore) (err error) {
		r, err = call(tx)
		return err
	})
	return r, err
}

func wrote[T any](ctx context.Context, s inTxs, call func(tx svc.FullStore) (T, error)) (r T, _ error) {
	err := s.write(ctx, func(tx svc.FullStore) (err error) {
		r, err = call(tx)
		return err
	})
	return r, err
}

func (s inTxs) APIKeys(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
	return read(ctx, s, func(tx svc.FullStore) ([]svc.APIKey, error) { return tx.APIKeys(ctx, page) })
}

func (s inTxs) Access(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
	return read(ctx, s, func(tx svc.FullStore) (svc.AccessSnapshot, error) { return tx.Access(ctx, query) })
}

func (s inTxs) AddEvents(ctx context.Context, events []svc.Event) error {
	return s.write(ctx, func(tx svc.FullStore) error { return tx.AddEvents(ctx, events) })
}

func (s inTxs) Answer(ctx context.Context, key []byte, now time.Time) (svc.StoredAnswer, error) {
	return read(ctx, s, func(tx svc.FullStore) (svc.StoredAnswer, error) { return tx.Answer(ctx, key, now) })
}

func (s inTxs) QueueAudit(ctx context.Context, events []svc.Event, chain func(svc.AuditRecord, []svc.Event) []svc.AuditRecord) error {
	return s.write(ctx, func(tx svc.FullStore) error { return tx.QueueAudit(ctx, events, chain) })
}

func (s inTxs) ChainAudit(ctx context.Context, chain func(svc.AuditRecord, []svc.Event) []svc.AuditRecord) (bool, error) {
	return wrote(ctx, s, func(tx svc.FullStore) (bool, error) { return tx.ChainAudit(ctx, chain) })
}

func (s inTxs) EraseAudit(ctx context.Context, records []svc.AuditRecord) error {
	return s.write(ctx, func(tx svc.FullStore) error { return tx.EraseAudit(ctx, records) })
}

func (s inTxs) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.write(ctx, func(tx svc.FullStore) error { return tx.Atomically(ctx, fn) })
}

func (s inTxs) AuditRecords(ctx context.Context, query svc.AuditQuery) ([]svc.AuditRecord, error) {
	return read(ctx, s, func(tx svc.FullStore) ([]svc.AuditRecord, error) { return tx.AuditRecords(ctx, query) })
}

func (s inTxs) ChangeAPIKey(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
	return s.write(ctx, func(tx svc.FullStore) error { return tx.ChangeAPIKey(ctx, holder, id, change) })
}

func (s inTxs) ChangeAccess(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
	return s.write(ctx, func(tx svc.FullStore) error { return tx.ChangeAccess(ctx, named, change) })
}

func (s inTxs) ChangeSource(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
	return s.write(ctx, func(tx svc.FullStore) error { return tx.ChangeSource(ctx, key, change) })
}

func (s inTxs) ChangeTemplate(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
	return s.write(ctx, func(tx svc.FullStore) error { return tx.ChangeTemplate(ctx, key, change) })
}

func (s inTxs) CreateAPIKey(ctx context.Context, key svc.APIKey) error {
	return s.write(ctx, func(tx svc.FullStore) error { return tx.CreateAPIKey(ctx, key) })
}

func (s inTxs) CreateSource(ctx context.Context, source svc.Source) error {
	return s.write(ctx, func(tx svc.FullStore) error { return tx.CreateSource(ctx, source) })
}

func (s inTxs) CreateTemplate(ctx context.Context, template svc.Template) error {
	return s.write(ctx, func(tx svc.FullStore) error { return tx.CreateTemplate(ctx, template) })
}

func (s inTxs) DeleteEvents(ctx context.Context, ids []uuid.UUID) error {
	return s.write(ctx, func(tx svc.FullStore) error { return tx.DeleteEvents(ctx, ids) })
}

func (s inTxs) DeleteSource(ctx context.Context, key svc.SourceKey) error {
	return s.write(ctx, func(tx svc.FullStore) error { return tx.DeleteSource(ctx, key) })
}

func (s inTxs) DeleteTemplate(ctx context.Context, key svc.TemplateKey, check func(svc.Template) error) error {
	return s.write(ctx, func(tx svc.FullStore) error { return tx.DeleteTemplate(ctx, key, check) })
}

func (s inTxs) Installations(ctx context.Context, page svc.InstallationPage) ([]svc.Installation, error) {
	return read(ctx, s, func(tx svc.FullStore) ([]svc.Installation, error) { return tx.Installations(ctx, page) })
}

func (s inTxs) CountAnswers(ctx context.Context, caller []byte, now time.Time, most int) (int, error) {
	return read(ctx, s, func(tx svc.FullStore) (int, error) { return tx.CountAnswers(ctx, caller, now, most) })
}

func (s inTxs) DeleteAnswers(ctx context.Context, caller []byte) error {
	return s.write(ctx, func(tx svc.FullStore) error { return tx.DeleteAnswers(ctx, caller) })
}

func (s inTxs) KeepAnswer(ctx context.Context, answer svc.StoredAnswer, now time.Time) error {
	return s.write(ctx, func(tx svc.FullStore) error { return tx.KeepAnswer(ctx, answer, now) })
}

func (s inTxs) KeepSourceFile(ctx context.Context, key svc.SourceKey, file svc.SourceFile) error {
	return s.write(ctx, func(tx svc.FullStore) error { return tx.KeepSourceFile(ctx, key, file) })
}

func (s inTxs) KeepValue(ctx context.Context, name string, value []byte) ([]byte, error) {
	return wrote(ctx, s, func(tx svc.FullStore) ([]byte, error) { return tx.KeepValue(ctx, name, value) })
}

func (s inTxs) Lock(ctx context.Context, locks svc.Locks) error {
	return s.write(ctx, func(tx svc.FullStore) error { return tx.Lock(ctx, locks) })
}

func (s inTxs) ReadAccess(ctx context.Context, part svc.AccessRead, yield func(svc.Bundle) error) (svc.StoreChanges, error) {
	if part.Since > 0 { // a transaction does not know what the Store has returned
		return s.Store.ReadAccess(ctx, part, yield)
	}
	return read(ctx, s, func(tx svc.FullStore) (svc.StoreChanges, error) { return tx.ReadAccess(ctx, part, yield) })
}

func (s inTxs) RebindTemplates(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
	return wrote(ctx, s, func(tx svc.FullStore) ([]svc.TemplateKey, error) { return tx.RebindTemplates(ctx, source, url) })
}

func (s inTxs) RevokeAPIKeys(ctx context.Context, holder svc.Identity, at time.Time, most int) ([]string, error) {
	return wrote(ctx, s, func(tx svc.FullStore) ([]string, error) { return tx.RevokeAPIKeys(ctx, holder, at, most) })
}

func (s inTxs) Source(ctx context.Context, key svc.SourceKey) (svc.Source, error) {
	return read(ctx, s, func(tx svc.FullStore) (svc.Source, error) { return tx.Source(ctx, key) })
}

func (s inTxs) SourceFile(ctx context.Context, key svc.SourceKey, path string) (svc.SourceFile, error) {
	return read(ctx, s, func(tx svc.FullStore) (svc.SourceFile, error) { return tx.SourceFile(ctx, key, path) })
}

func (s inTxs) Sources(ctx context.Context, page svc.SourcePage) ([]svc.Source, error) {
	return read(ctx, s, func(tx svc.FullStore) ([]svc.Source, error) { return tx.Sources(ctx, page) })
}

func (s inTxs) Template(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
	return read(ctx, s, func(tx svc.FullStore) (svc.Template, error) { return tx.Template(ctx, key) })
}

func (s inTxs) TemplateVersions(ctx context.Context, key svc.TemplateKey, before int64, limit int) ([]svc.TemplateVersion, error) {
	return read(ctx, s, func(tx svc.FullStore) ([]svc.TemplateVersion, error) {
		return tx.TemplateVersions(ctx, key, before, limit)
	})
}

func (s inTxs) Templates(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
	return read(ctx, s, func(tx svc.FullStore) ([]svc.Template, error) { return tx.Templates(ctx, page) })
}

func (s inTxs) UseAPIKeys(ctx context.Context, uses []svc.LastUse) error {
	return s.write(ctx, func(tx svc.FullStore) error { return tx.UseAPIKeys(ctx, uses) })
}
