package svc

import (
	"cmp"
	"context"
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

// Bundle is a set of access rows, as [Service.Apply] writes them.
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

// AccessStore keeps what decisions are made from.
type AccessStore interface {
	// User returns the user with that id, its channels sorted by provider and sender. ErrNotFound.
	User(ctx context.Context, id string) (User, error)
	// ServiceAccount returns the service account with that id. ErrNotFound.
	ServiceAccount(ctx context.Context, id string) (ServiceAccount, error)
	// Access returns all that one decision needs, read in one consistent snapshot. What is not there is nil: that
	// is no error.
	Access(ctx context.Context, query AccessQuery) (AccessSnapshot, error)
	// AllAccess returns every row of access, read in one consistent snapshot: sorted by their ids (attachments by policy,
	// principal type and id), Channels and Members sorted and never nil, and the lists never nil.
	AllAccess(ctx context.Context) (AccessRows, error)
	// ChangeAccess reads the rows that named names, hands them to change and writes what that returns, in one
	// transaction: changes of access happen one after the other.
	//
	// current holds, of the rows whose keys are in named, those that exist, whole, and beside them the users who hold a
	// channel in named; each once, in no order, its channels or members sorted and never nil. What change returns is
	// upserted whole: a user with exactly its Channels, a group with exactly its Members, nil meaning none. An empty Bundle writes
	// nothing. change does no I/O and may be called again, with rows read anew; its error is returned as it is.
	// It returns a channel only where no other user holds it afterwards, and refers only to rows that exist.
	ChangeAccess(ctx context.Context, named AccessNames, change func(current Bundle) (Bundle, error)) error
}

// AccessRows is every row of access, and the generation that they are of.
type AccessRows struct {
	Generation int64
	Bundle
}

// AccessNames names access rows.
type AccessNames struct {
	Users, Groups, ServiceAccounts, Policies, BankPolicies []string
	Channels                                               []Channel
	Attachments                                            []AttachmentKey
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

// AccessQuery asks for what one decision needs. At most one of KeyID, Identity and Channel is set, and says about whom; none:
// about nobody.
type AccessQuery struct {
	KeyID    string   // whoever holds the API key with that id, revoked or not
	Identity Identity // a user or a service account
	Channel  Channel  // the user whose channel it is
	BankID   string   // whose bank policy to read; "" none
	// ScopingPolicyID is that of a policy that narrows Identity beside what is stored about it; "" none. A key's comes with it.
	ScopingPolicyID string
}

// AccessSnapshot is what one decision is made from.
type AccessSnapshot struct {
	Generation     int64           // grows with every mutation of the store; 0 where nothing was ever written
	Key            *APIKey         // the key that was asked about
	ServiceAccount *ServiceAccount // the service account that was asked about, or that holds the key
	User           *User           // the user asked about, who holds the key or the channel, or owns ServiceAccount; without Channels
	Grants         []Grant         // what is attached to User, and to its groups, in no order
	Scoping        *Policy         // the scoping policy of ServiceAccount
	Narrowing      *Policy         // the scoping policy of Key, or the one that was asked for beside Identity
	BankPolicy     *BankPolicy
}

// Grant is a policy that reaches a user, one for each attachment.
type Grant struct {
	Policy
	Principal GrantedTo // the user itself, or a group it is a member of
	Priority  int64
}
