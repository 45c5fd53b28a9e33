package svc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/accessindex"
	"github.com/extsvc/svc/internal/lists"
	"github.com/extsvc/svc/internal/text"
)

// User holds the data of a user that decide access. The host owns its users, and writes these rows.
// A user without a row has no stored rights but is not blocked; only an Inactive row blocks a user.
// A value from a store shares no memory with it.
type User struct {
	// ID is the id by which the host's [Authenticator] knows the user: 1 to [limits.IDLength]
	// characters. It may contain ":" and "@", but no slash, backslash, control or format character.
	// Ids are compared byte by byte.
	ID string
	// DisplayName has at most [limits.NameLength] characters, and need not be unique, here and in
	// the other rows. "": the id is stored instead.
	DisplayName string
	// Email is any text of at most [limits.NameLength] characters. The Service sends nothing to it,
	// and it need not be unique. Nil: none.
	Email *string
	// Inactive denies everything to the user and its service accounts, and refuses its keys and
	// sessions. Its senders count as unmapped.
	Inactive bool
	// Channels are the senders that are this user. Each belongs to one user only. In a Bundle, nil
	// leaves them unchanged, and an empty list removes all.
	Channels []Channel

	absent absence
}

// absence is the keys that the JSON form of a row lacks, such as noName.
type absence uint8

// Channel is a sender in a messaging system, such as "telegram" and "12345". It belongs to at most
// one user.
type Channel struct {
	Provider string // an id without a colon, which would end it
	SenderID string // 1 to limits.IDLength printable characters; slashes are allowed, "." and ".." not
}

// String returns the written form, "provider:sender_id", the ID of the channel's [Target].
func (ch Channel) String() string { return ch.Provider + ":" + ch.SenderID }

// compare orders channels by provider and sender, byte by byte, as stores return them.
func (ch Channel) compare(other Channel) int {
	return cmp.Or(
		strings.Compare(ch.Provider, other.Provider), strings.Compare(ch.SenderID, other.SenderID),
	)
}

// Group is a set of users. Policies can be attached to it. Groups have no groups as members, and
// are no principals: a group cannot act.
type Group struct {
	ID          string // as a user's; a group may have the id of a user
	DisplayName string // "" means the id
	// Members are ids of users with a row. In a Bundle, nil leaves them unchanged, and empty
	// removes all.
	Members []string

	absent absence
}

// ServiceAccount acts with the rights of its owner, which a scoping policy can narrow. It has no
// attachments and no channels.
type ServiceAccount struct {
	ID          string
	DisplayName string // "" means the id
	// OwnerUserID, required, is a user with a row. Without the row, or Inactive, it denies the
	// account everything.
	OwnerUserID string
	// ScopingPolicyID is the policy that narrows the account: the owner's policies and this one
	// must allow. While it is missing, the account is denied everything. "": not narrowed.
	ScopingPolicyID string
	Inactive        bool // denies it everything; its keys are not accepted

	absent absence
}

// Policy is an access policy: a JSON document that allows or denies actions on banks. It has no
// effect before it is attached or narrows a service account or a key.
type Policy struct {
	ID          string
	DisplayName string // "" means the id
	// Document has the version "2026-03-24" and a list of statements. Apply refuses one that does
	// not parse, and keeps it without insignificant white space. If a stored document does not
	// parse, its holders are denied everything.
	Document json.RawMessage

	absent absence
}

// Attachment gives a policy to a user or a group. A policy is attached to one principal once.
type Attachment struct {
	PolicyID  string
	Principal GrantedTo
	// Priority decides between values of llm_model, llm_provider and retain_strategy: the greater
	// wins, after the closeness of principal and bank. It changes nothing in what is allowed. It
	// fits into 32 bits and may be negative.
	Priority int64

	absent absence
}

// GrantedTo is a user or a group that a policy is attached to. Service accounts have the policies
// of their owner.
type GrantedTo struct {
	Type string // [GrantedToUser] or [GrantedToGroup]
	ID   string
}

// The types of [GrantedTo].
const (
	GrantedToUser  = "user"
	GrantedToGroup = "group"
)

// BankPolicy says how a bank treats unmapped senders, and which strategies it uses. A bank without
// one is closed to unmapped senders. If its document does not parse, the bank is closed to all
// principals.
type BankPolicy struct {
	BankID   string // 1 to limits.IDLength printable characters; slashes are allowed
	Document json.RawMessage

	absent absence
}

