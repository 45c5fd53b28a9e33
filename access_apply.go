package svc

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/accessindex"
	"github.com/extsvc/svc/internal/jcs"
	"github.com/extsvc/svc/internal/lists"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/limits"
)

// bundleDiff is the writing of one bundle into a store that holds certain rows. It does no I/O, so
// [Access.Preview], [Policies.Simulate] and [Lint] use it as well: they cannot differ from Apply.
// Use it once, in this order: rows, then write, then err.
type bundleDiff struct {
	checker
	schema *policy.Schema
	bundle Bundle      // normalized; completeLists and completeBuiltins replace lists in it
	remove AccessNames // rows to remove, as [AccessWrite].Remove; the bundle has none of them
	whole  bool        // the bundle is a whole state, and not written: its documents have any size

	changed Bundle   // the rows that differ, once rows has run
	left    []string // other groups that lose a removed member, once write has run

	// The rows of the store, by key. They must not change: the index of access may share them with
	// other callers.
	rowsByKey
}

// newBundleDiff returns the application of a normalized bundle to current. current needs only the
// rows that names lists, and the users who have its channels. More rows do no harm.
func newBundleDiff(schema *policy.Schema, current, bundle Bundle) *bundleDiff {
	a := &bundleDiff{schema: schema}
	for _, k := range kinds {
		k.index(&a.rowsByKey, &current)
	}
	a.bundle = a.complete(bundle)
	return a
}

// was returns the row with a key as it was; a zero row when it is new.
func was[R any, K comparable](rows map[K]*R, key K) (row R, found bool) {
	if row := rows[key]; row != nil {
		return *row, true
	}
	return row, false
}

// rows returns the rows that differ from the store's, and checks their references first. When err
// is not nil, the rows are of no use.
func (a *bundleDiff) rows() Bundle {
	a.references()
	a.checkChannels()
	a.completeLists()
	for _, k := range kinds {
		k.differ(&a.rowsByKey, &a.bundle, &a.changed)
	}
	return a.changed
}

// references refuses names of rows that neither the store nor the bundle has, and documents beyond
// the limits that the store does not have already.
func (a *bundleDiff) references() {
	a.checkSizes()
	a.completeBuiltins()
	a.checkReferences()
	a.checkTests()
}

func (a *bundleDiff) checkTests() {
	n := len(a.tests) - len(a.remove.Tests)
	for _, t := range a.bundle.Tests {
		if a.tests[t.ID] == nil {
			n++
		}
	}
	if len(a.bundle.Tests) > 0 && n > limits.AccessTests {
		a.add("/tests", fmt.Sprintf("would be %d with those that are kept: %d are allowed",
			n, limits.AccessTests))
	}
}

func (a *bundleDiff) checkSizes() {
	if a.whole {
		return
	}
	for i, p := range a.bundle.Policies {
		stored, _ := was(a.policies, p.ID)
		a.size("/policies/"+strconv.Itoa(i), p.Document, stored.Document, a.schema.CheckSize)
	}
	for i, b := range a.bundle.BankPolicies {
		old, _ := was(a.bankPolicies, b.BankID)
		a.size("/bank_policies/"+strconv.Itoa(i), b.Document, old.Document, a.schema.CheckBankSize)
	}
}

// write returns what Apply writes for the rows that differ: these rows, memberships as differences,
// and the targets for [ChangeStore].Changes. Unlike events, those tell names apart from what
// decisions depend on.
func (a *bundleDiff) write(rows Bundle) AccessWrite {
	w := AccessWrite{Bundle: rows, Remove: a.remove}
	for _, u := range rows.Users {
		was, found := was(a.users, u.ID)
		named := was.DisplayName != u.DisplayName || !reflect.DeepEqual(was.Email, u.Email)
		w.changed(event.TargetUser, u.ID, !found || was.Inactive != u.Inactive, named)
		w.moved(lists.Missing(u.Channels, was.Channels, Channel.compare))
		w.moved(lists.Missing(was.Channels, u.Channels, Channel.compare))
	}
	w.Groups = nil
	for _, g := range rows.Groups {
		was, found := was(a.groups, g.ID)
		w.changed(event.TargetGroup, g.ID, !found, was.DisplayName != g.DisplayName)
		if !found || was.DisplayName != g.DisplayName {
			w.Groups = append(w.Groups, Group{ID: g.ID, DisplayName: g.DisplayName})
		}
		w.members(g.ID, lists.Missing(g.Members, was.Members, strings.Compare),
			lists.Missing(was.Members, g.Members, strings.Compare))
	}
	for _, account := range rows.ServiceAccounts {
		was, found := was(a.serviceAccounts, account.ID)
		was.DisplayName = account.DisplayName
		w.changed(event.TargetServiceAccount, account.ID, !found || was != account, true)
	}
	for _, p := range rows.Policies {
		was, found := was(a.policies, p.ID)
		w.changed(event.TargetPolicy, p.ID, !found || !bytes.Equal(was.Document, p.Document), true)
	}
	for _, attachment := range rows.Attachments {
		w.changed(event.TargetAttachment, attachment.key().String(), true, false)
	}
	for _, p := range rows.BankPolicies {
		w.changed(event.TargetBankPolicy, p.BankID, true, false)
	}
	for _, t := range rows.Tests {
		w.changed(event.TargetTest, t.ID, false, true)
	}
	a.writeRemoval(&w)
	if len(w.Targets)+len(w.Renamed) > mostTargets {
		w.Targets, w.Renamed = []Target{{Kind: event.TargetAccess}}, nil
	}
	return w
}

