package svc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/strictjson"
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
// after the other, in all processes. Decisions of this process count the rows when Apply returns;
// others count them within a second or so (PostgreSQL: milliseconds). Apply copies the bundle.
//
// Each row that changed is an event ([EventAccessWritten]); a channel is that of its user, a member
// that of its group. With [EventConfig].Keep, their records are in the same transaction.
//
// Errors: CodeForbidden; CodeInvalid and CodeExists (a channel of another user), joined, each with
// the JSON pointer into the bundle, at most [MaxErrors]; CodeUnavailable. Apply looks at the store
// only when the bundle itself has no error. On an error nothing is written.
func (s *Access) Apply(ctx context.Context, by Principal, bundle Bundle) error {
	if by.Kind != KindHost {
		return forbidden("only the host application may write access")
	}
	// A separate compiler: the shared one keeps nothing of a refused bundle.
	bundle, err := bundle.normalize(s.compiler.Apart(ctx))
	if err != nil {
		return err
	}
	err = s.commit(ctx, change{by: by, write: func(
		ctx context.Context, tx Store,
	) (changed []Event, err error) {
		err = tx.ChangeAccess(ctx, bundle.names(), func(current Bundle) (Bundle, error) {
			// The store may call again with newer rows: all that a call finds out starts from the
			// beginning.
			a := newApplication(current, bundle)
			write := a.rows()
			changed = happened(s.now(), EventAccessWritten, write.Targets()...)
			return write, a.err()
		})
		return changed, err
	}})
	if err != nil {
		return fault("apply bundle", err)
	}
	s.forget(bundle.Targets()...) // even when nothing changed: another call may have written it
	return nil
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
	seen := map[K]bool{}
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

// key is what makes a row unique in its list. Writing a row with a key that exists replaces the
// row.
func (u User) key() string { return u.ID }

func (g Group) key() string { return g.ID }

func (a ServiceAccount) key() string { return a.ID }

func (p Policy) key() string { return p.ID }

func (b BankPolicy) key() string { return b.BankID }

// key is the identity of a row, as with the five types above. It must be comparable. Priority is no
// part of it: a policy has one priority for each principal.
func (a Attachment) key() AttachmentKey {
	return AttachmentKey{PolicyID: a.PolicyID, Principal: a.Principal}
}

// normalize checks a user and sets its defaults. The loops stop when the checker is full, because a
// bundle may be long. It does not change Channels: the copy shares them with the caller.
func (u *User) normalize(c *checker, at string) {
	c.namedID(at, u.ID, &u.DisplayName)
	c.optionalText(at+"/email", u.Email, MaxNameLength)
	for i := 0; i < len(u.Channels) && !c.full; i++ {
		u.Channels[i].check(c, at+"/channels/"+strconv.Itoa(i))
	}
}

// check refuses a channel whose written form would be ambiguous, or whose sender cannot stand in a
// path. A sender may have colons and slashes: another system names it.
func (ch Channel) check(c *checker, at string) {
	c.id(at+"/provider", ch.Provider)
	if strings.Contains(ch.Provider, ":") {
		c.add(at+"/provider", "must hold no colon: a colon ends the provider of a sender")
	}
	if ch.SenderID == "." || ch.SenderID == ".." {
		c.add(at+"/sender_id", `must not be "." or ".."`)
	} else {
		c.foreign(at+"/sender_id", ch.SenderID)
	}
}

// normalize checks the form of a group. Whether its members exist shows only in the store's
// transaction.
func (g *Group) normalize(c *checker, at string) {
	c.namedID(at, g.ID, &g.DisplayName)
	for i := 0; i < len(g.Members) && !c.full; i++ {
		c.id(at+"/members/"+strconv.Itoa(i), g.Members[i])
	}
}

// normalize checks the form of a service account. Each account needs an owner, whose rights are its
// own. An account and a user may have one id.
func (a *ServiceAccount) normalize(c *checker, at string) {
	c.namedID(at, a.ID, &a.DisplayName)
	c.id(at+"/owner_user_id", a.OwnerUserID)
	if a.ScopingPolicyID != "" {
		c.id(at+"/scoping_policy_id", a.ScopingPolicyID)
	}
}

// normalize checks a policy, whose document the compiler parses as for a decision: what Apply
// accepts, decisions can read.
func (p *Policy) normalize(c *checker, at string) {
	c.namedID(at, p.ID, &p.DisplayName)
	p.Document = c.document(at+"/document", p.Document, c.compiler.Check)
}

// normalize checks the form of an attachment. Any Priority is good. checkReferences finds out
// whether the policy and the principal exist.
func (a *Attachment) normalize(c *checker, at string) {
	c.id(at+"/policy_id", a.PolicyID)
	if a.Principal.Type != GrantedToUser && a.Principal.Type != GrantedToGroup {
		c.add(at+"/principal_type", `must be "user" or "group"`)
	}
	c.id(at+"/principal_id", a.Principal.ID)
}

// normalize checks a bank policy. A bank belongs to the host: it needs no row, and any printable
// name is good.
func (b *BankPolicy) normalize(c *checker, at string) {
	c.foreign(at+"/bank_id", b.BankID)
	b.Document = c.document(at+"/document", b.Document, func(raw []byte) error {
		_, err := policy.ParseBankDocument(raw)
		return err
	})
}

// namedID checks an id and a display name, which defaults to the id. The default comes first, so
// that the stored name is the one that is checked. An id is shorter than a name may be, so the
// default always passes.
func (c *checker) namedID(at, id string, name *string) {
	c.id(at+"/id", id)
	*name = cmp.Or(*name, id)
	c.text(at+"/display_name", *name, MaxNameLength)
}

// document returns a policy document without white space, checked by parse. What parse refuses has
// its place in the document: the pointer continues at. The result shares no memory with raw. With
// an error it is of no use.
func (c *checker) document(
	at string, raw json.RawMessage, parse func([]byte) error,
) json.RawMessage {
	// A missing document is no empty one: without statements, a policy would silently give nothing.
	if len(raw) == 0 {
		c.add(at, "is required")
		return nil
	}
	compact, err := strictjson.Compact(raw, MaxNesting)
	if err == nil {
		err = parse(compact)
	}
	// The parser's text is for the caller: it says what is wrong and where, and has no secret.
	if wrong, ok := errors.AsType[*strictjson.Error](err); ok {
		c.add(at+wrong.Pointer, wrong.Detail)
	} else if err != nil {
		c.add(at, err.Error())
	}
	return compact
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
		n.Groups = append(n.Groups, g.ID)
		n.Users = append(n.Users, g.Members...)
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

// Targets returns the bundle's rows as targets of events and change feeds, in the order of the
// fields of [Bundle] and of their lists. A channel or a member is no target of its own. Nil: the
// bundle is empty.
func (b Bundle) Targets() []Target {
	var targets []Target
	add := func(kind TargetKind, id string) {
		targets = append(targets, Target{Kind: kind, ID: id})
	}
	for _, u := range b.Users {
		add(TargetUser, u.ID)
	}
	for _, g := range b.Groups {
		add(TargetGroup, g.ID)
	}
	for _, a := range b.ServiceAccounts {
		add(TargetServiceAccount, a.ID)
	}
	for _, p := range b.Policies {
		add(TargetPolicy, p.ID)
	}
	for _, a := range b.Attachments {
		add(TargetAttachment, a.key().String())
	}
	for _, p := range b.BankPolicies {
		add(TargetBankPolicy, p.BankID)
	}
	return targets
}

// application is the writing of one bundle into a store that holds certain rows. It does no I/O, so
// [Access.Preview], [Policies.Simulate] and [Lint] use it as well: they cannot differ from Apply.
// Use it once, in this order: rows, then err.
type application struct {
	checker
	bundle Bundle // normalized; completeLists replaces lists in it

	// The rows of the store, by key. They must not change: a roster may share them with other
	// callers.
	users           map[string]User
	groups          map[string]Group
	serviceAccounts map[string]ServiceAccount
	policies        map[string]Policy
	attachments     map[AttachmentKey]Attachment
	bankPolicies    map[string]BankPolicy
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
func index[R any, K comparable](rows []R, key func(R) K) map[K]R {
	m := make(map[K]R, len(rows))
	for _, row := range rows {
		m[key(row)] = row
	}
	return m
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
func differing[R any, K comparable](rows []R, current map[K]R, key func(R) K) []R {
	return slices.DeleteFunc(slices.Clone(rows), func(row R) bool {
		there, found := current[key(row)]
		return found && reflect.DeepEqual(there, row)
	})
}

// completeLists fills in the channels and members that the bundle leaves unchanged, and sorts the
// others. It runs after the checks, whose pointers count positions in the bundle as it was given.
// It clones the lists of rows, because the store may call Apply's function again with the same
// bundle.
func (a *application) completeLists() {
	a.bundle.Users, a.bundle.Groups = slices.Clone(a.bundle.Users), slices.Clone(a.bundle.Groups)
	for i := range a.bundle.Users {
		if u := &a.bundle.Users[i]; u.Channels == nil {
			u.Channels = append([]Channel{}, a.users[u.ID].Channels...)
		} else {
			u.Channels = sorted(u.Channels, Channel.compare)
		}
	}
	for i := range a.bundle.Groups {
		if g := &a.bundle.Groups[i]; g.Members == nil {
			g.Members = append([]string{}, a.groups[g.ID].Members...)
		} else {
			g.Members = sorted(g.Members, strings.Compare)
		}
	}
}

// compare orders channels by provider and sender, byte by byte, as stores return them.
func (ch Channel) compare(other Channel) int {
	return cmp.Or(
		strings.Compare(ch.Provider, other.Provider), strings.Compare(ch.SenderID, other.SenderID),
	)
}

// sorted returns a sorted copy without duplicates, never nil. A repeated member is no error.
func sorted[T comparable](list []T, compare func(a, b T) int) []T {
	out := append([]T{}, list...)
	slices.SortFunc(out, compare)
	return slices.Compact(out)
}

// checkChannels refuses a channel that would belong to two users. Users in the store whose channels
// the bundle replaces lose them first, so a channel can move from one user to another in one
// bundle. A user may name a channel twice: sorted removes the second. It needs the users of the
// store who have one of the bundle's channels, which names asks for.
func (a *application) checkChannels() {
	// replaced has the users of the bundle, true where the bundle gives their channels.
	replaced := map[string]bool{}
	for _, user := range a.bundle.Users {
		replaced[user.ID] = user.Channels != nil
	}
	// holder has the user of each channel after the write, as far as the loops have come.
	holder := map[Channel]string{}
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
func exists[R any](a *application, at, noun, id string, bundled, stored map[string]R) {
	_, inBundle := bundled[id]
	_, inStore := stored[id]
	if !inBundle && !inStore {
		a.add(at, "names a "+noun+" that does not exist: "+quote(id))
	}
}
