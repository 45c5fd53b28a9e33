package svc

import (
	"bytes"
	"context"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/extsvc/svc/internal/policy"
)

// Access writes the rows that decide access: users, groups, service accounts, policies, attachments
// and bank policies. Its methods may be called concurrently.
type Access struct {
	*base
	*guard
	*journal
	*rosters
}

// Apply writes a bundle in one transaction, as an upsert. A row in the bundle is written whole,
// with defaults for what it leaves out. Rows that are not in the bundle stay; Apply removes none.
// Nil Channels and Members stay as they are; empty ones are cleared. Applying a bundle again
// changes nothing, and rows that are already equal cause no event. by must be [Host], for now.
//
// Rows may name rows of the store and rows of the bundle, in any order. Calls of Apply run one
// after the other, in all processes. Decisions of this process count the rows when Apply returns,
// and those of others as [Service.Decide] says. Apply copies the bundle.
//
// Each row that changed is an event ([EventAccessWritten]); a channel is that of its user, a member
// that of its group. With [EventConfig].Keep, their records are in the same transaction.
//
// Errors: CodeForbidden; CodeInvalid and CodeExists (a channel of another user), joined, each with
// the JSON pointer into the bundle, at most [MaxErrors]; CodeUnavailable. Apply looks at the store
// only when the bundle itself has no error. On an error nothing is written.
func (s *Access) Apply(ctx context.Context, by Principal, bundle Bundle) error {
	return s.Load(ctx, by, bundle, nil)
}

// Load is [Access.Apply] of a large bundle, with reports while the store writes. progress gets the
// number of rows, channels and memberships written so far, and of all that differ from the store.
// Some thousands are written between two calls; nil, or no difference: none.
//
// progress is called in the transaction, before the commit, by one goroutine at a time. So it is
// quick, and makes no calls of the Service. done starts again at the beginning when the store runs
// the transaction again. With [EventConfig].Keep, the records of the events come after the last
// call, and take longer than the rows.
//
// Errors: those of Apply.
func (s *Access) Load(
	ctx context.Context, by Principal, bundle Bundle, progress func(done, total int),
) error {
	return s.change(ctx, by, bundle, Bundle.names, func(current, bundle Bundle) *application {
		a := newApplication(current, bundle)
		a.progress = progress
		return a
	})
}

// AddMembers makes users members of a group. It is [Access.Apply] of a group with these members
// alone, except that the other members stay. Its cost does not grow with the group. A user who is a
// member already stays one.
//
// Errors: those of Apply, with pointers such as "/groups/0/members/1"; CodeNotFound, when the group
// does not exist.
func (s *Access) AddMembers(
	ctx context.Context, by Principal, group string, users ...string,
) error {
	return s.changeMembers(ctx, by, group, users, func(_ *application, g *Group) {
		g.Members = users
	})
}

// RemoveMembers removes members from a group, as AddMembers adds them.
//
// Errors: those of AddMembers; CodeNotFound with its pointer for a user who is no member.
func (s *Access) RemoveMembers(
	ctx context.Context, by Principal, group string, users ...string,
) error {
	return s.changeMembers(ctx, by, group, users, func(a *application, g *Group) {
		for i, user := range users {
			if _, found := slices.BinarySearch(g.Members, user); !found {
				at := "/groups/0/members/" + strconv.Itoa(i)
				a.check(&Error{Code: CodeNotFound, Field: at, Message: "is no member of the group"})
			}
		}
		g.Members = []string{}
	})
}

// changeMembers changes some members of a group. set gets the group's row, whose Members are those
// of users who are members now. It leaves those who are members afterwards.
func (s *Access) changeMembers(
	ctx context.Context, by Principal, group string, users []string,
	set func(a *application, g *Group),
) error {
	names := func(Bundle) AccessNames {
		n := AccessNames{Groups: []string{group}, Users: users}
		for _, user := range users {
			n.Members = append(n.Members, Membership{Group: group, User: user})
		}
		return n
	}
	bundle := Bundle{Groups: []Group{{ID: group, Members: users}}}
	return s.change(ctx, by, bundle, names, func(current, _ Bundle) *application {
		a := newApplication(current, Bundle{Groups: slices.Clone(current.Groups)})
		if len(current.Groups) == 0 {
			a.check(notFound("there is no such group"))
		} else {
			set(a, &a.bundle.Groups[0])
		}
		return a
	})
}

