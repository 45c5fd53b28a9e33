// Package bundlejson has the JSON form of a bundle of access. Absent, null and a value differ, so
// the types use Optional: null clears what may be null, and is refused elsewhere.
package bundlejson

import (
	"encoding/json"

	"github.com/extsvc/svc/internal/strictjson"
)

// Bundle is a bundle.
type Bundle struct {
	Users           []User           `json:"users,omitzero"`
	Groups          []Group          `json:"groups,omitzero"`
	ServiceAccounts []ServiceAccount `json:"service_accounts,omitzero"`
	Policies        []Policy         `json:"policies,omitzero"`
	Attachments     []Attachment     `json:"attachments,omitzero"`
	BankPolicies    []BankPolicy     `json:"bank_policies,omitzero"`
	Tests           []Test           `json:"tests,omitzero"`
}

// User is a user with its channels.
type User struct {
	ID          string                         `json:"id"`
	DisplayName strictjson.Optional[string]    `json:"display_name,omitzero"`
	Email       strictjson.Optional[string]    `json:"email,omitzero"`
	IsActive    strictjson.Optional[bool]      `json:"is_active,omitzero"`
	Channels    strictjson.Optional[[]Channel] `json:"channels,omitzero"`
}

// Channel is a channel of a user.
type Channel struct {
	Provider string `json:"provider"`
	SenderID string `json:"sender_id"`
}

// Group is a group with its members.
type Group struct {
	ID          string                        `json:"id"`
	DisplayName strictjson.Optional[string]   `json:"display_name,omitzero"`
	Members     strictjson.Optional[[]string] `json:"members,omitzero"`
}

// ServiceAccount is a service account.
type ServiceAccount struct {
	ID              string                      `json:"id"`
	DisplayName     strictjson.Optional[string] `json:"display_name,omitzero"`
	OwnerUserID     strictjson.Optional[string] `json:"owner_user_id,omitzero"`
	ScopingPolicyID strictjson.Optional[string] `json:"scoping_policy_id,omitzero"`
	IsActive        strictjson.Optional[bool]   `json:"is_active,omitzero"`
}

// Policy is an access policy.
type Policy struct {
	ID          string                               `json:"id"`
	DisplayName strictjson.Optional[string]          `json:"display_name,omitzero"`
	Document    strictjson.Optional[json.RawMessage] `json:"document,omitzero"`
}

// Attachment is a policy of a user or a group.
type Attachment struct {
	PolicyID      string                     `json:"policy_id"`
	PrincipalType string                     `json:"principal_type"`
	PrincipalID   string                     `json:"principal_id"`
	Priority      strictjson.Optional[int64] `json:"priority,omitzero"`
}

// BankPolicy is the policy of a bank.
type BankPolicy struct {
	BankID   string                               `json:"bank_id"`
	Document strictjson.Optional[json.RawMessage] `json:"document,omitzero"`
}

// Test is a question with the answer that is expected.
type Test struct {
	UserID           string                    `json:"user_id,omitzero"`
	ServiceAccountID string                    `json:"sa_id,omitzero"`
	Sender           string                    `json:"sender,omitzero"`
	Action           string                    `json:"action"`
	Bank             string                    `json:"bank"`
	Channel          string                    `json:"channel,omitzero"`
	Topic            string                    `json:"topic,omitzero"`
	Allowed          strictjson.Optional[bool] `json:"allowed,omitzero"`
}
