package storetest

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/extsvc/svc"
)

var answerFaults = map[string]func(*store){
	"an answer is read as text": func(s *store) {
		s.answer = func(ctx context.Context, key []byte, now time.Time) (svc.KeptAnswer, error) {
			answer, err := s.FullStore.Answer(ctx, key, now)
			answer.Request = bytes.ToValidUTF8(answer.Request, nil)
			return answer, err
		}
	},
	"answers do not expire": func(s *store) {
		s.answer = func(ctx context.Context, key []byte, _ time.Time) (svc.KeptAnswer, error) {
			return s.FullStore.Answer(ctx, key, at(0))
		}
	},
	"an expired answer blocks a new one": func(s *store) {
		s.keepAnswer = func(ctx context.Context, answer svc.KeptAnswer, now time.Time) error {
			if _, err := s.FullStore.Answer(ctx, answer.Key, at(0)); err == nil {
				return svc.ErrExists
			}
			return s.FullStore.KeepAnswer(ctx, answer, now)
		}
	},
	"an answer replaces another": func(s *store) {
		s.keepAnswer = func(ctx context.Context, answer svc.KeptAnswer, _ time.Time) error {
			return s.FullStore.KeepAnswer(ctx, answer, at(1_000_000))
		}
	},
	"KeepAnswer deletes answers that expire soon": func(s *store) {
		s.keepAnswer = func(ctx context.Context, answer svc.KeptAnswer, now time.Time) error {
			if _, err := s.FullStore.Answer(ctx, answer.Key, now); err == nil {
				return svc.ErrExists
			}
			return s.FullStore.KeepAnswer(ctx, answer, now.Add(15*time.Microsecond))
		}
	},
	"two concurrent KeepAnswer calls succeed": func(s *store) {
		s.keepAnswer = func(ctx context.Context, answer svc.KeptAnswer, now time.Time) error {
			err := s.FullStore.KeepAnswer(ctx, answer, now)
			if errors.Is(err, svc.ErrExists) {
				if kept, read := s.FullStore.Answer(ctx, answer.Key, now); read == nil && kept.ExpiresAt.Equal(answer.ExpiresAt) {
					return nil
				}
			}
			return err
		}
	},
	"an answer raises the generation": func(s *store) {
		s.keepAnswer = func(ctx context.Context, answer svc.KeptAnswer, now time.Time) error {
			if _, err := s.FullStore.KeepValue(ctx, string(answer.Key), nil); err != nil {
				return err
			}
			return s.FullStore.KeepAnswer(ctx, answer, now)
		}
	},
}
