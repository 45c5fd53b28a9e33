package svc

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/accessindex"
	"github.com/extsvc/svc/internal/lists"
	"github.com/extsvc/svc/internal/policy"
)

// editPatience is how long an edit waits for the others of this process. In a store, it waits as
// long for those of other processes.
const editPatience = 4 * time.Second

var errEditing = &Error{
	Code: CodeUnavailable, Message: "another call is changing access: try again",
}

func standingIn(r *accessindex.Index, of rightsHolder) standing {
	q := AccessQuery{Identity: of.Identity, ScopingPolicyID: of.narrowedBy, Bare: true}
	p := snapshot(r, q, "").rights(of)
	if p.subject != nil {
		p.subject.Grants = r.Grants(p.subject.UserID)
	}
	return p
}

// senderChange is a sender whose user a write may change.
type senderChange struct {
	Channel
	before, after string // its user, active or not; "": it is unmapped
}

// effectCheck judges one write of access.
type effectCheck struct {
	by       Principal
	write    AccessWrite
	stored   *policy.Compiler // for rows of the store
	compiler *policy.Compiler // for this check only
	grantor  *policy.Grantor  // the caller before the write
	rights   *policy.Rights   // of the caller before the write
	holders  []rightsHolder
	senders  []senderChange
	parties  [][]policy.Member // those of the first holders
	// The rows before the write and after it. The grants of holders are read from them again each
	// time: together they may be far more than the rows.
	before, after *accessindex.Index
	needed        accessindex.Rows // those that they have
}

// judgement is what an edit was judged by, and the refusal that follows all others.
type judgement struct {
	at       int64          // the generation of the rows
	rows     Bundle         // those that the edit names
	holders  []Identity     // those that it removes
	narrowed []rightsHolder // see narrowedHolders
	last     error          // refuses a write that leaves no administrator; nil: it leaves one
	written  *AccessWrite   // what the edit wrote; nil: nothing
}

// judgeWrite refuses a write that gives anybody more than its caller has, or takes a control-plane
// right that its caller lacks. rows calls its argument with the rows before the write, each time
// the same, or fails. It completes j.
func (s *accessWriter) judgeWrite(
	ctx context.Context, store Store, e writeRequest, w AccessWrite, a *bundleDiff, j *judgement,
	rows func(do func(all *accessRows)) error,
) (err error) {
	t := &effectCheck{
		by: e.by, write: w, senders: a.senders(w),
		stored: s.compiler, compiler: s.compiler.Apart(ctx),
	}
	t.compiler.Limit(e.steps)
	if j.narrowed, err = narrowedHolders(ctx, store, e.by, w, a.moved(w)); err != nil {
		return err
	}
	if err := rows(func(all *accessRows) { t.excerpt(all, j.narrowed) }); err != nil {
		return err
	}
	if t.before != nil {
		t.see()
	}
	if ended := t.compiler.Err(); ended != nil {
		return fault("judge the change", ended)
	}
	if err := t.admit(e.need, a); err != nil {
		return err
	}
	err = cmp.Or(t.judgeBearers(), t.judgeCaller(), t.judgeSenders(), t.judgePublic())
	lost := err == nil && t.lostAdministrator()
	// A comparison that ends early has found too much.
	if ended := t.compiler.Err(); ended != nil {
		return fault("judge the change", ended)
	}
	if err != nil || !lost {
		return err
	}
	err = rows(func(all *accessRows) { j.last = t.lastAdministrator(all) })
	return cmp.Or(err, fault("judge the change", t.compiler.Err()))
}

// stillJudged returns the rows that an edit names, in the transaction of tx, which has locked
// access to change it; at the generation of the judgement, those of the judgement. errOldRows: its
// judgement does not hold any longer. It locks as lockHolders does.
func (s *accessWriter) stillJudged(
	ctx context.Context, tx Store, e writeRequest,
) (rows Bundle, err error) {
	if j := e.judged; j != nil {
		at, err := s.lockHolders(ctx, tx, e.by, j.holders)
		if err != nil || at == j.at {
			return j.rows, err
		}
		if err := s.unchanged(ctx, tx, j.at); err != nil {
			return rows, err
		}
	}
	rows, _, err = readRows(ctx, tx, e.names)
	return rows, err
}

