package svc

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/background"
	"github.com/extsvc/svc/internal/keyring"
)

// Patch changes some fields of a key that is not revoked, of a holder or of the caller ([Me]). The
// rules for callers are those of [Keys.Issue]. A caller cannot use a key to give that same key a
// later expiry or a higher rate (CodeForbidden). For a user that Config.Users.Known does not know,
// Patch disables and describes keys, but does not enable them or change their expiry
// (CodeNotFound).
//
// The row is read, changed and sealed in one transaction. A row that was edited in the database, or
// whose pepper is gone, is CodeInvalid: it can only be revoked. A patch that changes nothing writes
// nothing and reports no event; any other reports [event.APIKeyChanged].
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
	allowed, err := authorize(ctx, by, holder)
	if err != nil {
		return APIKey{}, s.ofKey(ctx, allowed, id, err)
	}
	return s.patchKey(ctx, by, allowed, id, patch, now)
}

// patchKey compares before it writes: a repeated patch must raise no generation. A key extends its
// limits only through its own credential, so the check compares by.key, not the holder.
func (s *Keys) patchKey(
	ctx context.Context, by Principal, allowed basis, id string, patch APIKeyPatch, now time.Time,
) (APIKey, error) {
	var patched APIKey
	holder := allowed.holder
	if patch.ExpiresAt != nil && s.ignoreExpired {
		allowed.most = s.most
	}
	err := s.commit(ctx, change{by: by, basis: &allowed, locks: Locks{Holder: holder}, write: func(
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
			if patch.ExpiresAt != nil && s.uncounted(*key, now) {
				if err := s.room(allowed.live); err != nil {
					return false, err
				}
			}
			changed = nil
			if patched = patch.apply(*key); !patched.sameSettings(*key) {
				changed = happened(now, event.APIKeyChanged, key.Target())
			}
			s.seal(&patched)
			*key = patched
			return changed != nil, nil
		})
		return changed, err
	}})
	if noRow(err) {
		return APIKey{}, s.noKey(APIKey{ID: id, Holder: holder})
	} else if err != nil {
		return APIKey{}, fault("change API key", err)
	}
	s.forget(patched.Target()) // even when nothing changed: another call may have written it
	return patched, nil
}

// noKey answers for a key that does not exist, or no longer exists. The answer does not repeat the
// requested id: a caller may have pasted a key there by mistake. It drops the key from the cache:
// another process may have revoked it.
func (s *Keys) noKey(key APIKey) *Error {
	s.forget(key.Target())
	return unknownKey()
}

// Rotate issues a successor to a holder's key that is not revoked. The rules for callers are those
// of [Keys.Issue].
//
// The successor has the same description, narrowing and rate, and is disabled when the old key is.
// It has the same lifetime, counted from now. The old key stays accepted for the overlap, but never
// longer than before. With overlap 0 it is revoked. Both changes happen, or neither. An expired key
// can be rotated. The successor of an imported key has the form of the Service. To get the same
// answer again, use an IdempotencyKey.
//
// Events: [event.APIKeyIssued] for the successor, and then for the old key [event.APIKeyRevoked]
// (overlap 0) or [event.APIKeyChanged]. Errors: CodeInvalid (an overlap below 0 or above
// [limits.KeyOverlap]), CodeNotFound, CodeExists (it names the successor that the key has; a patch
// that removes the expiry undoes that), CodeLimit (with an overlap the old key counts until it is
// revoked), CodeKeyReused.
func (s *Keys) Rotate(
	ctx context.Context, by Principal, holder Identity, id string, in Rotation,
) (IssuedKey, error) {
	now := s.now()
	var c checker
	c.holder(holder)
	in.check(&c, id)
	if err := c.err(); err != nil {
		return IssuedKey{}, err
	}
	allowed, err := s.authorizeIssue(ctx, by, holder)
	if err != nil {
		return IssuedKey{}, s.ofKey(ctx, allowed, id, err)
	}
	return s.rotate(ctx, rotation{Rotation: in, by: by, basis: allowed, id: id, now: now})
}

// rotation is a checked Rotation of an authorized caller.
type rotation struct {
	Rotation
	by      Principal
	basis   basis
	id      string // of the old key
	now     time.Time
	request idempotentRequest
}

// rotatedAnswer is what the store keeps of a rotation, to answer the same request again.
type rotatedAnswer struct {
	Issued   issuedAnswer
	As       NewAPIKey // the settings of the successor
	Disabled bool
}

