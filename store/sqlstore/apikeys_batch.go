package sqlstore

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"math"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/batching"
)

// AddKeys adds keys of concurrent callers together. It is AddAPIKeys of package postgres, for the
// Service: the database has many writers.
//
// One trip carries the whole transaction. So its conditions are part of its statements.
func (s *Store) AddKeys(
	ctx context.Context, b batching.Keys[svc.APIKey, svc.Event],
) (added []bool, err error) {
	var batch *keyBatch
	var found map[string]bool
	err = s.transact(ctx, "add API keys", func(ctx context.Context, tx session) (err error) {
		if batch == nil { // the function may run again
			if batch, err = newKeyBatch(b.Take(), b.Audit); err != nil {
				return err
			}
		}
		if found = map[string]bool{}; len(batch.ids) == 0 {
			return errUnchanged
		}
		if err = tx.later(ctx, nil, forBatch); err == nil && batch.latest > 0 {
			err = tx.later(ctx, nil, relyOnAccess)
		}
		for _, step := range [][2]string{
			{addHolders, batch.rows}, {lockHolders, batch.rows}, {lockCallers, batch.callers},
		} {
			if err == nil {
				err = tx.later(ctx, nil, step[0], step[1])
			}
		}
		if err != nil {
			return err
		}
		from := s.states.before(batch.since)
		_, lanes := s.dialect.behind(from)
		return tx.eachLater(ctx, func(row scanner) (bool, error) {
			id, err := scanValue[string](row)
			found[id] = true
			return false, err
		}, addKeys, lanes, batch.rows, from.generation, b.Most, microOrNull(b.ValidAt), batch.latest)
	})
	if sqlState(err) == lockNotAvailable {
		found, err = nil, nil
	}
	if batch == nil || err != nil {
		return nil, err
	}
	for _, id := range batch.ids {
		added = append(added, found[id])
	}
	return added, nil
}

// keyBatch has the parameters of the statements of AddKeys.
type keyBatch struct {
	ids           []string
	rows, callers string // JSON
	since, latest int64  // the earliest and the latest of the keys
}

