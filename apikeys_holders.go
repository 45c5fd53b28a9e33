package svc

import (
	"context"
	"errors"
	"fmt"

	"github.com/extsvc/svc/internal/policy"
)

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
func (s *holders) authorizeMyIssue(ctx context.Context, by Principal) (row bool, err error) {
	if err := authorizeMe(by); err != nil {
		return false, err
	}
	own, _, err := s.standing(ctx, by.holder(), controlPlane)
	if err != nil {
		return false, err
	}
	row, err = s.checkUser(ctx, by, by.ID, own.User != "")
	if ErrorCode(err) == CodeNotFound {
		err = unknownMe()
	}
	return row, err
}

func unknownMe() *Error {
	return forbidden("the host application does not know you as a user: you cannot get new keys")
}

// keyAction returns the action that a caller needs on the keys of a holder.
func keyAction(holder Identity, write bool) string {
	switch {
	case holder.Kind == KindServiceAccount:
		return ActionAccountsManage
	case holder.Kind == kindMyAccount && write:
		return ActionAccountKeysWrite
	case holder.Kind == kindMyAccount:
		return ActionAccountsRead
	case write:
		return ActionUsersWrite
	}
	return ActionUsersRead
}

// authorizeKeys refuses callers without the action on the keys of a holder.
//
// It also refuses a write when the holder has control-plane rights that the caller lacks. It does
// not ask the host for the user, so that the keys of a user who has left can be listed and ended.
// row tells whether the holder has a row.
//
// Rights count as of now: a holder that gets more rights later has them with each of its keys. The
// host needs no rights here, but the service account must exist.
func (s *holders) authorizeKeys(
	ctx context.Context, by Principal, holder Identity, write bool,
) (row bool, err error) {
	if holder == Me {
		return false, authorizeMe(by)
	}
	if by.Kind == KindHost {
		return false, s.checkAccount(ctx, by, holder, "")
	}
	action := keyAction(holder, write)
	caller, err := s.permitted(ctx, by, action)
	if err != nil {
		return false, err
	}
	if write {
		row, err = s.withinCeiling(ctx, caller.Rights, by.vouched(), by.or(holder))
		if err != nil {
			return false, err
		}
	}
	return row, s.checkAccount(ctx, by, holder, action)
}

// authorizeIssue refuses callers who may not issue, and so may not prolong, keys of a holder. It
// also refuses a holder that the host does not know. It asks the host last: a caller without rights
// must not learn which users exist.
func (s *holders) authorizeIssue(
	ctx context.Context, by Principal, holder Identity,
) (row bool, err error) {
	if holder == Me {
		return s.authorizeMyIssue(ctx, by)
	}
	if row, err = s.authorizeChange(ctx, by, holder); err != nil {
		return false, err
	}
	if err := s.covers(ctx, by, by.or(holder)); err != nil || holder.Kind != KindUser {
		return row, err
	}
	return s.checkUser(ctx, by, holder.ID, row)
}

// covers refuses a holder that has a right which the caller lacks: its keys would give that right
// to the caller. iam:banks:grant stands for all rights but those of the control plane.
func (s *holders) covers(ctx context.Context, by Principal, holder Identity) error {
	if by.Kind == KindHost {
		return nil
	}
	caller, _, err := s.standing(ctx, by.holder(), controlPlane)
	if err != nil || caller.Rights.Permits(by.vouched(), ActionBanksGrant) {
		return err
	}
	own, err := s.store.Access(ctx, AccessQuery{Identity: by.Identity()})
	if err != nil {
		return fault("read access", err)
	}
	other, err := s.store.Access(ctx, AccessQuery{Identity: holder})
	if err != nil {
		return fault("read access", err)
	}
	compiler := s.compiler.Apart(ctx)
	grantor := &policy.Grantor{Subject: own.standing(by.Identity()), Vouched: by.vouched()}
	of := other.powers(bearer{Identity: holder}).subject
	if x, beyond := compiler.Covers(grantor, of); beyond {
		return refuseExcess("the bearer of the key", x)
	}
	return fault("compare rights", ctx.Err())
}

