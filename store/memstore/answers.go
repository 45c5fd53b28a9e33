package memstore

import (
	"bytes"
	"context"
	"time"

	"github.com/extsvc/svc"
)

// Answer implements [svc.AnswerStore].
func (s *Store) Answer(ctx context.Context, key []byte, now time.Time) (svc.StoredAnswer, error) {
	if err := s.lock(ctx); err != nil {
		return svc.StoredAnswer{}, err
	}
	defer s.mu.Unlock()
	answer, err := find(s.answers, string(key), cloneAnswer)
	if err == nil && !answer.ExpiresAt.After(now) {
		return svc.StoredAnswer{}, svc.ErrNotFound
	}
	return answer, err
}

// KeepAnswer implements [svc.AnswerStore].
func (s *Store) KeepAnswer(ctx context.Context, answer svc.StoredAnswer, now time.Time) error {
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

// CountAnswers implements [svc.AnswerStore].
func (s *Store) CountAnswers(
	ctx context.Context, caller []byte, now time.Time, most int,
) (n int, err error) {
	if err := s.lock(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	for _, kept := range s.answers {
		if bytes.Equal(kept.Caller, caller) && kept.ExpiresAt.After(now) && n < most {
			n++
		}
	}
	return n, nil
}

// DeleteAnswers implements [svc.AnswerStore].
func (s *Store) DeleteAnswers(ctx context.Context, caller []byte) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for key, kept := range s.answers {
		if bytes.Equal(kept.Caller, caller) {
			drop(s, s.answers, key)
		}
	}
	return nil
}

func cloneAnswer(answer svc.StoredAnswer) svc.StoredAnswer {
	answer.Key, answer.Request = bytes.Clone(answer.Key), bytes.Clone(answer.Request)
	answer.Data, answer.Caller = bytes.Clone(answer.Data), bytes.Clone(answer.Caller)
	return answer
}
