package svc

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/extsvc/svc/internal/accessindex"
	"github.com/extsvc/svc/internal/lists"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/readcache"
	"github.com/extsvc/svc/internal/text"
	"github.com/extsvc/svc/limits"
)

// controlPlane is the bank that stands for svc itself. Only the bank pattern "*" covers it. That
// pattern covers all other banks as well, so statements tell the control plane apart by its actions
// only.
const controlPlane = "*"

// authorizeSelf refuses callers without own rights.
func authorizeSelf(by Principal) error {
	if by.Kind != KindUser && by.Kind != KindServiceAccount {
		return forbidden("only a user or a service account has rights of its own")
	}
	return nil
}

// permitted returns the standing of a caller who is allowed the control-plane action. It always
// refuses an unmapped sender, whatever a bank policy gives to the public.
//
// The rights of the standing are those of the stored policies, without the Actions of the caller.
// It is shared with the cache and never changes. The host has no standing: do not pass it.
func (s *authorizer) permitted(
	ctx context.Context, by Principal, action string,
) (*readcache.Standing, error) {
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
	// The overrides of a bank policy compare a context; the control plane has none.
	if !caller.Rights.Decide(action, controlPlane, &policy.Context{}, all).
		Vouch(by.vouched()).Allowed() {
		return nil, forbidden("you are not allowed " + action)
	}
	return caller, nil
}

// withinCeiling refuses when the holder has a control-plane right that the caller lacks. The keys
// of the holder would give that right to the caller. An inactive holder counts with the rights that
// it has when active, because its keys work again when it is. The comparison is exact: it covers
// actions that no policy names yet, but a pattern of the holder matches. A document of the holder
// that does not parse counts as every right. The error names one right that is too much.
func withinCeiling(caller *policy.Rights, vouched []string, holder *policy.Rights) error {
	if action, within := policy.Within(holder.Opened(), caller, vouched); !within {
		return forbidden("the holder of these keys is allowed " + action + ", but you are not")
	}
	return nil
}

// refuseExcess names who gains or loses a right that the caller lacks.
func refuseExcess(who string, x policy.Excess) *Error {
	verb := "would newly be allowed "
	if x.Taken {
		verb = "would lose "
	}
	return forbidden(who + " " + verb + x.Action + " on bank " + quote(x.Bank) +
		", which you are not allowed")
}

// standing returns the inputs of a decision: cached ones while they are valid, else the store's
// rows. Cached ones cost no store call. Both inputs are of one state of the store, and are shared
// between calls: do not change them.
//
// It checks names only when the cache has no answer: a name that it does hold was checked before. A
// principal with an impossible id has no rights, which is a denial and not an error.
func (s *authorizer) standing(
	ctx context.Context, who readcache.Holder, bank string,
) (*readcache.Standing, *policy.Bank, error) {
	// All unmapped senders are one holder, whatever their ids. So one cached value serves them all,
	// and senders cannot fill the cache.
	if who.Kind == policy.Unmapped {
		who = Unmapped.holder()
	}
	if holder, b, ok := s.cached.Standing(who, bank); ok {
		return holder, b, nil
	}
	var c checker
	if c.foreign("bank", bank); c.err() != nil {
		return nil, nil, c.err()
	}
	// A store may be unable to look up such an id, and no row has it.
	if who.Kind != policy.Unmapped && text.IDProblem(who.ID, limits.IDLength) != "" {
		return &readcache.Standing{Rights: s.compiler.Compile(policy.Subject{
			Kind: policy.User, Closed: "denied: no principal has that id",
		})}, nil, nil
	}
	return s.cached.LoadStanding(ctx, who, bank, s.readStanding)
}

// keyOf returns the good key of a caller that is about to be judged, and a generation of the store
// from before. 0: there is none in the cache.
func (s *authorizer) keyOf(by Principal) (key readcache.Key, at int64) {
	if by.key == "" {
		return key, 0
	}
	key, holder, at, known := s.cached.KeyAt(by.key)
	if !known || key.Holder != by.holder() || holder.KeysRest {
		return key, 0
	}
	return key, at
}

