package svc

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// MaxKeyOverlap is how long a key that was rotated can be accepted beside its successor.
const MaxKeyOverlap = 365 * 24 * time.Hour

// PatchAPIKey changes some fields of a holder's key that is not revoked. The rules for callers are those of [Service.IssueAPIKey].
// For a user that Config.KnownUser does not know, it disables and describes keys, but does not enable them or move their end
// (CodeNotFound). A patch that changes nothing writes nothing. Once it returns, a key that it disabled is no longer accepted. Errors:
// CodeInvalid, CodeForbidden, CodeNotFound (also for another holder's key), CodeUnauthenticated (as IssueAPIKey).
func (s *Service) PatchAPIKey(ctx context.Context, by Principal, holder Identity, id string, patch APIKeyPatch) (APIKey, error) {
	now := s.now()
	var c checker
	c.holder(holder)
	patch.check(&c, id, now)
	if err := c.err(); err != nil {
		return APIKey{}, err
	}
	authorize := s.authorizeIssue
	if !patch.gives() {
		authorize = s.authorizeChange
	}
	if err := authorize(ctx, by, holder); err != nil {
		return APIKey{}, err
	}
	return s.patchKey(ctx, by, holder, id, patch, now)
}

// PatchMyAPIKey changes some fields of a key of the calling user. A key does not move its own end to a later time
// (CodeForbidden), so that a rotated key ends when its overlap does. Errors: as [Service.PatchAPIKey].
func (s *Service) PatchMyAPIKey(ctx context.Context, by Principal, id string, patch APIKeyPatch) (APIKey, error) {
	now := s.now()
	var c checker
	patch.check(&c, id, now)
	if err := c.err(); err != nil {
		return APIKey{}, err
	}
	if err := authorizeMe(by); err != nil {
		return APIKey{}, err
	}
	if patch.gives() {
		if err := s.authorizeMyIssue(ctx, by); err != nil {
			return APIKey{}, err
		}
	}
	return s.patchKey(ctx, by, by.Identity(), id, patch, now)
}

// check adds what is wrong with the patch of a key, and cuts its time to what is kept.
func (p *APIKeyPatch) check(c *checker, id string, now time.Time) {
	c.lookup("key_id", id)
	if p.Description != nil {
		c.optionalText("/description", p.Description.Value, MaxDescriptionLength)
	}
	if p.ExpiresAt != nil {
		at := *p.ExpiresAt
		c.expiry(&at, now)
		p.ExpiresAt = &at
	}
}

// gives reports whether the patch may make a key good for more than it is.
func (p APIKeyPatch) gives() bool { return p.ExpiresAt != nil || p.Disabled != nil && !*p.Disabled }

// prolongs reports whether the patch moves the end of a key to later.
func (p APIKeyPatch) prolongs(key APIKey) bool {
	return p.ExpiresAt != nil && !key.ExpiresAt.IsZero() && (p.ExpiresAt.IsZero() || p.ExpiresAt.After(key.ExpiresAt))
}

// apply returns key as the patch leaves it.
func (p APIKeyPatch) apply(key APIKey) APIKey {
	if p.Description != nil {
		key.Description = p.Description.Value
	}
	if p.ExpiresAt != nil {
		key.ExpiresAt = *p.ExpiresAt
	}
	if p.Disabled != nil {
		key.Disabled = *p.Disabled
	}
	return key
}

func (s *Service) patchKey(ctx context.Context, by Principal, holder Identity, id string, patch APIKeyPatch, now time.Time) (APIKey, error) {
	var patched APIKey
	err := s.mutateKeys(ctx, by, holder, func(ctx context.Context, tx Store, _ int) (changed []Event, err error) {
		err = tx.ChangeAPIKey(ctx, holder, id, func(key *APIKey) (bool, error) {
			if err := s.changeable(ctx, *key); err != nil {
				return false, err
			}
			if by.key == id && patch.prolongs(*key) {
				return false, forbidden("a key does not move its own end to later: use another way in")
			}
			changed = nil
			if patched = patch.apply(*key); !patched.sameSettings(*key) {
				changed = happened(now, EventAPIKeyChanged, key.Target())
			}
			s.keys.seal(&patched)
			*key = patched
			return changed != nil, nil
		})
		return changed, err
	})
	if errors.Is(err, ErrNotFound) {
		return APIKey{}, s.noKey(APIKey{ID: id, Holder: holder}.Target())
	} else if err != nil {
		return APIKey{}, fault("change API key", err)
	}
	s.forget(patched.Target()) // what is so already may be another call's work
	return patched, nil
}

// sameSettings reports whether what a patch may change is the same.
func (k APIKey) sameSettings(other APIKey) bool {
	return equalText(k.Description, other.Description) && k.ExpiresAt.Equal(other.ExpiresAt) && k.Disabled == other.Disabled
}

