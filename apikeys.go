package svc

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/batching"
	"github.com/extsvc/svc/internal/keyring"
	"github.com/extsvc/svc/internal/lists"
	"github.com/extsvc/svc/limits"
)

// APIKey is an issued key as the store keeps it, without the secret. All times are UTC with
// microseconds.
//
// A key is accepted while it is neither revoked, disabled nor expired, and its holder is active. A
// user without a row is active; a service account needs its row, and an owner whose row is active.
// Hash and Seal are for the Service: lists over HTTP leave them out.
type APIKey struct {
	ID          string // the 16 characters after the key's prefix
	Holder      Identity
	Prefix      string  // the key's first characters, with its id: unique, not secret
	Description *string // nil: none, which is not ""
	Hash        []byte  // of kind, id and secret, under the pepper; nil: revoked
	Pepper      string  // the pepper's version; "": no pepper
	CreatedAt   time.Time
	ExpiresAt   time.Time // from this time the key is not accepted; zero: never expires
	Disabled    bool      // true: the key is not accepted for now
	LastUsedAt  time.Time // the minute of the last use, written some seconds later; zero: never
	RevokedAt   time.Time // from then on neither accepted nor listed, for good; zero: not revoked
	// ScopingPolicyID names an access policy that narrows the key: it may do only what both the
	// holder's policies and this policy allow, with the lesser of their parameters
	// (docs/reference/policies.md). The policy's content at each use counts; without the policy the
	// key may do nothing. It never changes. "": not narrowed.
	ScopingPolicyID string
	// SuccessorID is the key that [Keys.Rotate] issued in the place of this one, with an overlap,
	// which ends at ExpiresAt. It gives no rights, so the seal does not cover it. "": none, or a
	// patch has removed the expiry since.
	SuccessorID string
	Rate        Rate // how often the key may be used, not covered by the seal; zero: no limit
	// Seal authenticates the row under the pepper. Nil: the key is revoked, has no pepper, or was
	// not used since rows are sealed.
	Seal []byte
}

// IssuedKey is a new key. Only here does the caller see the key itself. Convert Key to string to
// hand it over; printed or encoded, it is "***".
type IssuedKey struct {
	APIKey
	Key Secret
}

// NewAPIKey is the request to issue a key. The zero NewAPIKey asks for a key without a description
// that never expires and may do all that its holder may.
type NewAPIKey struct {
	Description *string   // at most [limits.DescriptionLength] characters; nil: none
	ExpiresAt   time.Time // stored to the microsecond; zero: never
	// ScopingPolicyID narrows the key for good: see [APIKey]. The caller needs iam:policies:read,
	// or must have that policy, itself or by one of its groups, unless it is built in. Any other is
	// CodeInvalid, like one that does not exist. "": the key is not narrowed.
	ScopingPolicyID string
	// Rate limits how often the key may be used. Zero: no limit, and left out of the request's
	// digest.
	Rate Rate `json:",omitzero"`
	// IdempotencyKey marks requests of one caller as the same request, within [IdempotencyPeriod]:
	// 1 to [limits.IdempotencyKeyLength] visible ASCII characters, best drawn at random. The first
	// request that succeeds issues a key; later ones get the same key again. A request that differs
	// in anything else gets CodeKeyReused, and so does every request after the key is revoked. The
	// store keeps the key itself, sealed under the IdempotencyKey and the pepper. A Store that is
	// no [AnswerStore] makes it CodeInvalid. "": every request issues a key.
	IdempotencyKey string
}

// ImportedKey is a key that another system has issued, of which only the hash is known. Its
// IdempotencyKey must be "": the hash itself marks repetitions, with CodeExists.
type ImportedKey struct {
	NewAPIKey
	Prefix string // the Prefix of a [KeyImport]
	Hash   []byte // as the Hash of that KeyImport returns it
}

// APIKeyPatch is a partial update: a nil field leaves the key's field unchanged. A new ExpiresAt
// lies in the future, and makes an expired key valid once more. No patch brings back a revoked key.
type APIKeyPatch struct {
	Description *TextPatch
	ExpiresAt   *time.Time // the zero time: never
	Disabled    *bool
	Rate        *Rate // the zero Rate: no limit
}

