package memstore

import (
	"bytes"
	"context"
	"time"

	"github.com/extsvc/svc"
)

// Answer implements [svc.AnswerStore].
func (s *Store) Answer(ctx context.Context, key []byte, now time.Time) (svc.KeptAnswer, error) {
	if err := s.lock(ctx); err != nil {
		return svc.KeptAnswer{}, err
	}
	defer s.mu.Unlock()
	answer, err := find(s.answers, string(key), cloneAnswer)
	if err == nil && !answer.ExpiresAt.After(now) {
		return svc.KeptAnswer{}, svc.ErrNotFound
	}
	return answer, err
}

// KeepAnswer implements [svc.AnswerStore].
func (s *Store) KeepAnswer(ctx context.Context, answer svc.KeptAnswer, now time.Time) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if kept, there := s.answers[string(answer.Key)]; there && kept.ExpiresAt.After(now) {
		return svc.ErrExists
	}
	for key, kept := range s.answers {
		if !kept.ExpiresAt.After(now) {
			drop(s, s.answers, key)
		}
	}
	put(s, s.answers, string(answer.Key), cloneAnswer(answer))
	return nil
}

func cloneAnswer(answer svc.KeptAnswer) svc.KeptAnswer {
	answer.Key, answer.Request = bytes.Clone(answer.Key), bytes.Clone(answer.Request)
	answer.Data = bytes.Clone(answer.Data)
	return answer
}
