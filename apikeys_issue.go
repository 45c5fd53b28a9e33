package svc

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/extsvc/svc/internal/keyring"
	"github.com/extsvc/svc/internal/token"
)

// Keys issues, lists, changes and revokes API keys. A change and the records of its events are one
// transaction. When a method has returned, this process accepts and refuses keys by the new state.
// Other processes follow as they do in [Service.Decide].
type Keys struct{ *holders }

// Issue issues a key for a user or a service account, or for the caller ([Me]).
//
// For another holder, the caller needs iam:users:write and every control-plane right of the holder.
// The caller must be neither a service account nor narrowed. For Me, the caller must be a user that
// is not narrowed, and needs no action. The holder may be inactive: then the key is accepted as
// soon as the holder is active. A user needs no row.
//
// The key is random, with a secret of 190 bits. No other method shows it. Reports
// [EventAPIKeyIssued].
//
// When the caller came with an issued key, the transaction checks that key again, so a key that has
// ended issues nothing. With PostgreSQL, such a call waits for a bundle that is being applied.
//
// Errors: CodeInvalid; CodeForbidden (for Me also when Config.KnownUser does not know the user);
// CodeNotFound (a user that Config.KnownUser does not know, unless by is [Host]; a service account
// without a row); CodeLimit; CodeKeyReused; CodeUnauthenticated when the caller's own key has
// ended.
func (s *Keys) Issue(
	ctx context.Context, by Principal, holder Identity, in NewAPIKey,
) (IssuedKey, error) {
	now := s.now() // of the row, its event and its answer
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

// issueTries is how often issue draws a key when its id is taken, about once in 2^59 draws. A store
// that always answers ErrExists must not loop for ever.
const issueTries = 4

// issuedAnswer is what the store keeps of an issued key, to answer the same request again.
type issuedAnswer struct {
	Key string    // the whole key
	At  time.Time // the CreatedAt of the key
}

// issue makes, stores and announces a key, or returns the earlier answer to the same request. Each
// drawn key has its own answer, which is kept in the transaction of that key. An answer that is not
// the key drawn here is from an earlier request: its settings are read from that request.
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
	if err == nil && answer.Key != string(issued.Key) { // an earlier request issued it
		issued, err = s.issuedBefore(ctx, holder, in, answer)
	}
	if err != nil {
		return IssuedKey{}, err
	}
	return issued, nil
}

// addKey adds a key to its holder's keys. ErrExists: a key has that id, of any holder, revoked or
// not. The count of the holder's keys and the new key are one transaction: so the limit is exact.
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