// rotate rotates a key, or returns the earlier answer to the same request.
func (s *Keys) rotate(ctx context.Context, r rotation) (issued IssuedKey, err error) {
	holder := r.basis.holder
	r.request, err = s.idempotent(
		r.by, r.basis, r.IdempotencyKey, "rotate", []any{holder, r.id, r.Overlap}, r.now)
	if err != nil {
		return IssuedKey{}, err
	}
	answer, err := once(ctx, r.request, func() (answer rotatedAnswer, err error) {
		issued, err = s.draw(ctx, holder, func(next *IssuedKey) (err error) {
			answer, err = s.replaceKey(ctx, r, next)
			return err
		})
		if noRow(err) {
			return answer, s.noKey(APIKey{ID: r.id, Holder: holder})
		}
		return answer, fault("rotate API key", err)
	})
	if err == nil && answer.Issued.Key != string(issued.Key) { // an earlier request issued it
		issued, err = s.issuedBefore(ctx, holder, answer.As, answer.Issued)
		issued.Disabled = answer.Disabled
		s.seal(&issued.APIKey)
	}
	if err != nil {
		return IssuedKey{}, err
	}
	return issued, nil
}

// replaceKey locks and changes the old key before it adds the new one. A taken id undoes both
// changes, and draw tries again with another key. The answer to keep is known only once the old key
// is read: so of two equal requests, the second waits for the lock on the holder's keys.
func (s *Keys) replaceKey(
	ctx context.Context, r rotation, next *IssuedKey,
) (answer rotatedAnswer, err error) {
	holder, action := r.basis.holder, event.APIKeyChanged
	if r.Overlap == 0 {
		action = event.APIKeyRevoked
	}
	r.basis.most = s.most
	locks := Locks{Holder: holder}
	return answer, s.commit(ctx, change{by: r.by, basis: &r.basis, locks: locks, write: func(
		ctx context.Context, tx Store,
	) ([]Event, error) {
		err := tx.ChangeAPIKey(ctx, holder, r.id, func(old *APIKey) (bool, error) {
			if err := s.rotatable(ctx, *old, r); err != nil {
				return false, err
			}
			next.succeed(*old, r.now)
			if old.retire(r.now, r.Overlap); r.Overlap > 0 {
				old.SuccessorID = next.ID
				s.seal(old)
			}
			s.seal(&next.APIKey)
			return true, nil
		})
		if err != nil {
			return nil, err
		}
		answer = next.rotated()
		kept, err := r.request.answer(answer)
		if err == nil && kept != nil {
			err = keepAnswer(ctx, tx, r.by, *kept, s.now())
		}
		if err != nil {
			return nil, err
		}
		events := happened(r.now, event.APIKeyIssued, next.Target())
		target := APIKey{ID: r.id, Holder: holder}.Target()
		events = append(events, happened(r.now, action, target)...)
		return events, createKey(ctx, tx, next.APIKey, s.inTransaction)
	}})
}

// uncounted reports whether a key has no place among those of its holder until it is valid again.
func (s *keyIssuer) uncounted(key APIKey, now time.Time) bool {
	return s.ignoreExpired && !key.ExpiresAt.IsZero() && !key.ExpiresAt.After(now)
}

// rotatable refuses a key that cannot be rotated, and one key more than its holder can have.
func (s *Keys) rotatable(ctx context.Context, old APIKey, r rotation) error {
	if err := s.changeable(ctx, &old); err != nil {
		return err
	}
	if old.SuccessorID != "" {
		return taken("", "the API key has a successor already, "+quote(old.SuccessorID)+
			": rotate that one, or issue a new key")
	}
	if r.Overlap == 0 && !s.uncounted(old, r.now) { // the number of keys stays the same
		return nil
	}
	return s.room(r.basis.live)
}

// rotated returns what to keep of a successor. The key itself and its time are an issuedAnswer.
func (k *IssuedKey) rotated() rotatedAnswer {
	return rotatedAnswer{
		Issued: issuedAnswer{string(k.Key), k.CreatedAt}, Disabled: k.Disabled,
		As: NewAPIKey{
			Description: k.Description, ExpiresAt: k.ExpiresAt,
			ScopingPolicyID: k.ScopingPolicyID, Rate: k.Rate,
		},
	}
}

// Revoke revokes a key of a holder, or of the caller ([Me]), for good: it erases the key's hash,
// and the row stays as a trace. The caller needs iam:users:write and every control-plane right of
// the holder. For Me, the caller must be a user that is not narrowed. Revoke does not ask
// Config.Users.Known. Event: [event.APIKeyRevoked]. Errors: CodeNotFound, also for a key that is
// revoked already.
func (s *Keys) Revoke(ctx context.Context, by Principal, holder Identity, id string) error {
	if err := errors.Join(checkHolder(holder), checkID("key_id", id)); err != nil {
		return err
	}
	allowed, err := s.authorizeKeys(ctx, by, holder, true)
	if err != nil {
		return s.ofKey(ctx, allowed, id, err)
	}
	key := APIKey{ID: id, Holder: allowed.holder}
	if err = s.storeRevocation(ctx, by, allowed, key, s.now()); noRow(err) {
		return s.noKey(key)
	}
	return fault("revoke API key", err)
}

