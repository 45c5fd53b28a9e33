package svc

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/extsvc/svc/internal/readcache"
)

// User holds the data of a user that decide access. The rows of access belong to the host, which
// writes them with [Access.Apply]. A value from a store shares no memory with it.
//
// The host owns its users. A user without a row has no stored rights but is not blocked; only an
// Inactive row blocks a user.
type User struct {
	// ID is the id by which the host's [Authenticator] knows the user: 1 to [MaxIDLength]
	// characters. It may contain ":" and "@", but no slash, backslash, control or format character.
	// Ids are compared byte by byte.
	ID string
	// DisplayName has at most [MaxNameLength] characters. "": Apply stores the id instead. Names
	// need not be unique, here and in the other rows.
	DisplayName string
	// Email is any text of at most [MaxNameLength] characters. The Service sends nothing to it, and
	// it need not be unique. Nil: none.
	Email *string
	// Inactive denies the user everything, and its service accounts as well. Its keys and sessions
	// are not accepted. Its senders count as unmapped.
	Inactive bool
	// Channels are the senders that are this user. Each belongs to one user alone. In a Bundle, nil
	// leaves them unchanged, and an empty list removes all.
	Channels []Channel

	absent absence
}

// absence is the keys that the JSON form of a row lacks, such as noName.
type absence uint8

// Channel is a sender in a messaging system, such as "telegram" and "12345". It belongs to at most
// one user. A sender is written "provider:id" where it is one text.
type Channel struct {
	Provider string // an id without a colon, which would end it
	SenderID string // 1 to MaxIDLength printable characters; slashes are allowed, "." and ".." not
}

// String returns the written form, "provider:sender_id". It is the ID of the channel's [Target].
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
	// Members are user ids. Each must be a user with a row. In a Bundle, nil leaves them unchanged,
	// and an empty list removes all.
	Members []string

	absent absence
}

// ServiceAccount acts with the rights of its owner, which a scoping policy can narrow. It has no
// attachments and no channels of its own.
type ServiceAccount struct {
	ID          string
	DisplayName string // "" means the id
	// OwnerUserID is a user with a row. Required. While the owner is Inactive or has no row, the
	// account is denied everything.
	OwnerUserID string
	// ScopingPolicyID is the policy that narrows the account: both the owner's policies and this
	// one must allow. While the policy is missing, the account is denied everything. "": not
	// narrowed.
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

// Attachment gives a policy to a user or a group. A policy is attached to one principal once: the
// policy and the principal are the key, and Priority is the value.
type Attachment struct {
	PolicyID  string
	Principal GrantedTo
	// Priority decides between values of llm_model, llm_provider and retain_strategy: the greater
	// wins, after the closeness of principal and bank. It changes nothing in what is allowed. It
	// fits into 32 bits and may be negative.
	Priority int64

	absent absence
}

// GrantedTo is a user or a group that a policy is attached to. It has no service accounts: they
// have the policies of their owner.
type GrantedTo struct {
	// Type is [GrantedToUser] or [GrantedToGroup].
	Type string
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
	BankID   string // 1 to MaxIDLength printable characters; slashes are allowed
	Document json.RawMessage

	absent absence
}

// Bundle is a set of access rows, as [Access.Apply] writes them. Within a list, each key appears
// once. The order of rows has no meaning. For [Diff] and [Lint], a Bundle is the whole state of
// access. The zero Bundle has no rows.
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
}

// Empty reports whether b has no rows. A nil list and an empty one are the same here: both name no
// row.
func (b Bundle) Empty() bool { return b.size() == 0 }

// size returns the number of rows.
func (b Bundle) size() int {
	return len(b.Users) + len(b.Groups) + len(b.ServiceAccounts) +
		len(b.Policies) + len(b.Attachments) + len(b.BankPolicies)
}

// The most targets that one write reports one by one.
const (
	mostTargets = 1000 // above it, all of them are one TargetAccess
	mostMembers = 100  // of one group; above it, they are one TargetMember without a Holder
)

// AttachmentKey names an attachment. Its three texts together are unique. It is comparable, so it
// can be the key of a map.
type AttachmentKey struct {
	PolicyID  string
	Principal GrantedTo
}

// String returns "policy id/principal type/principal id". It is unique, because ids hold no slash.
// It is the ID of the attachment's [Target] in events and change feeds.
func (k AttachmentKey) String() string {
	return k.PolicyID + "/" + k.Principal.Type + "/" + k.Principal.ID
}

// Compare orders keys by policy, principal type and principal id, in byte order. The result is -1,
// 0 or 1, as in package cmp.
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
	// PolicyIAMSelfService gives a user its own keys and service accounts.
	PolicyIAMSelfService = "iam:self-service"
)

// builtins are the built-in policies, by id.
var builtins = func() map[string]*Policy {
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
}()

// Builtin reports whether p is a built-in policy.
func (p Policy) Builtin() bool {
	own := builtins[p.ID]
	return own != nil && p.DisplayName == own.DisplayName && bytes.Equal(p.Document, own.Document)
}

// ETag returns the entity tag of a user (RFC 9110, section 8.8.3), quotes included. It is a strong
// tag that follows from the row alone, so it is the same in every process. Channels do not count.
func (u User) ETag() string { return etagOf(u.ID, u.DisplayName, u.Email, u.Inactive) }

// ETag returns the entity tag of a group, as [User.ETag] does. Members do not count.
func (g Group) ETag() string { return etagOf(g.ID, g.DisplayName) }

// ETag returns the entity tag of a service account, as [User.ETag] does.
func (a ServiceAccount) ETag() string {
	return etagOf(a.ID, a.DisplayName, a.OwnerUserID, a.ScopingPolicyID, a.Inactive)
}