// issuedBefore returns a key as it was when issued, without later patches. It refuses a key that is
// revoked now: a caller must not take it for a working key. An expired or disabled key is returned.
func (s *Keys) issuedBefore(
	ctx context.Context, holder Identity, in NewAPIKey, answer issuedAnswer,
) (IssuedKey, error) {
	c, _ := s.keys.Claim(answer.Key) // under the present prefixes
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
// caller may not read and does not have. Otherwise an answer would tell which policies exist.
func (s *Keys) checkScoping(
	ctx context.Context, by Principal, holder Identity, policyID string,
) error {
	if policyID == "" {
		return nil
	}
	unknown := Invalid("/scoping_policy_id", "names an unknown policy")
	asked := AccessQuery{Identity: holder, ScopingPolicyID: policyID}
	if by.Kind != KindHost {
		asked.Identity = by.Identity() // the grants of the caller show what it has
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

// draw draws keys until store can keep one: at most issueTries, and only after ErrExists. store
// runs in a transaction of its own each time. In a transaction of the host, a taken id undoes only
// its own try.
func (s *Keys) draw(
	ctx context.Context, holder Identity, store func(*IssuedKey) error,
) (IssuedKey, error) {
	tags, err := s.tags(ctx)
	if err != nil {
		return IssuedKey{}, err
	}
	issued, err := IssuedKey{}, ErrExists // so that the loop begins
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
//
// Nothing happens before the loop over the sequence begins. Range over it once: a second loop may
// begin where the first has ended. The list is read 128 keys at a time, not in one snapshot.
//
// Errors: CodeInvalid, CodeForbidden, CodeNotFound (a service account without a row).
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

// Import takes over a key of another system. From then on the Service accepts it like a key issued
// here, so its users need no new key. The rules for callers are those of [Keys.Issue].
//
// The store keeps a hash of the hash, under the pepper. The key's ID follows from the hash, without
// the pepper. [Keys.Rotate] replaces the key by one in the form of the Service. An invented bearer
// with the prefix costs a read of the store; an invented key in the form of the Service costs none.
//
// The key counts for the limit of its holder. A revoked key cannot be imported again. Reports
// [EventAPIKeyImported].
//
// Errors: CodeInvalid, CodeForbidden, CodeNotFound, CodeLimit and CodeUnauthenticated (as Issue),
// CodeExists (the key was imported before, even if it is revoked now).
func (s *Keys) Import(
	ctx context.Context, by Principal, holder Identity, in ImportedKey,
) (APIKey, error) {
	now := s.now()
	var c checker
	if c.holder(holder); holder == Me {
		c.add("user_id", "must name a holder: keys cannot be imported for the caller")
	}
	in.NewAPIKey.check(&c, now)
	if !s.keys.Imports(in.Prefix) {
		c.add("prefix", "must be that of one of Config.Keys.Imports")
	}
	if n := len(in.Hash); n < keyring.MinDigest || n > keyring.MaxDigest {
		c.add("hash", fmt.Sprintf("must be %d to %d bytes", keyring.MinDigest, keyring.MaxDigest))
	}
	if in.IdempotencyKey != "" {
		c.add(idempotencyHeader, "must be empty: a key cannot be imported twice")
	}
	if err := c.err(); err != nil {
		return APIKey{}, err
	}
	if err := s.authorizeIssue(ctx, by, holder); err != nil {
		return APIKey{}, err
	}
	if err := s.checkScoping(ctx, by, holder, in.ScopingPolicyID); err != nil {
		return APIKey{}, err
	}
	key := s.newKey(holder, token.Imported(in.Prefix, in.Hash)).APIKey
	s.stamp(&key, in.NewAPIKey, now)
	err := s.addKey(ctx, by, key, EventAPIKeyImported, nil) // once: its id cannot be drawn again
	if errors.Is(err, ErrExists) {
		return APIKey{}, taken("hash", "this key was imported before")
	} else if err != nil {
		return APIKey{}, fault("import API key", err)
	}
	return key, nil
}

// Mask replaces with "***" what may be a key of another system: at least 16 visible characters,
// other than quotes, brackets and separators, after a prefix of Config.Keys.Imports. The prefix
// stays. Use it for logs and answers that repeat a caller's text. It does not mask keys in the form
// of the Service. With no Imports it returns the text as it is.
func (s *Keys) Mask(text string) string { return s.keys.Mask(text) }

// stamp sets the requested fields of a new key, and seals it. The seal comes last: it covers them.
func (s *Keys) stamp(key *APIKey, in NewAPIKey, now time.Time) {
	key.Description, key.ScopingPolicyID = in.Description, in.ScopingPolicyID
	key.CreatedAt, key.ExpiresAt = now, in.ExpiresAt
	s.seal(key)
}

// holders authorizes callers who change the keys of a holder, and locks the keys during the change.
// Rights are judged by cached rows before the transaction; a caller's own key again inside it.
type holders struct {
	*base
	*guard       // judges the rights of callers
	*journal     // commits
	*rings       // makes and seals keys
	most     int // keys that a holder can have
	// knownUser is Config.KnownUser. It is the host's code: call it outside transactions, since it
	// may use the same database. Nil: every id belongs to a user.
	knownUser func(ctx context.Context, id string) (bool, error)
}

// authorizeMe refuses callers that are not users, and narrowed users: the user's own keys may have
// more rights than the narrowed caller. It asks no store, as a user always exists here.
func authorizeMe(by Principal) error {
	switch {
	case by.Kind != KindUser:
		return forbidden("only users have keys of their own")
	case by.ScopingPolicyID != "":
		return forbidden("a narrowed key has no access to the other keys of its user")
	}
	return nil
}

// authorizeMyIssue refuses users who may not issue, and so may not prolong, their own keys. An
// unknown user is CodeForbidden here, not CodeNotFound: the path /me has no id to be wrong.
func (s *holders) authorizeMyIssue(ctx context.Context, by Principal) error {
	if err := authorizeMe(by); err != nil {
		return err
	}
	if err := s.checkUser(ctx, by, by.ID); ErrorCode(err) != CodeNotFound {
		return err
	}
	return forbidden("the host application does not know you as a user: you cannot get new keys")
}

// authorizeKeys refuses callers without the action on the keys of a holder.
//
// It also refuses a write when the holder has control-plane rights that the caller lacks. It does
// not ask the host for the user, so that the keys of a user who has left can be listed and ended.
//
// Rights count as of now: a holder that gets more rights later has them with each of its keys. The
// host needs no rights here, but the service account must exist.
func (s *holders) authorizeKeys(
	ctx context.Context, by Principal, holder Identity, action string,
) error {
	if holder == Me {
		return authorizeMe(by)
	}
	if by.Kind == KindHost {
		return s.checkAccount(ctx, holder)
	}
	caller, err := s.permitted(ctx, by, action)
	if err != nil {
		return err
	}
	if action == ActionUsersWrite {
		if err := s.withinCeiling(ctx, caller, by.vouched(), holder); err != nil {
			return err
		}
	}
	return s.checkAccount(ctx, holder)
}

// authorizeIssue refuses callers who may not issue, and so may not prolong, keys of a holder. It
// also refuses a holder that the host does not know. It asks the host last: a caller without rights
// must not learn which users exist.
func (s *holders) authorizeIssue(ctx context.Context, by Principal, holder Identity) error {
	if holder == Me {
		return s.authorizeMyIssue(ctx, by)
	}
	if err := s.authorizeChange(ctx, by, holder); err != nil || holder.Kind != KindUser {
		return err
	}
	return s.checkUser(ctx, by, holder.ID)
}

// authorizeChange refuses callers who may not reduce the keys of a holder. A patch that only
// disables or describes a key needs no more. Revocations do not use it: there, a service account
// and a narrowed caller with the rights may end keys.
func (s *holders) authorizeChange(ctx context.Context, by Principal, holder Identity) error {
	switch {
	case holder == Me:
		return authorizeMe(by)
	case by.Kind == KindServiceAccount:
		return forbidden("a service account cannot issue keys")
	case by.ScopingPolicyID != "":
		return forbidden("a narrowed key cannot issue keys")
	}
	return s.authorizeKeys(ctx, by, holder, ActionUsersWrite)
}

// checkAccount refuses a service account without a row. It reads the store, because a cached holder
// does not tell a missing row from one without rights. It comes after the check of rights.
func (s *holders) checkAccount(ctx context.Context, holder Identity) error {
	if holder.Kind != KindServiceAccount {
		return nil
	}
	snapshot, err := s.store.Access(ctx, AccessQuery{Identity: holder})
	if err == nil && snapshot.ServiceAccount == nil {
		return notFound("there is no such service account")
	}
	return fault("read service account", err)
}

// checkUser refuses a user whom the host does not know. It lets every user pass when the caller is
// the host itself: that call may be in a transaction of the host, and KnownUser would wait for it.
func (s *holders) checkUser(ctx context.Context, by Principal, id string) error {
	if s.knownUser == nil || by.Kind == KindHost {
		return nil
	}
	known, err := s.knownUser(ctx, id)
	if err != nil {
		return fault("ask the host for a user", err)
	}
	if !known {
		return notFound("there is no such user")
	}
	return nil
}

// locks returns the lock of a change that makes or changes a key of a holder. It locks the holder's
// keys and checks the caller again. A caller whose key has ended since it was authenticated gets
// CodeUnauthenticated, and nothing is written. live receives how many keys of the holder are not
// revoked, counted up to the allowed maximum; nil: not needed.
//
// The transaction holds these locks until it ends, and each has one job:
//
//   - The lock on changes of access ([AccessStore].ChangeAccess): an Apply that makes the caller
//     inactive comes before or after. This lock comes first, because an Apply may take long: while
//     this call waits for one, it locks nobody's key.
//   - The lock on the holder's keys ([APIKeyStore].LockAPIKeys): of two calls that count and then
//     add, one counts what the other has added.
//   - The lock on the caller's own key ([APIKeyStore].ChangeAPIKey): a revocation of it comes
//     before, and is seen, or after.
//
// A bearer of the host's Authenticator, and the host itself, have no key here.
func (s *holders) locks(
	by Principal, holder Identity, live *int,
) func(ctx context.Context, tx Store) error {
	return func(ctx context.Context, tx Store) error {
		n, err := s.lockKeys(ctx, tx, by, holder)
		if live != nil {
			*live = n
		}
		return err
	}
}

// lockKeys takes these locks, checks the caller, and counts the holder's keys. Its changes write
// nothing: only their locks matter.
func (s *holders) lockKeys(
	ctx context.Context, tx Store, by Principal, holder Identity,
) (live int, err error) {
	if by.key != "" {
		if err := lockAccess(ctx, tx); err != nil {
			return 0, fmt.Errorf("lock access: %w", err)
		}
	}
	live, err = tx.LockAPIKeys(ctx, holder, s.most)
	if err != nil || by.key == "" {
		return live, err
	}
	err = tx.ChangeAPIKey(ctx, by.Identity(), by.key, func(*APIKey) (bool, error) {
		return false, nil // takes the lock, writes nothing
	})
	if errors.Is(err, ErrNotFound) {
		return 0, s.ended(by) // it is revoked
	} else if err != nil {
		return 0, fmt.Errorf("lock the caller's API key: %w", err)
	}
	return live, s.judge(ctx, tx, by) // after the locks, so no change can come between
}

// judge refuses a caller whose key is no longer accepted, by the present rows of store. These are
// the checks of Authenticate without the secret, which the caller has shown already. It uses no
// cached row: the cache may not have the latest revocation of another process yet. The clock counts
// as well: a key may have expired while the transaction waited.
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
		!s.copyOf(key).Good(s.clock()) || !s.keys.Sealed(key.row()) {
		return s.ended(by) // the same answer for every reason
	}
	return nil
}

// ended answers a caller whose key was accepted a moment ago. The cache may still hold the key.
func (s *holders) ended(by Principal) error {
	s.forget(APIKey{ID: by.key, Holder: by.Identity()}.Target())
	return unauthenticated()
}

// room refuses one more key to a holder that has as many as allowed. It must run under the lock of
// the holder's keys: without it, two calls at once could both find the last place.
func (s *holders) room(live int) error {
	if most := s.most; live >= most { // the count stops at most
		return &Error{Code: CodeLimit, Message: fmt.Sprintf(
			"the holder has %d API keys, and more are not allowed: revoke one first", most)}
	}
	return nil
}
