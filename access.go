package svc

import (
	"cmp"
	"encoding/json"
	"strings"
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
