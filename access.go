package svc

import (
	"cmp"
	"encoding/json"
	"strings"
)

// User is a user as far as access is concerned. The host owns its users: one without a row has no stored rights, and
// only a row that is Inactive stops one.
type User struct {
	ID          string
	DisplayName string  // "" means the id
	Email       *string // nil: none
	Inactive    bool
	Channels    []Channel // whose messages are this user's. In a Bundle, nil leaves them as they are
}

// Channel is a sender in a messaging system: "telegram" and "12345". It belongs to at most one user.
type Channel struct {
	Provider string // an id without a colon
	SenderID string // 1 to MaxIDLength printable characters, slashes too, and not "." or ".."
}

// Group is a set of users that policies can be attached to.
type Group struct {
	ID          string
	DisplayName string   // "" means the id
	Members     []string // user ids. In a Bundle, nil leaves them as they are
}

// ServiceAccount acts with its owner's rights, narrowed by a scoping policy.
type ServiceAccount struct {
	ID              string
	DisplayName     string // "" means the id
	OwnerUserID     string
	ScopingPolicyID string // "": not narrowed
	Inactive        bool
}

// Policy is an access policy.
type Policy struct {
	ID          string
	DisplayName string // "" means the id
	Document    json.RawMessage
}

// Attachment gives a policy to a user or group.
type Attachment struct {
	PolicyID  string
	Principal GrantedTo
	Priority  int64 // the greater wins
}

// GrantedTo is a user or a group that a policy is attached to.
type GrantedTo struct {
	Type string // "user" or "group"
	ID   string
}

// The types of what a policy can be attached to.
const (
	GrantedToUser  = "user"
	GrantedToGroup = "group"
)

// BankPolicy says how a bank treats senders that are nobody's, and which strategies it uses.
type BankPolicy struct {
	BankID   string // 1 to MaxIDLength printable characters, slashes too
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

// Empty reports whether there is no row in b.
func (b Bundle) Empty() bool {
	return len(b.Users)+len(b.Groups)+len(b.ServiceAccounts)+len(b.Policies)+len(b.Attachments)+len(b.BankPolicies) == 0
}

// AttachmentKey names an attachment.
type AttachmentKey struct {
	PolicyID  string
	Principal GrantedTo
}

// String is policy/principal type/principal; no id holds a slash.
func (k AttachmentKey) String() string {
	return k.PolicyID + "/" + k.Principal.Type + "/" + k.Principal.ID
}

// Compare orders by policy, principal type and principal id, byte by byte, as package cmp does.
func (k AttachmentKey) Compare(other AttachmentKey) int {
	return cmp.Or(strings.Compare(k.PolicyID, other.PolicyID), strings.Compare(k.Principal.Type, other.Principal.Type),
		strings.Compare(k.Principal.ID, other.Principal.ID))
}
