package svc

import (
	"cmp"
	"context"
	"slices"

	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/text"
	"github.com/extsvc/svc/limits"
)

// keyIssuer authorizes callers who change the keys of a holder, and locks the keys during the
// change. It also weighs the caller of every change again, in the transaction of the change.
type keyIssuer struct {
	*base
	*authorizer     // judges the rights of callers
	*committer      // commits
	*keyHasher      // makes and seals keys
	most        int // keys that a holder can have
	// ignoreExpired leaves expired keys out of most.
	ignoreExpired bool
	// knownUser is Config.Users.Known. It is the host's code: call it outside transactions, since
	// it may use the same database. Nil: every id belongs to a user.
	knownUser    func(ctx context.Context, id string) (bool, error)
	usersAreRows bool // Config.Users.AreRows
}

// authorizeMe refuses callers that are not users, and narrowed users: the user's own keys may have
// more rights than the narrowed caller. It asks no store, as a user always exists here.
func authorizeMe(by Principal) error {
	switch {
	case by.Kind != KindUser || text.IDProblem(by.ID, limits.IDLength) != "":
		return forbidden("only users have keys of their own")
	case by.ScopingPolicyID != "":
		return forbidden("a narrowed key has no access to the other keys of its user")
	}
	return nil
}

// authorizeMyIssue refuses users who may not issue, and so may not prolong, their own keys. An
// unknown user is CodeForbidden here, not CodeNotFound: the path /me has no id to be wrong.
func (s *keyIssuer) authorizeMyIssue(ctx context.Context, by Principal) (b basis, err error) {
	if err := authorizeMe(by); err != nil {
		return b, err
	}
	b = basis{holder: by.Identity()}
	b.key, b.at = s.keyOf(by)
	own, _, err := s.standing(ctx, by.holder(), controlPlane)
	if err != nil {
		return b, err
	}
	b.row, err = s.checkUser(ctx, by, by.ID, own.User != "")
	if ErrorCode(err) == CodeNotFound {
		err = unknownMe()
	}
	return b, err
}

func unknownMe() *Error {
	return forbidden("the host application does not know you as a user: you cannot get new keys")
}

// keyAction returns the action that a caller needs on the keys of a holder.
func keyAction(holder Identity, write bool) string {
	switch {
	case holder.Kind == KindServiceAccount:
		return action.AccountsManage
	case holder.Kind == kindMyAccount && write:
		return action.AccountKeysWrite
	case holder.Kind == kindMyAccount:
		return action.AccountsRead
	case write:
		return action.UsersWrite
	}
	return action.UsersRead
}

// keyActions returns the actions that a caller needs on the keys of all holders.
func keyActions(write bool) (users, accounts string) {
	return keyAction(Identity{Kind: KindUser}, write),
		keyAction(Identity{Kind: KindServiceAccount}, write)
}

// authorizeAll refuses callers without the actions on the keys of all holders.
func (s *keyIssuer) authorizeAll(ctx context.Context, by Principal, write bool) error {
	users, accounts := keyActions(write)
	return cmp.Or(s.authorize(ctx, by, users), s.authorize(ctx, by, accounts))
}

// authorizeKeys refuses callers without the action on the keys of a holder. It returns why the
// caller is allowed, which the transaction of a write judges again.
//
// It also refuses a write when the holder has control-plane rights that the caller lacks. It does
// not ask the host for the user, so that the keys of a user who has left can be listed and ended.
//
// Rights count as of now: a holder that gets more rights later has them with each of its keys. The
// host needs no rights here, but the service account must exist.
func (s *keyIssuer) authorizeKeys(
	ctx context.Context, by Principal, holder Identity, write bool,
) (b basis, err error) {
	if b.holder = by.or(holder); holder == Me {
		return b, authorizeMe(by)
	}
	if by.Kind == KindHost {
		return b, s.checkAccount(ctx, by, holder, &b)
	}
	b.action, b.within = keyAction(holder, write), write
	b.key, b.at = s.keyOf(by)
	caller, err := s.permitted(ctx, by, b.action)
	if err != nil {
		return b, err
	}
	// Before the ceiling: its refusal names a right of the account, which may be another owner's.
	if err := s.checkAccount(ctx, by, holder, &b); err != nil || !write {
		return b, err
	}
	// Without a narrowing: the caller could issue a key of the holder that has none.
	target, _, err := s.standing(ctx, b.holder.narrowed(""), controlPlane)
	if err != nil {
		return b, err
	}
	b.row = b.row || target.User != ""
	b.judged = judgedBy(caller.Rights, target.Rights)
	return b, withinCeiling(caller.Rights, by.vouched(), target.Rights)
}

