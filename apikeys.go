package svc

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/extsvc/svc/internal/keyring"
)

// APIKey is an issued key as the store keeps it, without the secret.
type APIKey struct {
	ID          string // the 16 characters after the key's prefix
	Holder      Identity
	Prefix      string // the key's first characters, with its id: unique, not secret
	Description *string
	Hash        []byte // of kind, id and secret, under the pepper; nil: revoked
	Pepper      string // the pepper's version; "": no pepper
	CreatedAt   time.Time
	ExpiresAt   time.Time // from this time the key is not accepted; zero: never expires
	Disabled    bool      // true: the key is not accepted for now
	// LastUsedAt is the minute in which the key was last accepted, written some seconds later.
	// Zero: never.
	LastUsedAt time.Time
	// RevokedAt ends the key for good: it is no longer accepted or listed. Zero: not revoked.
	RevokedAt time.Time
	// ScopingPolicyID names an access policy that narrows the key. The key may do only what both
	// the holder's policies and this policy allow, with the lesser of their parameters. The policy
	// sets nothing that the holder does not have: see docs/policies.md. "": the key is not
	// narrowed.
	ScopingPolicyID string
	// Seal authenticates the row, which says what the key is good for, under the pepper. It is nil
	// when the key is revoked, when there is no pepper, or when the key was not used since rows are
	// sealed.
	Seal []byte
}

// IssuedKey is a new key. Only here does the caller see the key itself.
type IssuedKey struct {
	APIKey
	Key Secret
}

// NewAPIKey is the request to issue a key. The zero NewAPIKey asks for a key without a description
// that never expires and may do all that its holder may.
type NewAPIKey struct {
	Description *string
	ExpiresAt   time.Time // stored to the microsecond; zero: never
	// ScopingPolicyID narrows the key for good: see [APIKey]. The caller needs iam:policies:read,
	// or must have that policy: it is attached to the caller or to one of its groups. Any other
	// policy is CodeInvalid, like one that does not exist. "": the key is not narrowed.
	ScopingPolicyID string
	// IdempotencyKey marks requests of one caller as the same request, within [IdempotencyPeriod].
	// It has 1 to [MaxIdempotencyKeyLength] visible ASCII characters, best drawn at random. The
	// first request that succeeds issues a key; later ones get the same key again. A request that
	// differs in anything else gets CodeKeyReused, and so does every request after the key is
	// revoked. For these answers the store keeps the key itself, sealed under the IdempotencyKey
	// and the pepper. "": every request issues a key.
	IdempotencyKey string
}

// APIKeyPatch is a partial update: a nil field leaves the key's field unchanged.
type APIKeyPatch struct {
	Description *TextPatch
	ExpiresAt   *time.Time // the zero time: never
	Disabled    *bool
}

// KeyQuery asks for a part of a list of keys. The zero query asks for the whole list.
type KeyQuery struct {
	// The list starts after the key with that CreatedAt and ID, which need not exist any more. Zero
	// and "": from the start.
	AfterTime time.Time
	AfterID   string
	Limit     int // the most keys to list, not negative; 0: all
}

// Keys issues, lists, changes and revokes API keys.
type Keys struct{ *holders }

// row returns the key for the keyring.
func (k *APIKey) row() keyring.Row {
	return keyring.Row{
		ID: k.ID, Kind: string(k.Holder.Kind), Holder: k.Holder.ID, Prefix: k.Prefix,
		Hash: k.Hash, ScopingPolicyID: k.ScopingPolicyID,
		CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt, Disabled: k.Disabled,
		Pepper: k.Pepper, Revoked: !k.RevokedAt.IsZero(), Seal: k.Seal,
	}
}