// change writes a bundle that the host gives, in one transaction. apply returns its application to
// the rows that names lists. It may be called again, with newer rows.
func (s *Access) change(
	ctx context.Context, by Principal, bundle Bundle, names func(Bundle) AccessNames,
	apply func(current, bundle Bundle) *application,
) error {
	if by.Kind != KindHost {
		return forbidden("only the host application may write access")
	}
	// A separate compiler: the shared one keeps nothing of a refused bundle.
	bundle, err := bundle.normalize(s.compiler.Apart(ctx))
	if err != nil {
		return err
	}
	err = s.commit(ctx, change{by: by, access: true, write: func(
		ctx context.Context, tx Store,
	) (changed []Event, err error) {
		err = tx.ChangeAccess(ctx, names(bundle), func(current Bundle) (AccessWrite, error) {
			a := apply(current, bundle)
			rows := a.rows()
			changed = happened(s.now(), EventAccessWritten, rows.Targets()...)
			write := a.write(rows)
			if total := write.Size(); a.progress != nil {
				write.Progress = func(done int) { a.progress(done, total) }
			}
			return write, a.err()
		})
		return changed, err
	}})
	return fault("write access", err)
}

// normalize returns the bundle with defaults and compact documents. It checks all that it can check
// without the store. The compiler parses the policies. The caller has been authorized: parsing
// costs more than a form, and errors quote the bundle.
func (b Bundle) normalize(compiler *policy.Compiler) (Bundle, error) {
	return b.normalizeWith(&checker{compiler: compiler})
}

// normalizeWith is normalize for a checker that the caller has set up: Lint wants all errors, and
// the rows in spite of them. The lists of b stay as they are. A nil list gives a nil list: an
// absent list and an empty one name no row either way.
func (b Bundle) normalizeWith(c *checker) (Bundle, error) {
	out := Bundle{
		Users:  normalized(c, "/users", b.Users, (*User).normalize, User.key),
		Groups: normalized(c, "/groups", b.Groups, (*Group).normalize, Group.key),
		ServiceAccounts: normalized(c, "/service_accounts", b.ServiceAccounts,
			(*ServiceAccount).normalize, ServiceAccount.key),
		Policies: normalized(c, "/policies", b.Policies, (*Policy).normalize, Policy.key),
		Attachments: normalized(c, "/attachments", b.Attachments,
			(*Attachment).normalize, Attachment.key),
		BankPolicies: normalized(c, "/bank_policies", b.BankPolicies,
			(*BankPolicy).normalize, BankPolicy.key),
	}
	return out, c.err()
}

// normalized normalizes a copy of each row, and refuses two rows with one key. at is the pointer to
// the list. When the checker is full, it returns nil: the bundle is refused anyway.
func normalized[R any, K comparable](
	c *checker, at string, rows []R, normalize func(*R, *checker, string), key func(R) K,
) []R {
	out := slices.Clone(rows)
	seen := make(map[K]bool, len(rows))
	for i := range out {
		if c.full {
			return nil
		}
		pointer := at + "/" + strconv.Itoa(i)
		normalize(&out[i], c, pointer)
		if k := key(out[i]); seen[k] {
			c.add(pointer, "is in the bundle twice")
		} else {
			seen[k] = true
		}
	}
	return out
}

// names returns the rows that a bundle writes or refers to: all that ChangeAccess has to read. A
// name that is missing here would look like a row that does not exist. The lists that can repeat a
// name are sorted, without duplicates.
func (b Bundle) names() AccessNames {
	var n AccessNames
	for _, u := range b.Users {
		n.Users = append(n.Users, u.ID)
		n.Channels = append(n.Channels, u.Channels...)
	}
	for _, g := range b.Groups {
		if g.Members == nil {
			n.Groups = append(n.Groups, g.ID)
		} else {
			n.MembersOf = append(n.MembersOf, g.ID)
			n.Users = append(n.Users, g.Members...)
		}
	}
	for _, a := range b.ServiceAccounts {
		n.ServiceAccounts = append(n.ServiceAccounts, a.ID)
		n.Users = append(n.Users, a.OwnerUserID)
		if a.ScopingPolicyID != "" {
			n.Policies = append(n.Policies, a.ScopingPolicyID)
		}
	}
	for _, p := range b.Policies {
		n.Policies = append(n.Policies, p.ID)
	}
	for _, a := range b.Attachments {
		n.Attachments = append(n.Attachments, a.key())
		n.Policies = append(n.Policies, a.PolicyID)
		if a.Principal.Type == GrantedToUser {
			n.Users = append(n.Users, a.Principal.ID)
		} else {
			n.Groups = append(n.Groups, a.Principal.ID)
		}
	}
	for _, p := range b.BankPolicies {
		n.BankPolicies = append(n.BankPolicies, p.BankID)
	}
	n.Users = sorted(n.Users, strings.Compare)
	n.Groups = sorted(n.Groups, strings.Compare)
	n.Policies = sorted(n.Policies, strings.Compare)
	return n
}

