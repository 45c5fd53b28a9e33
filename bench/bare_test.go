package bench_test

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlstore"
)

// bare is the driver alone: the prepared statements of package sqlstore, with nothing around them.
// TestSameStatements checks that they are the same.
type bare struct {
	write, read *sql.DB

	key, keyRow, access, template, list, category, tag, both, whole *sql.Stmt // read

	createKey, countKeys, lockKey, lockedKey, updateKey *sql.Stmt // write
	createTemplate, createTag, createBase, bump, change *sql.Stmt
	lockHolder, notify                                  *sql.Stmt // nil: not in this database
}

const (
	keyColumns = `k.id, k.holder_kind, k.holder_id, k.prefix, k.description, k.hash, k.pepper, k.created_at, k.revoked_at,
		k.expires_at, k.disabled, k.last_used_at, k.scoping_policy_id, k.seal`

	templateColumns = `t.scope, t.owner, t.id, t.name, t.description, t.category, t.integrations, t.tags, t.manifest,
		t.source_scope, t.source_owner, t.source_name, t.source_id, t.source_revision, t.source_url,
		t.installed_at, t.updated_at, t.version`

	selectKey = `SELECT ` + keyColumns + `, u.id, u.display_name, u.email, u.inactive,
		a.id, a.display_name, a.owner_user_id, a.scoping_policy_id, a.inactive
		FROM svc_api_keys k
		LEFT JOIN svc_users u ON k.holder_kind = 'user' AND u.id = k.holder_id
		LEFT JOIN svc_service_accounts a ON k.holder_kind = 'service_account' AND a.id = k.holder_id
		WHERE k.id = $1`

	selectKeyRow = `SELECT ` + keyColumns + ` FROM svc_api_keys k WHERE k.id = $1`

	selectAccess = `SELECT g.value, b.document, u.id, u.display_name, u.email, u.inactive,
		(SELECT string_agg(m.group_id, $1) FROM svc_group_members m WHERE m.user_id = u.id),
		(SELECT string_agg(concat_ws($1, t.principal_type, t.principal_id, t.priority, p.id, p.display_name, p.document), $1)
		FROM (SELECT 'user' AS type, u.id AS id
			UNION ALL SELECT 'group', m.group_id FROM svc_group_members m WHERE m.user_id = u.id) subjects
		CROSS JOIN svc_attachments t CROSS JOIN svc_policies p
		WHERE t.principal_type = subjects.type AND t.principal_id = subjects.id AND p.id = t.policy_id),
		a.id, a.display_name, a.owner_user_id, a.scoping_policy_id, a.inactive, n.display_name, n.document,
		y.display_name, y.document, ` + keyColumns + `
		FROM svc_generation g LEFT JOIN svc_bank_policies b ON b.bank_id = $2
		LEFT JOIN svc_api_keys k ON k.id = $3 LEFT JOIN svc_policies y ON y.id = k.scoping_policy_id
		LEFT JOIN svc_service_accounts a ON k.holder_kind = 'service_account' AND a.id = k.holder_id
		LEFT JOIN svc_policies n ON n.id = a.scoping_policy_id
		LEFT JOIN svc_users u ON u.id = CASE k.holder_kind WHEN 'user' THEN k.holder_id ELSE a.owner_user_id END WHERE g.id = 1`

	selectTemplate = `SELECT ` + templateColumns + `,
		b.name, b.description, b.category, b.integrations, b.tags, b.manifest
		FROM svc_templates t LEFT JOIN svc_template_bases b ON b.scope = t.scope AND b.owner = t.owner AND b.id = t.id
		WHERE t.scope = $1 AND t.owner = $2 AND t.id = $3`

	listed    = `SELECT ` + templateColumns + ` FROM svc_templates t WHERE t.scope = $1 AND t.owner = $2 AND (t.name, t.id) > ($3, $4)`
	listedTag = `SELECT ` + templateColumns + ` FROM svc_template_tags k
		JOIN svc_templates t ON t.scope = k.scope AND t.owner = k.owner AND t.id = k.id
		WHERE k.scope = $1 AND k.owner = $2 AND (k.name, k.id) > ($3, $4) AND k.tag = $5`

	selectTemplates         = listed + ` ORDER BY t.name, t.id LIMIT 128`
	selectOfCategory        = listed + ` AND t.category = $5 ORDER BY t.name, t.id LIMIT 128`
	selectTagged            = listedTag + ` ORDER BY k.name, k.id LIMIT 128`
	selectTaggedOfCategory  = listedTag + ` AND k.category = $6 ORDER BY k.name, k.id LIMIT 128`
	selectTemplatesAllAlong = `SELECT ` + templateColumns + ` FROM svc_templates t WHERE t.scope = $1 AND t.owner = $2 ORDER BY t.name, t.id LIMIT $3`

	insertKey = `INSERT INTO svc_api_keys
		(id, holder_kind, holder_id, prefix, description, hash, pepper, created_at, revoked_at,
		expires_at, disabled, last_used_at, scoping_policy_id, seal)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`

	// A holder's row in svc_key_holders is locked where writers do not wait for each other.
	lockHolder = `INSERT INTO svc_key_holders (kind, id) VALUES ($1, $2)
		ON CONFLICT (kind, id) DO UPDATE SET id = excluded.id`
	countKeys = `SELECT COUNT(*) FROM (SELECT k.id FROM svc_api_keys k
		WHERE k.holder_kind = $1 AND k.holder_id = $2 AND k.revoked_at IS NULL LIMIT ($3 + 0)) live`

	lockKey = `UPDATE svc_api_keys SET disabled = disabled
		WHERE id = $1 AND holder_kind = $2 AND holder_id = $3 AND revoked_at IS NULL`
	updateKey = `UPDATE svc_api_keys SET description = $1, expires_at = $2, disabled = $3, revoked_at = $4,
		hash = $5, pepper = $6, seal = $7 WHERE id = $8`

	insertTemplate = `INSERT INTO svc_templates (scope, owner, id, name, description, category, integrations, tags,
		manifest, source_scope, source_owner, source_name, source_id, source_revision, source_url,
		updated_at, version, installed_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18) ON CONFLICT DO NOTHING`

	insertTag = `INSERT INTO svc_template_tags (scope, owner, id, category, name, tag) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`

	insertBase = `INSERT INTO svc_template_bases
		(scope, owner, id, name, description, category, integrations, tags, manifest)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING`

	updateGeneration = `UPDATE svc_generation SET value = value + 1 WHERE id = 1`

	insertChange = `INSERT INTO svc_changes (generation, position, kind, id, scope, owner, holder_kind, holder_id, renamed)
		VALUES ((SELECT value FROM svc_generation WHERE id = 1), $1, $2, $3, $4, $5, $6, $7, $8)`
)

