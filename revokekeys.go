package svc

import (
	"context"
	"errors"
	"time"

	"github.com/extsvc/svc/internal/tasks"
)

// RevokeAPIKey revokes a holder's key: nothing accepts it after this returns. The caller needs iam:users:write and every
// control-plane right that the holder has. Errors: CodeInvalid, CodeForbidden, CodeNotFound (another's key, too).
func (s *Service) RevokeAPIKey(ctx context.Context, by Principal, holder Identity, id string) error {
	if err := errors.Join(checkID(holderField(holder), holder.ID), checkID("key_id", id)); err != nil {
		return err
	}
	if err := s.authorizeKeys(ctx, by, holder, ActionUsersWrite); err != nil {
		return err
	}
	return s.revoke(ctx, by, holder, id)
}

// RevokeMyAPIKey revokes a key of the calling user. Errors: CodeInvalid, CodeForbidden, CodeNotFound (another's key, too).
func (s *Service) RevokeMyAPIKey(ctx context.Context, by Principal, id string) error {
	if err := checkID("key_id", id); err != nil {
		return err
	}
	if err := authorizeMe(by); err != nil {
		return err
	}
	return s.revoke(ctx, by, by.Identity(), id)
}

func (s *Service) revoke(ctx context.Context, by Principal, holder Identity, id string) error {
	key := APIKey{ID: id, Holder: holder}
	if err := s.storeRevocation(ctx, by, key, s.now()); errors.Is(err, ErrNotFound) {
		return s.noKey(key.Target())
	} else if err != nil {
		return fault("revoke API key", err)
	}
	return nil
}

func (s *Service) storeRevocation(ctx context.Context, by Principal, key APIKey, at time.Time) error {
	return s.mutate(ctx, by, func(ctx context.Context, store Store) ([]Event, error) {
		return happened(at, EventAPIKeyRevoked, key.Target()), store.RevokeAPIKey(ctx, key.Holder, key.ID, at)
	})
}

// RevokeAPIKeys revokes all keys of a holder, and returns how many there were: nothing accepts one
// of them after this returns, nor a key that was issued with one of them. Who may call it, and its
// errors, are those of RevokeAPIKey; that there is no key is no error.
//
// Many keys are revoked a few hundred at a time, each time in a transaction of its own, so that
// others who write need not wait for all of them; in a transaction of the host all are part of
// that. When it fails, or ctx ends, the keys that it has revoked, whose number it returns beside
// the error, stay revoked: call it again for the others.
func (s *Service) RevokeAPIKeys(ctx context.Context, by Principal, holder Identity) (int, error) {
	if err := checkID(holderField(holder), holder.ID); err != nil {
		return 0, err
	}
	if err := s.authorizeKeys(ctx, by, holder, ActionUsersWrite); err != nil {
		return 0, err
	}
	return s.revokeAll(ctx, by, holder)
}

// RevokeMyAPIKeys revokes all keys of the calling user, the one that it calls with included, and
// returns how many there were: see [Service.RevokeAPIKeys]. Errors: CodeForbidden.
func (s *Service) RevokeMyAPIKeys(ctx context.Context, by Principal) (int, error) {
	if err := authorizeMe(by); err != nil {
		return 0, err
	}
	return s.revokeAll(ctx, by, by.Identity())
}

// revokeChunk is how many keys are revoked in one transaction at most.
const revokeChunk = 256