// ETag returns the entity tag of a policy, as [User.ETag] does. The document counts byte by byte.
func (p Policy) ETag() string { return etagOf(p.ID, p.DisplayName, string(p.Document)) }

// ETag returns the entity tag of the policy of a bank, as [Policy.ETag] does.
func (b BankPolicy) ETag() string { return etagOf(b.BankID, string(b.Document)) }

func etagOf(body ...any) string {
	text, _ := json.Marshal(body) // texts and flags always encode
	sum := sha256.Sum256(text)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
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
		if a.OwnerUserID != "" {
			n.Users = append(n.Users, a.OwnerUserID)
		}
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
	if n := b.size(); n > 0 {
		targets = make([]Target, 0, n)
	}
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

// Write returns the write of all rows of b. Members join their groups, and none leaves.
func (b Bundle) Write() AccessWrite {
	w := AccessWrite{Bundle: b, Targets: b.Targets()}
	for _, g := range b.Groups {
		for _, member := range g.Members {
			w.Join = append(w.Join, Membership{Group: g.ID, User: member})
		}
	}
	return w
}

// Bare removes from the rows of b what [AccessRead].Bare leaves out.
func (b Bundle) Bare() {
	for i, u := range b.Users {
		b.Users[i] = User{ID: u.ID, Inactive: u.Inactive}
	}
	for i := range b.Groups {
		b.Groups[i].DisplayName = ""
	}
	for i := range b.ServiceAccounts {
		b.ServiceAccounts[i].DisplayName = ""
	}
	for i := range b.Policies {
		b.Policies[i].DisplayName = ""
	}
}

// mark adds to changed what decisions may depend on.
func (t Target) mark(changed *readcache.Changed) {
	switch t.Kind {
	case TargetAPIKey:
		changed.Keys = append(changed.Keys, t.ID)
	case TargetBankPolicy:
		changed.Banks = append(changed.Banks, t.ID)
	case TargetUser:
		changed.Users.Add(t.ID)
	case TargetServiceAccount:
		changed.Accounts.Add(t.ID)
	case TargetPolicy:
		changed.Policies.Add(t.ID)
	case TargetAttachment:
		if to := t.Attachment().Principal; to.Type == GrantedToUser {
			changed.Users.Add(to.ID)
		} else {
			changed.Groups.Add(to.ID)
		}
	case TargetMember:
		if t.Holder.ID == "" { // nothing says who joined
			changed.Access = true
		}
		changed.Users.Add(t.Holder.ID)
	case TargetChannel:
		of := t.Channel()
		sender := readcache.Sender{Provider: of.Provider, ID: of.SenderID}
		changed.Senders = append(changed.Senders, sender)
	case TargetAccess:
		changed.Access = true
	}
}

// Attachment returns the key of the attachment that a TargetAttachment is about, from its ID.
func (t Target) Attachment() AttachmentKey {
	id, principal, _ := strings.Cut(t.ID, "/")
	kind, of, _ := strings.Cut(principal, "/")
	return AttachmentKey{PolicyID: id, Principal: GrantedTo{Type: kind, ID: of}}
}

// Channel returns the channel that a TargetChannel is about, from its ID.
func (t Target) Channel() Channel {
	provider, sender, _ := strings.Cut(t.ID, ":")
	return Channel{Provider: provider, SenderID: sender}
}

// OfAccess returns what of c concerns access, without other targets, and the rows to read for it.
// It is for stores and their readers: see [AccessRead].Since.
//
// A TargetMember names one membership, or without a Holder the group with all members. A
// TargetChannel names the user who has it now. The result is a Reset without targets when c is a
// Reset or has a TargetAccess.
func (c StoreChanges) OfAccess() (StoreChanges, AccessNames) {
	out, n := StoreChanges{Generation: c.Generation}, AccessNames{}
	for _, t := range c.Targets {
		if t.Kind == TargetAccess || c.Reset {
			return StoreChanges{Generation: c.Generation, Reset: true}, AccessNames{}
		}
		if n.add(t) {
			out.Targets = append(out.Targets, t)
		}
	}
	for _, t := range c.Renamed {
		n.add(t)
	}
	out.Renamed, out.Reset = c.Renamed, c.Reset
	return out, n
}

// add names the rows of a target. It reports whether the target is one of access.
func (n *AccessNames) add(t Target) bool {
	switch t.Kind {
	case TargetUser:
		n.Users = append(n.Users, t.ID)
	case TargetChannel:
		n.Channels = append(n.Channels, t.Channel())
	case TargetGroup:
		n.Groups = append(n.Groups, t.ID)
	case TargetMember:
		if t.Holder == (Identity{}) {
			n.MembersOf = append(n.MembersOf, t.ID)
		} else {
			n.Members = append(n.Members, Membership{Group: t.ID, User: t.Holder.ID})
		}
	case TargetServiceAccount:
		n.ServiceAccounts = append(n.ServiceAccounts, t.ID)
	case TargetPolicy:
		n.Policies = append(n.Policies, t.ID)
	case TargetAttachment:
		n.Attachments = append(n.Attachments, t.Attachment())
	case TargetBankPolicy:
		n.BankPolicies = append(n.BankPolicies, t.ID)
	default:
		return false
	}
	return true
}

// sorted returns a sorted copy without duplicates, never nil. A repeated member is no error.
func sorted[T comparable](list []T, compare func(a, b T) int) []T {
	out := append([]T{}, list...)
	slices.SortFunc(out, compare)
	return slices.Compact(out)
}

// missing returns the elements of list that are not in other. Both are sorted.
func missing[T any](list, other []T, compare func(a, b T) int) (out []T) {
	for _, x := range list {
		if _, found := slices.BinarySearchFunc(other, x, compare); !found {
			out = append(out, x)
		}
	}
	return out
}
