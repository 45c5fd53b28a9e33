package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/extsvc/svc"
)

// CreateAPIKey implements [svc.APIKeyStore].
func (s *Store) CreateAPIKey(ctx context.Context, key svc.APIKey) error {
	return s.transact(ctx, "create API key", func(ctx context.Context, tx session) error {
		// Without ON CONFLICT a taken id is an error, so no caller needs the number of rows.
		return tx.later(ctx, nil, `INSERT INTO svc_api_keys (id, holder_kind, holder_id, prefix,
			description, hash, pepper, created_at, revoked_at, expires_at, disabled, last_used_at,
			scoping_policy_id, seal, rate_per_second, rate_burst, successor_id)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)`,
			key.ID, key.Holder.Kind, key.Holder.ID, key.Prefix, key.Description, key.Hash,
			key.Pepper, key.CreatedAt.UnixMicro(), microOrNull(key.RevokedAt),
			microOrNull(key.ExpiresAt), flag(key.Disabled), microOrNull(key.LastUsedAt),
			key.ScopingPolicyID, key.Seal, nullIfZero(key.Rate.PerSecond),
			nullIfZero(key.Rate.Burst), nullIfZero(key.SuccessorID))
	})
}

// countKeys counts the live keys of a holder in an index, and stops at most. It leaves out those
// that have expired at a time that is not zero.
func countKeys(args *parameters, holder svc.Identity, most int, at time.Time) (query string) {
	query = `SELECT COUNT(*) AS number FROM (SELECT h.id FROM svc_api_keys h
		WHERE h.holder_kind = ` + args.add(holder.Kind) +
		` AND h.holder_id = ` + args.add(holder.ID) + ` AND h.revoked_at IS NULL`
	if !at.IsZero() {
		query += ` AND (h.expires_at IS NULL OR h.expires_at > ` + args.add(at.UnixMicro()) + `)`
	}
	return query + ` LIMIT (` + args.add(most) + ` + 0)) live`
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

const (
	bareKeyColumns = `k.id, k.holder_kind, k.holder_id, k.prefix, k.description, k.created_at,
	k.revoked_at, k.expires_at, k.disabled, k.last_used_at, k.scoping_policy_id, k.rate_per_second,
	k.rate_burst, k.successor_id`
	keyColumns = bareKeyColumns + `, k.hash, k.pepper, k.seal`
)

// APIKeys implements [svc.APIKeyStore].
func (s *Store) APIKeys(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
	query, args := listKeys(page)
	scan := scanKey
	if page.Bare {
		scan = scanBareKey
	}
	chunk, err := all(ctx, s.db.reading(), scan, query, args...)
	return chunk, s.fault(ctx, "list API keys", err)
}

// listKeys returns a query for the keys of a holder, of a policy or of all. Each kind has an index
// in the order of the list, but sorts the keys of one holder or policy by expiry or last use. Two
// of the kinds state what is true of each of their keys: so no planner takes another kind's index.
func listKeys(page svc.APIKeyPage) (query string, args parameters) {
	columns := keyColumns
	if page.Bare {
		columns = bareKeyColumns
	}
	text := append(make([]string, 0, 32),
		`SELECT `, columns, ` FROM svc_api_keys k WHERE k.revoked_at IS NULL`)
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
	kept, err := one(ctx, s.db.reading(), scanValue[[]byte], selectKeptValue, name)
	if !errors.Is(err, svc.ErrNotFound) {
		return kept, s.fault(ctx, "keep value", err)
	}
	err = s.change(ctx, "keep value", svc.Target{}, func(ctx context.Context, tx session) error {
		n, err := tx.exec(ctx, `INSERT INTO svc_kept_values (name, value) VALUES ($1, $2)
			ON CONFLICT DO NOTHING`, name, value)
		if err != nil {
			return err
		}
		if kept, err = one(ctx, tx, scanValue[[]byte], selectKeptValue, name); err == nil && n == 0 {
			return errUnchanged
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return kept, nil
}

func scanKey(row scanner) (key svc.APIKey, err error) {
	err = row.Scan(columnsOfKey(&key)...)
	return key, err
}

func scanBareKey(row scanner) (key svc.APIKey, err error) {
	err = row.Scan(columnsOfBareKey(&key)...)
	return key, err
}

func columnsOfKey(k *svc.APIKey) []any {
	return append(columnsOfBareKey(k), &k.Hash, orZero[string]{&k.Pepper}, &k.Seal)
}

func columnsOfBareKey(k *svc.APIKey) []any {
	return []any{orZero[string]{&k.ID}, orZero[svc.Kind]{&k.Holder.Kind},
		orZero[string]{&k.Holder.ID}, orZero[string]{&k.Prefix}, &k.Description,
		micro{&k.CreatedAt}, micro{&k.RevokedAt}, micro{&k.ExpiresAt}, orZero[bool]{&k.Disabled},
		micro{&k.LastUsedAt}, orZero[string]{&k.ScopingPolicyID}, orZero[float64]{&k.Rate.PerSecond},
		orZero[int]{&k.Rate.Burst}, orZero[string]{&k.SuccessorID}}
}

// ChangeAPIKey implements [svc.APIKeyStore].
func (s *Store) ChangeAPIKey(
	ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error),
) error {
	target := svc.APIKey{ID: id, Holder: holder}.Target()
	return s.change(ctx, "change API key", target, func(ctx context.Context, tx session) error {
		var key svc.APIKey
		err := s.insist(ctx, tx, func() (err error) {
			key, err = tx.lockKey(ctx, holder, id)
			return err
		})
		if err != nil {
			return err
		}
		if err := ask(change, &key); err != nil {
			return err
		}
		return tx.later(ctx, nil, `UPDATE svc_api_keys SET description = $1, expires_at = $2,
			disabled = $3, revoked_at = $4, hash = $5, pepper = $6, seal = $7,
			rate_per_second = $8, rate_burst = $9, successor_id = $10 WHERE id = $11`,
			key.Description, microOrNull(key.ExpiresAt), flag(key.Disabled),
			microOrNull(key.RevokedAt), key.Hash, key.Pepper, key.Seal,
			nullIfZero(key.Rate.PerSecond), nullIfZero(key.Rate.Burst),
			nullIfZero(key.SuccessorID), id)
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
	err = s.mutate(ctx, "revoke API keys", func(ctx context.Context, tx session, m *mutation) error {
		err := s.insist(ctx, tx, func() (err error) {
			ids, err = tx.revokeKeys(ctx, holder, at, limit)
			return err
		})
		if err == nil && len(ids) == 0 {
			err = errUnchanged
		}
		for _, id := range ids {
			m.Targets = append(m.Targets, svc.APIKey{ID: id, Holder: holder}.Target())
		}
		return err
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
		some, err := all(ctx, s, scanValue[string],
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
		var args parameters
		left, err := one(ctx, s, scanValue[int64], countKeys(&args, holder, 1, time.Time{}), args...)
		if err != nil || left == 0 {
			return ids, err
		}
	}
}

// UseAPIKeys implements [svc.APIKeyStore]. It writes rows in one order, so that callers that write
// the same rows seldom deadlock.
func (s *Store) UseAPIKeys(ctx context.Context, uses []svc.LastUse) error {
	uses = slices.SortedFunc(slices.Values(uses), func(a, b svc.LastUse) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.ID, b.ID))
	})
	return s.transact(ctx, "write uses of API keys", func(ctx context.Context, tx session) error {
		for from := 0; from < len(uses); {
			at, rest := uses[from].At, uses[from:]
			differs := func(u svc.LastUse) bool { return !u.At.Equal(at) }
			if end := slices.IndexFunc(rest, differs); end >= 0 {
				rest = rest[:end]
			}
			n := s.dialect.rowsAtOnce(len(rest))
			query, args := useKeys(at, rest[:n])
			err := s.insist(ctx, tx, func() error {
				_, err := tx.exec(ctx, query, args...)
				return err
			})
			if err != nil {
				return err
			}
			from += n
		}
		return nil
	})
}

// useKeys returns a statement for uses at one time.
func useKeys(at time.Time, uses []svc.LastUse) (query string, args parameters) {
	args = parameters{at.UnixMicro()}
	names := make([]string, len(uses))
	for i, use := range uses {
		names[i] = args.add(use.ID)
	}
	return `UPDATE svc_api_keys SET last_used_at = $1
		WHERE (last_used_at IS NULL OR last_used_at < $1) AND id IN (` +
		strings.Join(names, ", ") + `)`, args
}

// KeyPrefixes counts the keys that are not revoked by their prefix, without the id behind it. It
// reads all keys: it is for a host that looks for keys whose prefix it no longer accepts.
func (s *Store) KeyPrefixes(ctx context.Context) (map[string]int64, error) {
	counts := map[string]int64{}
	err := each(ctx, s.db.reading(), func(row scanner) (bool, error) {
		var prefix string
		var keys int64
		err := row.Scan(&prefix, &keys)
		counts[prefix] = keys
		return false, err
	}, `SELECT substr(prefix, 1, length(prefix) - length(id)), COUNT(*) FROM svc_api_keys
		WHERE revoked_at IS NULL GROUP BY 1`)
	return counts, s.fault(ctx, "count API keys", err)
}
