package wire

import (
	"net/url"
	"strings"
	"time"

	"github.com/extsvc/svc/internal/strictjson"
)

// CreateAPIKey is the request for a new key.
type CreateAPIKey struct {
	Description     *string `json:"description,omitempty"`
	ExpiresAt       *string `json:"expires_at,omitempty"` // RFC 3339
	ScopingPolicyID *string `json:"scoping_policy_id,omitempty"`
	Rate            *Rate   `json:"rate,omitempty"`
}

// Rate is the rate of a key. Both fields are required.
type Rate struct {
	PerSecond float64 `json:"per_second"`
	Burst     int     `json:"burst"`
}

// PatchAPIKey changes the fields that are set.
type PatchAPIKey struct {
	Description strictjson.Optional[string] `json:"description,omitzero"`
	ExpiresAt   strictjson.Optional[string] `json:"expires_at,omitzero"` // RFC 3339
	Disabled    strictjson.Optional[bool]   `json:"disabled,omitzero"`
	Rate        strictjson.Optional[Rate]   `json:"rate,omitzero"`
}

// RotateAPIKey is the request for the successor of a key.
type RotateAPIKey struct {
	OverlapSeconds *int64 `json:"overlap_seconds,omitempty"`
}

// APIKey is a key in a list. It has no field for the secret.
type APIKey struct {
	ID           string  `json:"id"`
	APIKeyPrefix string  `json:"api_key_prefix"`
	Description  *string `json:"description"`
}

// Append appends the JSON of k.
func (k APIKey) Append(b []byte) []byte {
	o := open(b)
	o.text("id", k.ID)
	o.text("api_key_prefix", k.APIKeyPrefix)
	o.optional("description", k.Description)
	return o.close()
}

// FullAPIKey is a key in the full view. It has no field for the secret.
type FullAPIKey struct {
	ID              string     `json:"id"`
	APIKeyPrefix    string     `json:"api_key_prefix"`
	Description     *string    `json:"description"`
	CreatedAt       time.Time  `json:"created_at"`
	ExpiresAt       *time.Time `json:"expires_at"`
	Disabled        bool       `json:"disabled"`
	LastUsedAt      *time.Time `json:"last_used_at"`
	ScopingPolicyID *string    `json:"scoping_policy_id"`
	Rate            *Rate      `json:"rate"`
}

// Append appends the JSON of k.
func (k FullAPIKey) Append(b []byte) []byte {
	o := open(b)
	o.text("id", k.ID)
	k.describe(&o)
	return o.close()
}

// describe appends all fields except the id.
func (k FullAPIKey) describe(o *object) {
	o.text("api_key_prefix", k.APIKeyPrefix)
	o.optional("description", k.Description)
	o.time("created_at", k.CreatedAt)
	o.optionalTime("expires_at", k.ExpiresAt)
	o.bool("disabled", k.Disabled)
	o.optionalTime("last_used_at", k.LastUsedAt)
	o.optional("scoping_policy_id", k.ScopingPolicyID)
	if k.Rate == nil {
		o.optionalRaw("rate", nil)
		return
	}
	o.object("rate", func(o *object) {
		o.decimal("per_second", k.Rate.PerSecond)
		o.number("burst", int64(k.Rate.Burst))
	})
}

// HeldAPIKey is a key in the list of all keys, with its holder.
type HeldAPIKey struct {
	FullAPIKey
	Holder Identity `json:"holder"`
}

// Append appends the JSON of k.
func (k HeldAPIKey) Append(b []byte) []byte {
	o := open(b)
	o.text("id", k.ID)
	k.describe(&o)
	o.object("holder", k.Holder.fields)
	return o.close()
}

// SweepAPIKeys is the request to revoke expired keys. Nil: those that expired 24 hours ago.
type SweepAPIKeys struct {
	ExpiredBefore *string `json:"expired_before,omitempty"`
}

// SweptAPIKeys is the answer: how many keys were revoked.
type SweptAPIKeys struct {
	Revoked *int `json:"revoked"` // nil only in an answer of another server
}

// Introspection is the answer about a token (RFC 7662, section 2.2). A token that is not accepted
// has only Active.
type Introspection struct {
	Active *bool  `json:"active"` // nil only in an answer of another server
	Sub    string `json:"sub,omitempty"`
	Kind   string `json:"kind,omitempty"`
	Exp    *int64 `json:"exp,omitempty"` // Unix seconds, rounded down; nil: never
	Scope  string `json:"scope,omitempty"`
}

// scopePrefix starts the one scope of a narrowed key. The id of its policy follows.
const scopePrefix = "policy:"

// Scope returns the scope of a key that a policy narrows; "" for no policy. The id is
// percent-encoded, so it stays one token of a scope (RFC 6749, section 3.3), whatever is in it.
func Scope(policyID string) string {
	if policyID == "" {
		return ""
	}
	return scopePrefix + url.PathEscape(policyID)
}

// PolicyOf returns the id of the policy in a scope; "" for no scope. ok:
// [Scope] makes such a scope.
func PolicyOf(scope string) (policyID string, ok bool) {
	escaped, found := strings.CutPrefix(scope, scopePrefix)
	policyID, err := url.PathUnescape(escaped)
	return policyID, scope == "" || found && err == nil && policyID != ""
}

// CreatedAPIKey is a new key with its secret. Only this answer shows the secret.
type CreatedAPIKey struct {
	ID          string  `json:"id"`
	APIKey      string  `json:"api_key"`
	Description *string `json:"description"`
}

// FullCreatedAPIKey is a new key in the full view. Only this answer shows the secret.
type FullCreatedAPIKey struct {
	APIKey string `json:"api_key"`
	FullAPIKey
}

// Append appends the JSON of k.
func (k FullCreatedAPIKey) Append(b []byte) []byte {
	o := open(b)
	o.text("id", k.ID)
	o.text("api_key", k.APIKey)
	k.describe(&o)
	return o.close()
}