// authorizeChange refuses callers who may not reduce the keys of a holder. A patch that only
// disables or describes a key needs no more. Revocations do not use it: there, a service account
// and a narrowed caller with the rights may end keys.
func (s *holders) authorizeChange(
	ctx context.Context, by Principal, holder Identity,
) (row bool, err error) {
	switch {
	case holder == Me:
		return false, authorizeMe(by)
	case by.Kind == KindServiceAccount:
		return false, forbidden("a service account cannot issue keys")
	case by.ScopingPolicyID != "":
		return false, forbidden("a narrowed key cannot issue keys")
	}
	return s.authorizeKeys(ctx, by, holder, true)
}

// checkAccount refuses a service account without a row, or one that is not the caller's own. It
// reads the store, because a cached holder does not tell a missing row from one without rights. It
// comes after the check of rights.
func (s *holders) checkAccount(
	ctx context.Context, by Principal, holder Identity, action string,
) error {
	account := by.or(holder)
	if account.Kind != KindServiceAccount {
		return nil
	}
	owner := ""
	if holder.Kind == kindMyAccount {
		at, err := s.own(ctx, by, action)
		if err != nil {
			return err
		}
		owner = at.owner
	}
	snapshot, err := s.store.Access(ctx, AccessQuery{Identity: account})
	if found := snapshot.ServiceAccount; err == nil &&
		(found == nil || owner != "" && found.OwnerUserID != owner) {
		return accountRows.missing()
	}
	return fault("read service account", err)
}

// checkUser refuses a user whom the host does not know. It lets every user pass when the caller is
// the host itself: that call may be in a transaction of the host, and KnownUser would wait for it.
//
// cached tells whether the user has a row, by cached rows. The result tells it by the store: the
// host may know the user by a row that is newer than the cache. A deletion of that row must not be
// missed.
func (s *holders) checkUser(
	ctx context.Context, by Principal, id string, cached bool,
) (row bool, err error) {
	if row = cached; s.knownUser == nil || by.Kind == KindHost {
		return row, nil
	}
	if !row {
		now, err := s.store.Access(ctx, AccessQuery{Identity: Identity{KindUser, id}})
		if err != nil {
			return false, fault("read access", err)
		}
		row = now.User != nil
	}
	known, err := s.knownUser(ctx, id)
	if err != nil {
		return false, fault("ask the host for a user", err)
	}
	if !known {
		return false, notFound("there is no such user")
	}
	return row, nil
}

// keyLocks are the locks of a change that makes or changes a key of a holder.
type keyLocks struct {
	by     Principal
	holder Identity
	// row: the holder had a row when the caller was authorized, and must still have it.
	row     bool
	owner   string // the user who must still own the service account; "": any
	scoping string // the policy that narrows the new key; "": none
	live    int    // receives the number of the holder's keys that are not revoked
}

// adds returns the locks of a call that adds a key to a holder. row tells whether the holder has a
// row; a service account must have one.
func (p Principal) adds(holder Identity, row bool) keyLocks {
	l := keyLocks{by: p, holder: p.or(holder), row: row}
	if l.holder.Kind == KindServiceAccount {
		l.row = true
	}
	if holder.Kind == kindMyAccount {
		l.owner = p.ID // a user: service accounts issue no keys
	}
	return l
}