// readStanding reads the stored rows about a principal and a bank, in one snapshot and one store
// call. The unmapped sender has no rows: only the bank's policy is read.
func (s *authorizer) readStanding(
	ctx context.Context, who readcache.Holder, bank string,
) (*readcache.Standing, readcache.Bank, error) {
	query := AccessQuery{
		Identity: identityOf(who), ScopingPolicyID: possibleID(who.NarrowedBy), BankID: bank,
	}
	if who == Unmapped.holder() {
		query.Identity = Identity{}
	}
	snapshot, err := s.store.Access(ctx, query)
	if err != nil {
		return nil, readcache.Bank{}, fault("read access", err)
	}
	holder, b := s.snapshotStanding(who, snapshot)
	return holder, b, nil
}

// snapshotStanding returns what a snapshot says about a principal and a bank. A principal without a
// row has no stored rights, but is not closed: the Actions that the host grants still count.
//
// It also tells the cache how far the store is, so that older cached rows are no longer used.
func (s *authorizer) snapshotStanding(
	who readcache.Holder, snapshot AccessSnapshot,
) (*readcache.Standing, readcache.Bank) {
	s.cached.Hear(snapshot.Generation)
	of := identityOf(who)
	subject := snapshot.standing(of, who.NarrowedBy)
	holder := &readcache.Standing{Generation: snapshot.Generation, Groups: snapshot.Groups}
	account, user := snapshot.ServiceAccount, snapshot.User
	if account != nil {
		holder.Owner, holder.Scoping = account.OwnerUserID, account.ScopingPolicyID
	}
	if user != nil && of.Kind != KindUnmapped {
		holder.User = user.ID
	}
	holder.Inactive = snapshot.inactive(of.Kind)
	holder.KeysRest = snapshot.keysRest(of)
	holder.Rights = s.compiler.Compile(subject)
	bank := s.compiler.Schema().CompileBank(snapshot.bankPolicy())
	return holder, readcache.Bank{Policy: bank, Generation: snapshot.Generation}
}

// inactive reports whether the own row of the snapshot's principal, of that kind, says so.
func (a AccessSnapshot) inactive(kind Kind) bool {
	switch {
	case kind == KindUser && a.User != nil:
		return a.User.Inactive
	case kind == KindServiceAccount && a.ServiceAccount != nil:
		return a.ServiceAccount.Inactive
	}
	return false
}

// standing returns the subject of a decision about a caller, narrowed by a scoping policy; "" none. A
// caller without a row is open: Resolve explains the missing row, but here nothing that the host
// vouches for is refused. An inactive row stays closed.
func (a AccessSnapshot) standing(who Identity, narrowedBy string) policy.Subject {
	subject := a.subject(who)
	if who.Kind == KindUser && a.User == nil ||
		who.Kind == KindServiceAccount && a.ServiceAccount == nil {
		subject.Closed = ""
	}
	a.narrow(&subject, narrowedBy)
	return subject
}

// rightsHolder is somebody whose rights a write may change: a user, a service account, or one of
// these under the policy that narrows its keys.
type rightsHolder struct {
	Identity
	narrowedBy string
}

// standing are the rights of a holder, as if the holder were active. Nil subject: it has no row.
type standing struct {
	subject *policy.Subject
	active  bool
}

// rights returns the rights of a holder, who is the subject of a.
func (a AccessSnapshot) rights(of rightsHolder) (p standing) {
	switch {
	case of.Kind == KindServiceAccount && a.ServiceAccount != nil:
		account := *a.ServiceAccount
		p.active, account.Inactive = !account.Inactive, false
		a.ServiceAccount = &account
	case of.Kind == KindUser && a.User != nil:
		p.active = !a.User.Inactive
	default:
		return p
	}
	if a.User != nil {
		a.User = &User{ID: a.User.ID}
	}
	subject := a.subject(of.Identity)
	a.narrow(&subject, of.narrowedBy)
	p.subject = &subject
	return p
}

func (b rightsHolder) String() string {
	name := strings.ReplaceAll(string(b.Kind), "_", " ") + " " + quote(b.ID)
	if b.narrowedBy != "" {
		return "a key of " + name + " that policy " + quote(b.narrowedBy) + " narrows"
	}
	return name
}