// revokeAll revokes chunks of a holder's keys until none is left. No key that one of them issues
// meanwhile survives it: that takes the lock of the holder's keys, and looks whether its own key is
// revoked. So it commits before a chunk takes the lock, and the chunk sees the new key; or it comes
// after, and finds its own key revoked once the last chunk is committed.
//
// Between two chunks others get as much time as the last one took, because SQLite does not queue
// writers of several processes.
func (s *Service) revokeAll(ctx context.Context, by Principal, holder Identity) (revoked int, err error) {
	// A holder without keys is not locked: the lock may leave its id in the store, and the id may
	// be a key, pasted into the wrong place.
	if some, err := s.store.APIKeys(ctx, APIKeyPage{Holder: holder, Limit: 1}); err != nil {
		return 0, fault("revoke API keys", err)
	} else if len(some) == 0 {
		return 0, s.catchUp(ctx)
	}
	for {
		began := time.Now()
		n, err := s.revokeSome(ctx, by, holder)
		revoked += n
		if err != nil {
			return revoked, fault("revoke API keys", err)
		}
		if n < revokeChunk {
			return revoked, s.catchUp(ctx)
		}
		if s.copies != nil {
			tasks.Wait(ctx, time.After(time.Since(began)))
		}
	}
}

// revokeSome revokes a chunk of a holder's keys, and returns how many there were. It does not judge
// the caller's key again: a chunk may have revoked that very key, and a revocation never waits for
// an Apply.
func (s *Service) revokeSome(ctx context.Context, by Principal, holder Identity) (n int, err error) {
	err = s.mutateLocked(ctx, by, Principal{}, holder, func(ctx context.Context, tx Store, _ int) (events []Event, err error) {
		now := s.now()
		ids, err := tx.RevokeAPIKeys(ctx, holder, now, revokeChunk)
		for _, id := range ids {
			events = append(events, happened(now, EventAPIKeyRevoked, APIKey{ID: id, Holder: holder}.Target())...)
		}
		n = len(ids)
		return events, err
	})
	return n, err
}

// catchUp uses no copy that is older than the store is now: another call may have revoked keys, too, and not have come to drop their
// copies yet.
func (s *Service) catchUp(ctx context.Context) error {
	if s.copies == nil {
		return nil
	}
	changes, err := s.changes(ctx, s.copies.applied.Load())
	if err != nil {
		return fault("read changes", err)
	}
	s.copies.hear(changes.Generation)
	return nil
}

// RevokeLeaked revokes those of the tokens that are keys issued here, and returns them: for whoever is told of tokens that
// were found where they should not be, by a secret scanner. A token counts only when it is a key whole, secret included, so
// that nobody can revoke a key by its prefix; an expired or disabled key is revoked, too. What was revoked before is left out.
// For [Host] alone. The keys that it has revoked are returned beside an error, too. Errors: CodeForbidden.
func (s *Service) RevokeLeaked(ctx context.Context, by Principal, tokens []string) ([]APIKey, error) {
	if by.Kind != KindHost {
		return nil, forbidden("only the host application revokes leaked keys")
	}
	var revoked []APIKey
	for _, leaked := range tokens {
		key, err := s.goodKey(ctx, leaked)
		if err != nil {
			return revoked, err
		}
		if key == nil {
			continue
		}
		key.RevokedAt, key.Hash, key.Seal = s.now(), nil, nil
		if err := s.storeRevocation(ctx, by, *key, key.RevokedAt); errors.Is(err, ErrNotFound) {
			s.forget(key.Target())
			continue
		} else if err != nil {
			return revoked, fault("revoke API key", err)
		}
		revoked = append(revoked, *key)
	}
	return revoked, nil
}

// goodKey reads the key that a text is, or nil when it is none that was issued here, or was revoked.
func (s *Service) goodKey(ctx context.Context, text string) (*APIKey, error) {
	c, ours := s.keys.claim(text)
	if !ours || !c.good {
		return nil, nil
	}
	ring, err := s.ring(ctx)
	if err != nil {
		return nil, err
	}
	if !ring.issued(c) {
		return nil, nil
	}
	snapshot, err := s.store.Access(ctx, AccessQuery{KeyID: c.ID})
	if err != nil {
		return nil, fault("read API key", err)
	}
	key := snapshot.Key
	if key == nil || !key.RevokedAt.IsZero() || !ring.matches(c, ring.copyOf(key)) {
		s.forget(APIKey{ID: c.ID}.Target())
		return nil, nil
	}
	return key, nil
}
