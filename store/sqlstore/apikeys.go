package sqlstore

import (
	"context"
	"math"
	"time"

	"github.com/extsvc/svc"
)

// CreateAPIKey implements [svc.APIKeyStore].
func (s *Store) CreateAPIKey(ctx context.Context, key svc.APIKey) error {
	target := key.Target()
	return s.change(ctx, "create API key", target, func(ctx context.Context, tx session) error {
		return tx.createKey(ctx, key)
	})
}

func (s session) createKey(ctx context.Context, key svc.APIKey) error {
	return s.create(ctx, `INSERT INTO svc_api_keys (id, holder_kind, holder_id, prefix, description,
		hash, pepper, created_at, revoked_at, expires_at, disabled, last_used_at, scoping_policy_id,
		seal) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
		ON CONFLICT DO NOTHING`,
		key.ID, key.Holder.Kind, key.Holder.ID, key.Prefix, key.Description, key.Hash, key.Pepper,
		key.CreatedAt.UnixMicro(), microOrNull(key.RevokedAt), microOrNull(key.ExpiresAt),
		flag(key.Disabled), microOrNull(key.LastUsedAt), key.ScopingPolicyID, key.Seal)
}

// LockAPIKeys implements [svc.APIKeyStore]. With OneWriter the transaction itself is the lock.
func (s *Store) LockAPIKeys(
	ctx context.Context, holder svc.Identity, most int,
) (live int, err error) {
	err = s.transact(ctx, "lock API keys", func(ctx context.Context, tx session) error {
		if !s.dialect.OneWriter {
			// Writing the row first makes other lockers of it wait. The next statement sees what
			// they have written.
			const lock = `INSERT INTO svc_key_holders (kind, id) VALUES ($1, $2)
				ON CONFLICT (kind, id) DO UPDATE SET id = excluded.id`
			if err := tx.hit(ctx, lock, holder.Kind, holder.ID); err != nil {
				return err
			}
		}
		live, err = tx.countKeys(ctx, holder, most)
		return err
	})
	return live, err
}

// countKeys counts the holder's live keys in an index, and stops at most.
func (s session) countKeys(ctx context.Context, holder svc.Identity, most int) (int, error) {
	n, err := one(ctx, s, scanNumber, `SELECT COUNT(*) FROM (SELECT k.id FROM svc_api_keys k
		WHERE k.holder_kind = $1 AND k.holder_id = $2 AND k.revoked_at IS NULL
		LIMIT ($3 + 0)) live`,
		holder.Kind, holder.ID, most)
	return int(n), err
}

func microOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

const keyColumns = `k.id, k.holder_kind, k.holder_id, k.prefix, k.description, k.hash, k.pepper,
	k.created_at, k.revoked_at, k.expires_at, k.disabled, k.last_used_at, k.scoping_policy_id,
	k.seal`

// APIKeys implements [svc.APIKeyStore].
func (s *Store) APIKeys(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
	after := int64(math.MaxInt64)
	if !page.AfterTime.IsZero() {
		after = page.AfterTime.UnixMicro()
	}
	chunk, err := all(ctx, s.db.reading(), scanKey, `SELECT `+keyColumns+` FROM svc_api_keys k
		WHERE k.holder_kind = $1 AND k.holder_id = $2 AND k.revoked_at IS NULL
			AND (k.created_at, k.id) < ($3, $4)
		ORDER BY k.created_at DESC, k.id DESC LIMIT ($5 + 0)`,
		page.Holder.Kind, page.Holder.ID, after, page.AfterID, page.Limit)
	return chunk, s.fault(ctx, "list API keys", err)
}

const selectKeptValue = `SELECT value FROM svc_kept_values WHERE name = $1`

// KeepValue implements [svc.APIKeyStore].
func (s *Store) KeepValue(ctx context.Context, name string, value []byte) ([]byte, error) {
	kept, err := oneOrNil(ctx, s.db.reading(), scanBytes, selectKeptValue, name)
	if err == nil && kept != nil {
		return *kept, nil
	}
	if err != nil {
		return nil, s.fault(ctx, "keep value", err)
	}
	err = s.change(ctx, "keep value", svc.Target{}, func(ctx context.Context, tx session) error {
		n, err := tx.exec(ctx, `INSERT INTO svc_kept_values (name, value) VALUES ($1, $2)
			ON CONFLICT DO NOTHING`, name, value)
		if err != nil {
			return err
		}
		if kept, err = oneOrNil(ctx, tx, scanBytes, selectKeptValue, name); err == nil && n == 0 {
			return errUnchanged
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return *kept, nil
}

func scanBytes(row scanner) (b []byte, err error) {
	err = row.Scan(&b)
	return b, err
}

func scanKey(row scanner) (svc.APIKey, error) {
	var key keyRow
	err := row.Scan(key.columns()...)
	return key.apiKey(), err
}

// keyRow holds the columns of a key.
type keyRow struct {
	svc.APIKey
	created                   int64
	revoked, expires, lastUse *int64
}

func (r *keyRow) columns() []any {
	return []any{orZero[string]{&r.ID}, orZero[svc.Kind]{&r.Holder.Kind},
		orZero[string]{&r.Holder.ID}, orZero[string]{&r.Prefix}, &r.Description, &r.Hash,
		orZero[string]{&r.Pepper}, orZero[int64]{&r.created}, &r.revoked,
		&r.expires, orZero[bool]{&r.Disabled}, &r.lastUse,
		orZero[string]{&r.ScopingPolicyID}, &r.Seal}
}

func (r *keyRow) apiKey() svc.APIKey {
	key := r.APIKey
	key.CreatedAt = fromMicro(r.created)
	key.RevokedAt = fromMicroOrNull(r.revoked)
	key.ExpiresAt = fromMicroOrNull(r.expires)
	key.LastUsedAt = fromMicroOrNull(r.lastUse)
	return key
}

func fromMicroOrNull(micro *int64) time.Time {
	if micro == nil {
		return time.Time{}
	}
	return fromMicro(*micro)
}
