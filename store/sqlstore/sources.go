package sqlstore

import (
	"context"
	"strconv"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/limits"
)

// CreateSource implements [svc.SourceStore].
func (s *Store) CreateSource(ctx context.Context, source svc.Source) error {
	target := source.Target()
	return s.change(ctx, "create source", target, func(ctx context.Context, tx session) error {
		return tx.create(ctx, `INSERT INTO svc_sources
			(scope, owner, name, url, description, sealed_token, signing_key, serial,
			created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
			ON CONFLICT DO NOTHING`,
			source.Scope, source.Owner, source.Name, source.URL, source.Description,
			source.SealedToken, source.SigningKey, source.Serial,
			source.CreatedAt.UnixMicro(), source.UpdatedAt.UnixMicro())
	})
}

const selectSource = `SELECT scope, owner, name, url, description, sealed_token, signing_key,
	serial, created_at, updated_at FROM svc_sources`

// Source implements [svc.SourceStore].
func (s *Store) Source(ctx context.Context, key svc.SourceKey) (svc.Source, error) {
	source, err := s.db.reading().source(ctx, key)
	return source, s.fault(ctx, "read source", err)
}

func (s session) source(ctx context.Context, key svc.SourceKey) (svc.Source, error) {
	return one(ctx, s, scanSource, selectSource+` WHERE scope = $1 AND owner = $2 AND name = $3`,
		key.Scope, key.Owner, key.Name)
}

// Sources implements [svc.SourceStore].
func (s *Store) Sources(ctx context.Context, page svc.SourcePage) ([]svc.Source, error) {
	which := ` WHERE scope = $1 AND owner = $2 AND name > $3 ORDER BY name LIMIT ($4 + 0)`
	if page.Every {
		which = ` WHERE (scope, owner, name) > ($1, $2, $3)
			ORDER BY scope, owner, name LIMIT ($4 + 0)`
	}
	chunk, err := all(ctx, s.db.reading(), scanSource, selectSource+which,
		page.Scope, page.Owner, page.After, page.Limit)
	return chunk, s.fault(ctx, "list sources", err)
}

// ChangeSource implements [svc.SourceStore].
func (s *Store) ChangeSource(
	ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error),
) error {
	target := key.Target()
	return s.change(ctx, "change source", target, func(ctx context.Context, tx session) error {
		if err := tx.lockSource(ctx, key); err != nil {
			return err
		}
		source, err := tx.source(ctx, key)
		if err != nil {
			return err
		}
		if err := ask(change, &source); err != nil {
			return err
		}
		return tx.hit(ctx, `UPDATE svc_sources SET url = $1, description = $2, sealed_token = $3,
			serial = $4, updated_at = $5 WHERE scope = $6 AND owner = $7 AND name = $8`,
			source.URL, source.Description, source.SealedToken, source.Serial,
			source.UpdatedAt.UnixMicro(), key.Scope, key.Owner, key.Name)
	})
}

// lockSource writes the source's row, which makes other changes of the source wait, in every
// database.
func (s session) lockSource(ctx context.Context, key svc.SourceKey) error {
	return s.hit(ctx, `UPDATE svc_sources SET updated_at = updated_at
		WHERE scope = $1 AND owner = $2 AND name = $3`, key.Scope, key.Owner, key.Name)
}

// DeleteSource implements [svc.SourceStore].
func (s *Store) DeleteSource(ctx context.Context, key svc.SourceKey) error {
	return s.mutate(ctx, "delete source", func(ctx context.Context, tx session, m *mutation) error {
		err := tx.hit(ctx, `DELETE FROM svc_sources WHERE scope = $1 AND owner = $2 AND name = $3`,
			key.Scope, key.Owner, key.Name)
		if err == nil && key.Scope == svc.ScopePersonal {
			m.Targets, err = tx.unbind(ctx, key)
		}
		m.Targets = append(m.Targets, key.Target())
		return err
	})
}

// KeepSourceFile implements [svc.SourceFileStore].
func (s *Store) KeepSourceFile(ctx context.Context, key svc.SourceKey, file svc.SourceFile) error {
	return s.transact(ctx, "keep source file", func(ctx context.Context, tx session) error {
		if err := tx.lockSource(ctx, key); err != nil {
			return err
		}
		_, err := tx.exec(ctx, `INSERT INTO svc_source_files
			(scope, owner, name, path, data, kept_at) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (scope, owner, name, path)
			DO UPDATE SET data = excluded.data, kept_at = excluded.kept_at`,
			key.Scope, key.Owner, key.Name, file.Path, file.Data, file.KeptAt.UnixMicro())
		if err != nil || file.Path == "" {
			return err
		}
		_, err = tx.exec(ctx, forgetFiles, key.Scope, key.Owner, key.Name)
		return err
	})
}

// forgetFiles deletes the oldest files of a source beyond limits.SourceFiles. It never deletes the
// catalogue, whose path is empty.
var forgetFiles = `DELETE FROM svc_source_files
	WHERE scope = $1 AND owner = $2 AND name = $3 AND path <> ''
	AND (kept_at, path) < (SELECT kept_at, path FROM svc_source_files
		WHERE scope = $1 AND owner = $2 AND name = $3 AND path <> ''
		ORDER BY kept_at DESC, path DESC LIMIT 1 OFFSET ` + strconv.Itoa(limits.SourceFiles-1) + `)`

// SourceFile implements [svc.SourceFileStore].
func (s *Store) SourceFile(
	ctx context.Context, key svc.SourceKey, path string,
) (svc.SourceFile, error) {
	file, err := one(ctx, s.db.reading(), func(row scanner) (file svc.SourceFile, err error) {
		err = row.Scan(&file.Path, &file.Data, micro{&file.KeptAt})
		return file, err
	}, `SELECT path, data, kept_at FROM svc_source_files
		WHERE scope = $1 AND owner = $2 AND name = $3 AND path = $4`,
		key.Scope, key.Owner, key.Name, path)
	return file, s.fault(ctx, "read source file", err)
}

func scanSource(row scanner) (source svc.Source, err error) {
	err = row.Scan(&source.Scope, &source.Owner, &source.Name, &source.URL, &source.Description,
		&source.SealedToken, &source.SigningKey, &source.Serial,
		micro{&source.CreatedAt}, micro{&source.UpdatedAt})
	return source, err
}
