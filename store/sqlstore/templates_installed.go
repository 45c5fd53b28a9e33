package sqlstore

import (
	"context"
	"slices"

	"github.com/extsvc/svc"
)

// Installations implements [svc.TemplateStore].
func (s *Store) Installations(
	ctx context.Context, page svc.InstallationPage,
) ([]svc.Installation, error) {
	chunk, err := all(ctx, s.db.reading(), scanInstallation,
		`SELECT id, source_scope, source_owner, source_name, source_id, source_revision, source_url
		FROM svc_templates WHERE scope = $1 AND owner = $2 AND id > $3 AND source_name IS NOT NULL
		ORDER BY id LIMIT ($4 + 0)`,
		page.Scope, page.Owner, page.After, page.Limit)
	return chunk, s.fault(ctx, "list installations", err)
}

func scanInstallation(row scanner) (i svc.Installation, err error) {
	source := &i.Origin.Source
	err = row.Scan(&i.ID, &source.Scope, &source.Owner, &source.Name,
		&i.Origin.ID, &i.Origin.Revision, &i.Origin.URL)
	return i, err
}

// RebindTemplates implements [svc.TemplateStore].
func (s *Store) RebindTemplates(
	ctx context.Context, source svc.SourceKey, url string,
) ([]svc.TemplateKey, error) {
	var rebound []svc.TemplateKey
	err := s.mutate(ctx, "re-bind templates", func(
		ctx context.Context, tx session, m *mutation,
	) (err error) {
		// Only one runs at a time: each locks many rows, in no fixed order.
		if err := tx.lock(ctx, "installations"); err != nil {
			return err
		}
		rebound, err = all(ctx, tx, scanTemplateKey, `UPDATE svc_templates SET source_url = $1
			WHERE source_scope = $2 AND source_owner = $3 AND source_name = $4
			AND scope = source_scope AND owner = source_owner
			AND source_url <> $1 RETURNING scope, owner, id`,
			url, source.Scope, source.Owner, source.Name)
		if err == nil && len(rebound) == 0 {
			return errUnchanged
		}
		slices.SortFunc(rebound, svc.TemplateKey.Compare)
		for _, key := range rebound {
			m.Targets = append(m.Targets, key.Target())
		}
		return err
	})
	return rebound, err
}

// unbind takes the URL from the templates that came from a personal source and are not its owner's
// own. It returns those that had one.
func (s session) unbind(ctx context.Context, source svc.SourceKey) ([]svc.Target, error) {
	if err := s.lock(ctx, "installations"); err != nil {
		return nil, err
	}
	return all(ctx, s, scanUnbound, `UPDATE svc_templates SET source_url = ''
		WHERE source_scope = $1 AND source_owner = $2 AND source_name = $3
		AND NOT (scope = source_scope AND owner = source_owner)
		AND source_url <> '' RETURNING scope, owner, id`,
		source.Scope, source.Owner, source.Name)
}

func scanTemplateKey(row scanner) (key svc.TemplateKey, err error) {
	err = row.Scan(&key.Scope, &key.Owner, &key.ID)
	return key, err
}