// narrowedHolders returns the holders of keys whose narrowing w may change, each once: by the policy,
// or by the owner of the account, for whom ${user} stands. An expired or disabled key counts: it may
// be enabled. A narrowed caller is one of them, also without a key.
func narrowedHolders(
	ctx context.Context, tx Store, by Principal, w AccessWrite, moved []string,
) (all []rightsHolder, err error) {
	seen := map[rightsHolder]bool{}
	add := func(who Identity, narrowedBy string) {
		if b := (rightsHolder{who, narrowedBy}); narrowedBy != "" && !seen[b] {
			seen[b] = true
			all = append(all, b)
		}
	}
	add(by.Identity(), by.ScopingPolicyID)
	pages := lists.Map(slices.Concat(w.Policies, w.Remove.removed().Policies),
		func(p Policy) APIKeyPage { return APIKeyPage{ScopingPolicyID: p.ID} })
	for _, id := range moved {
		pages = append(pages, APIKeyPage{Holder: Identity{KindServiceAccount, id}})
	}
	for _, page := range pages {
		for key, err := range keysOf(ctx, tx, page) {
			if err != nil {
				return nil, err
			}
			add(key.Holder, key.ScopingPolicyID)
		}
	}
	return all, nil
}

// holders returns the users and service accounts that n names, in one order for all transactions.
func (n AccessNames) holders() (all []Identity) {
	for _, id := range n.Users {
		all = append(all, Identity{KindUser, id})
	}
	for _, id := range n.ServiceAccounts {
		all = append(all, Identity{KindServiceAccount, id})
	}
	slices.SortFunc(all, func(a, b Identity) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// senders returns the senders that w maps to another user, or to nobody. An inactive user counts as
// if it were active. But a sender that moves from an inactive user to another one has nothing
// before: it newly gets all that the other one has.
func (a *bundleDiff) senders(w AccessWrite) (all []senderChange) {
	after := map[Channel]string{}
	for _, u := range w.Users {
		for _, ch := range u.Channels {
			after[ch] = u.ID
		}
	}
	before := map[Channel]string{}
	for _, u := range slices.Concat(w.Users, w.Remove.removed().Users) {
		was, _ := was(a.users, u.ID)
		for _, ch := range was.Channels {
			if before[ch] = u.ID; was.Inactive && after[ch] != u.ID && after[ch] != "" {
				before[ch] = ""
			}
		}
	}
	for ch, user := range before {
		if after[ch] != user {
			all = append(all, senderChange{ch, user, after[ch]})
		}
	}
	for ch, user := range after {
		if _, known := before[ch]; !known {
			all = append(all, senderChange{Channel: ch, after: user})
		}
	}
	slices.SortFunc(all, func(a, b senderChange) int { return a.Channel.compare(b.Channel) })
	return all
}

// excerpt takes out of all rows those that the check needs.
func (t *effectCheck) excerpt(all *accessRows, narrowed []rightsHolder) {
	also := accessindex.Rows{Policies: []string{t.by.ScopingPolicyID}}
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
	if len(t.senders) > 0 { // their users are those of the write
		also.Banks = lists.Map(all.Banks(), func(b policy.Named) string { return b.ID })
	}
	t.parties, t.needed = all.touchedBy(t.write, also)
	if t.compiler.Gathers(all.Reaching(t.parties)) {
		t.before = all.Excerpt(t.needed)
	}
	for _, party := range t.parties {
		first := Identity{Kind(party[0].Kind), party[0].ID}
		t.holders = append(t.holders, rightsHolder{Identity: first})
	}
	t.holders = append(t.holders, narrowed...)
}

// caller returns the caller as a subject of decisions.
func (t *effectCheck) caller(in *accessindex.Index) policy.Subject {
	who, narrowedBy := t.by.Identity(), t.by.ScopingPolicyID
	a := snapshot(in, AccessQuery{Identity: who, ScopingPolicyID: narrowedBy}, "")
	return a.standing(who, narrowedBy)
}

// see reads the rights of the caller, and makes the rows after the write.
func (t *effectCheck) see() {
	subject := t.caller(t.before)
	t.rights = t.stored.Compile(subject)
	t.grantor = &policy.Grantor{
		Subject: subject, Vouched: t.by.vouched(), Shut: t.before.Shut(),
		Banks: t.rights.Permits(t.by.vouched(), action.BanksGrant),
	}
	t.after = t.before.Excerpt(t.needed)
	t.write.put(t.after)
	t.compiler.Gathers(t.after.Reaching(t.parties))
}

// mapping returns the rights of a sender of a user; "": of an unmapped one.
func mapping(in *accessindex.Index, user string) policy.Mapping {
	m := policy.Mapping{Shut: in.Shut()}
	if user == "" {
		m.Banks = in.Banks()
	} else {
		m.Subject = standingIn(in, rightsHolder{Identity: Identity{KindUser, user}}).subject
	}
	return m
}

// admit refuses a caller that lacks an action, or a control-plane right of a user or a service
// account whose row changes or goes.
func (t *effectCheck) admit(actions []string, a *bundleDiff) error {
	for _, action := range actions {
		if !t.rights.Permits(t.by.vouched(), action) {
			return forbidden("you are not allowed " + action)
		}
	}
	altered := map[Identity]bool{}
	for _, holder := range slices.Concat(a.remove.holders(), a.changed.keys().holders()) {
		altered[holder] = true
	}
	for _, b := range t.holders {
		if b.narrowedBy != "" || !altered[b.Identity] {
			continue
		}
		if of := standingIn(t.before, b).subject; of != nil {
			right, within := policy.Within(t.stored.Compile(*of), t.rights, t.by.vouched())
			if !within {
				return forbidden(b.String() + " is allowed " + right + ", but you are not")
			}
		}
	}
	return nil
}

// judgeBearers judges what users, service accounts and holders of keys gain and lose. An inactive
// one counts as if it were active. To activate it gives it all that it has.
func (t *effectCheck) judgeBearers() error {
	shut := t.after.Shut()
	for _, b := range t.holders {
		before, after := standingIn(t.before, b), standingIn(t.after, b)
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
// the check does not know what a host vouches for.
func (t *effectCheck) judgeCaller() error {
	vouched := t.by.vouched()
	if len(vouched) == 0 {
		return nil
	}
	after := t.compiler.Compile(t.caller(t.after))
	if action, uncovered := policy.Uncovered(t.rights, after, vouched); uncovered {
		return refuseExcess("you", policy.Excess{Action: action, Bank: controlPlane})
	}
	return nil
}

// judgeSenders judges what senders gain and lose that change hands.
func (t *effectCheck) judgeSenders() error {
	for _, m := range t.senders {
		before, after := mapping(t.before, m.before), mapping(t.after, m.after)
		if x, beyond := t.compiler.ExceedsSender(t.grantor, m.Provider, before, after); beyond {
			return refuseExcess("the sender "+quote(m.String()), x)
		}
	}
	return nil
}

// judgePublic judges what unmapped senders gain on the banks whose policies change.
func (t *effectCheck) judgePublic() error {
	for _, b := range slices.Concat(t.write.BankPolicies, t.write.Remove.removed().BankPolicies) {
		before, after := t.before.Bank(b.BankID), t.after.Bank(b.BankID)
		if x, beyond := t.compiler.ExceedsPublic(t.grantor, before, after); beyond {
			return refuseExcess("unmapped senders", x)
		}
	}
	return nil
}

// lostAdministrator reports whether an active user is no administrator any longer.
func (t *effectCheck) lostAdministrator() bool {
	for i := range t.parties {
		if t.administers(i, t.before) && !t.administers(i, t.after) {
			return true
		}
	}
	return false
}

func (t *effectCheck) administers(i int, in *accessindex.Index) bool {
	b := t.holders[i]
	if b.Kind != KindUser {
		return false
	}
	p := standingIn(in, b)
	return p.active && t.compiler.Administers(*p.subject)
}

// lastAdministrator refuses a write after which no active user administers. all has the rows before
// the write.
func (t *effectCheck) lastAdministrator(all *accessRows) error {
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
		p := standingIn(all.Index, rightsHolder{Identity: Identity{KindUser, id}})
		if !touched[id] && p.active && t.compiler.Administers(*p.subject) {
			return nil
		}
	}
	return &Error{Code: CodeLastAdministrator, Message: "no active user would be allowed every" +
		" iam: action: give them to another user first"}
}

// put writes w into r.
func (w AccessWrite) put(r *accessindex.Index) {
	leave(r, w.Leave)
	follow(r, w.Remove, Bundle{})
	fill(r, w.Bundle)
	for _, m := range w.Join {
		r.Join(m.Group, m.User)
	}
}

// reach names the rows whose change may change rights, and all rows that the rights after the write
// may depend on in addition to what reaches those principals now.
func (w AccessWrite) reach() (touched, needed accessindex.Rows) {
	var groups, owners, policies []string
	removed := w.Remove.removed()
	touched.Groups = slices.Clone(w.Remove.Groups)
	touched.Users = lists.Map(slices.Concat(w.Users, removed.Users), User.key)
	touched.Policies = lists.Map(slices.Concat(w.Policies, removed.Policies), Policy.key)
	banks := slices.Concat(w.BankPolicies, removed.BankPolicies)
	touched.Banks = lists.Map(banks, BankPolicy.key)
	for _, m := range slices.Concat(w.Join, w.Leave) {
		touched.Users, groups = append(touched.Users, m.User), append(groups, m.Group)
	}
	for _, a := range slices.Concat(w.ServiceAccounts, removed.ServiceAccounts) {
		touched.Accounts = append(touched.Accounts, a.ID)
		owners, policies = append(owners, a.OwnerUserID), append(policies, a.ScopingPolicyID)
	}

	for _, a := range slices.Concat(w.Attachments, removed.Attachments) {
		policies = append(policies, a.PolicyID)
		if a.Principal.Type == GrantedToUser {
			touched.Users = append(touched.Users, a.Principal.ID)
		} else {
			touched.Groups = append(touched.Groups, a.Principal.ID)
		}
	}
	touched.Users = lists.Sorted(touched.Users, strings.Compare)
	needed = touched
	needed.Users = slices.Concat(touched.Users, owners)
	needed.Groups = slices.Concat(touched.Groups, groups)
	needed.Policies = slices.Concat(touched.Policies, policies)
	return touched, needed
}

// touchedBy returns the parties whose rights a write may change, and names all rows that their
// rights depend on, before and after, with also. To close or open a bank touches everybody.
func (e *accessRows) touchedBy(
	w AccessWrite, also accessindex.Rows,
) (parties [][]policy.Member, needed accessindex.Rows) {
	touched, needed := w.reach()
	needed.Add(also)
	names := func(p Policy) bool { return policy.MayName(policy.UserVariable, p.Document) }
	touched.Each = slices.ContainsFunc(w.Policies, names) || e.Personal(needed.Policies)
	banks := e.Excerpt(accessindex.Rows{Banks: touched.Banks})
	follow(banks, AccessNames{BankPolicies: w.Remove.BankPolicies},
		Bundle{BankPolicies: w.BankPolicies})
	touched.All = !slices.Equal(banks.Shut(), e.Shut())
	parties = e.Touched(touched)
	for _, party := range parties {
		if first := party[0]; first.Kind == policy.ServiceAccount {
			needed.Accounts = append(needed.Accounts, first.ID)
		} else {
			needed.Users = append(needed.Users, first.ID)
		}
	}
	return parties, needed
}
