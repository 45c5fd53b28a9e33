package svc

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/extsvc/svc/internal/token"
)

// APIKey is an issued key as it is kept: without the key itself.
type APIKey struct {
	ID          string // the 16 characters behind the key's prefix
	Holder      Identity
	Prefix      string // the key's first characters, its id included: unique, and no secret
	Description *string
	Hash        []byte // of kind, id and secret, under the pepper; nil: it is revoked
	Pepper      string // the pepper's version; "" none
	CreatedAt   time.Time
	ExpiresAt   time.Time // from then on it is not accepted; zero: never
	Disabled    bool      // it is not accepted for now
	LastUsedAt  time.Time // the minute in which it was accepted last, some seconds late; zero: never
	RevokedAt   time.Time // it is not accepted any more, nor listed; zero: it is not revoked
	// ScopingPolicyID is that of an access policy: what its holder may do is narrowed to what that
	// allows, too, with the lesser of their parameters. The policy sets nothing that the holder has
	// not: see docs/policies.md. "": it is not narrowed.
	ScopingPolicyID string
	// Seal authenticates what the key is good for, its row, under the pepper: nil when it is revoked, when there is no pepper, or when
	// it was not used since rows are sealed.
	Seal []byte
}

// IssuedKey is a new key: the only time that the key itself is seen.
type IssuedKey struct {
	APIKey
	Key Secret
}

// NewAPIKey is the request to issue a key. The zero NewAPIKey is a key without a description that never expires, and may do all
// that its holder may.
type NewAPIKey struct {
	Description *string
	ExpiresAt   time.Time // kept to the microsecond; zero: never
	// ScopingPolicyID narrows the key for good: see [APIKey]. The caller is allowed
	// iam:policies:read, or has that policy: it is attached to the caller or to one of its groups.
	// Any other is CodeInvalid, like one that does not exist. "": the key is not narrowed.
	ScopingPolicyID string
	// IdempotencyKey says which requests of the caller are one, within [IdempotencyPeriod]: 1 to [MaxIdempotencyKeyLength] visible ASCII
	// characters, better drawn at random. The first that succeeds issues a key, the others get the same, once more; a request that differs
	// in something else gets CodeKeyReused, and so does every one once the key was revoked. The key
	// itself is kept for them, sealed under this and the pepper. "": every request
	// issues a key.
	IdempotencyKey string
}

// APIKeyPatch is a partial update: nil leaves a field untouched.
type APIKeyPatch struct {
	Description *TextPatch
	ExpiresAt   *time.Time // the zero time: never
	Disabled    *bool
}

// Keys issues, lists, changes and revokes API keys.
type Keys struct {
	*base
	*guard
	*journal
	*rings
	*holders
}

// Issue issues a key for a user or a service account, or for the caller ([Me]).
//
// For another holder, the caller needs iam:users:write and every control-plane right of the holder. It must be neither a
// service account nor narrowed. For Me, the caller must be a user that is not narrowed, and needs no action.
//
// Errors: CodeInvalid; CodeForbidden (for Me also when Config.KnownUser does not know the user); CodeNotFound (a user that
// Config.KnownUser does not know, unless by is [Host]; a service account without a row); CodeLimit; CodeKeyReused;
// CodeUnauthenticated when the caller's own key has ended.
func (s *Keys) Issue(ctx context.Context, by Principal, holder Identity, in NewAPIKey) (IssuedKey, error) {
	now := s.now()
	var c checker
	c.holder(holder)
	in.check(&c, now)
	if err := c.err(); err != nil {
		return IssuedKey{}, err
	}
	if err := s.authorizeIssue(ctx, by, holder); err != nil {
		return IssuedKey{}, err
	}
	return s.issue(ctx, by, by.or(holder), in, now)
}