// keysRest reports whether the keys of the snapshot's holder are suspended: the holder or its owner
// is inactive, or the service account no longer exists. A user needs no row, but the owner of a
// service account does. The keys are not ended: they work again when the rows do. A holder of any
// other kind has no keys.
func (a AccessSnapshot) keysRest(holder Identity) bool {
	// For a service account, the snapshot's User is its owner.
	switch user, account := a.User, a.ServiceAccount; holder.Kind {
	case KindUser:
		return user != nil && user.Inactive
	case KindServiceAccount:
		return account == nil || account.Inactive || user == nil || user.Inactive
	}
	return true
}

// snapshot returns what [AccessStore].Access returns, for a query without KeyID: the index has no
// keys. So one function turns rows into a decision, whether they come from a store or from the
// index. sender is the user that has the query's channel; "": none. Grants are in no order, as
// those of a store. Groups, names and emails are left out.
func snapshot(r *accessindex.Index, q AccessQuery, sender string) (a AccessSnapshot) {
	a.Narrowing = policyRow(r, q.ScopingPolicyID)
	if bank := r.Bank(q.BankID); bank != nil {
		a.BankPolicy = &BankPolicy{BankID: bank.ID, Document: bank.Document}
	}
	user := sender
	switch q.Identity.Kind {
	case KindUser:
		user = q.Identity.ID
	case KindServiceAccount:
		row, found := r.Account(q.Identity.ID)
		if !found {
			return a
		}
		a.ServiceAccount = &ServiceAccount{
			ID: q.Identity.ID, OwnerUserID: row.Owner, ScopingPolicyID: row.Scoping,
			Inactive: row.Inactive,
		}
		user, a.Scoping = row.Owner, policyRow(r, row.Scoping)
	}
	inactive, found := r.User(user)
	if !found {
		return a
	}
	a.User = &User{ID: user, Inactive: inactive}
	if q.Bare {
		return a
	}
	granted := r.Grants(user)
	a.Grants = slices.Grow(a.Grants, len(granted))
	for _, g := range granted {
		to := GrantedTo{GrantedToUser, user}
		if g.Group != "" {
			to = GrantedTo{GrantedToGroup, g.Group}
		}
		a.Grants = append(
			a.Grants, Grant{Policy{ID: g.PolicyID, Document: g.Document}, to, g.Priority},
		)
	}
	return a
}

// policyRow returns a policy; nil: it does not exist.
func policyRow(r *accessindex.Index, id string) *Policy {
	document, found := r.Policy(id)
	if !found {
		return nil
	}
	return &Policy{ID: id, Document: document}
}

// sender returns the active user that a channel belongs to, or an unmapped identity. A sender whose
// user is inactive has what the public has.
func (a AccessSnapshot) sender() Identity {
	if a.User == nil || a.User.Inactive {
		return Identity{Kind: KindUnmapped}
	}
	return Identity{Kind: KindUser, ID: a.User.ID}
}

