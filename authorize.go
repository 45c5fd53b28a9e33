package svc

import (
	"cmp"
	"context"

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

// keysRest reports whether the keys of the snapshot's holder are suspended: the holder or its owner
// is inactive, or the service account no longer exists. A user needs no row.
func (a AccessSnapshot) keysRest(holder Identity) bool {
	switch user, account := a.User, a.ServiceAccount; holder.Kind {
	case KindUser:
		return user != nil && user.Inactive
	case KindServiceAccount:
		return account == nil || account.Inactive || user == nil || user.Inactive
	}
	return true
}

// sender returns the active user that a channel belongs to, or an unmapped identity.
func (a AccessSnapshot) sender() Identity {
	if a.User == nil || a.User.Inactive {
		return Identity{Kind: KindUnmapped}
	}
	return Identity{Kind: KindUser, ID: a.User.ID}
}

// subject returns the subject of a decision about who. It is closed when a row that its rights
// depend on is missing or inactive.
func (a AccessSnapshot) subject(who Identity) policy.Subject {
	subject := policy.Subject{Kind: policy.Kind(who.Kind)}
	switch who.Kind {
	case KindUnmapped:
		return subject
	case KindUser:
		subject.Closed = a.closedUser("user " + quote(who.ID))
	case KindServiceAccount:
		subject.ServiceAccountID = who.ID
		subject.Closed = a.closedServiceAccount(who.ID)
		if a.Scoping != nil {
			subject.Scoping = []policy.Named{{ID: a.Scoping.ID, Document: a.Scoping.Document}}
		}
	default:
		subject.Closed = "a principal of kind " + quote(string(who.Kind)) + " has no rights"
	}
	for _, g := range a.Grants {
		grant := policy.Grant{PolicyID: g.Policy.ID, Priority: g.Priority, Document: g.Document}
		if g.Principal.Type == GrantedToGroup {
			grant.Group = g.Principal.ID
		}
		subject.Grants = append(subject.Grants, grant)
	}
	return subject
}

// narrow narrows a subject by the snapshot's Narrowing, whose id is id. With "" it does nothing.
// When the policy is missing, it closes the subject.
func (a AccessSnapshot) narrow(subject *policy.Subject, id string) {
	switch {
	case id == "":
	case a.Narrowing == nil:
		subject.Closed = cmp.Or(subject.Closed,
			"the scoping policy "+quote(id)+" that narrows it no longer exists")
	default:
		subject.Narrowing = []policy.Named{{ID: id, Document: a.Narrowing.Document}}
	}
}

// closedUser says why the snapshot's user has no rights, or "".
func (a AccessSnapshot) closedUser(name string) string {
	switch {
	case a.User == nil:
		return name + " is unknown"
	case a.User.Inactive:
		return name + " is inactive"
	}
	return ""
}

func (a AccessSnapshot) closedServiceAccount(id string) string {
	name := "service account " + quote(id)
	switch account := a.ServiceAccount; {
	case account == nil:
		return name + " is unknown"
	case account.Inactive:
		return name + " is inactive"
	case account.ScopingPolicyID != "" && a.Scoping == nil:
		return "the scoping policy " + quote(account.ScopingPolicyID) + " of " + name + " is gone"
	default:
		return a.closedUser("the owner " + quote(account.OwnerUserID) + " of " + name)
	}
}

func (a AccessSnapshot) bankPolicy() *policy.Named {
	if a.BankPolicy == nil {
		return nil
	}
	return &policy.Named{ID: a.BankPolicy.BankID, Document: a.BankPolicy.Document}
}