// check adds what is wrong with the request, and cuts its time to what is kept.
func (in *NewAPIKey) check(c *checker, now time.Time) {
	c.optionalText("/description", in.Description, MaxDescriptionLength)
	c.expiry(&in.ExpiresAt, now)
	if in.ScopingPolicyID != "" {
		c.id("/scoping_policy_id", in.ScopingPolicyID)
	}
	c.idempotencyKey(in.IdempotencyKey)
}

// expiry adds what is wrong with a time to expire at, and cuts it to what is kept.
func (c *checker) expiry(at *time.Time, now time.Time) {
	if at.IsZero() {
		return
	}
	*at = at.UTC().Truncate(time.Microsecond)
	if !at.After(now) || at.Year() > 9999 {
		c.add("/expires_at", "must lie in the future, and before the year 10000")
	}
}

// holder refuses what is neither [Me] nor names a user or a service account.
func (c *checker) holder(holder Identity) {
	if holder == Me {
		return
	}
	if holder.Kind != KindUser && holder.Kind != KindServiceAccount {
		c.add("kind", "must be a user or a service account")
	}
	c.id(holderField(holder), holder.ID)
}

func holderField(holder Identity) string {
	if holder.Kind == KindServiceAccount {
		return "sa_id"
	}
	return "user_id"
}

// issueTries is how often a key is drawn anew because its id is taken, which happens once in some 2^59 draws.
const issueTries = 4

// issuedAnswer is what is kept of an issued key for when it is asked for again.
type issuedAnswer struct {
	Key string
	At  time.Time
}

// issue makes, stores and announces a key, unless the request was answered before.
func (s *Keys) issue(ctx context.Context, by Principal, holder Identity, in NewAPIKey, now time.Time) (IssuedKey, error) {
	request, err := s.repeatable(by, in.IdempotencyKey, "issue", []any{holder, in}, now)
	if err != nil {
		return IssuedKey{}, err
	}
	if in.IdempotencyKey != "" { // what is answered without being done is for callers who may do it
		if err := s.judge(ctx, s.store, by); err != nil {
			return IssuedKey{}, err
		}
	}
	var issued IssuedKey
	answer, err := once(ctx, request, func() (answer issuedAnswer, err error) {
		if err := s.checkScoping(ctx, by, holder, in.ScopingPolicyID); err != nil {
			return answer, err
		}
		issued, err = s.draw(ctx, holder, func(key *IssuedKey) error {
			s.stamp(&key.APIKey, in, now)
			answer = issuedAnswer{string(key.Key), now}
			return s.mutateKeys(ctx, by, holder, func(ctx context.Context, tx Store, live int) ([]Event, error) {
				return happened(now, EventAPIKeyIssued, key.Target()), request.keep(ctx, tx, answer,
					func(ctx context.Context, tx Store) error { return s.createKey(ctx, tx, key.APIKey, live) })
			})
		})
		return answer, fault("issue API key", err)
	})
	if err == nil && answer.Key != string(issued.Key) {
		issued, err = s.issuedBefore(ctx, holder, in, answer)
	}
	if err != nil {
		return IssuedKey{}, err
	}
	return issued, nil
}

// createKey adds a key to a holder who has so many.
func (s *Keys) createKey(ctx context.Context, tx Store, key APIKey, live int) error {
	if err := s.room(live); err != nil {
		return err
	}
	return tx.CreateAPIKey(ctx, key)
}

// issuedBefore returns a key as it was when it was issued, unless it was revoked since.
func (s *Keys) issuedBefore(ctx context.Context, holder Identity, in NewAPIKey, answer issuedAnswer) (IssuedKey, error) {
	t, ok := token.Parse(answer.Key, s.keys.prefixes[holder.Kind])
	if !ok {
		return IssuedKey{}, &Error{Code: CodeKeyReused, Field: idempotencyHeader, Message: "this idempotency key came when keys had another prefix"}
	}
	snapshot, err := s.store.Access(ctx, AccessQuery{KeyID: t.ID})
	if err != nil {
		return IssuedKey{}, fault("read API key", err)
	}
	if snapshot.Key == nil || !snapshot.Key.RevokedAt.IsZero() {
		return IssuedKey{}, &Error{Code: CodeKeyReused, Field: idempotencyHeader, Message: "the API key of this request was revoked since: draw another idempotency key"}
	}
	issued := IssuedKey{Key: Secret(answer.Key), APIKey: s.keys.row(holder, t)}
	s.stamp(&issued.APIKey, in, answer.At)
	return issued, nil
}