// lock locks the holder's keys and checks the caller again. A caller whose key has ended since it
// was authenticated gets CodeUnauthenticated, and nothing is written. live counts up to the allowed
// maximum.
//
// The transaction holds these locks until it ends, and each has one job:
//
//   - The lock on changes of access ([AccessStore].ChangeAccess): an Apply that makes the caller
//     inactive, or a deletion of the policy that narrows the key, comes before or after. This lock
//     comes first, because an Apply may take long: while this call waits for one, it locks nobody's
//     key.
//   - The lock on the holder's keys ([APIKeyStore].LockAPIKeys): of two calls that count and then
//     add, one counts what the other has added. A deletion of the holder comes before or after.
//   - The lock on the caller's own key ([APIKeyStore].ChangeAPIKey): a revocation of it comes
//     before, and is seen, or after.
//
// A bearer of the host's Authenticator, and the host itself, have no key here.
func (s *holders) lock(l *keyLocks) func(ctx context.Context, tx Store) error {
	return func(ctx context.Context, tx Store) (err error) {
		if l.by.key != "" || l.scoping != "" {
			if err := lockAccess(ctx, tx); err != nil {
				return fmt.Errorf("lock access: %w", err)
			}
		}
		if l.live, err = tx.LockAPIKeys(ctx, l.holder, s.most); err != nil {
			return err
		}
		if err := s.lockOwn(ctx, tx, l.by); err != nil {
			return err
		}
		return l.check(ctx, tx)
	}
}

// check refuses a holder that is deleted meanwhile or has another owner, and a policy that is
// deleted.
func (l *keyLocks) check(ctx context.Context, tx Store) error {
	if !l.row && l.scoping == "" {
		return nil
	}
	now, err := tx.Access(ctx, AccessQuery{Identity: l.holder, ScopingPolicyID: l.scoping})
	switch {
	case err != nil:
		return err
	case l.row && l.holder.Kind == KindServiceAccount && (now.ServiceAccount == nil ||
		l.owner != "" && now.ServiceAccount.OwnerUserID != l.owner):
		return accountRows.missing()
	case l.row && l.holder.Kind == KindUser && now.User == nil:
		if l.holder == l.by.Identity() {
			return unknownMe()
		}
		return userRows.missing()
	case l.scoping != "" && now.Narrowing == nil && builtins[l.scoping] == nil:
		return unknownScoping()
	}
	return nil
}

// lockOwn locks the caller's own key, if it has one, and judges it.
func (s *holders) lockOwn(ctx context.Context, tx Store, by Principal) error {
	if by.key == "" {
		return nil
	}
	err := tx.ChangeAPIKey(ctx, by.Identity(), by.key, func(*APIKey) (bool, error) {
		return false, nil // takes the lock, writes nothing
	})
	if errors.Is(err, ErrNotFound) {
		return s.ended(by) // it is revoked
	} else if err != nil {
		return fmt.Errorf("lock the caller's API key: %w", err)
	}
	return s.judge(ctx, tx, by) // after the lock, so no change can come between
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

// room returns the lock of a change that adds a row to a personal area; nil for the server's area.
// full reports whether the area has as many rows as are allowed; most says how many, for people.
//
// All changes that add to an area take the lock on the keys of its owner, and so does the deletion
// of the owner. So no call counts too few rows, and none adds a row for a user that is deleted. A
// deletion revokes the caller's key, so the key also tells the user from another one with that id.
func (a area) room(
	most string, full func(ctx context.Context, tx Store) (bool, error),
) func(ctx context.Context, tx Store) error {
	if a.scope == ScopeServer {
		return nil
	}
	return func(ctx context.Context, tx Store) error {
		owner := Identity{Kind: KindUser, ID: a.owner}
		if _, err := tx.LockAPIKeys(ctx, owner, 1); err != nil {
			return err
		}
		if err := a.check(ctx, tx); err != nil {
			return err
		}
		is, err := full(ctx, tx)
		if is {
			return &Error{
				Code:    CodeLimit,
				Message: "the user has " + most + ", and more are not allowed: remove one first",
			}
		}
		return err
	}
}

// check refuses an owner that is deleted meanwhile, and a caller whose key is revoked.
func (a area) check(ctx context.Context, tx Store) error {
	if !a.row && a.key == "" {
		return nil
	}
	who := AccessQuery{Identity: Identity{KindUser, a.owner}}
	if a.key != "" {
		who = AccessQuery{KeyID: a.key}
	}
	now, err := tx.Access(ctx, who)
	switch {
	case err != nil:
		return err
	case a.key != "" && (now.Key == nil || !now.Key.RevokedAt.IsZero()):
		return unauthenticated()
	case a.row && now.User == nil:
		return forbidden("the user does not exist any more")
	}
	return nil
}