// Rotation is the request to rotate a key. The zero Rotation revokes the old key immediately.
type Rotation struct {
	Overlap time.Duration // how long the old key stays accepted, 0 to [limits.KeyOverlap]
	// IdempotencyKey is as in [NewAPIKey]. With overlap 0, a key cannot repeat its own rotation,
	// because it has ended.
	IdempotencyKey string
}

// KeyQuery asks for a part of a list of keys. The zero query asks for the whole list, newest first.
// For the next part, set AfterTime to the Position of the last key, and AfterID to its ID.
type KeyQuery struct {
	// ExpireBefore narrows the list to keys that expire before that time, sorted by ExpiresAt and
	// ID, ascending. Zero: all keys.
	ExpireBefore time.Time
	// UnusedSince narrows the list to keys whose LastUse is before that time, sorted by LastUse and
	// ID, ascending. Zero: all keys. At most one of the two is set.
	UnusedSince time.Time
	// The list starts after the key with that time and ID, which need not exist any longer. Zero
	// and "": from the start.
	AfterTime time.Time
	AfterID   string
	Limit     int  // the most keys to list, not negative; 0: all
	Bare      bool // leaves out Hash, Pepper and Seal, which no caller is shown
}

// Position returns the time by which the list is sorted, for AfterTime.
func (q KeyQuery) Position(k APIKey) time.Time {
	switch {
	case !q.ExpireBefore.IsZero():
		return k.ExpiresAt
	case !q.UnusedSince.IsZero():
		return k.LastUse()
	}
	return k.CreatedAt
}

func (q KeyQuery) check(c *checker) {
	c.text("id", q.AfterID, limits.IDLength)
	c.count("limit", q.Limit)
	c.year("expires_before", q.ExpireBefore)
	c.year("unused_since", q.UnusedSince)
	c.year("cursor", q.AfterTime)
	if !q.ExpireBefore.IsZero() && !q.UnusedSince.IsZero() {
		c.add("unused_since", "cannot be combined with expires_before")
	}
}

// LastUse returns LastUsedAt, or CreatedAt for a key that was never used.
func (k APIKey) LastUse() time.Time {
	if k.LastUsedAt.IsZero() {
		return k.CreatedAt
	}
	return k.LastUsedAt
}

// row returns the key for the keyring. A field that the seal must cover has to be in it: a field
// left out could be edited in the database unnoticed. LastUsedAt, Description, Rate and SuccessorID
// say nothing about what the key is good for, so the seal leaves them out.
func (k *APIKey) row() keyring.Row {
	return keyring.Row{
		ID: k.ID, Kind: string(k.Holder.Kind), Holder: k.Holder.ID, Prefix: k.Prefix,
		Hash: k.Hash, ScopingPolicyID: k.ScopingPolicyID,
		CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt, Disabled: k.Disabled,
		Pepper: k.Pepper, Revoked: !k.RevokedAt.IsZero(), Seal: k.Seal,
	}
}

// Target returns the key as a target of events and change feeds. It uses only ID and Holder.
func (k APIKey) Target() Target { return Target{Kind: event.TargetAPIKey, ID: k.ID, Holder: k.Holder} }

// Introspection says whether a token is an accepted API key, and whose (RFC 7662). For every other
// token it is zero, without the reason.
type Introspection struct {
	Active          bool
	Holder          Identity  // a user or a service account
	ExpiresAt       time.Time // UTC; zero: never
	ScopingPolicyID string    // the policy that narrows the key; "": not narrowed
}

// check adds the request's problems, and truncates its expiry to the stored precision. The expiry of
// a request that may have an answer from before may have passed since: see [NewAPIKey.late].
func (in *NewAPIKey) check(c *checker, now time.Time) {
	c.optionalText("/description", in.Description, limits.DescriptionLength)
	if in.IdempotencyKey != "" {
		now = time.Time{}
	}
	c.expiry(&in.ExpiresAt, now)
	if in.ScopingPolicyID != "" {
		c.id("/scoping_policy_id", in.ScopingPolicyID)
	}
	in.Rate.check(c)
	c.idempotencyKey(in.IdempotencyKey)
}

