package svc

import (
	"context"
	"errors"
	"fmt"

	"github.com/extsvc/svc/internal/seal"
)

// newSealer returns what seals the tokens of sources: nil where there is no key.
func newSealer(config SourceConfig) (*seal.Sealer, error) {
	if config.SealingKey == nil && len(config.OldSealingKeys) == 0 {
		return nil, nil
	}
	if config.SealingKey == nil {
		return nil, errors.New("svc: Config.Sources.OldSealingKeys: are given without a SealingKey")
	}
	sealer, err := seal.New(config.SealingKey)
	if err != nil {
		return nil, fmt.Errorf("svc: Config.Sources.SealingKey: %w", err)
	}
	for i, old := range config.OldSealingKeys {
		if sealer, err = sealer.WithOld(old); err != nil {
			return nil, fmt.Errorf("svc: Config.Sources.OldSealingKeys[%d]: %w", i, err)
		}
	}
	return sealer, nil
}

// ResealSources seals the tokens of the server's sources that are under one of Config.Sources.OldSealingKeys anew, under its
// SealingKey, and returns how many those were, beside an error too. It may run in several processes, and again after a
// failure: what is done stays done. When it returns 0 and no error, and no process seals under them any more, the old
// keys can go. For [Host] alone. UpdatedAt stays and there is no event: nothing has changed for anybody.
//
// A token that no key opens stays as it is, and the others are resealed all the same. Errors: CodeForbidden; CodeInternal for
// each token that no key opens, naming its source, joined. A fault of the store ends it, and is the error then.
func (s *Service) ResealSources(ctx context.Context, by Principal) (int, error) {
	if by.Kind != KindHost {
		return 0, forbidden("only the host application reseals the tokens of sources")
	}
	var lost []error
	resealed := 0
	for source, err := range s.Sources(ctx, by) {
		done := false
		if err == nil {
			done, err = s.resealSource(ctx, source)
		}
		switch {
		case errors.Is(err, seal.ErrOpen):
			lost = append(lost, err)
		case err != nil:
			return resealed, err
		case done:
			resealed++
		}
	}
	return resealed, errors.Join(lost...)
}

// resealSource reseals the token of a source that was listed, as the source is now. Where there is nothing to do, and that is
// everywhere the second time, it costs no transaction.
func (s *Service) resealSource(ctx context.Context, listed Source) (done bool, err error) {
	if needed, err := s.reseal(&listed); err == nil && !needed {
		return false, nil
	}
	err = s.store.ChangeSource(ctx, listed.SourceKey, func(source *Source) (bool, error) {
		write, err := s.reseal(source)
		done = write // in the last call
		return write, err
	})
	if errors.Is(err, ErrNotFound) {
		return false, nil // removed meanwhile
	} else if err != nil {
		return false, fault("reseal source", err)
	}
	return done, nil
}

// reseal gives source its token under the current key, and reports whether it was under another.
func (s *Service) reseal(source *Source) (bool, error) {
	if !source.HasAuth() {
		return false, nil
	}
	again, err := s.sealer.Reseal(source.SealedToken, source.binding())
	if err != nil {
		return false, sourceTokenLost(source.Name, err)
	}
	if again == nil {
		return false, nil
	}
	source.SealedToken = again
	return true, nil
}