func newBare(write, read *sql.DB, dialect sqlstore.Dialect) (*bare, error) {
	b := &bare{write: write, read: read}
	var err error
	prepare := func(db *sql.DB, to **sql.Stmt, query string) {
		if err == nil {
			*to, err = db.Prepare(query)
		}
	}
	for to, query := range map[**sql.Stmt]string{
		&b.key: selectKey, &b.keyRow: selectKeyRow, &b.access: selectAccess, &b.template: selectTemplate, &b.list: selectTemplates, &b.category: selectOfCategory,
		&b.tag: selectTagged, &b.both: selectTaggedOfCategory, &b.whole: selectTemplatesAllAlong,
	} {
		prepare(read, to, query)
	}
	for to, query := range map[**sql.Stmt]string{
		&b.createKey: insertKey, &b.countKeys: countKeys, &b.lockKey: lockKey, &b.lockedKey: selectKeyRow, &b.updateKey: updateKey, &b.createTemplate: insertTemplate, &b.createTag: insertTag,
		&b.createBase: insertBase, &b.bump: updateGeneration, &b.change: insertChange,
	} {
		prepare(write, to, query)
	}
	if !dialect.OneWriter {
		prepare(write, &b.lockHolder, lockHolder)
	}
	if dialect.Notify != "" {
		prepare(write, &b.notify, dialect.Notify)
	}
	return b, err
}

func (b *bare) close() error {
	if b.write == b.read {
		return b.read.Close()
	}
	return errors.Join(b.read.Close(), b.write.Close())
}

// mutate runs a mutation as every mutation runs: in a transaction that increments the generation
// and records the change.
func (b *bare) mutate(ctx context.Context, t svc.Target, do func(tx *sql.Tx) error) error {
	tx, err := b.write.BeginTx(ctx, readCommitted)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := do(tx); err != nil {
		return err
	}
	if _, err := tx.StmtContext(ctx, b.bump).ExecContext(ctx); err != nil {
		return err
	}
	_, err = tx.StmtContext(ctx, b.change).ExecContext(ctx, 0, t.Kind, t.ID, t.Scope, t.Owner, t.Holder.Kind, t.Holder.ID, 0)
	if err != nil {
		return err
	}
	if b.notify != nil {
		if _, err := tx.StmtContext(ctx, b.notify).ExecContext(ctx, "[]"); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// fromMicro converts a stored time.
func fromMicro(micro int64) time.Time { return time.UnixMicro(micro).UTC() }

var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}