// subject returns the subject of a decision about who. It is closed when a row that its rights
// depend on is missing or inactive.
//
// A service account has the grants of its owner, within its scoping policy. So a snapshot holds the
// owner's grants for it. A policy that is attached several times counts several times, each with
// its priority. Grants come in no order: the engine must not depend on one.
//
// The reason of a closed subject names ids. [Policies.Resolve] shows it to callers with
// iam:users:read, and a [Decision] shows it to the host.
func (a AccessSnapshot) subject(who Identity) policy.Subject {
	subject := policy.Subject{Kind: policy.Kind(who.Kind)}
	switch who.Kind {
	case KindUnmapped:
		return subject
	case KindUser:
		subject.UserID = who.ID
		subject.Closed = a.closedUser("user " + quote(who.ID))
	case KindServiceAccount:
		subject.ServiceAccountID = who.ID
		if a.ServiceAccount != nil {
			subject.UserID = a.ServiceAccount.OwnerUserID
		}
		subject.Closed = a.closedServiceAccount(who.ID)
		if a.Scoping != nil {
			subject.Scoping = []policy.Named{{ID: a.Scoping.ID, Document: a.Scoping.Document}}
		}
	}
	subject.Grants = slices.Grow(subject.Grants, len(a.Grants))
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
// When the policy is missing, it closes the subject: a deleted policy must not widen a key. The
// reason of an earlier closing stays.
func (a AccessSnapshot) narrow(subject *policy.Subject, id string) {
	by := a.Narrowing
	if by == nil {
		by = builtins[id] // stored only once a row refers to it
	}
	switch {
	case id == "":
	case by == nil:
		subject.Closed = cmp.Or(subject.Closed,
			"the scoping policy "+quote(id)+" that narrows it no longer exists")
	default:
		subject.Narrowing = []policy.Named{{ID: id, Document: by.Document}}
	}
}

// closedUser says why the snapshot's user has no rights, or "". name is the user as the reason
// shows it, since the user may be the owner of a service account.
func (a AccessSnapshot) closedUser(name string) string {
	switch {
	case a.User == nil:
		return name + " is unknown"
	case a.User.Inactive:
		return name + " is inactive"
	}
	return ""
}

// closedServiceAccount says why the snapshot's service account has no rights, or "". It needs its
// own row, its scoping policy if it has one, and its owner.
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

// bankPolicy returns the bank's policy for the engine; nil: the bank has none, so it gives nothing
// to the public.
func (a AccessSnapshot) bankPolicy() *policy.Named {
	if a.BankPolicy == nil {
		return nil
	}
	return &policy.Named{ID: a.BankPolicy.BankID, Document: a.BankPolicy.Document}
}

// needs returns the rows that the answer to q depends on, whose sender is a user.
func (q AccessQuery) needs(sender string) accessindex.Rows {
	return accessindex.Rows{
		Users: []string{q.Identity.ID, sender}, Accounts: []string{q.Identity.ID},
		Policies: []string{q.ScopingPolicyID}, Banks: []string{q.BankID},
	}
}

// indexed returns the form of package accessindex.
func (to GrantedTo) indexed() accessindex.Principal {
	return accessindex.Principal{ID: to.ID, Group: to.Type == GrantedToGroup}
}

func (k *kind[R, K]) enter(x *accessindex.Index, b *Bundle) {
	for _, row := range *k.rows(b) {
		row.enter(x)
	}
}

func (k *kind[R, K]) leave(x *accessindex.Index, n *AccessNames, b *Bundle) {
	lists.Gone(*k.named(n), *k.rows(b), R.key, func(key K) { k.only(key).leave(x) })
}

func (u User) enter(r *accessindex.Index)           { r.SetUser(u.ID, u.Inactive) }
func (u User) leave(r *accessindex.Index)           { r.DeleteUser(u.ID) }
func (g Group) leave(r *accessindex.Index)          { r.DeleteGroup(g.ID) }
func (a ServiceAccount) leave(r *accessindex.Index) { r.DeleteAccount(a.ID) }
func (p Policy) enter(r *accessindex.Index)         { r.SetPolicy(p.ID, p.Document) }
func (p Policy) leave(r *accessindex.Index)         { r.DeletePolicy(p.ID) }
func (a Attachment) leave(r *accessindex.Index)     { r.Detach(a.PolicyID, a.Principal.indexed()) }
func (b BankPolicy) enter(r *accessindex.Index)     { r.SetBank(b.BankID, b.Document) }
func (b BankPolicy) leave(r *accessindex.Index)     { r.DeleteBank(b.BankID) }
func (AccessTest) enter(*accessindex.Index)         {} // decisions do not depend on it
func (AccessTest) leave(*accessindex.Index)         {}

func (g Group) enter(r *accessindex.Index) {
	for _, member := range g.Members {
		r.Join(g.ID, member)
	}
}

func (a ServiceAccount) enter(r *accessindex.Index) {
	r.SetAccount(a.ID, a.OwnerUserID, a.ScopingPolicyID, a.Inactive)
}

func (a Attachment) enter(r *accessindex.Index) {
	r.Attach(a.PolicyID, a.Principal.indexed(), a.Priority)
}