// authorizeIssue refuses callers who may not issue, and so may not prolong, keys of a holder. It
// also refuses a holder whom, or whose owner, the host does not know. It asks the host last: a
// caller without rights must not learn which users exist.
func (s *keyIssuer) authorizeIssue(
	ctx context.Context, by Principal, holder Identity,
) (b basis, err error) {
	if holder == Me {
		return s.authorizeMyIssue(ctx, by)
	}
	if b, err = s.authorizeChange(ctx, by, holder); err != nil {
		return b, err
	}
	if by.Kind != KindHost {
		// The keys of the holder would give its rights to the caller. iam:banks:grant stands for all
		// rights but those of the control plane.
		b.covers = true
		caller, _, err := s.standing(ctx, by.holder(), controlPlane)
		if err == nil && !caller.Rights.Permits(by.vouched(), action.BanksGrant) {
			err = s.weigh(ctx, by, &b)
		}
		if err != nil {
			return b, err
		}
	}
	b.row, err = s.checkUser(ctx, by, b.user, b.row)
	if b.holder.Kind == KindServiceAccount && ErrorCode(err) == CodeNotFound {
		err = forbidden("the host application does not know the owner of the service account")
	}
	return b, err
}

// weigh judges, by the store's present rows, the rights that the holder of a basis has and its
// caller needs. It notes these rows in the basis. Its time grows with the documents of both: so it
// runs outside of transactions, and inside it is enough to compare the rows.
func (s *keyIssuer) weigh(ctx context.Context, by Principal, b *basis) error {
	own, err := s.present(ctx, s.store, by, b)
	if err != nil {
		return err
	}
	other, err := s.store.Access(ctx, AccessQuery{Identity: b.holder})
	if err != nil {
		return fault("read access", err)
	}
	standing := own.standing(by.Identity(), by.ScopingPolicyID)
	caller, target := s.compiler.Compile(standing), s.compiler.Compile(other.standing(b.holder, ""))
	b.judged = judgedBy(caller, target)
	if err := withinCeiling(caller, by.vouched(), target); err != nil {
		return err
	}
	if !b.covers || caller.Permits(by.vouched(), action.BanksGrant) {
		return nil
	}
	grantor := &policy.Grantor{Subject: standing, Vouched: by.vouched()}
	of := other.rights(rightsHolder{Identity: b.holder}).subject
	if x, beyond := s.compiler.Apart(ctx).Covers(grantor, of); beyond {
		return refuseExcess("the bearer of the key", x)
	}
	return fault("compare rights", ctx.Err())
}

// authorizeChange refuses callers who may not reduce the keys of a holder. A patch that only
// disables or describes a key needs nothing else. Revocations do not use it: there, a service
// account and a narrowed caller with the rights may end keys.
func (s *keyIssuer) authorizeChange(
	ctx context.Context, by Principal, holder Identity,
) (b basis, err error) {
	switch {
	case holder == Me:
		return basis{holder: by.Identity()}, authorizeMe(by)
	case by.Kind == KindServiceAccount:
		return b, forbidden("a service account cannot issue or change keys")
	case by.ScopingPolicyID != "":
		return b, forbidden("a narrowed key cannot issue or change keys")
	}
	return s.authorizeKeys(ctx, by, holder, true)
}

// ofKey returns the refusal of a change of a key. A caller with the action hears that there is no
// such key before it hears of rights that it lacks.
func (s *keyIssuer) ofKey(ctx context.Context, b basis, id string, refused error) error {
	if ErrorCode(refused) != CodeForbidden || b.judged == [2]*policy.Shared{} {
		return refused
	}
	now, err := s.store.Access(ctx, AccessQuery{KeyID: id, Bare: true})
	switch key := now.Key; {
	case err != nil:
		return fault("read API key", err)
	case key == nil || key.Holder != b.holder || !key.RevokedAt.IsZero():
		return unknownKey()
	}
	return refused
}