// noKey is the answer for a key that is not there, or not any more. It does not repeat the id that was asked for, which may be a key,
// pasted into the wrong place.
func (s *Service) noKey(key Target) *Error {
	s.forget(key)
	return notFound("there is no such API key")
}

// RotateAPIKey issues a successor to a holder's key that is not revoked: who may call it is as for
// [Service.IssueAPIKey]. The successor has the same description, is disabled when the old key is,
// and lives as long, from now: one that never expires when the old key never did. The old key is
// accepted for overlap more, but never longer than before; with 0 it is revoked, and nothing
// accepts it after this returns. Both happen, or neither. Errors: CodeInvalid (an overlap below 0
// or above [MaxKeyOverlap]), CodeForbidden, CodeNotFound (another's key, too), CodeLimit (with an
// overlap the old key counts until it is revoked), CodeUnauthenticated (as IssueAPIKey).
func (s *Service) RotateAPIKey(ctx context.Context, by Principal, holder Identity, id string, overlap time.Duration) (IssuedKey, error) {
	var c checker
	c.holder(holder)
	c.rotation(id, overlap)
	if err := c.err(); err != nil {
		return IssuedKey{}, err
	}
	if err := s.authorizeIssue(ctx, by, holder); err != nil {
		return IssuedKey{}, err
	}
	return s.rotate(ctx, by, holder, id, overlap)
}

// RotateMyAPIKey issues a successor to a key of the calling user: see [Service.RotateAPIKey].
// Errors: as there.
func (s *Service) RotateMyAPIKey(ctx context.Context, by Principal, id string, overlap time.Duration) (IssuedKey, error) {
	var c checker
	c.rotation(id, overlap)
	if err := c.err(); err != nil {
		return IssuedKey{}, err
	}
	if err := s.authorizeMyIssue(ctx, by); err != nil {
		return IssuedKey{}, err
	}
	return s.rotate(ctx, by, by.Identity(), id, overlap)
}

func (c *checker) rotation(id string, overlap time.Duration) {
	c.lookup("key_id", id)
	if overlap < 0 || overlap > MaxKeyOverlap {
		c.add("/overlap_seconds", fmt.Sprintf("must be 0 to %d", MaxKeyOverlap/time.Second))
	}
}

func (s *Service) rotate(ctx context.Context, by Principal, holder Identity, id string, overlap time.Duration) (IssuedKey, error) {
	now := s.now()
	old, action := APIKey{ID: id, Holder: holder}.Target(), EventAPIKeyChanged
	if overlap == 0 {
		action = EventAPIKeyRevoked
	}
	issued, err := s.draw(ctx, holder, func(next *IssuedKey) error {
		return s.mutateKeys(ctx, by, holder, func(ctx context.Context, tx Store, live int) ([]Event, error) {
			events := append(happened(now, EventAPIKeyIssued, next.Target()), happened(now, action, old)...)
			return events, tx.RotateAPIKey(ctx, holder, id, func(old *APIKey) (APIKey, error) {
				if err := s.changeable(ctx, *old); err != nil {
					return APIKey{}, err
				}
				if overlap > 0 { // without one the holder has no more keys than before
					if err := s.room(live); err != nil {
						return APIKey{}, err
					}
				}
				next.succeed(*old, now)
				if old.retire(now, overlap); overlap > 0 {
					s.keys.seal(old)
				}
				s.keys.seal(&next.APIKey)
				return next.APIKey, nil
			})
		})
	})
	if errors.Is(err, ErrNotFound) {
		return IssuedKey{}, s.noKey(old)
	} else if err != nil {
		return IssuedKey{}, fault("rotate API key", err)
	}
	return issued, nil
}

// succeed makes k, which is new, the successor of old.
func (k *APIKey) succeed(old APIKey, now time.Time) {
	k.Description, k.ScopingPolicyID, k.Disabled, k.CreatedAt = old.Description, old.ScopingPolicyID, old.Disabled, now
	if k.ExpiresAt = (time.Time{}); !old.ExpiresAt.IsZero() {
		k.ExpiresAt = now.Add(old.ExpiresAt.Sub(old.CreatedAt))
	}
}

// retire ends k after overlap, or earlier when it ends earlier anyway.
func (k *APIKey) retire(now time.Time, overlap time.Duration) {
	if overlap == 0 {
		k.RevokedAt, k.Hash, k.Seal = now, nil, nil
		return
	}
	if end := now.Add(overlap).Truncate(time.Microsecond); k.ExpiresAt.IsZero() || end.Before(k.ExpiresAt) {
		k.ExpiresAt = end
	}
}
