package sqlstore

import (
	"context"
	"time"

	"github.com/extsvc/svc"
)

// CreateSource implements [svc.SourceStore].
func (s *Store) CreateSource(ctx context.Context, source svc.Source) error {
	return s.change(ctx, "create source", source.Target(), func(ctx context.Context, tx session) error {
		return tx.create(ctx, `INSERT INTO svc_sources
			(scope, owner, name, url, description, sealed_token, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING`,
			source.Scope, source.Owner, source.Name, source.URL, source.Description, source.SealedToken,
			source.CreatedAt.UnixMicro(), source.UpdatedAt.UnixMicro())
	})
}

const selectSource = `SELECT scope, owner, name, url, description, sealed_token, created_at, updated_at FROM svc_sources`

// Source implements [svc.SourceStore].
func (s *Store) Source(ctx context.Context, key svc.SourceKey) (svc.Source, error) {
	source, err := s.db.reading().source(ctx, key)
	return source, s.fault(ctx, "read source", err)
}

func (s session) source(ctx context.Context, key svc.SourceKey) (svc.Source, error) {
	return one(ctx, s, scanSource, selectSource+` WHERE scope = $1 AND owner = $2 AND name = $3`, key.Scope, key.Owner, key.Name)
}

// Sources implements [svc.SourceStore].
func (s *Store) Sources(ctx context.Context, page svc.SourcePage) ([]svc.Source, error) {
	chunk, err := all(ctx, s.db.reading(), scanSource,
		selectSource+` WHERE scope = $1 AND owner = $2 AND name > $3 ORDER BY name LIMIT ($4 + 0)`,
		page.Scope, page.Owner, page.After, page.Limit)
	return chunk, s.fault(ctx, "list sources", err)
}

// ChangeSource implements [svc.SourceStore].
func (s *Store) ChangeSource(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
	return s.change(ctx, "change source", key.Target(), func(ctx context.Context, tx session) error {
		// Writing the row first makes others who would change it wait, in every database.
		err := tx.hit(ctx, `UPDATE svc_sources SET updated_at = updated_at WHERE scope = $1 AND owner = $2 AND name = $3`,
			key.Scope, key.Owner, key.Name)
		if err != nil {
			return err
		}
		source, err := tx.source(ctx, key)
		if err != nil {
			return err
		}
		if err := ask(change, &source); err != nil {
			return err
		}
		return tx.hit(ctx, `UPDATE svc_sources SET url = $1, description = $2, sealed_token = $3, updated_at = $4
			WHERE scope = $5 AND owner = $6 AND name = $7`,
			source.URL, source.Description, source.SealedToken, source.UpdatedAt.UnixMicro(), key.Scope, key.Owner, key.Name)
	})
}

// DeleteSource implements [svc.SourceStore].
func (s *Store) DeleteSource(ctx context.Context, key svc.SourceKey) error {
	return s.change(ctx, "delete source", key.Target(), func(ctx context.Context, tx session) error {
		return tx.hit(ctx, `DELETE FROM svc_sources WHERE scope = $1 AND owner = $2 AND name = $3`, key.Scope, key.Owner, key.Name)
	})
}

func scanSource(row scanner) (source svc.Source, err error) {
	var created, updated int64
	err = row.Scan(&source.Scope, &source.Owner, &source.Name, &source.URL, &source.Description, &source.SealedToken,
		&created, &updated)
	source.CreatedAt, source.UpdatedAt = fromMicro(created), fromMicro(updated)
	return source, err
}

// fromMicro returns a time as it was stored: microseconds since 1970, UTC.
func fromMicro(micro int64) time.Time { return time.UnixMicro(micro).UTC() }
