package svc

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"strings"

	"github.com/extsvc/svc/internal/strictjson"
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

// The JSON form of a Bundle.
type (
	bundleJSON struct {
		Users           []userJSON           `json:"users,omitzero"`
		Groups          []groupJSON          `json:"groups,omitzero"`
		ServiceAccounts []serviceAccountJSON `json:"service_accounts,omitzero"`
		Policies        []policyJSON         `json:"policies,omitzero"`
		Attachments     []attachmentJSON     `json:"attachments,omitzero"`
		BankPolicies    []bankPolicyJSON     `json:"bank_policies,omitzero"`
	}
	userJSON struct {
		ID          string        `json:"id"`
		DisplayName string        `json:"display_name,omitempty"`
		Email       *string       `json:"email,omitempty"`
		IsActive    *bool         `json:"is_active,omitempty"`
		Channels    []channelJSON `json:"channels,omitzero"`
	}
	channelJSON struct {
		Provider string `json:"provider"`
		SenderID string `json:"sender_id"`
	}
	groupJSON struct {
		ID          string   `json:"id"`
		DisplayName string   `json:"display_name,omitempty"`
		Members     []string `json:"members,omitzero"`
	}
	serviceAccountJSON struct {
		ID              string  `json:"id"`
		DisplayName     string  `json:"display_name,omitempty"`
		OwnerUserID     string  `json:"owner_user_id"`
		ScopingPolicyID *string `json:"scoping_policy_id,omitempty"`
		IsActive        *bool   `json:"is_active,omitempty"`
	}
	policyJSON struct {
		ID          string          `json:"id"`
		DisplayName string          `json:"display_name,omitempty"`
		Document    json.RawMessage `json:"document"`
	}
	attachmentJSON struct {
		PolicyID      string `json:"policy_id"`
		PrincipalType string `json:"principal_type"`
		PrincipalID   string `json:"principal_id"`
		Priority      int64  `json:"priority"`
	}
	bankPolicyJSON struct {
		BankID   string          `json:"bank_id"`
		Document json.RawMessage `json:"document"`
	}
)

// ParseBundle reads the JSON form of a [Bundle], strictly. Unknown, duplicate and case-variant keys
// and wrong types are errors (CodeInvalid) whose Field is a JSON pointer. Every list may be absent.
// display_name defaults to the id, is_active to true. ParseBundle does not check what the rows
// mean: [Access.Apply] does.
func ParseBundle(data []byte) (Bundle, error) { return ParseBundleWithin(data, math.MaxInt) }

// ParseBundleWithin is ParseBundle with a limit on rows: it stops at the first row over the limit.
// Each channel and each member counts as one. It takes no more memory than a bundle of that size
// needs. Use it for bundles of callers that may have no rights.
func ParseBundleWithin(data []byte, rows int) (Bundle, error) {
	var in bundleJSON
	if err := strictjson.UnmarshalWithin(data, MaxNesting, rows, &in); err != nil {
		if at, ok := errors.AsType[*strictjson.Error](err); ok {
			return Bundle{}, Invalid(at.Pointer, at.Detail)
		}
		return Bundle{}, Invalid("", err.Error())
	}
	return Bundle{
		Users:           convert(in.Users, userJSON.row),
		Groups:          convert(in.Groups, func(g groupJSON) Group { return Group(g) }),
		ServiceAccounts: convert(in.ServiceAccounts, serviceAccountJSON.row),
		Policies:        convert(in.Policies, func(p policyJSON) Policy { return Policy(p) }),
		Attachments:     convert(in.Attachments, attachmentJSON.row),
		BankPolicies: convert(
			in.BankPolicies, func(b bankPolicyJSON) BankPolicy { return BankPolicy(b) },
		),
	}, nil
}

// convert maps a list; nil stays nil, because an absent list is not an empty one.
func convert[J, R any](list []J, row func(J) R) []R {
	if list == nil {
		return nil
	}
	rows := make([]R, len(list))
	for i, j := range list {
		rows[i] = row(j)
	}
	return rows
}

// JSON returns the form of b that [ParseBundle] reads as b, apart from white space in documents.
// Errors: CodeInvalid, as ParseBundle's, when a text is not valid UTF-8 or a document is not JSON.
func (b Bundle) JSON() ([]byte, error) {
	data, err := strictjson.Marshal(bundleJSON{
		Users:           convert(b.Users, userForm),
		Groups:          convert(b.Groups, func(g Group) groupJSON { return groupJSON(g) }),
		ServiceAccounts: convert(b.ServiceAccounts, serviceAccountForm),
		Policies:        convert(b.Policies, func(p Policy) policyJSON { return policyJSON(p) }),
		Attachments:     convert(b.Attachments, attachmentForm),
		BankPolicies: convert(
			b.BankPolicies, func(p BankPolicy) bankPolicyJSON { return bankPolicyJSON(p) },
		),
	})
	if at, ok := errors.AsType[*strictjson.Error](err); ok {
		return nil, Invalid(at.Pointer, at.Detail)
	}
	return data, err
}

func (u userJSON) row() User {
	return User{
		ID: u.ID, DisplayName: u.DisplayName, Email: u.Email, Inactive: inactive(u.IsActive),
		Channels: convert(u.Channels, func(c channelJSON) Channel { return Channel(c) }),
	}
}

func userForm(u User) userJSON {
	return userJSON{
		ID: u.ID, DisplayName: u.DisplayName, Email: u.Email, IsActive: active(u.Inactive),
		Channels: convert(u.Channels, func(c Channel) channelJSON { return channelJSON(c) }),
	}
}

func (a serviceAccountJSON) row() ServiceAccount {
	row := ServiceAccount{
		ID: a.ID, DisplayName: a.DisplayName,
		OwnerUserID: a.OwnerUserID, Inactive: inactive(a.IsActive),
	}
	if a.ScopingPolicyID != nil {
		row.ScopingPolicyID = *a.ScopingPolicyID
	}
	return row
}

func serviceAccountForm(a ServiceAccount) serviceAccountJSON {
	form := serviceAccountJSON{
		ID: a.ID, DisplayName: a.DisplayName,
		OwnerUserID: a.OwnerUserID, IsActive: active(a.Inactive),
	}
	if a.ScopingPolicyID != "" {
		form.ScopingPolicyID = &a.ScopingPolicyID
	}
	return form
}

func (a attachmentJSON) row() Attachment {
	return Attachment{
		PolicyID: a.PolicyID, Priority: a.Priority,
		Principal: GrantedTo{Type: a.PrincipalType, ID: a.PrincipalID},
	}
}

func attachmentForm(a Attachment) attachmentJSON {
	return attachmentJSON{
		PolicyID: a.PolicyID, Priority: a.Priority,
		PrincipalType: a.Principal.Type, PrincipalID: a.Principal.ID,
	}
}

func inactive(isActive *bool) bool { return isActive != nil && !*isActive }

// active returns the JSON value of is_active: absent for an active row.
func active(inactive bool) *bool {
	if !inactive {
		return nil
	}
	return new(bool)
}
