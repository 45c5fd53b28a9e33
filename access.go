package svc

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/extsvc/svc/internal/policy"
)

// User holds the data of a user that decide access.
//
// The host owns its users. A user without a row has no stored rights but is not blocked; only an
// Inactive row blocks a user.
type User struct {
	ID          string
	DisplayName string  // "" means the id
	Email       *string // nil: none
	Inactive    bool
	Channels    []Channel // the senders that are this user. In a Bundle, nil leaves them unchanged
}

// Channel is a sender in a messaging system, such as "telegram" and "12345". It belongs to at most
// one user.
type Channel struct {
	Provider string // an id without a colon
	SenderID string // 1 to MaxIDLength printable characters; slashes are allowed, "." and ".." not
}

// Group is a set of users. Policies can be attached to it.
type Group struct {
	ID          string
	DisplayName string   // "" means the id
	Members     []string // user ids. In a Bundle, nil leaves them unchanged
}

// ServiceAccount acts with the rights of its owner, which a scoping policy can narrow.
type ServiceAccount struct {
	ID              string
	DisplayName     string // "" means the id
	OwnerUserID     string
	ScopingPolicyID string // "": not narrowed
	Inactive        bool
}

// Policy is an access policy: a JSON document that allows or denies actions on banks.
type Policy struct {
	ID          string
	DisplayName string // "" means the id
	Document    json.RawMessage
}

// Attachment gives a policy to a user or a group.
type Attachment struct {
	PolicyID  string
	Principal GrantedTo
	Priority  int64 // the greater priority wins
}

// GrantedTo is a user or a group that a policy is attached to.
type GrantedTo struct {
	Type string // "user" or "group"
	ID   string
}

// The types of [GrantedTo].
const (
	GrantedToUser  = "user"
	GrantedToGroup = "group"
)

// BankPolicy says how a bank treats unmapped senders, and which strategies it uses.
type BankPolicy struct {
	BankID   string // 1 to MaxIDLength printable characters; slashes are allowed
	Document json.RawMessage
}

// Bundle is a set of access rows, as [Access.Apply] writes them.
type Bundle struct {
	Users           []User
	Groups          []Group
	ServiceAccounts []ServiceAccount
	Policies        []Policy
	Attachments     []Attachment
	BankPolicies    []BankPolicy
}

// Empty reports whether b has no rows.
func (b Bundle) Empty() bool {
	return len(b.Users)+len(b.Groups)+len(b.ServiceAccounts)+
		len(b.Policies)+len(b.Attachments)+len(b.BankPolicies) == 0
}

// AttachmentKey names an attachment.
type AttachmentKey struct {
	PolicyID  string
	Principal GrantedTo
}

// String returns "policy id/principal type/principal id". It is unique, because ids hold no slash.
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
