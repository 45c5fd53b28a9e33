package svc

import (
	"context"
	"errors"
	"time"

	"github.com/extsvc/svc/internal/tasks"
)

// Patch changes some fields of a key of a holder, or of the caller ([Me]). The key must not be
// revoked. The rules for callers are those of [Keys.Issue]. A caller cannot use a key to give that
// same key a later expiry or a higher rate (CodeForbidden).
//
// For a user that Config.KnownUser does not know, Patch disables and describes keys. It does not
// enable them or change their expiry (CodeNotFound). A patch that changes nothing writes nothing
// and reports no event; any other reports [EventAPIKeyChanged]. After Patch returns, a key that it
// disabled is not accepted by this process, and others follow: see [Keys].
//
// The row is read, changed and sealed in one transaction: of two patches at once, the second is
// applied to what the first has written. A row that was edited in the database, or whose pepper is
// gone, is CodeInvalid: Patch would put a valid seal on it. Such a key can only be revoked.
//
// Errors: CodeInvalid, CodeForbidden, CodeNotFound (also for another holder's key),
// CodeUnauthenticated (as Issue).
func (s *Keys) Patch(
	ctx context.Context, by Principal, holder Identity, id string, patch APIKeyPatch,
) (APIKey, error) {
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
	if _, err := authorize(ctx, by, holder); err != nil {
		return APIKey{}, err
	}
	return s.patchKey(ctx, by, by.or(holder), id, patch, now)
}

// patchKey compares before it writes: a repeated patch must raise no generation. A key extends its
// limits only through its own credential, so the check compares by.key, not the holder.
func (s *Keys) patchKey(
	ctx context.Context, by Principal, holder Identity, id string, patch APIKeyPatch, now time.Time,
) (APIKey, error) {
	var patched APIKey
	err := s.commit(ctx, change{by: by, lock: s.lock(&keyLocks{by: by, holder: holder}), write: func(
		ctx context.Context, tx Store,
	) (changed []Event, err error) {
		err = tx.ChangeAPIKey(ctx, holder, id, func(key *APIKey) (bool, error) {
			if err := s.changeable(ctx, key); err != nil {
				return false, err
			}
			if by.key == id {
				if err := patch.byItself(*key); err != nil {
					return false, err
				}
			}
			changed = nil
			if patched = patch.apply(*key); !patched.sameSettings(*key) {
				changed = happened(now, EventAPIKeyChanged, key.Target())
			}
			s.seal(&patched)
			*key = patched
			return changed != nil, nil
		})
		return changed, err
	}})
	if errors.Is(err, ErrNotFound) {
		return APIKey{}, s.noKey(APIKey{ID: id, Holder: holder}.Target())
	} else if err != nil {
		return APIKey{}, fault("change API key", err)
	}
	s.forget(patched.Target()) // even when nothing changed: another call may have written it
	return patched, nil
}

// noKey answers for a key that does not exist, or no longer exists. The answer does not repeat the
// requested id: a caller may have pasted a key there by mistake. It drops the key from the cache:
// another process may have revoked it.
func (s *Keys) noKey(key Target) *Error {
	s.forget(key)
	return notFound("there is no such API key")
}

// Rotate issues a successor to a holder's key that is not revoked. The rules for callers are those
// of [Keys.Issue].
//
// The successor has the same description, narrowing and rate. It is disabled when the old key is.
// It has the same lifetime, counted from now; it never expires when the old key never did. The
// old key stays accepted for overlap, but never longer than before. With overlap 0 it is revoked,
// and this process accepts it no more after Rotate returns. Both changes happen, or neither.
//
// An expired key can be rotated, and its successor is accepted. The successor of an imported key
// has the form of the Service. Reports [EventAPIKeyIssued] for the successor, and then for the old
// key [EventAPIKeyRevoked] (overlap 0) or [EventAPIKeyChanged]. A repeated call rotates once more,
// or finds no key: Rotate takes no idempotency key.
//
// Errors: CodeInvalid (an overlap below 0 or above [MaxKeyOverlap]), CodeForbidden, CodeNotFound
// (also for another holder's key), CodeLimit (with an overlap the old key counts until it is
// revoked), CodeUnauthenticated (as Issue).
func (s *Keys) Rotate(
	ctx context.Context, by Principal, holder Identity, id string, overlap time.Duration,
) (IssuedKey, error) {
	var c checker
	c.holder(holder)
	c.rotation(id, overlap)
	if err := c.err(); err != nil {
		return IssuedKey{}, err
	}
	if _, err := s.authorizeIssue(ctx, by, holder); err != nil {
		return IssuedKey{}, err
	}
	return s.rotate(ctx, by, by.or(holder), id, overlap)
}

