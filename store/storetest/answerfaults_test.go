//go:build planted

package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/extsvc/svc"
)

var answerFaults = map[string]func(*store){
	"answers do not expire": func(s *store) {
		s.answer = func(ctx context.Context, key []byte, _ time.Time) (svc.StoredAnswer, error) {
			return s.FullStore.Answer(ctx, key, at(0))
		}
	},
	"two concurrent KeepAnswer calls succeed": func(s *store) {
		s.keepAnswer = func(ctx context.Context, answer svc.StoredAnswer, now time.Time) error {
			err := s.FullStore.KeepAnswer(ctx, answer, now)
			if errors.Is(err, svc.ErrExists) {
				if kept, read := s.FullStore.Answer(ctx, answer.Key, now); read == nil && kept.ExpiresAt.Equal(answer.ExpiresAt) {
					return nil
				}
			}
			return err
		}
	},
}