func unknownKey() *Error { return notFound("there is no such API key") }

// checkAccount refuses a service account without a row, or one that is not the caller's own. It
// reads the store, because a cached holder does not tell a missing row from one without rights. It
// comes after the check of rights. It notes in b what must not change.
func (s *keyIssuer) checkAccount(
	ctx context.Context, by Principal, holder Identity, b *basis,
) error {
	if b.user = b.holder.ID; b.holder.Kind != KindServiceAccount {
		return nil
	}
	b.row = true
	if holder.Kind == kindMyAccount {
		at, err := s.own(ctx, by, b.action)
		if err != nil {
			return err
		}
		b.owner = at.owner
	}
	snapshot, err := s.store.Access(ctx, AccessQuery{Identity: b.holder})
	if err != nil {
		return fault("read service account", err)
	}
	if account := snapshot.ServiceAccount; account != nil {
		b.user = account.OwnerUserID
	}
	return b.checkHolder(by, snapshot)
}

// checkUser refuses a user whom the host does not know. It lets every user pass when the caller is
// the host itself: that call may be in a transaction of the host, and
// Users.Known would wait for it.
//
// cached tells whether the user has a row, by cached rows. The result tells it by the store: the
// host may know the user by a row that is newer than the cache. A deletion of that row must not be
// missed.
func (s *keyIssuer) checkUser(
	ctx context.Context, by Principal, id string, cached bool,
) (row bool, err error) {
	if row = cached; by.Kind == KindHost || s.knownUser == nil && (row || !s.usersAreRows) {
		return row, nil
	}
	if !row {
		now, err := s.store.Access(ctx, AccessQuery{Identity: Identity{KindUser, id}})
		if err != nil {
			return false, fault("read access", err)
		}
		row = now.User != nil
	}
	known := row
	if s.knownUser != nil {
		if known, err = s.knownUser(ctx, id); err != nil {
			return false, fault("ask the host for a user", hostError{err})
		}
	}
	if !known {
		return false, notFound("there is no such user")
	}
	return row, nil
}

// recheck judges the caller of a change again, by the rows of the change's transaction. It refuses
// a caller whose key has ended or that is inactive, one that lacks the action by now, and a holder
// or an owner that is gone. The host keeps its rights, and other callers what the host vouches for
// in this request.
//
// errStaleRights: rights have changed that take long to judge. Judge them by weigh, outside of the
// transaction, and try again.
func (s *keyIssuer) recheck(ctx context.Context, tx Store, by Principal, b *basis) error {
	if b.at != 0 {
		if same, err := s.unmoved(ctx, tx, b); same || err != nil {
			return err
		}
	}
	var own AccessSnapshot
	if by.Kind != KindHost {
		var err error
		if own, err = s.present(ctx, tx, by, b); err != nil {
			return err
		}
	}
	switch {
	case b.holder == Identity{}:
		return b.checkArea(by, own)
	case !b.within && !b.row && b.scoping == "" && b.most == 0:
		return nil
	}
	now := own
	if b.apart(by) {
		var err error
		query := AccessQuery{Identity: b.holder, ScopingPolicyID: b.scoping, Bare: !b.within}
		s.count(b, &query)
		if now, err = tx.Access(ctx, query); err != nil {
			return err
		}
	}
	b.live = now.Keys
	if err := b.checkHolder(by, now); err != nil || !b.within {
		return err
	}
	caller := s.compiler.Compile(own.standing(by.Identity(), by.ScopingPolicyID))
	target := s.compiler.Compile(now.standing(b.holder, ""))
	if judgedBy(caller, target) != b.judged {
		return errStaleRights
	}
	return nil
}

// unmoved reports whether the store has the generation from before the caller was judged, and the
// key of the caller has not expired since. It counts the keys of the holder, as recheck does.
func (s *keyIssuer) unmoved(ctx context.Context, tx Store, b *basis) (bool, error) {
	var query AccessQuery
	s.count(b, &query)
	now, err := tx.Access(ctx, query)
	if err != nil {
		return false, fault("read access", err)
	}
	if b.live = now.Keys; now.Generation == b.at && b.key.Good(s.clock()) {
		return true, nil
	}
	b.at = 0
	return false, nil
}