// rotate locks and changes the old key before it adds the new one. A taken id undoes both changes,
// and draw tries again with another key.
func (s *Keys) rotate(
	ctx context.Context, by Principal, holder Identity, id string, overlap time.Duration,
) (IssuedKey, error) {
	now := s.now()
	old, action := APIKey{ID: id, Holder: holder}.Target(), EventAPIKeyChanged
	if overlap == 0 {
		action = EventAPIKeyRevoked
	}
	issued, err := s.draw(ctx, holder, func(next *IssuedKey) error {
		locks := &keyLocks{by: by, holder: holder}
		return s.commit(ctx, change{by: by, lock: s.lock(locks), write: func(
			ctx context.Context, tx Store,
		) ([]Event, error) {
			events := happened(now, EventAPIKeyIssued, next.Target())
			events = append(events, happened(now, action, old)...)
			err := tx.ChangeAPIKey(ctx, holder, id, func(old *APIKey) (bool, error) {
				if err := s.changeable(ctx, old); err != nil {
					return false, err
				}
				if overlap > 0 { // without an overlap the number of keys stays the same
					if err := s.room(locks.live); err != nil {
						return false, err
					}
				}
				next.succeed(*old, now)
				if old.retire(now, overlap); overlap > 0 {
					s.seal(old)
				}
				s.seal(&next.APIKey)
				return true, nil
			})
			if err != nil {
				return nil, err
			}
			return events, tx.CreateAPIKey(ctx, next.APIKey)
		}})
	})
	if errors.Is(err, ErrNotFound) {
		return IssuedKey{}, s.noKey(old)
	} else if err != nil {
		return IssuedKey{}, fault("rotate API key", err)
	}
	return issued, nil
}

