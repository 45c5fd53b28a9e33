package svc

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/roster"
)

// bearer is somebody whose rights a write may change: a user, a service account, or one of these
// under the policy that narrows its keys.
type bearer struct {
	Identity
	narrowedBy string
}

func (b bearer) String() string {
	name := strings.ReplaceAll(string(b.Kind), "_", " ") + " " + quote(b.ID)
	if b.narrowedBy != "" {
		return "a key of " + name + " that policy " + quote(b.narrowedBy) + " narrows"
	}
	return name
}

// powers are the rights of a bearer, as if the bearer were active. Nil subject: it has no row.
type powers struct {
	subject *policy.Subject
	active  bool
}

func powersIn(r *roster.Roster, of bearer) powers {
	return snapshot(r, AccessQuery{Identity: of.Identity, ScopingPolicyID: of.narrowedBy}, "").powers(of)
}

// powers returns the rights of a bearer, who is the subject of a.
func (a AccessSnapshot) powers(of bearer) (p powers) {
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

// mapped is a sender whose user a write may change.
type mapped struct {
	Channel
	before, after string // its user, active or not; "": it is unmapped
}

// trial judges one write of access.
type trial struct {
	by       Principal
	write    AccessWrite
	stored   *policy.Compiler // for rows of the store
	compiler *policy.Compiler // for this trial alone
	grantor  *policy.Grantor  // the caller before the write
	rights   *policy.Rights   // of the caller before the write
	bearers  []bearer
	senders  []mapped
	parties  [][]policy.Member // those of the first bearers
	rows     *roster.Roster    // before the write, and after it once it is put

	before, after  []powers // of bearers
	mappingsBefore []policy.Mapping
	banksBefore    []*policy.Named // of the banks whose policies the write changes
}

// judgeWrite refuses a write that gives anybody more than its caller has, or takes a control-plane
// right that its caller lacks. It judges by the rows that hold in the transaction, which has the
// lock of lockAccess. last follows all other refusals: the write leaves no administrator.
func (s *directory) judgeWrite(
	ctx context.Context, tx Store, e edit, w AccessWrite, a *application,
) (last, err error) {
	all, err := s.within(ctx, tx, e.own)
	if err != nil {
		return nil, err
	}
	t := &trial{
		by: e.by, write: w, senders: a.senders(w),
		stored: s.compiler, compiler: s.compiler.Apart(ctx),
	}
	narrowed, err := narrowedBearers(ctx, tx, e.by, w)
	if err != nil {
		return nil, err
	}
	s.rosters.mu.RLock()
	t.excerpt(all, narrowed)
	s.rosters.mu.RUnlock()
	t.see()
	if err := t.admit(e.need, a); err != nil {
		return nil, err
	}
	w.put(t.rows)
	err = cmp.Or(t.judgeBearers(), t.judgeCaller(), t.judgeSenders(), t.judgePublic())
	if err != nil {
		return nil, err
	}
	if t.lostAdministrator() {
		s.rosters.mu.RLock()
		defer s.rosters.mu.RUnlock()
		last = t.lastAdministrator(all)
	}
	return last, fault("judge the change", ctx.Err())
}

// narrowedBearers returns the bearers of keys that are narrowed by a policy which w changes, each
// once. An expired or disabled key counts: it may be enabled. The caller is one of them when such a
// policy narrows it, also without a key.
func narrowedBearers(
	ctx context.Context, tx Store, by Principal, w AccessWrite,
) (all []bearer, err error) {
	seen := map[bearer]bool{}
	add := func(b bearer) {
		if !seen[b] {
			seen[b] = true
			all = append(all, b)
		}
	}
	for _, p := range slices.Concat(w.Policies, w.Remove.removed().Policies) {
		if by.ScopingPolicyID == p.ID {
			add(bearer{by.Identity(), p.ID})
		}
		for key, err := range keysNarrowedBy(ctx, tx, p.ID) {
			if err != nil {
				return nil, err
			}
			add(bearer{key.Holder, p.ID})
		}
	}
	return all, nil
}

// senders returns the senders that w maps to another user, or to nobody. A sender of a user who is
// not active any more becomes unmapped.
func (a *application) senders(w AccessWrite) (all []mapped) {
	after := map[Channel]string{}
	for _, u := range w.Users {
		for _, ch := range u.Channels {
			if !u.Inactive {
				after[ch] = u.ID
			}
		}
	}
	before := map[Channel]string{}
	for _, u := range slices.Concat(w.Users, w.Remove.removed().Users) {
		was, _ := was(a.users, u.ID)
		for _, ch := range was.Channels {
			if before[ch] = ""; !was.Inactive {
				before[ch] = u.ID
			}
		}
	}
	for ch, user := range before {
		if after[ch] != user {
			all = append(all, mapped{ch, user, after[ch]})
		}
	}
	for ch, user := range after {
		if _, known := before[ch]; !known {
			all = append(all, mapped{Channel: ch, after: user})
		}
	}
	slices.SortFunc(all, func(a, b mapped) int { return a.Channel.compare(b.Channel) })
	return all
}

// excerpt takes out of all rows those that the trial needs.
func (t *trial) excerpt(all *everybody, narrowed []bearer) {
	also := roster.Rows{Policies: []string{t.by.ScopingPolicyID}}
	need := func(who Identity) {
		if who.Kind == KindServiceAccount {
			also.Accounts = append(also.Accounts, who.ID)
		} else {
			also.Users = append(also.Users, who.ID)
		}
	}
	need(t.by.Identity())
	for _, b := range narrowed {
		need(b.Identity)
		also.Policies = append(also.Policies, b.narrowedBy)
	}
	for _, m := range t.senders {
		also.Users = append(also.Users, m.before, m.after)
	}
	if len(t.senders) > 0 {
		for _, b := range all.Banks() {
			also.Banks = append(also.Banks, b.ID)
		}
	}
	t.parties, t.rows = all.touchedBy(t.write, also)
	for _, party := range t.parties {
		t.bearers = append(t.bearers, bearer{Identity: Identity{Kind(party[0].Kind), party[0].ID}})
	}
	t.bearers = append(t.bearers, narrowed...)
}

// caller returns the caller as a subject of decisions.
func (t *trial) caller() policy.Subject {
	who := t.by.Identity()
	a := snapshot(t.rows, AccessQuery{Identity: who, ScopingPolicyID: t.by.ScopingPolicyID}, "")
	subject := a.standing(who)
	a.narrow(&subject, t.by.ScopingPolicyID)
	return subject
}

// see reads the rights before the write.
func (t *trial) see() {
	subject := t.caller()
	t.rights = t.stored.Compile(subject)
	t.grantor = &policy.Grantor{
		Subject: subject, Vouched: t.by.vouched(), Shut: t.rows.Shut(),
		Banks: t.rights.Permits(t.by.vouched(), ActionBanksGrant),
	}
	for _, b := range t.bearers {
		t.before = append(t.before, powersIn(t.rows, b))
	}
	for _, m := range t.senders {
		t.mappingsBefore = append(t.mappingsBefore, t.mapping(m.before))
	}
	t.banksBefore = t.banks()
}

// mapping returns the rights of a sender of a user; "": of an unmapped one.
func (t *trial) mapping(user string) policy.Mapping {
	m := policy.Mapping{Shut: t.rows.Shut()}
	if user == "" {
		m.Banks = t.rows.Banks()
	} else {
		m.Subject = powersIn(t.rows, bearer{Identity: Identity{KindUser, user}}).subject
	}
	return m
}

// banks returns the policies of the banks that the write changes; nil: the bank has none.
func (t *trial) banks() (all []*policy.Named) {
	for _, b := range slices.Concat(t.write.BankPolicies, t.write.Remove.removed().BankPolicies) {
		var own *policy.Named
		if document, found := t.rows.Bank(b.BankID); found {
			own = &policy.Named{ID: b.BankID, Document: document}
		}
		all = append(all, own)
	}
	return all
}

// admit refuses a caller that lacks an action, or a control-plane right of a user or a service
// account whose row changes or goes.
func (t *trial) admit(actions []string, a *application) error {
	for _, action := range actions {
		if !t.rights.Permits(t.by.vouched(), action) {
			return forbidden("you are not allowed " + action)
		}
	}
	altered := a.altered()
	for i, b := range t.bearers {
		if of := t.before[i].subject; of != nil && b.narrowedBy == "" && altered[b.Identity] {
			right, within := policy.Within(t.stored.Compile(*of), t.rights, t.by.vouched())
			if !within {
				return forbidden(b.String() + " is allowed " + right + ", but you are not")
			}
		}
	}
	return nil
}

// altered has the users and service accounts whose rows change or go.
func (a *application) altered() map[Identity]bool {
	all := map[Identity]bool{}
	for _, holder := range slices.Concat(a.remove.holders(), a.changed.keys().holders()) {
		all[holder] = true
	}
	return all
}

// judgeBearers judges what users, service accounts and bearers of keys gain and lose. An inactive
// one counts as if it were active. To activate it gives it all that it has.
func (t *trial) judgeBearers() error {
	shut := t.rows.Shut()
	for i, b := range t.bearers {
		before, after := t.before[i], powersIn(t.rows, b)
		t.after = append(t.after, after)
		was := before.subject
		if !before.active && after.active {
			was = nil
		}
		x, beyond := t.compiler.Exceeds(t.grantor, was, after.subject, shut)
		if !beyond && before.active && !after.active {
			x, beyond = t.compiler.Exceeds(t.grantor, was, nil, shut)
		}
		if beyond {
			return refuseExcess(b.String(), x)
		}
	}
	return nil
}

// judgeCaller judges what the host vouches for once a deny of the caller is gone. Of other callers,
// the trial does not know what a host vouches for.
func (t *trial) judgeCaller() error {
	vouched := t.by.vouched()
	if len(vouched) == 0 {
		return nil
	}
	after := t.compiler.Compile(t.caller())
	if action, uncovered := policy.Uncovered(t.rights, after, vouched); uncovered {
		return refuseExcess("you", policy.Excess{Action: action, Bank: controlPlane})
	}
	return nil
}

// judgeSenders judges what senders gain and lose that change hands.
func (t *trial) judgeSenders() error {
	for i, m := range t.senders {
		x, beyond := t.compiler.ExceedsSender(
			t.grantor, m.Provider, t.mappingsBefore[i], t.mapping(m.after))
		if beyond {
			return refuseExcess("the sender "+quote(m.String()), x)
		}
	}
	return nil
}

// judgePublic judges what unmapped senders gain on the banks whose policies change.
func (t *trial) judgePublic() error {
	for i, after := range t.banks() {
		before := t.banksBefore[i]
		if x, beyond := t.compiler.ExceedsPublic(t.grantor, before, after); beyond {
			return refuseExcess("unmapped senders", x)
		}
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

// lostAdministrator reports whether an active user is no administrator any more.
func (t *trial) lostAdministrator() bool {
	for i := range t.parties {
		if t.administers(i, t.before) && !t.administers(i, t.after) {
			return true
		}
	}
	return false
}

func (t *trial) administers(i int, powers []powers) bool {
	p := powers[i]
	return t.bearers[i].Kind == KindUser && p.active && t.compiler.Administers(*p.subject)
}

// lastAdministrator refuses a write after which no active user administers. all has the rows before
// the write.
func (t *trial) lastAdministrator(all *everybody) error {
	touched := map[string]bool{}
	for i, party := range t.parties {
		if t.administers(i, t.after) {
			return nil
		}
		for _, m := range party {
			touched[m.ID] = touched[m.ID] || m.Kind == policy.User
		}
	}
	for _, id := range all.WhoCan("iam:*", controlPlane).Users {
		if !touched[id] {
			p := powersIn(all.Roster, bearer{Identity: Identity{KindUser, id}})
			if p.active && t.compiler.Administers(*p.subject) {
				return nil
			}
		}
	}
	return &Error{
		Code:    CodeLastAdministrator,
		Message: "no active user would be allowed every iam: action: give them to another user first",
	}
}

// put writes w into r.
func (w AccessWrite) put(r *roster.Roster) {
	for _, m := range w.Leave {
		r.Leave(m.Group, m.User)
	}
	follow(r, w.Remove, Bundle{})
	w.Groups = nil // their members are in Join and Leave
	fill(r, w.Bundle)
	for _, m := range w.Join {
		r.Join(m.Group, m.User)
	}
}

// reach names the rows whose change may change rights, and all rows that the rights after the write
// may depend on in addition to what reaches those principals now.
func (w AccessWrite) reach() (touched, needed roster.Rows) {
	var groups, owners, policies []string
	removed := w.Remove.removed()
	touched.Groups = append(touched.Groups, w.Remove.Groups...)
	for _, u := range slices.Concat(w.Users, removed.Users) {
		touched.Users = append(touched.Users, u.ID)
	}
	for _, m := range slices.Concat(w.Join, w.Leave) {
		touched.Users, groups = append(touched.Users, m.User), append(groups, m.Group)
	}
	for _, a := range slices.Concat(w.ServiceAccounts, removed.ServiceAccounts) {
		touched.Accounts = append(touched.Accounts, a.ID)
		owners, policies = append(owners, a.OwnerUserID), append(policies, a.ScopingPolicyID)
	}
	for _, p := range slices.Concat(w.Policies, removed.Policies) {
		touched.Policies = append(touched.Policies, p.ID)
	}
	for _, a := range slices.Concat(w.Attachments, removed.Attachments) {
		policies = append(policies, a.PolicyID)
		if a.Principal.Type == GrantedToUser {
			touched.Users = append(touched.Users, a.Principal.ID)
		} else {
			touched.Groups = append(touched.Groups, a.Principal.ID)
		}
	}
	for _, b := range slices.Concat(w.BankPolicies, removed.BankPolicies) {
		touched.Banks = append(touched.Banks, b.BankID)
	}
	touched.Users = sorted(touched.Users, strings.Compare)
	needed = touched
	needed.Users = slices.Concat(touched.Users, owners)
	needed.Groups = slices.Concat(touched.Groups, groups)
	needed.Policies = slices.Concat(touched.Policies, policies)
	return touched, needed
}

// touchedBy returns the parties whose rights a write may change, and an excerpt of all rows that
// their rights depend on, before and after, with also. A write that closes or opens a bank touches
// everybody.
func (e *everybody) touchedBy(
	w AccessWrite, also roster.Rows,
) (parties [][]policy.Member, of *roster.Roster) {
	touched, needed := w.reach()
	needed.Users = slices.Concat(needed.Users, also.Users)
	needed.Accounts = slices.Concat(needed.Accounts, also.Accounts)
	needed.Policies = slices.Concat(needed.Policies, also.Policies)
	needed.Banks = slices.Concat(needed.Banks, also.Banks)
	banks := e.Excerpt(roster.Rows{Banks: touched.Banks})
	follow(banks, AccessNames{BankPolicies: w.Remove.BankPolicies}, Bundle{BankPolicies: w.BankPolicies})
	touched.All = !slices.Equal(banks.Shut(), e.Shut())
	parties = e.Touched(touched)
	for _, party := range parties {
		if first := party[0]; first.Kind == policy.ServiceAccount {
			needed.Accounts = append(needed.Accounts, first.ID)
		} else {
			needed.Users = append(needed.Users, first.ID)
		}
	}
	return parties, e.Excerpt(needed)
}