// writeRemoval adds the targets of the rows to remove, and the memberships that end with them.
func (a *bundleDiff) writeRemoval(w *AccessWrite) {
	removed, leave := map[string]bool{}, map[string][]string{}
	left := map[Membership]bool{} // those that the rows of their groups end
	for _, m := range w.Leave {
		left[m] = true
	}
	for _, id := range a.remove.Users {
		u, _ := was(a.users, id)
		removed[id] = true
		w.moved(u.Channels)
	}
	for _, g := range a.groups {
		for _, member := range g.Members {
			gone := removed[member] || slices.Contains(a.remove.Groups, g.ID)
			if gone && !left[Membership{g.ID, member}] {
				leave[g.ID] = append(leave[g.ID], member)
			}
		}
	}
	written := lists.Index(a.changed.Groups, Group.key)
	for _, group := range slices.Sorted(maps.Keys(leave)) {
		w.members(group, nil, leave[group])
		if written[group] == nil && !slices.Contains(a.remove.Groups, group) {
			a.left = append(a.left, group)
		}
	}
	w.moved(a.remove.Channels)
	for _, t := range a.remove.removed().Targets() {
		w.changed(t.Kind, t.ID, t.Kind != event.TargetTest, true)
	}
}

// removed returns the named rows, by their keys only.
func (n AccessNames) removed() (b Bundle) {
	for _, k := range kinds {
		k.blank(&n, &b)
	}
	return b
}

// completeBuiltins adds to the bundle the built-in policies that it refers to and the store lacks.
// A built-in policy is stored when a row first refers to it. A bundle may have one as it is.
func (a *bundleDiff) completeBuiltins() {
	given := len(a.bundle.Policies)
	a.bundle = a.bundle.withBuiltins(a.policies)
	for i, p := range a.bundle.Policies[:given] {
		own := builtins[p.ID]
		if stored, found := was(a.policies, p.ID); own == nil || found && !stored.Builtin() {
			continue
		}
		named := p.DisplayName == own.DisplayName || p.DisplayName == p.ID // which is without a name
		if !named || !jcs.Equal(p.Document, own.Document) {
			a.add("/policies/"+strconv.Itoa(i), "is built in: leave it out, or use another id")
		}
		a.bundle.Policies[i] = *own
	}
}

// withBuiltins returns a copy of a bundle that shares no policies. At its end are the built-in
// policies that the rows refer to and neither the bundle nor the store has.
func (b Bundle) withBuiltins(stored map[string]*Policy) Bundle {
	b.Policies = slices.Clone(b.Policies)
	bundled := lists.Index(b.Policies, Policy.key)
	need := func(id string) {
		if builtins[id] != nil && bundled[id] == nil && stored[id] == nil {
			b.Policies = append(b.Policies, *builtins[id])
			bundled[id] = builtins[id]
		}
	}
	for _, attachment := range b.Attachments {
		need(attachment.PolicyID)
	}
	for _, account := range b.ServiceAccounts {
		if !account.absent.has(noScoping) { // else the row has referred to it before
			need(account.ScopingPolicyID)
		}
	}
	return b
}

// moved returns the ids of the accounts that w gives another owner.
func (a *bundleDiff) moved(w AccessWrite) (ids []string) {
	for _, account := range w.ServiceAccounts {
		was, found := was(a.serviceAccounts, account.ID)
		if found && was.OwnerUserID != account.OwnerUserID {
			ids = append(ids, account.ID)
		}
	}
	return ids
}

