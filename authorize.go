package svc

import (
	"context"
	"errors"
	"fmt"

	"github.com/extsvc/svc/internal/copies"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/text"
)

// The control-plane actions. A caller needs them on bank "*".
const (
	ActionUsersRead     = "iam:users:read"
	ActionUsersWrite    = "iam:users:write"
	ActionPoliciesRead  = "iam:policies:read"
	ActionTemplateAdmin = "template:admin"
	ActionAuditRead     = "iam:audit:read"
)

// controlPlane is the bank that stands for svc itself.
const controlPlane = "*"

// guard authorizes callers.
type guard struct {
	*base
	compiler *policy.Compiler
}

// holders authorizes callers who change the keys of a holder, and locks the keys during the change.
type holders struct {
	*base
	*guard
	*journal
	*rings
	most      int // keys that a holder can have
	knownUser func(ctx context.Context, id string) (bool, error)
}

func forbidden(message string) *Error { return &Error{Code: CodeForbidden, Message: message} }

// authorize refuses callers without the control-plane action. The host always passes.
func (s *guard) authorize(ctx context.Context, by Principal, action string) error {
	if by.Kind == KindHost {
		return fault("authorize", ctx.Err())
	}
	_, err := s.permitted(ctx, by, action)
	return err
}

// permitted returns the rights of a caller who is allowed the control-plane action. It always
// refuses an unmapped sender, whatever a bank policy gives to the public.
func (s *guard) permitted(
	ctx context.Context, by Principal, action string,
) (*policy.Rights, error) {
	if by.Kind == KindUnmapped {
		return nil, forbidden("an unmapped sender has no administrative rights")
	}
	if err := ctx.Err(); err != nil {
		return nil, fault("authorize", err)
	}
	caller, all, err := s.standing(ctx, by.holder(), controlPlane)
	if err != nil {
		return nil, err
	}
	if !caller.Rights.Decide(action, controlPlane, &policy.Context{}, all).
		Vouch(by.vouched()).Allowed() {
		return nil, forbidden("you are not allowed " + action)
	}
	return caller.Rights, nil
}

// authorizeMe refuses callers that are not users, and narrowed users: the user's own keys may have
// more rights than the narrowed caller.
func authorizeMe(by Principal) error {
	switch {
	case by.Kind != KindUser:
		return forbidden("only users have keys of their own")
	case by.ScopingPolicyID != "":
		return forbidden("a narrowed key has no access to the other keys of its user")
	}
	return nil
}

// authorizeMyIssue refuses users who may not issue, and so may not prolong, their own keys.
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
// also refuses a holder that the host does not know.
func (s *holders) authorizeIssue(ctx context.Context, by Principal, holder Identity) error {
	if holder == Me {
		return s.authorizeMyIssue(ctx, by)
	}
	if err := s.authorizeChange(ctx, by, holder); err != nil || holder.Kind != KindUser {
		return err
	}
	return s.checkUser(ctx, by, holder.ID)
}

// authorizeChange refuses callers who may not reduce the keys of a holder.
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

// withinCeiling refuses when the holder has a control-plane right that the caller lacks. The keys
// of the holder would give that right to the caller. An inactive holder counts with the rights that
// it has when active.
func (s *guard) withinCeiling(
	ctx context.Context, caller *policy.Rights, vouched []string, holder Identity,
) error {
	target, _, err := s.standing(ctx, holder.narrowed(""), controlPlane)
	if err != nil {
		return err
	}
	if action, within := policy.Within(target.Rights.Opened(), caller, vouched); !within {
		return forbidden("the holder of these keys is allowed " + action + ", but you are not")
	}
	return nil
}

// checkAccount refuses a service account without a row.
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
// the host itself.
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

// standing returns the inputs of a decision: cached ones while they are valid, else the store's
// rows.
func (s *guard) standing(
	ctx context.Context, who copies.Holder, bank string,
) (*copies.Standing, *policy.Bank, error) {
	if who.Kind == policy.Unmapped {
		who = Unmapped.holder()
	}
	if holder, b, ok := s.copies.Standing(who, bank); ok {
		return holder, b, nil
	}
	var c checker
	if c.foreign("bank", bank); c.err() != nil {
		return nil, nil, c.err()
	}
	if who.Kind != policy.Unmapped && text.IDProblem(who.ID, MaxIDLength) != "" {
		return &copies.Standing{Rights: s.compiler.Compile(policy.Subject{
			Kind: policy.User, Closed: "denied: no principal has that id",
		})}, nil, nil
	}
	return s.copies.LoadStanding(ctx, who, bank, s.readStanding)
}

