package wire

import (
	"encoding/json"

	"github.com/extsvc/svc/internal/strictjson"
)

// User is a user without its channels.
type User struct {
	ID          string  `json:"id"`
	DisplayName string  `json:"display_name"`
	Email       *string `json:"email"`
	IsActive    bool    `json:"is_active"`
}

// Me is the calling user.
type Me struct {
	User
	Channels []Channel `json:"channels"`
}

// CreateUser is the request for a new user.
type CreateUser struct {
	ID          string  `json:"id"`
	DisplayName *string `json:"display_name,omitempty"`
	Email       *string `json:"email,omitempty"`
	IsActive    *bool   `json:"is_active,omitempty"`
}

// PatchUser changes the fields that are set.
type PatchUser struct {
	DisplayName strictjson.Optional[string] `json:"display_name,omitzero"`
	Email       strictjson.Optional[string] `json:"email,omitzero"`
	IsActive    strictjson.Optional[bool]   `json:"is_active,omitzero"`
}

// Not returns a flag of a patch with the other value.
func Not(in strictjson.Optional[bool]) strictjson.Optional[bool] {
	in.Value = in.Set && !in.Value
	return in
}

// Channel is a sender that is mapped to a user. It is also the request to map it.
type Channel struct {
	Provider string `json:"provider"`
	SenderID string `json:"sender_id"`
}

// Group is a group without its members.
type Group struct {
	ID          string `json:"id"`
	DisplayName string `json:"display_name"`
}

// CreateGroup is the request for a new group.
type CreateGroup struct {
	ID          string  `json:"id"`
	DisplayName *string `json:"display_name,omitempty"`
}

// Rename changes the one field that a group, or an own service account, lets change.
type Rename struct {
	DisplayName strictjson.Optional[string] `json:"display_name,omitzero"`
}

// Member is a member of a group. It is also the request to add it.
type Member struct {
	UserID string `json:"user_id"`
}

// Membership is a member that was added to a group.
type Membership struct {
	GroupID string `json:"group_id"`
	UserID  string `json:"user_id"`
}

// Policy is an access policy. Its document is as it came, without white space.
type Policy struct {
	ID          string          `json:"id"`
	DisplayName string          `json:"display_name"`
	Document    json.RawMessage `json:"document"`
	IsBuiltin   bool            `json:"is_builtin"`
}

// Append appends the JSON of p.
func (p Policy) Append(b []byte) []byte {
	o := open(b)
	o.text("id", p.ID)
	o.text("display_name", p.DisplayName)
	o.raw("document", p.Document)
	o.bool("is_builtin", p.IsBuiltin)
	return o.close()
}

// CreatePolicy is the request for a new policy.
type CreatePolicy struct {
	ID          string          `json:"id"`
	DisplayName *string         `json:"display_name,omitempty"`
	Document    json.RawMessage `json:"document"`
}

// PatchPolicy changes the fields that are set.
type PatchPolicy struct {
	DisplayName strictjson.Optional[string]          `json:"display_name,omitzero"`
	Document    strictjson.Optional[json.RawMessage] `json:"document,omitzero"`
}

// Attachment gives a policy to a user or a group.
type Attachment struct {
	PolicyID      string `json:"policy_id"`
	PrincipalType string `json:"principal_type"`
	PrincipalID   string `json:"principal_id"`
	Priority      int64  `json:"priority"`
}

// PutAttachment is the request to make or to replace an attachment.
type PutAttachment struct {
	PolicyID      string `json:"policy_id"`
	PrincipalType string `json:"principal_type"`
	PrincipalID   string `json:"principal_id"`
	Priority      int32  `json:"priority,omitempty"`
}

// ServiceAccount is a service account.
type ServiceAccount struct {
	ID              string  `json:"id"`
	OwnerUserID     string  `json:"owner_user_id"`
	DisplayName     string  `json:"display_name"`
	IsActive        bool    `json:"is_active"`
	ScopingPolicyID *string `json:"scoping_policy_id"`
}

// CreateServiceAccount is the request for a new service account of any user.
type CreateServiceAccount struct {
	ID              string  `json:"id"`
	OwnerUserID     string  `json:"owner_user_id"`
	DisplayName     *string `json:"display_name,omitempty"`
	ScopingPolicyID *string `json:"scoping_policy_id,omitempty"`
}

// CreateMyServiceAccount is the request for a new service account of the caller.
type CreateMyServiceAccount struct {
	ID              string  `json:"id"`
	DisplayName     *string `json:"display_name,omitempty"`
	ScopingPolicyID *string `json:"scoping_policy_id,omitempty"`
}

// PatchServiceAccount changes the fields that are set.
type PatchServiceAccount struct {
	DisplayName     strictjson.Optional[string] `json:"display_name,omitzero"`
	ScopingPolicyID strictjson.Optional[string] `json:"scoping_policy_id,omitzero"`
	IsActive        strictjson.Optional[bool]   `json:"is_active,omitzero"`
}

// PolicyOfBank is the policy of a bank. Its document is as it came, without white space.
type PolicyOfBank struct {
	BankID   string          `json:"bank_id"`
	Document json.RawMessage `json:"document"`
}

// Append appends the JSON of p.
func (p PolicyOfBank) Append(b []byte) []byte {
	o := open(b)
	o.text("bank_id", p.BankID)
	o.raw("document", p.Document)
	return o.close()
}

// PutPolicyOfBank is the request to make or to replace the policy of a bank.
type PutPolicyOfBank struct {
	Document json.RawMessage `json:"document"`
}

// CreateBank is the request to make a bank from a template.
type CreateBank struct {
	BankID   string  `json:"bank_id"`
	Template string  `json:"template"` // "server/ID" or "personal/ID"
	Name     *string `json:"name,omitempty"`
}

// CreatedBank is what the host made of a CreateBank.
type CreatedBank struct {
	BankID       string          `json:"bank_id"`
	Template     string          `json:"template"`
	BankCreated  bool            `json:"bank_created"`
	ImportResult json.RawMessage `json:"import_result"`
}