func newKeyBatch(keys []batching.Key[svc.APIKey, svc.Event], audit bool) (*keyBatch, error) {
	b := &keyBatch{since: math.MaxInt64}
	callers, rows := []string{}, make([][]any, len(keys))
	for i, k := range keys {
		b.ids = append(b.ids, k.Key.ID)
		if k.Since > 0 {
			b.since, b.latest = min(b.since, k.Since), max(b.latest, k.Since)
		}
		if k.Caller != "" {
			callers = append(callers, k.Caller)
		}
		var err error
		if rows[i], err = rowOfKey(k, audit); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(rows)
	ids, failed := json.Marshal(callers)
	b.rows, b.callers = string(text), string(ids)
	return b, cmp.Or(err, failed)
}

// rowOfKey returns a row of addKeys. JSON has no bytes: theirs are hexadecimal.
func rowOfKey(k batching.Key[svc.APIKey, svc.Event], audit bool) ([]any, error) {
	key, event := k.Key, []byte(nil)
	if audit {
		var err error
		if event, err = json.Marshal(inQueue(k.Event)); err != nil {
			return nil, err
		}
	}
	return []any{
		key.ID, key.Holder.Kind, key.Holder.ID, key.Prefix, key.Description, key.Pepper,
		key.CreatedAt.UnixMicro(), microOrNull(key.ExpiresAt), flag(key.Disabled),
		key.ScopingPolicyID, nullIfZero(key.Rate.PerSecond), nullIfZero(key.Rate.Burst),
		nullIfZero(key.SuccessorID), hexOrNull(key.Hash), hexOrNull(key.Seal), k.Since, k.Caller,
		string(event),
	}, nil
}

func hexOrNull(b []byte) any {
	if b == nil {
		return nil
	}
	return hex.EncodeToString(b)
}

// The statements of AddKeys. $1 is a JSON array of keys, or of the ids of callers' keys; of addKeys, $2.
// lockHolders and lockCallers leave what they have locked to the last one, whose snapshot is behind
// these locks: what it could lock itself may have changed since.
const (
	// Locks that cannot be skipped are waited for a moment. The planner expects so many JSON elements
	// that it may compile the statements, which takes far longer than they do.
	forBatch = `SELECT set_config('lock_timeout', '50ms', true), set_config('jit', 'off', true)`

	addHolders = `INSERT INTO svc_key_holders (kind, id)
		SELECT DISTINCT value->>1, value->>2 FROM jsonb_array_elements($1) ORDER BY 1, 2
		ON CONFLICT (kind, id) DO NOTHING`
	lockHolders = `SELECT set_config('svc.holders', CAST(COALESCE(jsonb_agg(name), '[]') AS TEXT), true)
		FROM (SELECT kind || ' ' || id AS name FROM svc_key_holders
			WHERE kind = ANY (ARRAY(SELECT value->>1 FROM jsonb_array_elements($1)))
			AND id = ANY (ARRAY(SELECT value->>2 FROM jsonb_array_elements($1)))
			FOR UPDATE SKIP LOCKED) free`
	lockCallers = `SELECT set_config('svc.callers', CAST(COALESCE(jsonb_agg(id), '[]') AS TEXT), true)
		FROM (SELECT id FROM svc_api_keys WHERE revoked_at IS NULL
			AND id = ANY (ARRAY(SELECT jsonb_array_elements_text($1))) FOR SHARE SKIP LOCKED) free`
	// changed is what has changed since the state of the lanes $1, whose generation is $3. still says
	// whether that is all, no caller was judged by a later state ($6), as before the database was
	// restored, and no caller's rights depend on it.
	addKeys = `WITH changed AS MATERIALIZED (SELECT f.changed FROM svc_generation g
			CROSS JOIN LATERAL ` + laneChanges + `),
		targets AS MATERIALIZED (SELECT t.value->>'Kind' AS kind, t.value->>'ID' AS id FROM changed
			CROSS JOIN LATERAL jsonb_array_elements(CAST(changed AS JSONB)->'Targets') t),
		still AS MATERIALIZED (SELECT SUM(value) >= CAST($6 AS BIGINT)
			AND SUM(value) - (SELECT COUNT(*) FROM changed) = CAST($3 AS BIGINT) AND NOT EXISTS
			(SELECT FROM targets WHERE kind NOT IN ('', 'api_key', 'source', 'template')) AS allowed
			FROM svc_generation),
		keys AS (SELECT value AS k, row_number() OVER (PARTITION BY value->>1, value->>2) AS place
			FROM jsonb_array_elements($2)),
		free AS MATERIALIZED (SELECT k FROM keys WHERE (k->>15 = '0' OR (SELECT allowed FROM still)
				AND k->>16 NOT IN (SELECT id FROM targets WHERE kind = 'api_key'))
			AND CAST(current_setting('svc.holders') AS JSONB) ? concat(k->>1, ' ', k->>2)
			AND (k->>16 = '' OR CAST(current_setting('svc.callers') AS JSONB) ? (k->>16))
			AND place + (SELECT COUNT(*) FROM (SELECT FROM svc_api_keys h
				WHERE h.holder_kind = k->>1 AND h.holder_id = k->>2 AND h.revoked_at IS NULL
				AND (CAST($5 AS BIGINT) IS NULL OR h.expires_at IS NULL OR h.expires_at > $5) LIMIT CAST($4 AS BIGINT)) held) <= $4),
		added AS (INSERT INTO svc_api_keys (id, holder_kind, holder_id, prefix, description, pepper,
				created_at, expires_at, disabled, scoping_policy_id, rate_per_second, rate_burst,
				successor_id, hash, seal)
			SELECT k->>0, k->>1, k->>2, k->>3, k->>4, k->>5, CAST(k->>6 AS BIGINT),
				CAST(k->>7 AS BIGINT), CAST(k->>8 AS BIGINT), k->>9,
				CAST(k->>10 AS DOUBLE PRECISION), CAST(k->>11 AS BIGINT), k->>12,
				decode(k->>13, 'hex'), decode(k->>14, 'hex') FROM free RETURNING id),
		queued AS (INSERT INTO svc_audit_queue (events)
			SELECT '[' || string_agg(k->>17, ',') || ']' FROM free WHERE k->>17 <> ''
			HAVING COUNT(*) > 0)
		SELECT id FROM added`
)
