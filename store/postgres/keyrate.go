package postgres

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/rate"
)

// KeyRateOptions configure [KeyRate]. The zero value suits a Handler without tenants.
type KeyRateOptions struct {
	// Timeout limits the wait for the database, a connection of the pool included. 0: 1 s.
	Timeout time.Duration
	// Failed decides about a request that could not be counted, for the reason err. To let it
	// through, return the zero Allowance. To refuse it, set Refused and a Next. With an error, the
	// Handler counts in its own memory and logs the error. It may be called concurrently. Nil: err
	// is returned.
	Failed func(r *http.Request, err error) (svc.Allowance, error)
	// Tenant names the tenant of a request, as the Tenant of httpapi's Options does: two tenants
	// may have keys of the same id. Nil: there are no tenants.
	Tenant func(r *http.Request) string
}

// KeyRateTable makes the table that [KeyRate] counts in. A crash of the server empties it.
const KeyRateTable = `CREATE UNLOGGED TABLE IF NOT EXISTS svc_key_rates (
	key TEXT COLLATE "C" PRIMARY KEY, until BIGINT NOT NULL, every BIGINT NOT NULL,
	refused BOOLEAN NOT NULL, wait BIGINT NOT NULL) WITH (fillfactor = 50)`

// KeyRate returns a function for the KeyRate of httpapi's Options. It counts the requests of all
// processes over one database, which need not be that of the Store: together they get exactly what
// one process would allow. The clock is that of the server.
//
// A request takes one round trip, and waits for other requests of the same key only. The table is
// svc_key_rates, in the search path of the pool. When it is missing, the first request makes it: a
// role that may not do so needs [KeyRateTable]. The pool's transactions must be READ COMMITTED,
// which is PostgreSQL's default. The function is safe for concurrent use. The
// pool stays the host's.
func KeyRate(
	pool *pgxpool.Pool, options KeyRateOptions,
) func(r *http.Request, keyID string, limit svc.Rate) (svc.Allowance, error) {
	if options.Timeout == 0 {
		options.Timeout = time.Second
	}
	k := &keyRate{pool: pool}
	return func(r *http.Request, keyID string, limit svc.Rate) (svc.Allowance, error) {
		if options.Tenant != nil {
			keyID = options.Tenant(r) + "/" + keyID
		}
		ctx, cancel := context.WithTimeout(r.Context(), options.Timeout)
		defer cancel()
		left, err := k.take(ctx, keyID, rate.Rate(limit).Bounded())
		if err != nil && options.Failed != nil && r.Context().Err() == nil {
			return options.Failed(r, err)
		}
		return svc.Allowance(left), err
	}
}

type keyRate struct {
	pool  *pgxpool.Pool
	taken atomic.Uint64
}

// take counts a request. When the table is missing, it makes the table first.
func (k *keyRate) take(ctx context.Context, key string, limit rate.Rate) (rate.Taken, error) {
	left, err := k.count(ctx, key, limit)
	if !hasState(err, undefinedTable) {
		return left, err
	}
	// Of processes that make it concurrently, all but one may fail.
	_, making := k.pool.Exec(ctx, KeyRateTable)
	if left, err = k.count(ctx, key, limit); err != nil {
		return left, errors.Join(err, making)
	}
	return left, nil
}

// forgetUnusedEvery is how many requests come before rows of unused keys are deleted.
const forgetUnusedEvery = 1024

func (k *keyRate) count(ctx context.Context, key string, limit rate.Rate) (rate.Taken, error) {
	var (
		batch   pgx.Batch
		refused bool
		wait    int64
	)
	batch.Queue(takeOnce, key, int64(limit.Interval()), int64(limit.Burst)).QueryRow(
		func(row pgx.Row) error { return row.Scan(&refused, &wait) })
	if k.taken.Add(1)%forgetUnusedEvery == 0 {
		batch.Queue(forgetUnused)
	}
	if err := k.pool.SendBatch(ctx, &batch).Close(); err != nil {
		return rate.Taken{}, reason(err)
	}
	return limit.Left(refused, time.Duration(wait)), nil
}

// takeOnce is the algorithm of package rate, in nanoseconds. The row is locked before it is read
// and before the clock is: so of any requests at the same time, it allows as many as one after the
// other.
const takeOnce = `INSERT INTO svc_key_rates AS k (key, until, every, refused, wait)
	SELECT $1::TEXT, ` + nanoseconds + ` + $2::BIGINT, $2::BIGINT, FALSE, $2::BIGINT
	ON CONFLICT (key) DO UPDATE SET (until, every, refused, wait) = (
		SELECT now + after, $2::BIGINT, after = before, after FROM (
			SELECT now, before,
				CASE WHEN before + $2::BIGINT > $2::BIGINT * $3::BIGINT THEN before
					ELSE before + $2::BIGINT END AS after
			FROM (SELECT now, LEAST($2::BIGINT * $3::BIGINT, CASE k.every WHEN $2::BIGINT
				THEN GREATEST(0, k.until - now)
				ELSE (GREATEST(0, k.until - now)::FLOAT8 / k.every * $2::BIGINT)::BIGINT END)
					AS before
				FROM (SELECT ` + nanoseconds + ` AS now OFFSET 0) c OFFSET 0) b) a)
	RETURNING refused, wait`

const nanoseconds = `(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT * 1000`

// forgetUnused deletes rows of keys that have their whole burst again. It waits
// for no other request.
const forgetUnused = `DELETE FROM svc_key_rates WHERE key IN (SELECT key FROM svc_key_rates
	WHERE until < ` + nanoseconds + ` LIMIT 1000 FOR UPDATE SKIP LOCKED)`