// Bundle is a set of access rows, as [Access.Apply] writes them. Within a list, each key appears
// once. The order of rows has no meaning. For [Diff] and [Lint], a Bundle is the whole state of
// access.
//
// A row that is built in Go names all its fields: a zero field clears what is stored, nil Channels
// and Members aside. A row that [ParseBundle] has read knows which keys its JSON form lacks. Such a
// field of an existing row stays as it is, unless the host has set it to another value since.
type Bundle struct {
	Users           []User
	Groups          []Group
	ServiceAccounts []ServiceAccount
	Policies        []Policy
	Attachments     []Attachment
	BankPolicies    []BankPolicy
	Tests           []AccessTest
}

// AccessTest is a question about access with the answer that is expected. No decision depends on
// it: [Access.Preview] and [Lint] say whose answer is another one.
type AccessTest struct {
	ID string // follows from the other fields but Allowed: Apply sets it; that of its [Target]
	// The question, as a [Question] has it, with one of the first three. Action "" means
	// action.Recall.
	UserID, ServiceAccountID, Sender string
	Action, Bank, Channel, Topic     string

	Allowed bool // the answer that is expected

	absent absence
}

// Empty reports whether b has no rows.
func (b Bundle) Empty() bool { return b.size() == 0 }

// size returns the number of rows.
func (b Bundle) size() (n int) {
	for _, k := range kinds {
		n += k.size(&b)
	}
	return n
}

// AttachmentKey names an attachment. Its three texts together are unique. It is comparable.
type AttachmentKey struct {
	PolicyID  string
	Principal GrantedTo
}

// String returns "policy id/principal type/principal id", the ID of the attachment's [Target]. It
// is unique, because ids hold no slash.
func (k AttachmentKey) String() string {
	return k.PolicyID + "/" + k.Principal.Type + "/" + k.Principal.ID
}

// impossible reports whether a store may be unable to look k up. It has no such attachment.
func (k AttachmentKey) impossible() bool { return text.Problem(k.String(), math.MaxInt) != "" }

// Compare orders by policy, principal type and principal id, byte by byte, as package cmp does.
func (k AttachmentKey) Compare(other AttachmentKey) int {
	return cmp.Or(
		strings.Compare(k.PolicyID, other.PolicyID),
		strings.Compare(k.Principal.Type, other.Principal.Type),
		strings.Compare(k.Principal.ID, other.Principal.ID),
	)
}

// The built-in policies. Each allows its actions on all banks. They always exist, unless the store
// has another policy under the id. Nobody can change or delete them.
const (
	PolicyBankReadWrite  = "bank:readwrite"
	PolicyBankReadOnly   = "bank:readonly"
	PolicyBankRetainOnly = "bank:retain-only"
	PolicyBankAdmin      = "bank:admin"
	PolicyIAMAdmin       = "iam:admin"
	PolicyTemplateAdmin  = "template:admin"
	PolicyTemplateUser   = "template:user"
	PolicyIAMSelfService = "iam:self-service" // a user's own keys and service accounts
)

// builtins are the built-in policies, by id. Callers get others, because they own what they get.
var builtins = newBuiltins()

func newBuiltins() map[string]*Policy {
	all := map[string]*Policy{}
	add := func(id, name string, actions ...string) {
		allow := Statement{Effect: EffectAllow, Actions: actions, Banks: []string{"*"}}
		document := Document{Statements: []Statement{allow}}
		all[id] = &Policy{ID: id, DisplayName: name, Document: document.JSON()}
	}
	add(PolicyBankReadWrite, "Bank Read/Write", "bank:recall", "bank:reflect", "bank:retain")
	add(PolicyBankReadOnly, "Bank Read-Only", "bank:recall", "bank:reflect")
	add(PolicyBankRetainOnly, "Bank Retain-Only", "bank:retain")
	add(PolicyBankAdmin, "Bank Admin", "bank:*")
	add(PolicyIAMAdmin, "IAM Admin", "iam:*")
	add(PolicyTemplateAdmin, "Template Admin", "template:*", "bank:create")
	add(PolicyTemplateUser, "Template User", "template:list", "template:create",
		"template:install", "template:manage", "template:source", "bank:create")
	add(PolicyIAMSelfService, "IAM Self-Service", "iam:api_keys:read", "iam:api_keys:write",
		"iam:service_accounts:read", "iam:service_accounts:write",
		"iam:service_account_keys:write")
	return all
}

// Builtin reports whether p is a built-in policy.
func (p Policy) Builtin() bool {
	own := builtins[p.ID]
	return own != nil && p.DisplayName == own.DisplayName && bytes.Equal(p.Document, own.Document)
}

func (u User) key() string { return u.ID }

func (g Group) key() string { return g.ID }

func (a ServiceAccount) key() string { return a.ID }

func (p Policy) key() string { return p.ID }

func (b BankPolicy) key() string { return b.BankID }

func (t AccessTest) key() string { return t.ID }

// key lacks the Priority: a policy has one for each principal.
func (a Attachment) key() AttachmentKey {
	return AttachmentKey{PolicyID: a.PolicyID, Principal: a.Principal}
}

