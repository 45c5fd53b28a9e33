package sqlstore

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/extsvc/svc"
)

// CreateAPIKey implements [svc.APIKeyStore].
func (s *Store) CreateAPIKey(ctx context.Context, key svc.APIKey) error {
	target := key.Target()
	return s.change(ctx, "create API key", target, func(ctx context.Context, tx session) error {
		// Without ON CONFLICT a taken id is an error, so no caller needs the number of rows.
		return tx.later(ctx, nil, `INSERT INTO svc_api_keys (id, holder_kind, holder_id, prefix,
			description, hash, pepper, created_at, revoked_at, expires_at, disabled, last_used_at,
			scoping_policy_id, seal, rate_per_second, rate_burst)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`,
			key.ID, key.Holder.Kind, key.Holder.ID, key.Prefix, key.Description, key.Hash,
			key.Pepper, key.CreatedAt.UnixMicro(), microOrNull(key.RevokedAt),
			microOrNull(key.ExpiresAt), flag(key.Disabled), microOrNull(key.LastUsedAt),
			key.ScopingPolicyID, key.Seal, nullIfZero(key.Rate.PerSecond),
			nullIfZero(key.Rate.Burst))
	})
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
			if err := tx.later(ctx, nil, lock, holder.Kind, holder.ID); err != nil {
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

func nullIfZero[T comparable](value T) any {
	var zero T
	if value == zero {
		return nil
	}
	return value
}

const keyColumns = `k.id, k.holder_kind, k.holder_id, k.prefix, k.description, k.hash, k.pepper,
	k.created_at, k.revoked_at, k.expires_at, k.disabled, k.last_used_at, k.scoping_policy_id,
	k.seal, k.rate_per_second, k.rate_burst`

// APIKeys implements [svc.APIKeyStore].
func (s *Store) APIKeys(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
	query, args := listKeys(page)
	chunk, err := all(ctx, s.db.reading(), scanKey, query, args...)
	return chunk, s.fault(ctx, "list API keys", err)
}

// listKeys returns a query for the keys of a holder, of a policy or of all. Each kind has an index
// in the order of the list, but sorts the keys of one holder or policy by expiry or last use. Two
// of the kinds state what is true of each of their keys: so no planner takes another kind's index.
func listKeys(page svc.APIKeyPage) (query string, args parameters) {
	text := append(make([]string, 0, 32),
		`SELECT `+keyColumns+` FROM svc_api_keys k WHERE k.revoked_at IS NULL`)
	where := func(condition string, value any) {
		text = append(text, ` AND `, condition, args.add(value))
	}
	switch {
	case page.Holder != svc.Identity{}:
		where(`k.holder_kind = `, page.Holder.Kind)
		where(`k.holder_id = `, page.Holder.ID)
	case page.ScopingPolicyID != "":
		text = append(text, ` AND k.scoping_policy_id <> ''`)
	default:
		text = append(text, ` AND k.id <> ''`)
	}
	if page.ScopingPolicyID != "" {
		where(`k.scoping_policy_id = `, page.ScopingPolicyID)
	}
	by, behind, order, after := `k.created_at`, `, k.id) < (`, ` DESC`, int64(math.MaxInt64)
	until := page.ExpireBefore
	if !until.IsZero() {
		by = `k.expires_at`
	} else if until = page.UnusedSince; !until.IsZero() {
		by = `k.last_use`
	}
	if !until.IsZero() {
		behind, order, after = `, k.id) > (`, ``, math.MinInt64
		where(by+` < `, until.UnixMicro())
	}
	if !page.AfterTime.IsZero() {
		after = page.AfterTime.UnixMicro()
	}
	text = append(text, ` AND (`, by, behind, args.add(after), `, `, args.add(page.AfterID),
		`) ORDER BY `, by, order, `, k.id`, order, ` LIMIT (`, args.add(page.Limit), ` + 0)`)
	return strings.Join(text, ""), args
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
		orZero[string]{&r.ScopingPolicyID}, &r.Seal,
		orZero[float64]{&r.Rate.PerSecond}, orZero[int]{&r.Rate.Burst}}
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

// ChangeAPIKey implements [svc.APIKeyStore].
func (s *Store) ChangeAPIKey(
	ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error),
) error {
	target := svc.APIKey{ID: id, Holder: holder}.Target()
	return s.change(ctx, "change API key", target, func(ctx context.Context, tx session) error {
		key, err := tx.lockKey(ctx, holder, id)
		if err != nil {
			return err
		}
		if err := ask(change, &key); err != nil {
			return err
		}
		return tx.later(ctx, nil, `UPDATE svc_api_keys SET description = $1, expires_at = $2,
			disabled = $3, revoked_at = $4, hash = $5, pepper = $6, seal = $7,
			rate_per_second = $8, rate_burst = $9 WHERE id = $10`,
			key.Description, microOrNull(key.ExpiresAt), flag(key.Disabled),
			microOrNull(key.RevokedAt), key.Hash, key.Pepper, key.Seal,
			nullIfZero(key.Rate.PerSecond), nullIfZero(key.Rate.Burst), id)
	})
}

// lockKey reads the holder's key; a revoked key is ErrNotFound. Writing the row first makes other
// changes of the key wait, in every database.
func (s session) lockKey(ctx context.Context, holder svc.Identity, id string) (svc.APIKey, error) {
	err := s.later(ctx, found, `UPDATE svc_api_keys SET disabled = disabled
		WHERE id = $1 AND holder_kind = $2 AND holder_id = $3 AND revoked_at IS NULL`,
		id, holder.Kind, holder.ID)
	if err != nil {
		return svc.APIKey{}, err
	}
	return one(ctx, s, scanKey, `SELECT `+keyColumns+` FROM svc_api_keys k WHERE k.id = $1`, id)
}

// RevokeAPIKeys implements [svc.APIKeyStore].
func (s *Store) RevokeAPIKeys(
	ctx context.Context, holder svc.Identity, at time.Time, limit int,
) (ids []string, err error) {
	err = s.changeMany(ctx, "revoke API keys", func(
		ctx context.Context, tx session,
	) ([]svc.Target, error) {
		if ids, err = tx.revokeKeys(ctx, holder, at, limit); err != nil {
			return nil, err
		}
		if len(ids) == 0 {
			return nil, errUnchanged
		}
		targets := make([]svc.Target, len(ids))
		for i, id := range ids {
			targets[i] = svc.APIKey{ID: id, Holder: holder}.Target()
		}
		return targets, nil
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// revokeKeys revokes the holder's live keys, limit of them at most. It repeats its statement: while
// one waits, other callers may revoke some of its keys, so it may revoke too few.
func (s session) revokeKeys(
	ctx context.Context, holder svc.Identity, at time.Time, limit int,
) (ids []string, err error) {
	for {
		some, err := all(ctx, s, scanText,
			`UPDATE svc_api_keys SET revoked_at = $1, hash = NULL, seal = NULL
			WHERE id IN (SELECT k.id FROM svc_api_keys k
				WHERE k.holder_kind = $2 AND k.holder_id = $3 AND k.revoked_at IS NULL
				ORDER BY k.created_at DESC, k.id DESC LIMIT ($4 + 0))
			AND revoked_at IS NULL RETURNING id`,
			at.UnixMicro(), holder.Kind, holder.ID, limit-len(ids))
		if err != nil {
			return nil, err
		}
		if ids = append(ids, some...); len(ids) == limit {
			return ids, nil
		}
		if left, err := s.countKeys(ctx, holder, 1); err != nil || left == 0 {
			return ids, err
		}
	}
}

// UseAPIKeys implements [svc.APIKeyStore]. It writes rows in one order, so that callers that write
// the same rows seldom deadlock.
func (s *Store) UseAPIKeys(ctx context.Context, uses []svc.KeyUse) error {
	uses = slices.SortedFunc(slices.Values(uses), func(a, b svc.KeyUse) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.ID, b.ID))
	})
	return s.transact(ctx, "write uses of API keys", func(ctx context.Context, tx session) error {
		for from := 0; from < len(uses); {
			at, rest := uses[from].At, uses[from:]
			differs := func(u svc.KeyUse) bool { return !u.At.Equal(at) }
			if end := slices.IndexFunc(rest, differs); end >= 0 {
				rest = rest[:end]
			}
			n := s.dialect.rowsAtOnce(len(rest))
			if _, err := tx.exec(ctx, useKeys(n), useArgs(at, rest[:n])...); err != nil {
				return err
			}
			from += n
		}
		return nil
	})
}

func useKeys(rows int) string {
	var b strings.Builder
	b.WriteString(`UPDATE svc_api_keys SET last_used_at = $1
		WHERE (last_used_at IS NULL OR last_used_at < $1) AND id IN (`)
	for row := range rows {
		b.WriteString("$" + strconv.Itoa(2+row) + ", ")
	}
	return strings.TrimSuffix(b.String(), ", ") + ")"
}

func useArgs(at time.Time, uses []svc.KeyUse) []any {
	args := []any{at.UnixMicro()}
	for _, use := range uses {
		args = append(args, use.ID)
	}
	return args
}
