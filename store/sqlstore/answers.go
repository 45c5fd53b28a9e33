package sqlstore

import (
	"context"
	"time"

	"github.com/extsvc/svc"
)

// expiredAtOnce is the most expired answers that one KeepAnswer deletes.
const expiredAtOnce = 100

// Answer implements [svc.AnswerStore].
func (s *Store) Answer(ctx context.Context, key []byte, now time.Time) (svc.KeptAnswer, error) {
	answer, err := one(ctx, s.db.reading(), scanAnswer,
		`SELECT key, request, data, expires_at FROM svc_answers WHERE key = $1 AND expires_at > $2`,
		key, now.UnixMicro())
	return answer, s.fault(ctx, "read answer", err)
}

// KeepAnswer implements [svc.AnswerStore].
func (s *Store) KeepAnswer(ctx context.Context, answer svc.KeptAnswer, now time.Time) error {
	return s.transact(ctx, "keep answer", func(ctx context.Context, tx session) error {
		err := tx.later(ctx, nil, `DELETE FROM svc_answers WHERE key IN
			(SELECT key FROM svc_answers WHERE expires_at <= $1
			ORDER BY expires_at LIMIT ($2 + 0))`,
			now.UnixMicro(), expiredAtOnce)
		if err != nil {
			return err
		}
		return tx.create(ctx, `INSERT INTO svc_answers (key, request, data, expires_at)
			VALUES ($1, $2, $3, $4)
			ON CONFLICT (key) DO UPDATE SET request = excluded.request, data = excluded.data,
				expires_at = excluded.expires_at
			WHERE svc_answers.expires_at <= $5`,
			answer.Key, answer.Request, answer.Data, answer.ExpiresAt.UnixMicro(), now.UnixMicro())
	})
}

func scanAnswer(row scanner) (a svc.KeptAnswer, err error) {
	var expires int64
	err = row.Scan(&a.Key, &a.Request, &a.Data, &expires)
	a.ExpiresAt = fromMicro(expires)
	return a, err
}