// Issue issues a key for a user or a service account, or for the caller ([Me]).
//
// For another holder, the caller needs iam:users:write and every control-plane right of the holder.
// The caller must be neither a service account nor narrowed. For Me, the caller must be a user that
// is not narrowed, and needs no action.
//
// Errors: CodeInvalid; CodeForbidden (for Me also when Config.KnownUser does not know the user);
// CodeNotFound (a user that Config.KnownUser does not know, unless by is [Host]; a service account
// without a row); CodeLimit; CodeKeyReused; CodeUnauthenticated when the caller's own key has
// ended.
func (s *Keys) Issue(
	ctx context.Context, by Principal, holder Identity, in NewAPIKey,
) (IssuedKey, error) {
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

// check adds the request's problems, and truncates its expiry to the stored precision.
func (in *NewAPIKey) check(c *checker, now time.Time) {
	c.optionalText("/description", in.Description, MaxDescriptionLength)
	c.expiry(&in.ExpiresAt, now)
	if in.ScopingPolicyID != "" {
		c.id("/scoping_policy_id", in.ScopingPolicyID)
	}
	c.idempotencyKey(in.IdempotencyKey)
}

// expiry adds the problems of an expiry, and truncates it to the stored precision.
func (c *checker) expiry(at *time.Time, now time.Time) {
	if at.IsZero() {
		return
	}
	*at = at.UTC().Truncate(time.Microsecond)
	if !at.After(now) || at.Year() > 9999 {
		c.add("/expires_at", "must lie in the future, and before the year 10000")
	}
}

// holder refuses an identity other than [Me], a user or a service account.
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

// issueTries is how often issue draws a key when its id is taken, about once in 2^59 draws.
const issueTries = 4

// issuedAnswer is what the store keeps of an issued key, to answer the same request again.
type issuedAnswer struct {
	Key string
	At  time.Time
}

// issue makes, stores and announces a key, or returns the earlier answer to the same request.
func (s *Keys) issue(
	ctx context.Context, by Principal, holder Identity, in NewAPIKey, now time.Time,
) (IssuedKey, error) {
	request, err := s.repeatable(by, in.IdempotencyKey, "issue", []any{holder, in}, now)
	if err != nil {
		return IssuedKey{}, err
	}
	if in.IdempotencyKey != "" { // an earlier answer also requires a caller that may act
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
			kept, err := request.answer(answer)
			if err != nil {
				return err
			}
			return s.addKey(ctx, by, key.APIKey, EventAPIKeyIssued, kept)
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

// addKey adds a key to its holder's keys. ErrExists.
func (s *Keys) addKey(
	ctx context.Context, by Principal, key APIKey, action EventAction, answer *KeptAnswer,
) error {
	var live int
	lock := s.locks(by, key.Holder, &live)
	return s.commit(ctx, change{by: by, lock: lock, answer: answer, write: func(
		ctx context.Context, tx Store,
	) ([]Event, error) {
		if err := s.room(live); err != nil {
			return nil, err
		}
		return happened(key.CreatedAt, action, key.Target()), tx.CreateAPIKey(ctx, key)
	}})
}

// issuedBefore returns a key as it was when issued. It refuses a key that is revoked now.
func (s *Keys) issuedBefore(
	ctx context.Context, holder Identity, in NewAPIKey, answer issuedAnswer,
) (IssuedKey, error) {
	c, _ := s.keys.Claim(answer.Key)
	if !c.Good || c.Kind != string(holder.Kind) {
		return IssuedKey{}, &Error{
			Code: CodeKeyReused, Field: idempotencyHeader,
			Message: "the prefix of keys has changed since this idempotency key was used: draw another one",
		}
	}
	snapshot, err := s.store.Access(ctx, AccessQuery{KeyID: c.ID})
	if err != nil {
		return IssuedKey{}, fault("read API key", err)
	}
	if snapshot.Key == nil || !snapshot.Key.RevokedAt.IsZero() {
		return IssuedKey{}, &Error{
			Code: CodeKeyReused, Field: idempotencyHeader,
			Message: "the API key that this request issued is revoked: draw another idempotency key",
		}
	}
	issued := s.newKey(holder, c.Token)
	s.stamp(&issued.APIKey, in, answer.At)
	return issued, nil
}

// checkScoping refuses a policy that does not exist. It refuses in the same way a policy that the
// caller may not read and does not have.
func (s *Keys) checkScoping(
	ctx context.Context, by Principal, holder Identity, policyID string,
) error {
	if policyID == "" {
		return nil
	}
	unknown := Invalid("/scoping_policy_id", "names an unknown policy")
	asked := AccessQuery{Identity: holder, ScopingPolicyID: policyID}
	if by.Kind != KindHost {
		asked.Identity = by.Identity()
	}
	snapshot, err := s.store.Access(ctx, asked)
	if err != nil {
		return fault("read scoping policy", err)
	}
	has := slices.ContainsFunc(snapshot.Grants, func(g Grant) bool {
		return g.Policy.ID == policyID
	})
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

// draw draws keys until store can keep one.
func (s *Keys) draw(
	ctx context.Context, holder Identity, store func(*IssuedKey) error,
) (IssuedKey, error) {
	tags, err := s.tags(ctx)
	if err != nil {
		return IssuedKey{}, err
	}
	issued, err := IssuedKey{}, ErrExists
	for try := 0; try < issueTries && errors.Is(err, ErrExists); try++ {
		issued = s.newKey(holder, s.keys.Draw(string(holder.Kind), tags))
		err = store(&issued)
	}
	return issued, err
}

// List lists the keys of a holder, or of the caller ([Me]), that are not revoked: newest first,
// with expired and disabled keys. The holder may be a user that Config.KnownUser does not know; its
// list may be empty. The caller needs iam:users:read. For Me it needs no action, but must be a user
// that is not narrowed. An error is the last value of the sequence.
func (s *Keys) List(
	ctx context.Context, by Principal, holder Identity, query KeyQuery,
) iter.Seq2[APIKey, error] {
	page := APIKeyPage{Holder: by.or(holder), KeyQuery: query}
	page.Limit = chunkOf(query.Limit)
	return upTo(query.Limit, list(ctx, "list API keys", page.Limit,
		func() error {
			var c checker
			c.text("id", query.AfterID, MaxIDLength)
			c.count("limit", query.Limit)
			if err := errors.Join(c.err(), checkHolder(holder)); err != nil {
				return err
			}
			return s.authorizeKeys(ctx, by, holder, ActionUsersRead)
		},
		func() ([]APIKey, error) { return s.store.APIKeys(ctx, page) },
		func(last APIKey) { page.AfterTime, page.AfterID = last.CreatedAt, last.ID }))
}

// checkHolder returns an Error unless holder is [Me], or its id can be part of a path.
func checkHolder(holder Identity) error {
	if holder == Me {
		return nil
	}
	return checkID(holderField(holder), holder.ID)
}

// Target returns the key as a target of events and change feeds.
func (k APIKey) Target() Target { return Target{Kind: TargetAPIKey, ID: k.ID, Holder: k.Holder} }