// application is the writing of one bundle into a store that holds certain rows. It does no I/O, so
// [Access.Preview], [Policies.Simulate] and [Lint] use it as well: they cannot differ from Apply.
// Use it once, in this order: rows, then write, then err.
type application struct {
	checker
	bundle Bundle // normalized; completeLists replaces lists in it

	progress func(done, total int) // nil: none

	// The rows of the store, by key. They must not change: a roster may share them with other
	// callers.
	users           map[string]*User
	groups          map[string]*Group
	serviceAccounts map[string]*ServiceAccount
	policies        map[string]*Policy
	attachments     map[AttachmentKey]*Attachment
	bankPolicies    map[string]*BankPolicy
}

// newApplication returns the application of a normalized bundle to current. current needs only the
// rows that names lists, and the users who have its channels. More rows do no harm: a roster gives
// all.
func newApplication(current, bundle Bundle) *application {
	return &application{
		bundle:          bundle,
		users:           index(current.Users, User.key),
		groups:          index(current.Groups, Group.key),
		serviceAccounts: index(current.ServiceAccounts, ServiceAccount.key),
		policies:        index(current.Policies, Policy.key),
		attachments:     index(current.Attachments, Attachment.key),
		bankPolicies:    index(current.BankPolicies, BankPolicy.key),
	}
}