// late refuses a checked request whose expiry has passed.
func (in NewAPIKey) late(now time.Time) error {
	var c checker
	c.expiry(&in.ExpiresAt, now)
	return c.err()
}

// check adds the problems of a rate; none for the zero Rate.
func (r Rate) check(c *checker) {
	if r == (Rate{}) {
		return
	}
	if !(r.PerSecond >= limits.LeastRate && r.PerSecond <= limits.Rate) { // NaN is wrong
		c.add("/rate/per_second", fmt.Sprintf("must be %v to %v", limits.LeastRate, limits.Rate))
	}
	if r.Burst < 1 || r.Burst > limits.Burst {
		c.add("/rate/burst", fmt.Sprintf("must be 1 to %d", limits.Burst))
	}
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

// holder refuses an identity other than [Me], a user or a service account. It does not ask whether
// the holder exists: callers without rights must not learn that.
func (c *checker) holder(holder Identity) { c.holderWith(holder, c.id) }

// holderWith is holder with another check of the id.
func (c *checker) holderWith(holder Identity, check func(field, id string)) {
	switch {
	case holder == Me:
	case holder.Kind == KindUser:
		check("user_id", holder.ID)
	case holder.Kind == KindServiceAccount, holder.Kind == kindMyAccount:
		check("sa_id", holder.ID)
	default:
		c.add("kind", "must be a user or a service account")
	}
}

// checkHolder is [checker.holder] for methods that make no key: they accept a pasted API key as the
// id, and find nothing under it.
func checkHolder(holder Identity) error {
	var c checker
	c.holderWith(holder, c.lookup)
	return c.err()
}

// check adds the problems of the patch of a key, and truncates its expiry to the stored precision.
func (p *APIKeyPatch) check(c *checker, id string, now time.Time) {
	c.lookup("key_id", id)
	if p.Description != nil {
		c.optionalText("/description", p.Description.Value, limits.DescriptionLength)
	}
	if p.ExpiresAt != nil {
		at := *p.ExpiresAt
		c.expiry(&at, now)
		p.ExpiresAt = &at
	}
	if p.Rate != nil {
		p.Rate.check(c)
	}
}

// gives reports whether the patch may extend what a key is good for. The caller's rights are
// checked before the key is read: so any new expiry counts, also an earlier one.
func (p APIKeyPatch) gives() bool { return p.ExpiresAt != nil || p.Disabled != nil && !*p.Disabled }

// prolongs reports whether the patch gives a key a later expiry.
func (p APIKeyPatch) prolongs(key APIKey) bool {
	return p.ExpiresAt != nil && !key.ExpiresAt.IsZero() &&
		(p.ExpiresAt.IsZero() || p.ExpiresAt.After(key.ExpiresAt))
}

// byItself refuses a patch with which a key would extend its own limits.
func (p APIKeyPatch) byItself(key APIKey) error {
	switch {
	case p.prolongs(key):
		return forbidden("a key cannot prolong itself: use another credential")
	case p.Rate != nil && p.Rate.exceeds(key.Rate):
		return forbidden("a key cannot raise its own rate: use another credential")
	}
	return nil
}

// exceeds reports whether r allows more than other, in any way.
func (r Rate) exceeds(other Rate) bool {
	switch {
	case other == (Rate{}):
		return false
	case r == (Rate{}):
		return true
	}
	return r.PerSecond > other.PerSecond || r.Burst > other.Burst
}

// apply returns key with the patch applied.
func (p APIKeyPatch) apply(key APIKey) APIKey {
	if p.Description != nil {
		key.Description = p.Description.Value
	}
	if p.ExpiresAt != nil {
		if key.ExpiresAt = *p.ExpiresAt; key.ExpiresAt.IsZero() {
			key.SuccessorID = "" // what a rotation has left behind is gone
		}
	}
	if p.Disabled != nil {
		key.Disabled = *p.Disabled
	}
	if p.Rate != nil {
		key.Rate = *p.Rate
	}
	return key
}

// succeed makes the new key k the successor of old. The lifetime is the time from old's CreatedAt
// to its present ExpiresAt, so a patch of the expiry has changed it. Both share Description's
// memory. The seal is the caller's work, after this.
func (k *APIKey) succeed(old APIKey, now time.Time) {
	k.Description, k.ScopingPolicyID = old.Description, old.ScopingPolicyID
	k.Rate, k.Disabled, k.CreatedAt = old.Rate, old.Disabled, now
	if k.ExpiresAt = (time.Time{}); !old.ExpiresAt.IsZero() {
		seconds := old.ExpiresAt.Unix() - old.CreatedAt.Unix() // a Duration has at most 292 years
		nanoseconds := old.ExpiresAt.Nanosecond() - old.CreatedAt.Nanosecond()
		const last = 253402300798 // in the year 9999
		k.ExpiresAt = time.Unix(min(now.Unix()+seconds, last), int64(now.Nanosecond()+nanoseconds)).UTC()
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

// sameSettings reports whether the fields that a patch may change are equal.
func (k APIKey) sameSettings(other APIKey) bool {
	return equalText(k.Description, other.Description) &&
		k.ExpiresAt.Equal(other.ExpiresAt) && k.Disabled == other.Disabled && k.Rate == other.Rate
}

func (in Rotation) check(c *checker, id string) {
	c.lookup("key_id", id)
	if in.Overlap < 0 || in.Overlap > limits.KeyOverlap {
		c.add("/overlap_seconds", fmt.Sprintf("must be 0 to %d", limits.KeyOverlap/time.Second))
	}
	c.idempotencyKey(in.IdempotencyKey)
}

// APIKeyPage asks for one chunk of a list of keys that are not revoked.
type APIKeyPage struct {
	Holder          Identity // zero: the keys of all holders
	ScopingPolicyID string   // "": any or none
	KeyQuery                 // its Limit is > 0
}

// keyBatcher is what the stores of package postgres have besides: for databases with many writers.
type keyBatcher interface {
	// AddAPIKeys adds those keys of a batch that nothing prevents, and queues their events as
	// QueueAudit does, in one transaction. It waits for others no longer than a moment. added[i] is
	// false, and key i not added, when
	//
	//   - its Holder has the most keys, with those before it in the batch;
	//   - another transaction has locked its Holder or access, or locked its caller's key to change it;
	//   - its caller's key is revoked, or has changed since that generation;
	//   - other targets than sources, templates and keys have changed since then;
	//   - the store does not know all that.
	AddAPIKeys(ctx context.Context, b batching.Keys[APIKey, Event]) (added []bool, err error)
}

// LastUse records when a key was last accepted, to the minute.
type LastUse struct {
	ID string
	At time.Time // the minute
}

// revokeChunk is the largest number of keys revoked in one transaction. A larger one saves commits,
// but lets other writers wait longer.
const revokeChunk = 256

// revokeKeys revokes at most so many keys of a holder in the transaction of tx, whose lock on these
// keys is taken. It returns an event for each key.
func revokeKeys(
	ctx context.Context, tx Store, holder Identity, now time.Time, most int,
) (events []Event, err error) {
	ids, err := tx.RevokeAPIKeys(ctx, holder, now, most)
	for _, id := range ids {
		key := APIKey{ID: id, Holder: holder}
		events = append(events, happened(now, event.APIKeyRevoked, key.Target())...)
	}
	return events, err
}

// keysOf yields all keys that page asks for, which has no Limit.
func keysOf(ctx context.Context, tx Store, page APIKeyPage) iter.Seq2[APIKey, error] {
	page.Limit = revokeChunk
	return lists.Chunks(ctx, page, page.Limit, doing("read API keys"), nil,
		func(page APIKeyPage) ([]APIKey, error) { return tx.APIKeys(ctx, page) },
		func(p *APIKeyPage, last APIKey) { p.AfterTime, p.AfterID = last.CreatedAt, last.ID })
}