// readStanding reads the stored rows about a principal and a bank, in one snapshot.
func (s *guard) readStanding(
	ctx context.Context, who copies.Holder, bank string,
) (*copies.Standing, copies.Bank, error) {
	query := AccessQuery{
		Identity: identityOf(who), ScopingPolicyID: who.NarrowedBy, BankID: bank,
	}
	if who == Unmapped.holder() {
		query.Identity = Identity{}
	}
	snapshot, err := s.store.Access(ctx, query)
	if err != nil {
		return nil, copies.Bank{}, fault("read access", err)
	}
	holder, b := s.snapshotStanding(who, snapshot)
	return holder, b, nil
}

// snapshotStanding returns what a snapshot says about a principal and a bank. A principal without a
// row has no stored rights, but is not closed: the Actions that the host grants still count.
func (s *guard) snapshotStanding(
	who copies.Holder, snapshot AccessSnapshot,
) (*copies.Standing, copies.Bank) {
	s.copies.Hear(snapshot.Generation)
	of := identityOf(who)
	subject, holder := snapshot.subject(of), &copies.Standing{Generation: snapshot.Generation}
	account, user := snapshot.ServiceAccount, snapshot.User
	switch {
	case of.Kind == KindUser && user == nil:
		subject.Closed = ""
	case of.Kind == KindUser:
		holder.Inactive = user.Inactive
	case of.Kind == KindServiceAccount && account == nil:
		subject.Closed = ""
	case of.Kind == KindServiceAccount:
		holder.Inactive = account.Inactive
	}
	holder.KeysRest = snapshot.keysRest(of)
	snapshot.narrow(&subject, who.NarrowedBy)
	holder.Rights = s.compiler.Compile(subject)
	bank := policy.CompileBank(snapshot.bankPolicy())
	return holder, copies.Bank{Policy: bank, Generation: snapshot.Generation}
}

// DefaultMaxKeysPerHolder is how many API keys a holder has at most, not counting revoked ones,
// unless [KeyConfig].MaxPerHolder says otherwise.
const DefaultMaxKeysPerHolder = 1000

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

// lockKeys takes these locks, checks the caller, and counts the holder's keys.
func (s *holders) lockKeys(
	ctx context.Context, tx Store, by Principal, holder Identity,
) (live int, err error) {
	if by.key != "" {
		err := tx.ChangeAccess(ctx, AccessNames{}, func(Bundle) (Bundle, error) {
			return Bundle{}, nil
		})
		if err != nil {
			return 0, fmt.Errorf("lock access: %w", err)
		}
	}
	live, err = tx.LockAPIKeys(ctx, holder, s.most)
	if err != nil || by.key == "" {
		return live, err
	}
	err = tx.ChangeAPIKey(ctx, by.Identity(), by.key, func(*APIKey) (bool, error) {
		return false, nil
	})
	if errors.Is(err, ErrNotFound) {
		return 0, s.ended(by)
	} else if err != nil {
		return 0, fmt.Errorf("lock the caller's API key: %w", err)
	}
	return live, s.judge(ctx, tx, by)
}

// judge refuses a caller whose key is no longer accepted, by the present rows of store.
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
		return s.ended(by)
	}
	return nil
}

// ended answers a caller whose key was accepted a moment ago.
func (s *holders) ended(by Principal) error {
	s.forget(APIKey{ID: by.key, Holder: by.Identity()}.Target())
	return unauthenticated()
}

// room refuses one more key to a holder that has as many as allowed.
func (s *holders) room(live int) error {
	if most := s.most; live >= most {
		return &Error{Code: CodeLimit, Message: fmt.Sprintf(
			"the holder has %d API keys, and more are not allowed: revoke one first", most)}
	}
	return nil
}