// Revoke revokes a key of a holder, or of the caller ([Me]). This process does not accept the key
// after Revoke returns, and others follow: see [Keys]. The caller needs iam:users:write and every
// control-plane right of the holder. For Me, the caller must be a user that is not narrowed.
//
// A revocation is final: it erases the key's hash, and the row stays as a trace. Revoke does not
// ask Config.KnownUser. Of two calls for one key, the second is CodeNotFound. Reports
// [EventAPIKeyRevoked].
//
// Errors: CodeInvalid, CodeForbidden, CodeNotFound (also for another holder's key).
func (s *Keys) Revoke(ctx context.Context, by Principal, holder Identity, id string) error {
	if err := errors.Join(checkHolder(holder), checkID("key_id", id)); err != nil {
		return err
	}
	if _, err := s.authorizeKeys(ctx, by, holder, true); err != nil {
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

// storeRevocation revokes a key in one call of the store. It takes none of the locks of locks: a
// revocation must not wait, and needs no count of keys. It also ends a key whose row was edited, so
// it does not ask for changeable.
func (s *Keys) storeRevocation(ctx context.Context, by Principal, key APIKey, at time.Time) error {
	return s.commit(ctx, change{by: by, write: func(
		ctx context.Context, tx Store,
	) ([]Event, error) {
		events := happened(at, EventAPIKeyRevoked, key.Target())
		return events, tx.ChangeAPIKey(ctx, key.Holder, key.ID, func(k *APIKey) (bool, error) {
			k.retire(at, 0)
			return true, nil
		})
	}})
}

// RevokeAll revokes all keys of a holder and returns their number. After it returns, this process
// accepts none of them, nor a key that was issued with one of them. Others follow: see [Keys]. The
// rules for callers and the errors are those of [Keys.Revoke], but a holder without keys is not an
// error. Each key has its own [EventAPIKeyRevoked].
//
// RevokeAll revokes a few hundred keys at a time, each time in its own transaction, so that other
// writers do not wait for all of them. In a transaction of the host, all changes are part of that
// transaction. On an error, or when ctx ends, the keys revoked so far stay revoked, and their
// number is returned with the error: call RevokeAll again for the rest.
func (s *Keys) RevokeAll(ctx context.Context, by Principal, holder Identity) (int, error) {
	if err := checkHolder(holder); err != nil {
		return 0, err
	}
	if _, err := s.authorizeKeys(ctx, by, holder, true); err != nil {
		return 0, err
	}
	return s.revokeAll(ctx, by, by.or(holder))
}

// revokeChunk is the largest number of keys revoked in one transaction. A larger one saves commits,
// but lets other writers wait longer.
const revokeChunk = 256

// revokeAll revokes chunks of a holder's keys until none is left. No key that one of them issues
// meanwhile survives: issuing takes the lock of the holder's keys, and checks whether the caller's
// own key is revoked. If issuing commits before a chunk takes the lock, the chunk sees the new key.
// If it comes later, it finds its own key revoked once the last chunk is committed.
//
// Between two chunks, revokeAll pauses for as long as the last chunk took, because SQLite does not
// queue writers of several processes.
func (s *Keys) revokeAll(
	ctx context.Context, by Principal, holder Identity,
) (revoked int, err error) {
	// Do not lock a holder without keys: the lock may leave its id in the store. The id may be a
	// key that the caller pasted into the wrong place.
	first := APIKeyPage{Holder: holder, KeyQuery: KeyQuery{Limit: 1}}
	if some, err := s.store.APIKeys(ctx, first); err != nil {
		return 0, fault("revoke API keys", err)
	} else if len(some) == 0 {
		return 0, s.catchUp(ctx)
	}
	for {
		began := time.Now()
		n, err := s.revokeChunkOf(ctx, by, holder)
		revoked += n
		if err != nil {
			return revoked, fault("revoke API keys", err)
		}
		if n < revokeChunk {
			return revoked, s.catchUp(ctx)
		}
		if !s.inTransaction {
			tasks.Wait(ctx, time.After(time.Since(began)))
		}
	}
}

// revokeChunkOf revokes a chunk of a holder's keys and returns their number. It does not check the
// caller's key again, because a chunk may have revoked that very key. A revocation never waits for
// an Apply.
func (s *Keys) revokeChunkOf(ctx context.Context, by Principal, holder Identity) (n int, err error) {
	err = s.commit(ctx, change{by: by, lock: s.lock(&keyLocks{holder: holder}), write: func(
		ctx context.Context, tx Store,
	) (events []Event, err error) {
		events, err = revokeSome(ctx, tx, holder, s.now())
		n = len(events)
		return events, err
	}})
	return n, err
}

// revokeSome revokes a chunk of a holder's keys in the transaction of tx, whose lock on these keys
// is taken. It returns an event for each key.
func revokeSome(
	ctx context.Context, tx Store, holder Identity, now time.Time,
) (events []Event, err error) {
	ids, err := tx.RevokeAPIKeys(ctx, holder, now, revokeChunk)
	for _, id := range ids {
		key := APIKey{ID: id, Holder: holder}
		events = append(events, happened(now, EventAPIKeyRevoked, key.Target())...)
	}
	return events, err
}

// catchUp makes cached values older than the store's present state unusable. Another call may also
// have revoked keys, and not yet have dropped them from the cache.
func (s *Keys) catchUp(ctx context.Context) error {
	return fault("read changes", s.copies.CatchUp(ctx))
}

// RevokeLeaked revokes those tokens that are keys issued here, and returns them. It serves reports
// of secret scanners, which find tokens in public places. A token counts only as a whole key with
// its secret, so that nobody can revoke a key by its prefix. Expired and disabled keys are revoked
// as well. Keys revoked earlier are left out.
//
// Only [Host] may call it. On an error, it also returns the keys that it has revoked. The returned
// keys are in the order of tokens, without Hash and Seal. Each key is a transaction of its own with
// an [EventAPIKeyRevoked]. Tokens without the form of a key cost no call of the store.
//
// Errors: CodeForbidden.
func (s *Keys) RevokeLeaked(ctx context.Context, by Principal, tokens []string) ([]APIKey, error) {
	if by.Kind != KindHost {
		return nil, forbidden("only the host application may revoke leaked keys")
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
		key.retire(s.now(), 0)
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

// goodKey reads the key that text contains. It returns nil for a text that is not a key issued
// here, and for a revoked key. It reads the store and not the cache, so that it also finds a key
// that another process issued just now.
func (s *Keys) goodKey(ctx context.Context, text string) (*APIKey, error) {
	c, ours := s.keys.Claim(text)
	if !ours || !c.Good {
		return nil, nil
	}
	if issued, err := s.issued(ctx, c); err != nil || !issued {
		return nil, err
	}
	snapshot, err := s.store.Access(ctx, AccessQuery{KeyID: c.ID})
	if err != nil {
		return nil, fault("read API key", err)
	}
	key := snapshot.Key
	if key == nil || !key.RevokedAt.IsZero() || !s.matches(c, s.copyOf(key)) {
		s.forget(APIKey{ID: c.ID}.Target())
		return nil, nil
	}
	return key, nil
}

// succeed makes the new key k the successor of old. The lifetime is the time from old's CreatedAt
// to its present ExpiresAt, so a patch of the expiry has changed it. Both share Description's
// memory. The seal is the caller's work, after this.
func (k *APIKey) succeed(old APIKey, now time.Time) {
	k.Description, k.ScopingPolicyID = old.Description, old.ScopingPolicyID
	k.Rate, k.Disabled, k.CreatedAt = old.Rate, old.Disabled, now
	if k.ExpiresAt = (time.Time{}); !old.ExpiresAt.IsZero() {
		k.ExpiresAt = now.Add(old.ExpiresAt.Sub(old.CreatedAt))
	}
}

// retire ends k after overlap, or at its own expiry if that is earlier. An overlap of 0 revokes k
// and erases its hash and seal, so that no edit of the row brings the key back.
func (k *APIKey) retire(now time.Time, overlap time.Duration) {
	if overlap == 0 {
		k.RevokedAt, k.Hash, k.Seal = now, nil, nil
		return
	}
	end := now.Add(overlap).Truncate(time.Microsecond)
	if k.ExpiresAt.IsZero() || end.Before(k.ExpiresAt) {
		k.ExpiresAt = end
	}
}