// Targets returns the bundle's rows as targets of events and change feeds, in the order of the
// fields of Bundle and of their lists. A channel or a member is not a separate target. Nil: the
// bundle is empty.
func (b Bundle) Targets() (targets []Target) {
	for _, k := range kinds {
		targets = append(targets, k.targets(&b)...)
	}
	return targets
}

// kind is a kind of rows of access: a list of a [Bundle].
type kind[R keyed[K], K comparable] struct {
	list   string // its name in JSON
	target event.TargetKind
	write  string // the action that writes rows
	rows   func(*Bundle) *[]R
	named  func(*AccessNames) *[]K
	stored func(*rowsByKey) *map[K]*R
	only   func(K) R // a row that has only its key
}

// keyed is a row of access.
type keyed[K comparable] interface {
	// key is what makes a row unique in its list. Writing a row with a key that exists replaces the
	// row.
	key() K
	form() any // its JSON
	// enter writes the row into an index, and leave removes it.
	enter(*accessindex.Index)
	leave(*accessindex.Index)
}

// rowsByKey are rows of a store.
type rowsByKey struct {
	users           map[string]*User
	groups          map[string]*Group
	serviceAccounts map[string]*ServiceAccount
	policies        map[string]*Policy
	attachments     map[AttachmentKey]*Attachment
	bankPolicies    map[string]*BankPolicy
	tests           map[string]*AccessTest
}

// The kinds of rows.
var (
	users = kind[User, string]{
		"users", event.TargetUser, action.UsersWrite,
		func(b *Bundle) *[]User { return &b.Users },
		func(n *AccessNames) *[]string { return &n.Users },
		func(r *rowsByKey) *map[string]*User { return &r.users },
		func(id string) User { return User{ID: id} },
	}
	groups = kind[Group, string]{
		"groups", event.TargetGroup, action.GroupsWrite,
		func(b *Bundle) *[]Group { return &b.Groups },
		func(n *AccessNames) *[]string { return &n.Groups },
		func(r *rowsByKey) *map[string]*Group { return &r.groups },
		func(id string) Group { return Group{ID: id} },
	}
	serviceAccounts = kind[ServiceAccount, string]{
		"service_accounts", event.TargetServiceAccount, action.AccountsManage,
		func(b *Bundle) *[]ServiceAccount { return &b.ServiceAccounts },
		func(n *AccessNames) *[]string { return &n.ServiceAccounts },
		func(r *rowsByKey) *map[string]*ServiceAccount { return &r.serviceAccounts },
		func(id string) ServiceAccount { return ServiceAccount{ID: id} },
	}
	policies = kind[Policy, string]{
		"policies", event.TargetPolicy, action.PoliciesWrite,
		func(b *Bundle) *[]Policy { return &b.Policies },
		func(n *AccessNames) *[]string { return &n.Policies },
		func(r *rowsByKey) *map[string]*Policy { return &r.policies },
		func(id string) Policy { return Policy{ID: id} },
	}
	attachments = kind[Attachment, AttachmentKey]{
		"attachments", event.TargetAttachment, action.AttachmentsWrite,
		func(b *Bundle) *[]Attachment { return &b.Attachments },
		func(n *AccessNames) *[]AttachmentKey { return &n.Attachments },
		func(r *rowsByKey) *map[AttachmentKey]*Attachment { return &r.attachments },
		func(k AttachmentKey) Attachment {
			return Attachment{PolicyID: k.PolicyID, Principal: k.Principal}
		},
	}
	bankPolicies = kind[BankPolicy, string]{
		"bank_policies", event.TargetBankPolicy, action.BanksWrite,
		func(b *Bundle) *[]BankPolicy { return &b.BankPolicies },
		func(n *AccessNames) *[]string { return &n.BankPolicies },
		func(r *rowsByKey) *map[string]*BankPolicy { return &r.bankPolicies },
		func(id string) BankPolicy { return BankPolicy{BankID: id} },
	}
	tests = kind[AccessTest, string]{
		"tests", event.TargetTest, action.PoliciesWrite,
		func(b *Bundle) *[]AccessTest { return &b.Tests },
		func(n *AccessNames) *[]string { return &n.Tests },
		func(r *rowsByKey) *map[string]*AccessTest { return &r.tests },
		func(id string) AccessTest { return AccessTest{ID: id} },
	}
)

// kinds are all kinds of rows, in the order of the fields of [Bundle].
var kinds = []anyKind{
	&users, &groups, &serviceAccounts, &policies, &attachments, &bankPolicies, &tests,
}