// storeRevocation revokes a key. It takes no lock but that of the key: a revocation must not wait,
// and needs no count of keys. It also ends a key whose row was edited, so it does not ask for
// changeable.
func (s *Keys) storeRevocation(
	ctx context.Context, by Principal, allowed basis, key APIKey, at time.Time,
) error {
	allowed.free = true
	return s.commit(ctx, change{by: by, basis: &allowed, write: func(
		ctx context.Context, tx Store,
	) ([]Event, error) {
		events := happened(at, event.APIKeyRevoked, key.Target())
		return events, tx.ChangeAPIKey(ctx, key.Holder, key.ID, func(k *APIKey) (bool, error) {
			k.retire(at, 0)
			return true, nil
		})
	}})
}

// RevokeAll revokes all keys of a holder and returns their number, 0 for none. Afterwards this
// process accepts none of them, nor a key that was issued with one of them. The rules for callers
// are those of [Keys.Revoke]. Each key has its own [event.APIKeyRevoked].
//
// It revokes a few hundred keys in each transaction, so that other writers do not wait for all of
// them; in a transaction of the host, all belong to that. On an error, or when ctx ends, the keys
// revoked so far stay revoked, and their number is returned with the error: call RevokeAll again.
func (s *Keys) RevokeAll(ctx context.Context, by Principal, holder Identity) (int, error) {
	if err := checkHolder(holder); err != nil {
		return 0, err
	}
	allowed, err := s.authorizeKeys(ctx, by, holder, true)
	if err != nil {
		return 0, err
	}
	if s.readOnly {
		return 0, errReadOnly
	}
	// Do not lock a holder without keys: the lock may leave its id in the store. The id may be a
	// key that the caller pasted into the wrong place.
	first := APIKeyPage{Holder: allowed.holder, KeyQuery: KeyQuery{Limit: 1}}
	if some, err := s.store.APIKeys(ctx, first); err != nil {
		return 0, fault("revoke API keys", err)
	} else if len(some) == 0 { // another call may not have dropped what it has revoked from the cache
		return 0, fault("read changes", s.cached.CatchUp(ctx))
	}
	// A key that one of these issues in the meantime does not survive: issuing takes the lock of the
	// holder's keys, and checks whether the caller's own key is revoked. If issuing commits before a
	// chunk takes the lock, the chunk sees the new key. If it comes later, it finds its own key
	// revoked once the last chunk is committed.
	revoked := 0
	for allowed.free = true; ; allowed.keyless = true {
		began := time.Now()
		n, err := s.revokeChunkOf(ctx, by, &allowed)
		if err != nil {
			return revoked, fault("revoke API keys", err)
		}
		if revoked += n; n < revokeChunk {
			return revoked, fault("read changes", s.cached.CatchUp(ctx))
		}
		s.pause(ctx, began)
	}
}

// pause waits for as long as a chunk took that began at a time, so that other writers come between:
// SQLite does not queue writers of several processes.
func (s *keyIssuer) pause(ctx context.Context, began time.Time) {
	if !s.inTransaction {
		background.Wait(ctx, time.After(time.Since(began)))
	}
}

// revokeChunkOf revokes a chunk of a holder's keys and returns their number. Only the first chunk
// checks the caller's key again, because a chunk may have revoked that very key. A revocation never
// waits for an Apply.
func (s *Keys) revokeChunkOf(ctx context.Context, by Principal, allowed *basis) (n int, err error) {
	locks := Locks{Holder: allowed.holder}
	err = s.commit(ctx, change{by: by, basis: allowed, locks: locks, write: func(
		ctx context.Context, tx Store,
	) (events []Event, err error) {
		events, err = revokeKeys(ctx, tx, allowed.holder, s.now(), revokeChunk)
		n = len(events)
		return events, err
	}})
	return n, err
}

// sweepAge is how long ago a key has expired that Sweep revokes by default.
const sweepAge = 24 * time.Hour