// members adds users who join and leave a group.
func (w *AccessWrite) members(group string, join, leave []string) {
	whole := len(join)+len(leave) > mostMembers
	if whole {
		w.tell(Target{Kind: event.TargetMember, ID: group})
	}
	add := func(list *[]Membership, users []string) {
		for _, user := range users {
			*list = append(*list, Membership{Group: group, User: user})
			if !whole {
				holder := Identity{Kind: KindUser, ID: user}
				w.tell(Target{Kind: event.TargetMember, ID: group, Holder: holder})
			}
		}
	}
	add(&w.Join, join)
	add(&w.Leave, leave)
}

// completeLists fills in the channels and members that the bundle leaves unchanged, and sorts
// them. It runs after the checks, whose pointers count positions in the bundle as it was given.
func (a *bundleDiff) completeLists() {
	for i := range a.bundle.ServiceAccounts { // no kept reference is left to check
		a.bundle.ServiceAccounts[i].absent = 0
	}
	for i := range a.bundle.Users {
		u := &a.bundle.Users[i]
		if u.Channels == nil {
			before, _ := was(a.users, u.ID)
			u.Channels = before.Channels
		}
		u.Channels = lists.Sorted(u.Channels, Channel.compare)
	}
	for i := range a.bundle.Groups {
		g := &a.bundle.Groups[i]
		if g.Members == nil {
			before, _ := was(a.groups, g.ID)
			g.Members = before.Members
		}
		g.Members = lists.Sorted(g.Members, strings.Compare)
	}
}

// checkChannels refuses a channel that would belong to two users. Users in the store whose channels
// the bundle replaces lose them first, so a channel can move from one user to another in one
// bundle. A user may name a channel twice: sorted removes the second. It needs the users of the
// store who have one of the bundle's channels, which names asks for.
func (a *bundleDiff) checkChannels() {
	// replaced has the users who lose their channels: the bundle gives others, or removes the user.
	replaced := make(map[string]bool, len(a.bundle.Users))
	for _, user := range a.bundle.Users {
		replaced[user.ID] = user.Channels != nil
	}
	for _, id := range a.remove.Users {
		replaced[id] = true
	}
	// holder has the user of each channel after the write, as far as the loops have come.
	holder := make(map[Channel]string, len(a.bundle.Users))
	for id, user := range a.users {
		for _, channel := range user.Channels {
			if !replaced[id] {
				holder[channel] = id
			}
		}
	}
	for i, user := range a.bundle.Users {
		if a.full {
			return
		}
		for j, channel := range user.Channels {
			if other, held := holder[channel]; held && other != user.ID {
				a.check(taken("/users/"+strconv.Itoa(i)+"/channels/"+strconv.Itoa(j),
					"is a channel of user "+quote(other)+" already"))
			}
			holder[channel] = user.ID
		}
	}
}

// checkReferences refuses a name of a row that is neither in the bundle nor in the store. An id
// with a bad form has a second error here only in Lint, which drops it.
func (a *bundleDiff) checkReferences() {
	// Rows of the bundle count as existing, so that the order of rows does not matter.
	removed := a.remove.removed()
	user := referred(a, "user", a.bundle.Users, a.users, removed.Users, User.key)
	group := referred(a, "group", a.bundle.Groups, a.groups, removed.Groups, Group.key)
	policy := referred(a, "policy", a.bundle.Policies, a.policies, removed.Policies, Policy.key)
	for i, g := range a.bundle.Groups {
		for j, member := range g.Members {
			if a.full {
				return
			}
			user("/groups/"+strconv.Itoa(i)+"/members/"+strconv.Itoa(j), member, false)
		}
	}
	for i, account := range a.bundle.ServiceAccounts {
		at := "/service_accounts/" + strconv.Itoa(i)
		if account.OwnerUserID != "" { // else it is refused already
			user(at+"/owner_user_id", account.OwnerUserID, account.absent.has(noOwner))
		}
		if account.ScopingPolicyID != "" {
			policy(at+"/scoping_policy_id", account.ScopingPolicyID, account.absent.has(noScoping))
		}
	}
	for i, attachment := range a.bundle.Attachments {
		if a.full {
			return
		}
		at := "/attachments/" + strconv.Itoa(i)
		policy(at+"/policy_id", attachment.PolicyID, false)
		if attachment.Principal.Type == GrantedToUser {
			user(at+"/principal_id", attachment.Principal.ID, false)
		} else {
			group(at+"/principal_id", attachment.Principal.ID, false)
		}
	}
}