// present returns the rows of a caller. It refuses a caller that Authenticate and Accept would
// refuse by these rows, and one that lacks the action.
func (s *keyIssuer) present(
	ctx context.Context, store Store, by Principal, b *basis,
) (now AccessSnapshot, err error) {
	query := AccessQuery{Identity: by.Identity(), ScopingPolicyID: by.ScopingPolicyID}
	if query.Bare = b.action == "" && !b.within; !b.apart(by) {
		s.count(b, &query)
	}
	if by.key != "" && !b.keyless {
		now, err = s.judge(ctx, store, by, query)
	} else {
		now, err = store.Access(ctx, query)
		if err == nil && now.inactive(by.Kind) {
			err = unauthenticated()
		}
	}
	if err != nil || b.action == "" {
		return now, fault("read access", err)
	}
	rights := s.compiler.Compile(now.standing(by.Identity(), by.ScopingPolicyID))
	if !rights.Permits(by.vouched(), b.action) {
		err = forbidden("you are not allowed " + b.action)
	}
	return now, err
}

// apart reports whether the rows of the holder are not among those of the caller.
func (b *basis) apart(by Principal) bool { return b.holder != by.Identity() || b.scoping != "" }

// count makes a query count the keys of the holder, where the change needs it.
func (s *keyIssuer) count(b *basis, query *AccessQuery) {
	if b.most > 0 {
		query.KeysOf, query.Most = b.holder, b.most
	}
	if b.most > 0 && s.ignoreExpired {
		query.ValidAt = s.now()
	}
}

// judgedBy identifies the policies of a caller and of a holder. While they are the same,
// weigh would allow the same.
func judgedBy(caller, holder *policy.Rights) [2]*policy.Shared {
	return [2]*policy.Shared{caller.Shared(), holder.Shared()}
}

// checkArea refuses an owner of personal rows that is deleted in the meantime, or is another one.
func (b *basis) checkArea(by Principal, now AccessSnapshot) error {
	switch account := now.ServiceAccount; {
	case b.row && now.User == nil:
		return forbidden("the user does not exist any more")
	case b.owner != "" && by.Kind == KindServiceAccount &&
		(account == nil || account.OwnerUserID != b.owner):
		return forbidden("the service account does not belong to this user any more")
	}
	return nil
}

// checkHolder refuses a holder that is deleted in the meantime or has another owner, and a policy
// that is deleted.
func (b *basis) checkHolder(by Principal, now AccessSnapshot) error {
	switch {
	case b.row && b.holder.Kind == KindServiceAccount && (now.ServiceAccount == nil ||
		b.owner != "" && now.ServiceAccount.OwnerUserID != b.owner):
		return notFound("there is no such service account")
	case b.row && b.holder.Kind == KindUser && now.User == nil:
		if b.holder == by.Identity() {
			return unknownMe()
		}
		return notFound("there is no such user")
	case b.scoping != "" && now.Narrowing == nil && builtins[b.scoping] == nil:
		return unknownScoping()
	}
	return nil
}

// checkScoping refuses a policy that does not exist. It refuses in the same way a policy that the
// caller may not read and does not have. Otherwise an answer would tell which policies exist.
func (s *authorizer) checkScoping(
	ctx context.Context, by Principal, holder Identity, policyID string,
) error {
	if policyID == "" {
		return nil
	}
	unknown := unknownScoping()
	asked := AccessQuery{Identity: holder, ScopingPolicyID: policyID}
	if by.Kind != KindHost {
		asked.Identity = by.Identity() // the grants of the caller show what it has
	}
	snapshot, err := s.store.Access(ctx, asked)
	if err != nil {
		return fault("read scoping policy", err)
	}
	// Everybody knows the built-in policies.
	has := builtins[policyID] != nil && snapshot.Narrowing == nil ||
		snapshot.Narrowing != nil && snapshot.Narrowing.Builtin() ||
		slices.ContainsFunc(snapshot.Grants, func(g Grant) bool { return g.Policy.ID == policyID })
	if err := s.authorize(ctx, by, action.PoliciesRead); ErrorCode(err) == CodeForbidden && !has {
		return unknown
	} else if err != nil && !has {
		return err
	}
	if snapshot.Narrowing == nil && builtins[policyID] == nil {
		return unknown
	}
	return nil
}

func unknownScoping() *Error {
	return Invalid("/scoping_policy_id", "names an unknown policy")
}
