package svc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/extsvc/svc/internal/tasks"
)

// MaxKeyOverlap is how long a key that was rotated can be accepted beside its successor.
const MaxKeyOverlap = 365 * 24 * time.Hour

// Patch changes some fields of a key of a holder, or of the caller ([Me]), that is not revoked. The rules for callers are
// those of [Keys.Issue]. A key does not move its own end to a later time (CodeForbidden).
// For a user that Config.KnownUser does not know, it disables and describes keys, but does not enable them or move their end
// (CodeNotFound). A patch that changes nothing writes nothing. Once it returns, a key that it disabled is no longer accepted. Errors:
// CodeInvalid, CodeForbidden, CodeNotFound (also for another holder's key), CodeUnauthenticated (as IssueAPIKey).
func (s *Keys) Patch(ctx context.Context, by Principal, holder Identity, id string, patch APIKeyPatch) (APIKey, error) {
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
	return s.patchKey(ctx, by, by.or(holder), id, patch, now)
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

func (s *Keys) patchKey(ctx context.Context, by Principal, holder Identity, id string, patch APIKeyPatch, now time.Time) (APIKey, error) {
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
func (s *Keys) noKey(key Target) *Error {
	s.forget(key)
	return notFound("there is no such API key")
}

// Rotate issues a successor to a holder's key that is not revoked: who may call it is as for
// [Keys.Issue]. The successor has the same description, is disabled when the old key is,
// and lives as long, from now: one that never expires when the old key never did. The old key is
// accepted for overlap more, but never longer than before; with 0 it is revoked, and nothing
// accepts it after this returns. Both happen, or neither. Errors: CodeInvalid (an overlap below 0
// or above [MaxKeyOverlap]), CodeForbidden, CodeNotFound (another's key, too), CodeLimit (with an
// overlap the old key counts until it is revoked), CodeUnauthenticated (as IssueAPIKey).
func (s *Keys) Rotate(ctx context.Context, by Principal, holder Identity, id string, overlap time.Duration) (IssuedKey, error) {
	var c checker
	c.holder(holder)
	c.rotation(id, overlap)
	if err := c.err(); err != nil {
		return IssuedKey{}, err
	}
	if err := s.authorizeIssue(ctx, by, holder); err != nil {
		return IssuedKey{}, err
	}
	return s.rotate(ctx, by, by.or(holder), id, overlap)
}

func (c *checker) rotation(id string, overlap time.Duration) {
	c.lookup("key_id", id)
	if overlap < 0 || overlap > MaxKeyOverlap {
		c.add("/overlap_seconds", fmt.Sprintf("must be 0 to %d", MaxKeyOverlap/time.Second))
	}
}

func (s *Keys) rotate(ctx context.Context, by Principal, holder Identity, id string, overlap time.Duration) (IssuedKey, error) {
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

// Revoke revokes a key of a holder, or of the caller ([Me]): nothing accepts it after this returns. The caller needs
// iam:users:write and every control-plane right that the holder has; for Me it must be a user that is not narrowed. Errors: CodeInvalid, CodeForbidden, CodeNotFound (another's key, too).
func (s *Keys) Revoke(ctx context.Context, by Principal, holder Identity, id string) error {
	if err := errors.Join(checkHolder(holder), checkID("key_id", id)); err != nil {
		return err
	}
	if err := s.authorizeKeys(ctx, by, holder, ActionUsersWrite); err != nil {
		return err
	}
	return s.revoke(ctx, by, by.or(holder), id)
}

func (s *Keys) revoke(ctx context.Context, by Principal, holder Identity, id string) error {
	key := APIKey{ID: id, Holder: holder}
	if err := s.storeRevocation(ctx, by, key, s.now()); errors.Is(err, ErrNotFound) {
		return s.noKey(key.Target())
	} else if err != nil {
		return fault("revoke API key", err)
	}
	return nil
}

func (s *Keys) storeRevocation(ctx context.Context, by Principal, key APIKey, at time.Time) error {
	return s.mutate(ctx, by, func(ctx context.Context, store Store) ([]Event, error) {
		return happened(at, EventAPIKeyRevoked, key.Target()), store.RevokeAPIKey(ctx, key.Holder, key.ID, at)
	})
}

// RevokeAll revokes all keys of a holder, and returns how many there were: nothing accepts one
// of them after this returns, nor a key that was issued with one of them. Who may call it, and its
// errors, are those of RevokeAPIKey; that there is no key is no error.
//
// Many keys are revoked a few hundred at a time, each time in a transaction of its own, so that
// others who write need not wait for all of them; in a transaction of the host all are part of
// that. When it fails, or ctx ends, the keys that it has revoked, whose number it returns beside
// the error, stay revoked: call it again for the others.
func (s *Keys) RevokeAll(ctx context.Context, by Principal, holder Identity) (int, error) {
	if err := checkHolder(holder); err != nil {
		return 0, err
	}
	if err := s.authorizeKeys(ctx, by, holder, ActionUsersWrite); err != nil {
		return 0, err
	}
	return s.revokeAll(ctx, by, by.or(holder))
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
func (s *Keys) revokeAll(ctx context.Context, by Principal, holder Identity) (revoked int, err error) {
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
func (s *Keys) revokeSome(ctx context.Context, by Principal, holder Identity) (n int, err error) {
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
func (s *Keys) catchUp(ctx context.Context) error {
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
func (s *Keys) RevokeLeaked(ctx context.Context, by Principal, tokens []string) ([]APIKey, error) {
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
func (s *Keys) goodKey(ctx context.Context, text string) (*APIKey, error) {
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

// DefaultMaxKeysPerHolder is how many API keys that are not revoked a holder has at most, unless
// [KeyConfig].MaxPerHolder says otherwise.
const DefaultMaxKeysPerHolder = 1000

// mutateKeys is mutate for what makes or changes a key of a holder. In the transaction that writes
// it locks the keys of the holder, and judges the caller again: a caller whose key has ended since
// it was authenticated gets CodeUnauthenticated, and nothing is written. live is how many keys of
// the holder are not revoked, counted up to the most that are allowed.
//
// These locks are held until the transaction ends, and each has one job:
//
//   - The lock on changes of access ([AccessStore].ChangeAccess): an Apply that makes the caller inactive comes before or after.
//     It is the first to be taken, because an Apply may be long: nobody's key is locked while this call waits for one.
//   - The lock on the holder's keys ([APIKeyStore].LockAPIKeys): of two that count and then add, one counts what the other has added.
//   - The lock on the caller's own key ([APIKeyStore].ChangeAPIKey): a revocation of it comes before, and is seen, or after.
//
// A bearer of the host's Authenticator, and the host itself, have no key here.
func (s *holders) mutateKeys(ctx context.Context, by Principal, holder Identity, write keyMutation) error {
	return s.mutateLocked(ctx, by, by, holder, write)
}

// keyMutation writes keys of a holder that has live keys, and returns the events.
type keyMutation func(ctx context.Context, tx Store, live int) ([]Event, error)

// mutateLocked is mutateKeys, which judges another principal than the one that signs the events.
func (s *holders) mutateLocked(ctx context.Context, by, judged Principal, holder Identity, write keyMutation) error {
	return s.mutate(ctx, by, func(ctx context.Context, store Store) (events []Event, err error) {
		err = store.Atomically(ctx, func(ctx context.Context, tx Store) error {
			live, err := s.lockKeys(ctx, tx, judged, holder)
			if err != nil {
				return err
			}
			events, err = write(ctx, tx, live)
			return err
		})
		return events, err
	})
}

// lockKeys takes the locks of mutateKeys, judges the caller, and counts the holder's keys.
func (s *holders) lockKeys(ctx context.Context, tx Store, by Principal, holder Identity) (live int, err error) {
	if by.key != "" {
		if err := tx.ChangeAccess(ctx, AccessNames{}, func(Bundle) (Bundle, error) { return Bundle{}, nil }); err != nil {
			return 0, fmt.Errorf("lock access: %w", err)
		}
	}
	if live, err = tx.LockAPIKeys(ctx, holder, s.config.Keys.MaxPerHolder); err != nil || by.key == "" {
		return live, err
	}
	err = tx.ChangeAPIKey(ctx, by.Identity(), by.key, func(*APIKey) (bool, error) { return false, nil })
	if errors.Is(err, ErrNotFound) {
		return 0, s.ended(by)
	} else if err != nil {
		return 0, fmt.Errorf("lock the caller's API key: %w", err)
	}
	return live, s.judge(ctx, tx, by)
}

// judge refuses a caller whose key is not accepted any more, by what store holds now.
func (s *holders) judge(ctx context.Context, store Store, by Principal) error {
	if by.key == "" {
		return nil
	}
	snapshot, err := store.Access(ctx, AccessQuery{KeyID: by.key})
	if err != nil {
		return fault("read the caller's API key", err)
	}
	key := snapshot.Key
	if key == nil || key.Holder != by.Identity() || snapshot.keysRest(key.Holder) ||
		!s.keys.copyOf(key).good(s.config.Now()) || !s.keys.sealed(*key) {
		return s.ended(by)
	}
	return nil
}

// ended is the answer to a caller whose key was accepted a moment ago.
func (s *holders) ended(by Principal) error {
	s.forget(APIKey{ID: by.key, Holder: by.Identity()}.Target())
	return unauthenticated()
}

// keysRest reports whether nobody may act with the keys of a holder, whom the snapshot is about:
// it, or its owner, is inactive, or it is a service account that is gone. A user needs no row.
func (a AccessSnapshot) keysRest(holder Identity) bool {
	switch user, account := a.User, a.ServiceAccount; holder.Kind {
	case KindUser:
		return user != nil && user.Inactive
	case KindServiceAccount:
		return account == nil || account.Inactive || user == nil || user.Inactive
	}
	return true
}

// room refuses one more key to a holder that has as many as are allowed.
func (s *holders) room(live int) error {
	if most := s.config.Keys.MaxPerHolder; live >= most {
		return &Error{Code: CodeLimit, Message: fmt.Sprintf("the holder has %d API keys that are not revoked, and more are not allowed: revoke one first", most)}
	}
	return nil
}