// index returns rows by key. Keys are unique in a store and in a normalized bundle; else the last
// counts.
func index[R any, K comparable](rows []R, key func(R) K) map[K]*R {
	m := make(map[K]*R, len(rows))
	for i := range rows {
		m[key(rows[i])] = &rows[i]
	}
	return m
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
func (a *application) rows() Bundle {
	a.checkReferences()
	a.checkChannels()
	a.completeLists()
	b := a.bundle
	return Bundle{
		Users:           differing(b.Users, a.users, User.key),
		Groups:          differing(b.Groups, a.groups, Group.key),
		ServiceAccounts: differing(b.ServiceAccounts, a.serviceAccounts, ServiceAccount.key),
		Policies:        differing(b.Policies, a.policies, Policy.key),
		Attachments:     differing(b.Attachments, a.attachments, Attachment.key),
		BankPolicies:    differing(b.BankPolicies, a.bankPolicies, BankPolicy.key),
	}
}

// differing returns the rows that the store has not, or has otherwise. It compares whole rows, so
// their lists must be sorted and not nil on both sides. Documents are compared byte by byte:
// another order of keys is a change.
func differing[R any, K comparable](rows []R, current map[K]*R, key func(R) K) (out []R) {
	for i := range rows {
		if there := current[key(rows[i])]; there == nil || !reflect.DeepEqual(there, &rows[i]) {
			out = append(out, rows[i])
		}
	}
	return out
}

// write returns what Apply writes for the rows that differ: these rows, memberships as differences,
// and the targets for [ChangeStore].Changes. Unlike events, those tell names apart from what
// decisions depend on.
func (a *application) write(rows Bundle) AccessWrite {
	w := AccessWrite{Bundle: rows}
	for _, u := range rows.Users {
		was, found := was(a.users, u.ID)
		named := was.DisplayName != u.DisplayName || !reflect.DeepEqual(was.Email, u.Email)
		w.changed(TargetUser, u.ID, !found || was.Inactive != u.Inactive, named)
		w.moved(missing(u.Channels, was.Channels, Channel.compare))
		w.moved(missing(was.Channels, u.Channels, Channel.compare))
	}
	w.Groups = nil
	for _, g := range rows.Groups {
		was, found := was(a.groups, g.ID)
		w.changed(TargetGroup, g.ID, !found, was.DisplayName != g.DisplayName)
		if !found || was.DisplayName != g.DisplayName {
			w.Groups = append(w.Groups, Group{ID: g.ID, DisplayName: g.DisplayName})
		}
		w.members(g.ID, missing(g.Members, was.Members, strings.Compare),
			missing(was.Members, g.Members, strings.Compare))
	}
	for _, account := range rows.ServiceAccounts {
		was, found := was(a.serviceAccounts, account.ID)
		was.DisplayName = account.DisplayName
		w.changed(TargetServiceAccount, account.ID, !found || was != account, true)
	}
	for _, p := range rows.Policies {
		was, found := was(a.policies, p.ID)
		w.changed(TargetPolicy, p.ID, !found || !bytes.Equal(was.Document, p.Document), true)
	}
	for _, attachment := range rows.Attachments {
		w.changed(TargetAttachment, attachment.key().String(), true, false)
	}
	for _, p := range rows.BankPolicies {
		w.changed(TargetBankPolicy, p.BankID, true, false)
	}
	if len(w.Targets)+len(w.Renamed) > mostTargets {
		w.Targets, w.Renamed = []Target{{Kind: TargetAccess}}, nil
	}
	return w
}

// members adds users who join and leave a group.
func (w *AccessWrite) members(group string, join, leave []string) {
	whole := len(join)+len(leave) > mostMembers
	if whole {
		w.tell(Target{Kind: TargetMember, ID: group})
	}
	add := func(list *[]Membership, users []string) {
		for _, user := range users {
			*list = append(*list, Membership{Group: group, User: user})
			if !whole {
				holder := Identity{Kind: KindUser, ID: user}
				w.tell(Target{Kind: TargetMember, ID: group, Holder: holder})
			}
		}
	}
	add(&w.Join, join)
	add(&w.Leave, leave)
}

// completeLists fills in the channels and members that the bundle leaves unchanged, and sorts the
// others. It runs after the checks, whose pointers count positions in the bundle as it was given.
// It clones the lists of rows, because the store may call Apply's function again with the same
// bundle.
func (a *application) completeLists() {
	a.bundle.Users, a.bundle.Groups = slices.Clone(a.bundle.Users), slices.Clone(a.bundle.Groups)
	for i := range a.bundle.Users {
		if u := &a.bundle.Users[i]; u.Channels == nil {
			before, _ := was(a.users, u.ID)
			u.Channels = append([]Channel{}, before.Channels...)
		} else {
			u.Channels = sorted(u.Channels, Channel.compare)
		}
	}
	for i := range a.bundle.Groups {
		if g := &a.bundle.Groups[i]; g.Members == nil {
			before, _ := was(a.groups, g.ID)
			g.Members = append([]string{}, before.Members...)
		} else {
			g.Members = sorted(g.Members, strings.Compare)
		}
	}
}

// checkChannels refuses a channel that would belong to two users. Users in the store whose channels
// the bundle replaces lose them first, so a channel can move from one user to another in one
// bundle. A user may name a channel twice: sorted removes the second. It needs the users of the
// store who have one of the bundle's channels, which names asks for.
func (a *application) checkChannels() {
	// replaced has the users of the bundle, true where the bundle gives their channels.
	replaced := make(map[string]bool, len(a.bundle.Users))
	for _, user := range a.bundle.Users {
		replaced[user.ID] = user.Channels != nil
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

// checkReferences refuses a name of a row that is neither in the bundle nor in the store. No row
// goes away by Apply, so a row that exists now still exists after it. An id with a bad form has a
// second error here only in Lint, which drops it.
func (a *application) checkReferences() {
	// What the bundle brings counts as existing, so that the order of rows does not matter.
	users := index(a.bundle.Users, User.key)
	groups := index(a.bundle.Groups, Group.key)
	policies := index(a.bundle.Policies, Policy.key)
	for i, g := range a.bundle.Groups {
		for j, member := range g.Members {
			if a.full {
				return
			}
			exists(a, "/groups/"+strconv.Itoa(i)+"/members/"+strconv.Itoa(j),
				"user", member, users, a.users)
		}
	}
	for i, account := range a.bundle.ServiceAccounts {
		at := "/service_accounts/" + strconv.Itoa(i)
		exists(a, at+"/owner_user_id", "user", account.OwnerUserID, users, a.users)
		if account.ScopingPolicyID != "" {
			exists(
				a, at+"/scoping_policy_id", "policy", account.ScopingPolicyID, policies, a.policies,
			)
		}
	}
	for i, attachment := range a.bundle.Attachments {
		if a.full {
			return
		}
		at := "/attachments/" + strconv.Itoa(i)
		exists(a, at+"/policy_id", "policy", attachment.PolicyID, policies, a.policies)
		if attachment.Principal.Type == GrantedToUser {
			exists(a, at+"/principal_id", "user", attachment.Principal.ID, users, a.users)
		} else {
			exists(a, at+"/principal_id", "group", attachment.Principal.ID, groups, a.groups)
		}
	}
}

// exists refuses an id that neither map has. It quotes the id: the caller wrote it. at is the
// pointer to the id, and noun the kind of row that is missing.
func exists[R any](a *application, at, noun, id string, bundled, stored map[string]*R) {
	if bundled[id] == nil && stored[id] == nil {
		a.add(at, "names a "+noun+" that does not exist: "+quote(id))
	}
}
