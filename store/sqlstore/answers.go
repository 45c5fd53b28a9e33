package sqlstore

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/extsvc/svc"
)

// expiredAtOnce is the most expired answers that one KeepAnswer deletes.
const expiredAtOnce = 100

// Answer implements [svc.AnswerStore].
func (s *Store) Answer(ctx context.Context, key []byte, now time.Time) (svc.StoredAnswer, error) {
	answer, err := one(ctx, s.db.reading(), scanAnswer,
		`SELECT key, caller, request, data, expires_at FROM svc_answers
			WHERE key = $1 AND expires_at > $2`,
		key, now.UnixMicro())
	return answer, s.fault(ctx, "read answer", err)
}

// KeepAnswer implements [svc.AnswerStore].
func (s *Store) KeepAnswer(ctx context.Context, answer svc.StoredAnswer, now time.Time) error {
	return s.transact(ctx, "keep answer", func(ctx context.Context, tx session) error {
		expired := `SELECT key FROM svc_answers WHERE expires_at <= $1
			ORDER BY expires_at LIMIT ($2 + 0)`
		if !s.dialect.OneWriter { // another transaction may be deleting them, and take long
			expired += ` FOR UPDATE SKIP LOCKED`
		}
		err := tx.later(ctx, nil, `DELETE FROM svc_answers WHERE key IN (`+expired+`)`,
			now.UnixMicro(), expiredAtOnce)
		if err != nil {
			return err
		}
		return tx.create(ctx, `INSERT INTO svc_answers (key, caller, request, data, expires_at)
			VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (key) DO UPDATE SET caller = excluded.caller, request = excluded.request,
				data = excluded.data, expires_at = excluded.expires_at
			WHERE svc_answers.expires_at <= $6`,
			answer.Key, hex.EncodeToString(answer.Caller), answer.Request, answer.Data,
			answer.ExpiresAt.UnixMicro(), now.UnixMicro())
	})
}

// CountAnswers implements [svc.AnswerStore].
func (s *Store) CountAnswers(
	ctx context.Context, caller []byte, now time.Time, most int,
) (int, error) {
	n, err := one(ctx, s.db.reading(), scanValue[int], `SELECT count(*) FROM (SELECT 1 FROM svc_answers
		WHERE caller = $1 AND expires_at > $2 LIMIT ($3 + 0)) AS kept`,
		hex.EncodeToString(caller), now.UnixMicro(), most)
	return n, s.fault(ctx, "count answers", err)
}

// DeleteAnswers implements [svc.AnswerStore].
func (s *Store) DeleteAnswers(ctx context.Context, caller []byte) error {
	return s.transact(ctx, "delete answers", func(ctx context.Context, tx session) error {
		return tx.later(ctx, nil, `DELETE FROM svc_answers WHERE caller = $1`,
			hex.EncodeToString(caller))
	})
}

func scanAnswer(row scanner) (a svc.StoredAnswer, err error) {
	var caller string
	if err = row.Scan(&a.Key, &caller, &a.Request, &a.Data, micro{&a.ExpiresAt}); err != nil {
		return a, err
	}
	a.Caller, err = hex.DecodeString(caller)
	return a, err
}