// Sweep revokes all keys that have expired before a time, of users and of service accounts, and
// returns their number, also with an error: call it again for the rest. The zero time stands for 24
// hours ago. Until then, a patch can prolong an expired key. The caller needs iam:users:write and
// iam:service_accounts:manage. Keys stay whose holders have a control-plane right that it lacks.
// Each key has its own [event.APIKeyRevoked]. It works in chunks, as [Keys.RevokeAll] does. Errors:
// CodeInvalid (expiredBefore is in the future).
func (s *Keys) Sweep(
	ctx context.Context, by Principal, expiredBefore time.Time,
) (revoked int, err error) {
	if expiredBefore.IsZero() {
		expiredBefore = s.now().Add(-sweepAge)
	} else if expiredBefore.After(s.clock()) {
		return 0, Invalid("/expired_before", "must not be in the future")
	}
	var c checker
	if c.year("/expired_before", expiredBefore); !c.ok() {
		return 0, c.err()
	}
	expiredBefore = roundUp(expiredBefore)
	if err := s.authorizeAll(ctx, by, true); err != nil || s.readOnly {
		return 0, cmp.Or(err, errReadOnly)
	}
	page := APIKeyPage{KeyQuery: KeyQuery{
		ExpireBefore: expiredBefore, Limit: revokeChunk, Bare: true,
	}}
	for {
		began := time.Now()
		some, err := s.store.APIKeys(ctx, page)
		if err != nil {
			return revoked, fault("list expired API keys", err)
		}
		if len(some) == 0 {
			return revoked, fault("read changes", s.cached.CatchUp(ctx))
		}
		n, err := s.sweepChunk(ctx, by, some, expiredBefore)
		if noRow(err) {
			continue // another call has revoked one of them: the list no longer has it
		} else if err != nil {
			return revoked, fault("revoke expired API keys", err)
		}
		revoked += n
		last := some[len(some)-1]
		page.AfterTime, page.AfterID = last.ExpiresAt, last.ID
		s.pause(ctx, began)
	}
}

// below returns the keys whose holders have no control-plane right that the caller lacks.
func (s *keyIssuer) below(ctx context.Context, by Principal, keys []APIKey) ([]APIKey, error) {
	if by.Kind == KindHost {
		return keys, nil
	}
	some, judged := []APIKey(nil), map[Identity]error{}
	for _, key := range keys {
		if _, known := judged[key.Holder]; !known {
			_, judged[key.Holder] = s.authorizeKeys(ctx, by, key.Holder, true)
		}
		switch refused := judged[key.Holder]; ErrorCode(refused) {
		case "":
			some = append(some, key)
		case CodeForbidden, CodeNotFound:
		default:
			return nil, refused
		}
	}
	return some, nil
}

// sweepChunk revokes keys in one transaction and returns their number. It leaves out keys that were
// prolonged since they were listed.
func (s *keyIssuer) sweepChunk(
	ctx context.Context, by Principal, keys []APIKey, before time.Time,
) (n int, err error) {
	if keys, err = s.below(ctx, by, keys); err != nil {
		return 0, err
	}
	users, accounts := keyActions(true)
	allowed := basis{action: users, free: true}
	err = s.commit(ctx, change{by: by, basis: &allowed, atomic: true, write: func(
		ctx context.Context, tx Store,
	) (events []Event, err error) {
		if by.Kind != KindHost {
			if _, err := s.present(ctx, tx, by, &basis{action: accounts}); err != nil {
				return nil, err
			}
		}
		for _, key := range keys {
			revoked, err := sweepKey(ctx, tx, key, before, s.now())
			if err != nil {
				return nil, err
			}
			events = append(events, revoked...)
		}
		n = len(events)
		return events, nil
	}})
	return n, err
}

// sweepKey revokes a key that has expired before a time, and returns its event.
func sweepKey(
	ctx context.Context, tx Store, key APIKey, before, now time.Time,
) (events []Event, err error) {
	return events, tx.ChangeAPIKey(ctx, key.Holder, key.ID, func(k *APIKey) (bool, error) {
		if events = nil; k.ExpiresAt.IsZero() || !k.ExpiresAt.Before(before) {
			return false, nil
		}
		k.retire(now, 0)
		events = happened(now, event.APIKeyRevoked, k.Target())
		return true, nil
	})
}

// changeable returns an Error when a key's row cannot be changed and sealed again. A new seal would
// make an edited row valid. Without its pepper, a row can be neither checked nor sealed.
func (s *keyHasher) changeable(ctx context.Context, key *APIKey) error {
	if s.keys.Place(key.Pepper) == keyring.NoPepper {
		return Invalid("key_id", "names a key whose pepper this server does not have: revoke it")
	}
	if !s.keys.Sealed(key.row()) {
		s.reportEdited(ctx, key.ID)
		return Invalid("key_id", "names a key whose row or pepper was changed: revoke it")
	}
	return nil
}
