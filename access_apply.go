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
// and bank policies.
type Access struct {
	*base
	*guard
	*journal
	*rosters
}

// Apply writes a bundle in one transaction, as an upsert. A row in the bundle is written whole,
// with defaults for what it leaves out. Rows that are not in the bundle stay. Nil Channels and
// Members stay as they are; empty ones are cleared. Applying a bundle again changes nothing, and
// rows that are already equal cause no event. by must be [Host], for now.
//
// Errors: CodeForbidden; CodeInvalid and CodeExists (a channel of another user), joined, each with
// the JSON pointer into the bundle. On an error nothing is written.
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
// without the store. The compiler parses the policies. The caller has been authorized.
func (b Bundle) normalize(compiler *policy.Compiler) (Bundle, error) {
	return b.normalizeWith(&checker{compiler: compiler})
}

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

// normalized normalizes a copy of each row, and refuses two rows with one key.
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

func (u User) key() string { return u.ID }

func (g Group) key() string { return g.ID }

func (a ServiceAccount) key() string { return a.ID }

func (p Policy) key() string { return p.ID }

func (b BankPolicy) key() string { return b.BankID }

func (a Attachment) key() AttachmentKey {
	return AttachmentKey{PolicyID: a.PolicyID, Principal: a.Principal}
}

func (u *User) normalize(c *checker, at string) {
	c.namedID(at, u.ID, &u.DisplayName)
	c.optionalText(at+"/email", u.Email, MaxNameLength)
	for i := 0; i < len(u.Channels) && !c.full; i++ {
		u.Channels[i].check(c, at+"/channels/"+strconv.Itoa(i))
	}
}

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

func (g *Group) normalize(c *checker, at string) {
	c.namedID(at, g.ID, &g.DisplayName)
	for i := 0; i < len(g.Members) && !c.full; i++ {
		c.id(at+"/members/"+strconv.Itoa(i), g.Members[i])
	}
}

func (a *ServiceAccount) normalize(c *checker, at string) {
	c.namedID(at, a.ID, &a.DisplayName)
	c.id(at+"/owner_user_id", a.OwnerUserID)
	if a.ScopingPolicyID != "" {
		c.id(at+"/scoping_policy_id", a.ScopingPolicyID)
	}
}

func (p *Policy) normalize(c *checker, at string) {
	c.namedID(at, p.ID, &p.DisplayName)
	p.Document = c.document(at+"/document", p.Document, c.compiler.Check)
}

func (a *Attachment) normalize(c *checker, at string) {
	c.id(at+"/policy_id", a.PolicyID)
	if a.Principal.Type != GrantedToUser && a.Principal.Type != GrantedToGroup {
		c.add(at+"/principal_type", `must be "user" or "group"`)
	}
	c.id(at+"/principal_id", a.Principal.ID)
}

func (b *BankPolicy) normalize(c *checker, at string) {
	c.foreign(at+"/bank_id", b.BankID)
	b.Document = c.document(at+"/document", b.Document, func(raw []byte) error {
		_, err := policy.ParseBankDocument(raw)
		return err
	})
}

// namedID checks an id and a display name, which defaults to the id.
func (c *checker) namedID(at, id string, name *string) {
	c.id(at+"/id", id)
	*name = cmp.Or(*name, id)
	c.text(at+"/display_name", *name, MaxNameLength)
}

// document returns a policy document without white space, checked by parse.
func (c *checker) document(
	at string, raw json.RawMessage, parse func([]byte) error,
) json.RawMessage {
	if len(raw) == 0 {
		c.add(at, "is required")
		return nil
	}
	compact, err := strictjson.Compact(raw, MaxNesting)
	if err == nil {
		err = parse(compact)
	}
	if wrong, ok := errors.AsType[*strictjson.Error](err); ok {
		c.add(at+wrong.Pointer, wrong.Detail)
	} else if err != nil {
		c.add(at, err.Error())
	}
	return compact
}

// names returns the rows that a bundle writes or refers to.
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

// Targets returns the bundle's rows as targets of events and change feeds.
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

// application is the writing of one bundle into a store that holds certain rows.
type application struct {
	checker
	bundle Bundle

	users           map[string]User // the store's
	groups          map[string]Group
	serviceAccounts map[string]ServiceAccount
	policies        map[string]Policy
	attachments     map[AttachmentKey]Attachment
	bankPolicies    map[string]BankPolicy
}

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

func index[R any, K comparable](rows []R, key func(R) K) map[K]R {
	m := make(map[K]R, len(rows))
	for _, row := range rows {
		m[key(row)] = row
	}
	return m
}

// rows returns the rows that differ from the store's, and checks their references first.
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

func differing[R any, K comparable](rows []R, current map[K]R, key func(R) K) []R {
	return slices.DeleteFunc(slices.Clone(rows), func(row R) bool {
		there, found := current[key(row)]
		return found && reflect.DeepEqual(there, row)
	})
}

// completeLists fills in the channels and members that the bundle leaves unchanged, and sorts the
// others.
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

func (ch Channel) compare(other Channel) int {
	return cmp.Or(
		strings.Compare(ch.Provider, other.Provider), strings.Compare(ch.SenderID, other.SenderID),
	)
}

// sorted returns a sorted copy without duplicates, never nil.
func sorted[T comparable](list []T, compare func(a, b T) int) []T {
	out := append([]T{}, list...)
	slices.SortFunc(out, compare)
	return slices.Compact(out)
}

// checkChannels refuses a channel that would belong to two users. Users in the store whose channels
// the bundle replaces lose them first.
func (a *application) checkChannels() {
	replaced := map[string]bool{}
	for _, user := range a.bundle.Users {
		replaced[user.ID] = user.Channels != nil
	}
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

// checkReferences refuses a name of a row that is neither in the bundle nor in the store.
func (a *application) checkReferences() {
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

func exists[R any](a *application, at, noun, id string, bundled, stored map[string]R) {
	_, inBundle := bundled[id]
	_, inStore := stored[id]
	if !inBundle && !inStore {
		a.add(at, "names a "+noun+" that does not exist: "+quote(id))
	}
}