// referred returns a function that refuses an id at a pointer when no row has it: it is neither
// bundled nor stored, or it is gone afterwards. The error quotes the id: the caller wrote it. kept:
// the row named the id before, so the row with the id may not be among those read.
func referred[R any](
	a *bundleDiff, noun string, bundled []R, stored map[string]*R, gone []R, key func(R) string,
) func(at, id string, kept bool) {
	brought, removed := lists.Index(bundled, key), lists.Index(gone, key)
	return func(at, id string, kept bool) {
		if brought[id] == nil && (stored[id] == nil && !kept || removed[id] != nil) {
			a.add(at, "names a "+noun+" that does not exist: "+quote(id))
		}
	}
}

// Size returns the number of rows, channels and memberships that w writes and removes.
func (w AccessWrite) Size() int {
	n := w.Bundle.size() + len(w.Join) + len(w.Leave) + w.Remove.size()
	for _, u := range w.Users {
		n += len(u.Channels)
	}
	return n
}

// Empty reports whether w writes nothing.
func (w AccessWrite) Empty() bool {
	return w.Bundle.Empty() && len(w.Join)+len(w.Leave)+w.Remove.size() == 0
}

// size returns the number of rows that n removes.
func (n AccessNames) size() int { return n.removed().size() + len(n.Channels) }

// changed adds a row to Targets when decisions may differ, else to Renamed when names do.
func (w *AccessWrite) changed(kind event.TargetKind, id string, decisions, names bool) {
	if t := (Target{Kind: kind, ID: id}); decisions {
		w.tell(t)
	} else if names {
		w.Renamed = append(w.Renamed, t)
	}
}

// tell adds a target, unless there are so many that one event.TargetAccess stands for all.
func (w *AccessWrite) tell(t Target) {
	if len(w.Targets) <= mostTargets {
		w.Targets = append(w.Targets, t)
	}
}

// moved adds channels that came to a user or left it.
func (w *AccessWrite) moved(channels []Channel) {
	for _, ch := range channels {
		w.tell(Target{Kind: event.TargetChannel, ID: ch.String()})
	}
}

// before returns the rows that w changes or removes, as they were. Of the members of a group, it
// has those that leave.
func (a *bundleDiff) before(w AccessWrite) map[Target]any {
	var b Bundle
	named := a.changed.keys()
	for _, n := range []AccessNames{named, a.remove, {Groups: a.left}} {
		for _, k := range kinds {
			k.find(&a.rowsByKey, &n, &b)
		}
	}
	return b.byTarget(w.Leave)
}

// after returns the rows that w writes. Of the members of a group, it has those that join.
func (a *bundleDiff) after(w AccessWrite) map[Target]any {
	b := a.changed
	groups.find(&a.rowsByKey, &AccessNames{Groups: a.left}, &b)
	return b.byTarget(w.Join)
}

// byTarget returns the JSON forms of all rows, for events. members replace those of the groups, also
// in the caller's list.
func (b Bundle) byTarget(members []Membership) map[Target]any {
	of := map[string][]string{}
	for _, m := range members {
		of[m.Group] = append(of[m.Group], m.User)
	}
	for i, g := range b.Groups {
		b.Groups[i].Members = append([]string{}, of[g.ID]...)
	}
	b.Users = lists.Map(b.Users, User.brief)
	b.ServiceAccounts = lists.Map(b.ServiceAccounts, ServiceAccount.brief)
	all := map[Target]any{}
	for _, k := range kinds {
		targets := k.targets(&b)
		if forms := k.forms(&b); forms != nil {
			for form := range forms {
				all[targets[0]], targets = form, targets[1:]
			}
		}
	}
	return all
}

// The most targets that one write reports one by one.
const (
	mostTargets = 1000 // above it, all of them are one event.TargetAccess
	mostMembers = 100  // of one group; above it, they are one event.TargetMember without a Holder
)

func (k *kind[R, K]) complete(r *rowsByKey, b *Bundle) {
	rows, stored := slices.Clone(*k.rows(b)), *k.stored(r) // the bundle may be applied again
	for i := range rows {
		was := stored[rows[i].key()]
		if was == nil {
			was = new(R)
		}
		if row, ok := any(&rows[i]).(completer[R]); ok {
			row.complete(was)
		}
	}
	*k.rows(b) = rows
}

// completer is a row that sets what it leaves absent: to that of the stored row, which is zero for a
// new one, or to the default.
type completer[R any] interface{ complete(was *R) }

// fill writes rows into r. Members join their groups, and none leaves.
func fill(r *accessindex.Index, rows Bundle) {
	for _, k := range kinds {
		k.enter(r, &rows)
	}
}

// indexed returns an index of a bundle that is the whole state of access.
func indexed(schema *policy.Schema, b Bundle) *accessindex.Index {
	r := accessindex.New(schema)
	fill(r, b)
	return r
}