// checkScoping refuses a policy that does not exist, and in the same way one that the caller may
// neither read nor has.
func (s *Keys) checkScoping(ctx context.Context, by Principal, holder Identity, policyID string) error {
	if policyID == "" {
		return nil
	}
	unknown := invalid("/scoping_policy_id", "names no policy")
	asked := AccessQuery{Identity: holder, ScopingPolicyID: policyID}
	if by.Kind != KindHost {
		asked.Identity = by.Identity()
	}
	snapshot, err := s.store.Access(ctx, asked)
	if err != nil {
		return fault("read scoping policy", err)
	}
	has := slices.ContainsFunc(snapshot.Grants, func(g Grant) bool { return g.Policy.ID == policyID })
	if err := s.authorize(ctx, by, ActionPoliciesRead); ErrorCode(err) == CodeForbidden && !has {
		return unknown
	} else if err != nil && !has {
		return err
	}
	if snapshot.Narrowing == nil {
		return unknown
	}
	return nil
}

// draw draws a key that store can keep.
func (s *Keys) draw(ctx context.Context, holder Identity, store func(*IssuedKey) error) (IssuedKey, error) {
	ring, err := s.ring(ctx)
	if err != nil {
		return IssuedKey{}, err
	}
	issued, err := IssuedKey{}, ErrExists
	for try := 0; try < issueTries && errors.Is(err, ErrExists); try++ {
		issued = ring.generate(holder)
		err = store(&issued)
	}
	return issued, err
}

// List lists the keys of a holder, or of the caller ([Me]), that are not revoked: newest first, with those that are expired or
// disabled. A user that Config.KnownUser does not know is listed too, and may have none. The caller needs iam:users:read, for
// Me none; for Me it must be a user that is not narrowed. The error, if any, is the last thing yielded.
func (s *Keys) List(ctx context.Context, by Principal, holder Identity) iter.Seq2[APIKey, error] {
	return s.ListAfter(ctx, by, holder, time.Time{}, "")
}

// ListAfter is List behind the key that was issued at that time and has that id, which need not exist any more. The zero time
// lists from the start.
func (s *Keys) ListAfter(
	ctx context.Context, by Principal, holder Identity, issued time.Time, id string,
) iter.Seq2[APIKey, error] {
	page := APIKeyPage{Holder: by.or(holder), AfterTime: issued, AfterID: id}
	return s.listKeys(ctx, page, func() error {
		if err := checkHolder(holder); err != nil {
			return err
		}
		return s.authorizeKeys(ctx, by, holder, ActionUsersRead)
	})
}

// checkHolder returns an Error unless holder is [Me], or its id can stand in a path.
func checkHolder(holder Identity) error {
	if holder == Me {
		return nil
	}
	return checkID(holderField(holder), holder.ID)
}

func (s *Keys) listKeys(ctx context.Context, page APIKeyPage, allowed func() error) iter.Seq2[APIKey, error] {
	page.Limit = listChunk
	return list(ctx, "list API keys", page.Limit,
		func() error {
			var c checker
			if c.text("id", page.AfterID, MaxIDLength); c.err() != nil {
				return c.err()
			}
			return allowed()
		},
		func() ([]APIKey, error) { return s.store.APIKeys(ctx, page) },
		func(last APIKey) { page.AfterTime, page.AfterID = last.CreatedAt, last.ID })
}

// Target is the key, for events and change feeds.
func (k APIKey) Target() Target { return Target{Kind: TargetAPIKey, ID: k.ID, Holder: k.Holder} }