// anyKind is a kind whose types are its own.
type anyKind interface {
	label() (list, write string)
	// forms returns the JSON of the rows; nil: there is no list.
	forms(b *Bundle) iter.Seq[any]
	size(b *Bundle) int
	targets(b *Bundle) []Target
	// normalize puts normalized copies of the rows of from into to.
	normalize(c *checker, from, to *Bundle)
	// keys adds the keys of rows to n, and blank adds rows with the keys of n.
	keys(b *Bundle, n *AccessNames)
	blank(n *AccessNames, b *Bundle)
	// drop leaves in b the rows that other does not name, and firsts the first with each key.
	drop(b, other *Bundle)
	firsts(b *Bundle)
	join(b, part *Bundle)
	// name adds the key of a target to n, unless it is of another kind.
	name(n *AccessNames, t Target) bool
	// enter writes the rows of b into x. leave removes those of n that b does not have.
	enter(x *accessindex.Index, b *Bundle)
	leave(x *accessindex.Index, n *AccessNames, b *Bundle)
	// index keeps the rows of b in r, and find adds the named ones of r to b.
	index(r *rowsByKey, b *Bundle)
	find(r *rowsByKey, n *AccessNames, b *Bundle)
	// complete sets what the rows of b leave absent, in copies of them.
	complete(r *rowsByKey, b *Bundle)
	// differ puts the rows of b that differ from those of r into changed.
	differ(r *rowsByKey, b, changed *Bundle)
}

// keys names the rows of b for their removal.
func (b Bundle) keys() (n AccessNames) {
	for _, k := range kinds {
		k.keys(&b, &n)
	}
	return n
}

func (k *kind[R, K]) label() (list, write string) { return k.list, k.write }

func (k *kind[R, K]) size(b *Bundle) int { return len(*k.rows(b)) }

func (k *kind[R, K]) forms(b *Bundle) iter.Seq[any] {
	if *k.rows(b) == nil {
		return nil
	}
	return func(yield func(any) bool) {
		for _, row := range *k.rows(b) {
			if !yield(row.form()) {
				return
			}
		}
	}
}

func (k *kind[R, K]) targets(b *Bundle) []Target {
	return lists.Map(*k.rows(b), func(row R) Target {
		return Target{Kind: k.target, ID: fmt.Sprint(row.key())}
	})
}

// normalize gives no list when the checker is full: the bundle is refused anyway.
func (k *kind[R, K]) normalize(c *checker, from, to *Bundle) {
	rows := slices.Clone(*k.rows(from))
	seen := make(map[K]bool, len(rows))
	for i := range rows {
		if c.full {
			return
		}
		pointer := "/" + k.list + "/" + strconv.Itoa(i)
		any(&rows[i]).(normalizer).normalize(c, pointer)
		if key := rows[i].key(); seen[key] {
			c.add(pointer, "is in the bundle twice")
		} else {
			seen[key] = true
		}
	}
	*k.rows(to) = rows
}

// normalizer is a row that gets its defaults. at is the pointer to it.
type normalizer interface{ normalize(c *checker, at string) }

func (k *kind[R, K]) keys(b *Bundle, n *AccessNames) {
	keys := k.named(n)
	*keys = append(*keys, lists.Map(*k.rows(b), R.key)...)
}

func (k *kind[R, K]) blank(n *AccessNames, b *Bundle) {
	rows := k.rows(b)
	*rows = append(*rows, lists.Map(*k.named(n), k.only)...)
}

func (k *kind[R, K]) drop(b, other *Bundle) {
	rows, named := k.rows(b), lists.Index(*k.rows(other), R.key)
	*rows = slices.DeleteFunc(slices.Clone(*rows), func(row R) bool {
		return named[row.key()] != nil
	})
}

func (k *kind[R, K]) index(r *rowsByKey, b *Bundle) {
	*k.stored(r) = lists.Index(*k.rows(b), R.key)
}

func (k *kind[R, K]) find(r *rowsByKey, n *AccessNames, b *Bundle) {
	rows, stored := k.rows(b), *k.stored(r)
	for _, key := range *k.named(n) {
		if row := stored[key]; row != nil {
			*rows = append(*rows, *row)
		}
	}
}

// differ compares whole rows, so their lists must be sorted and not nil on both sides. Documents
// are compared byte by byte: another order of keys is a change.
func (k *kind[R, K]) differ(r *rowsByKey, b, changed *Bundle) {
	stored := *k.stored(r)
	for _, row := range *k.rows(b) {
		if there := stored[row.key()]; there == nil || !reflect.DeepEqual(*there, row) {
			rows := k.rows(changed)
			*rows = append(*rows, row)
		}
	}
}

func policyInUse(id string, attachments, accounts, keys int) *Error {
	return &Error{Code: CodeInUse, Message: fmt.Sprintf(
		"policy %q is in use (attachments: %d, service accounts: %d, keys: %d)",
		id, attachments, accounts, keys)}
}
